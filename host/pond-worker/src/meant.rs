//! What an offered stage means on this worker: its executor is read and its sandbox resolved again, under this machine's own
//! settings. A policy that was computed elsewhere is compared and never used.

use pond_policy::name::{Name, Project};
use pond_policy::node::Node;
use pond_policy::path::Path;
use pond_policy::refusal::{Refusal, Refusals};
use pond_policy::run::{Executor, executor};
use pond_policy::sandbox::{SandboxPolicy, resolve_at};
use pond_policy::settings::Settings;
use pond_seal::Digest;
use pond_wire::contract;
use pond_wire::decode::decode_json;

#[derive(Debug, thiserror::Error)]
pub enum MeantFault {
    #[error("this worker refuses the stage: {}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("no worker runs anything unconfined; `pond run --profile none` does, on a machine of one's own")]
    Unconfined,
    #[error("{0:?} is no tenant")]
    Tenant(String),
    #[error("writing the policy down")]
    Write(#[source] serde_json::Error),
    #[error("the sandbox that was offered is not what its block means on this worker")]
    Policy,
}

impl MeantFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(_) => "executor_refused",
            Self::Unconfined => "unconfined_refused",
            Self::Tenant(_) => "tenant_malformed",
            Self::Write(_) => "policy_encoding",
            Self::Policy => "policy_mismatch",
        }
    }
}

impl From<Refusals> for MeantFault {
    fn from(refusals: Refusals) -> Self {
        let line = |Refusal { code, path, message, .. }: Refusal| format!("{path} [{code}] {message}");
        Self::Refused(refusals.into_list().into_iter().map(line).collect())
    }
}

/// A stage, understood. Its policy confines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meant {
    pub executor: Executor,
    pub policy: SandboxPolicy,
    pub argv: Vec<String>,
}

/// Reads the executor of an offer. `offered` is the policy's digest the control plane signed.
pub fn understand(
    text: &str,
    tenant: &str,
    offered: Digest,
    settings: &Settings,
) -> Result<Meant, MeantFault> {
    let document = decode_json(text.as_bytes())?;
    let project = Name::parse(tenant).map(Project::from);
    let project = project.ok_or_else(|| MeantFault::Tenant(tenant.to_owned()))?;
    let executor = executor(&document, &project, settings)?;
    let policy = resolve_at(&Path::root().field("sandbox"), block(&document), settings)?;
    if !policy.profile().is_confined() {
        return Err(MeantFault::Unconfined);
    }
    let policy = policy.with_timeout(executor.timeout, &Path::root().field("timeout")).map_err(one)?;
    let canonical = contract::SandboxPolicy::from(&policy).canonical().map_err(MeantFault::Write)?;
    if Digest::of(&canonical) != offered {
        return Err(MeantFault::Policy);
    }
    let argv = executor.program.argv();
    Ok(Meant { executor, policy, argv })
}

fn block(document: &Node) -> Option<&Node> {
    let Node::Map(fields) = document else { return None };
    fields.iter().find(|(name, _)| name == "sandbox").map(|(_, block)| block)
}

fn one(refusal: Refusal) -> Refusals {
    let mut refusals = Refusals::default();
    refusals.add(refusal);
    refusals
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: &str =
        r#"{"kind":"swarm","command":["true"],"timeout":"10s","sandbox":{"profile":"untrusted-code-write"}}"#;

    fn digest(timeout: &str) -> Digest {
        let stage = decode_json(STAGE.as_bytes()).unwrap();
        let policy = pond_policy::sandbox::resolve(block(&stage), &Settings::default()).unwrap();
        let timeout = pond_policy::duration::Timeout::parse(timeout).unwrap();
        let policy = policy.with_timeout(timeout, &Path::root()).unwrap();
        Digest::of(&contract::SandboxPolicy::from(&policy).canonical().unwrap())
    }

    fn code(text: &str, offered: Digest, settings: &Settings) -> Option<&'static str> {
        understand(text, "acme", offered, settings).err().map(|fault| fault.code())
    }

    #[test]
    fn a_policy_that_is_not_the_offered_one_is_refused() {
        let plain = Settings::default();
        assert_eq!(code(STAGE, digest("10s"), &plain), None);
        assert_eq!(code(STAGE, digest("11s"), &plain), Some("policy_mismatch"));
        let floor = Settings::parse(None, Some("gvisor")).unwrap();
        assert_eq!(
            code(STAGE, digest("10s"), &floor),
            Some("policy_mismatch"),
            "a worker with another floor"
        );
    }

    #[test]
    fn a_stage_this_worker_would_not_take_is_refused() {
        let open = r#"{"kind":"swarm","command":["true"],"sandbox":{"profile":"none"}}"#;
        let required = Settings::parse(Some("true"), None).unwrap();
        assert_eq!(code(open, digest("10s"), &required), Some("executor_refused"));
        assert_eq!(code(open, digest("10s"), &Settings::default()), Some("unconfined_refused"));
        assert_eq!(code("{}", digest("10s"), &required), Some("executor_refused"));
        let agent = STAGE.replace(r#""command":["true"]"#, r#""agent":"nobody""#);
        assert_eq!(code(&agent, digest("10s"), &Settings::default()), Some("executor_refused"));
        let known = STAGE.replace(r#""command":["true"]"#, r#""agent":"claude-code""#);
        let meant = understand(&known, "acme", digest("10s"), &Settings::default()).unwrap();
        assert_eq!(meant.argv, ["claude"]);
    }
}
