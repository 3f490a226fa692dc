//! Dispatch side of the contract (trusted): a stage's block becomes what the orchestrator matches on.
//!
//! Fail closed: without a profile, or the explicit opt-out, nothing is dispatched. The result carries no policy; the
//! worker resolves the stored block again (`sandbox::resolve`).

use crate::block::SandboxBlock;
use crate::capability::Requirement;
use crate::egress::{self, HostWarning};
use crate::name::Project;
use crate::node::Node;
use crate::path::Path;
use crate::refusal::{Code, Refusals, Warning, WarningCode};
use crate::settings::Settings;
use crate::tags::Tag;

const UNCONFINED: &str = "profile none runs the job unconfined: the host's files, its network and the run's credential are open to it. No worker does that, `pond run --profile none` does";

/// Where a stage may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    pub block: SandboxBlock,
    /// `None` for unconfined work: any worker with the tags will do.
    pub required_capability: Option<Requirement>,
    pub required_tags: Vec<Tag>,
    pub warnings: Vec<Warning>,
}

/// Resolves a block that is a document of its own.
pub fn resolve(
    block: Option<&Node>,
    project: Option<&Project>,
    settings: &Settings,
) -> Result<Dispatch, Refusals> {
    let mut refusals = Refusals::default();
    let dispatch = resolve_at(&Path::root(), block, project, settings, &mut refusals);
    refusals.finish(dispatch)
}

/// Resolves a block that stands at `path` in a larger document.
pub fn resolve_at(
    path: &Path,
    block: Option<&Node>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Dispatch> {
    let block = SandboxBlock::accept(block, path, settings, refusals)?;
    let Some(required_tags) = block.tier().required_tags(project) else {
        let message = "tier byo runs on the project's own machines: name the project";
        refusals.refuse(Code::TenantRequired, &path.field("tier"), message);
        return None;
    };
    let required_capability = block.requirement(settings);
    let warnings = warnings(&block, path);
    Some(Dispatch { block, required_capability, required_tags, warnings })
}

fn warnings(block: &SandboxBlock, path: &Path) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !block.profile().is_confined() {
        let (code, message) = (WarningCode::UnconfinedSandbox, UNCONFINED.to_owned());
        warnings.push(Warning { code, path: path.field("profile"), message });
    }
    for (index, rule) in block.allow_hosts().iter().enumerate() {
        let path = path.field("allow_hosts").index(index);
        warnings.extend(egress::lint(rule).into_iter().map(|HostWarning { code, message }| Warning {
            code: WarningCode::Host(code),
            path: path.clone(),
            message,
        }));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, Strength};
    use crate::testing::{faults, project};

    fn floor(backend: Backend) -> Settings {
        Settings { min_backend: Some(backend), ..Settings::default() }
    }

    fn resolved(block: &Node, settings: &Settings) -> (Option<String>, Vec<String>, Vec<&'static str>) {
        let dispatch = resolve(Some(block), Some(&project("acme")), settings).unwrap();
        (
            dispatch.required_capability.map(|requirement| requirement.to_string()),
            dispatch.required_tags.iter().map(ToString::to_string).collect(),
            dispatch.warnings.iter().map(|warning| warning.code.name()).collect(),
        )
    }

    fn capability(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn every_profile_and_tier_routes_as_the_contract_says() {
        let open = Settings::default();
        let trusted = vec!["pool:trusted".to_owned()];
        let byo = vec!["pool:byo".to_owned(), "tenant:acme".to_owned()];
        for profile in
            ["untrusted-code-read", "untrusted-code-write", "untrusted-code-test", "untrusted-code-internet"]
        {
            let any = capability("sandbox.*");
            assert_eq!(resolved(&node!({"profile": profile}), &open), (any.clone(), trusted.clone(), vec![]));
            let routed = resolved(&node!({"profile": profile, "tier": "byo"}), &open);
            assert_eq!(routed, (any.clone(), byo.clone(), vec![]));
            assert_eq!(resolved(&node!({"profile": profile, "tier": "any"}), &open), (any, vec![], vec![]));
        }
        let warned = vec!["unconfined_sandbox"];
        assert_eq!(resolved(&node!({"profile": "none"}), &open), (None, vec![], warned.clone()));
        assert_eq!(resolved(&node!({"profile": "dev", "tier": "trusted"}), &open), (None, trusted, warned));
    }

    #[test]
    fn a_backend_is_required_exactly_and_a_floor_at_least() {
        let bare = node!({"profile": "harness"});
        for backend in Backend::NAMES {
            let block = node!({"profile": "harness", "backend": (*backend)});
            assert_eq!(resolved(&block, &Settings::default()).0, capability(&format!("sandbox.{backend}")));
        }
        assert_eq!(resolved(&bare, &floor(Backend::Native)).0, capability("sandbox.*"));
        assert_eq!(resolved(&bare, &floor(Backend::Docker)).0, capability("sandbox.*"));
        assert_eq!(resolved(&bare, &floor(Backend::Gvisor)).0, capability("sandbox.gvisor+"));
        assert_eq!(resolved(&bare, &floor(Backend::Firecracker)).0, capability("sandbox.firecracker+"));
    }

    #[test]
    fn a_floor_refuses_what_is_weaker() {
        for backend in Backend::ALL {
            let block = node!({"profile": "harness", "backend": (backend.name())});
            for least in Backend::ALL {
                let outcome =
                    resolve(Some(&block), None, &floor(*least)).map(|dispatch| dispatch.required_capability);
                if backend.strength() < least.strength() {
                    assert_eq!(faults(&outcome.unwrap_err()), ["backend_below_floor backend"]);
                } else {
                    assert_eq!(outcome, Ok(Some(Requirement::Exact(*backend))));
                }
            }
        }
        let refused =
            resolve(Some(&node!({"profile": "harness", "backend": "docker"})), None, &floor(Backend::Gvisor));
        assert_eq!(refused.unwrap_err().into_list()[0].allowed, ["gvisor", "firecracker"]);
        assert_eq!(Backend::Gvisor.strength(), Strength::UserKernel);
    }

    #[test]
    fn unconfined_work_is_refused_where_a_sandbox_is_required() {
        let required = Settings { require_sandbox: true, ..Settings::default() };
        for settings in [required, floor(Backend::Native), floor(Backend::Firecracker)] {
            let refused = resolve(Some(&node!({"profile": "none"})), None, &settings).unwrap_err();
            assert_eq!(faults(&refused), ["unconfined_refused profile"]);
        }
    }

    #[test]
    fn byo_needs_a_tenant() {
        let refused = resolve(Some(&node!({"profile": "review", "tier": "byo"})), None, &Settings::default());
        assert_eq!(faults(&refused.unwrap_err()), ["tenant_required tier"]);
    }

    #[test]
    fn notable_hosts_are_pointed_out() {
        let block = node!({"profile": "harness", "allow_hosts": ["git.acme.com", "gist.github.com"]});
        let dispatch = resolve(Some(&block), None, &Settings::default()).unwrap();
        let places: Vec<String> = dispatch.warnings.iter().map(|warning| warning.path.to_string()).collect();
        assert_eq!(places, ["allow_hosts[1]"]);
    }
}
