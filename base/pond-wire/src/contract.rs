//! The sandbox contract as JSON: what `resolve` answers on either side, refusals, warnings, the table of profiles.
//!
//! Trust zone: written by control plane, worker and command line; read by users and by the other side, which resolves
//! the block again instead of believing the rest.

use pond_policy::dispatch;
use pond_policy::node::Node;
use pond_policy::profile;
use pond_policy::refusal;
use pond_policy::run;
use pond_policy::sandbox;
use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusals {
    pub refusals: Vec<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub code: &'static str,
    pub path: String,
    pub message: String,
    pub allowed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub code: &'static str,
    pub path: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dispatch {
    pub sandbox_block: Value,
    pub required_capability: Option<String>,
    pub required_tags: Vec<String>,
    pub warnings: Vec<Warning>,
}

/// A policy as a report of what will be enforced; it cannot be turned back into one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SandboxPolicy {
    pub profile: &'static str,
    pub posture: Posture,
    pub required_capability: Option<String>,
    pub limits: Option<Limits>,
    pub image: Option<String>,
    pub allow_hosts: Vec<String>,
    pub timeout_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Posture {
    pub filesystem: &'static str,
    pub network: &'static str,
    pub commands: &'static str,
    pub hardening: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub memory_bytes: u64,
    pub cpus: String,
    pub pids: u64,
    pub tmpfs_bytes: u64,
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub nofile: u64,
    pub core_bytes: u64,
    pub stack_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub name: &'static str,
    pub alias: &'static str,
    pub purpose: &'static str,
    pub default_tier: &'static str,
    pub posture: Posture,
    pub limits: Option<Limits>,
    pub timeout_seconds: u64,
    pub max_timeout_seconds: u64,
}

/// A document that passed preflight.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preflight {
    pub project: String,
    pub stages: Vec<Stage>,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    pub name: String,
    pub needs: Vec<String>,
    pub sandbox_block: Value,
    pub required_capability: Option<String>,
    pub required_tags: Vec<String>,
    pub timeout_seconds: u64,
}

impl From<refusal::Refusals> for Refusals {
    fn from(refusals: refusal::Refusals) -> Self {
        let refusal = |refusal: refusal::Refusal| Refusal {
            code: refusal.code.name(),
            path: refusal.path.to_string(),
            message: refusal.message,
            allowed: refusal.allowed,
        };
        Self { refusals: refusals.into_list().into_iter().map(refusal).collect() }
    }
}

impl From<&refusal::Warning> for Warning {
    fn from(warning: &refusal::Warning) -> Self {
        Self { code: warning.code.name(), path: warning.path.to_string(), message: warning.message.clone() }
    }
}

impl From<&dispatch::Dispatch> for Dispatch {
    fn from(dispatch: &dispatch::Dispatch) -> Self {
        Self {
            sandbox_block: value(&dispatch.block.to_node()),
            required_capability: dispatch.required_capability.map(|requirement| requirement.to_string()),
            required_tags: texts(&dispatch.required_tags),
            warnings: dispatch.warnings.iter().map(Warning::from).collect(),
        }
    }
}

impl SandboxPolicy {
    /// The bytes whose SHA-256 is an offer's policy: control plane and worker resolve the block apart from each other, with the
    /// time limit of the stage, and must come to the same.
    pub fn canonical(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

impl From<&sandbox::SandboxPolicy> for SandboxPolicy {
    fn from(policy: &sandbox::SandboxPolicy) -> Self {
        Self {
            profile: policy.profile().name(),
            posture: policy.posture().into(),
            required_capability: policy.requirement().map(|requirement| requirement.to_string()),
            limits: policy.limits().map(Limits::from),
            image: policy.image().map(ToString::to_string),
            allow_hosts: texts(policy.allow()),
            timeout_seconds: policy.timeout().duration().as_secs(),
        }
    }
}

impl From<profile::Posture> for Posture {
    fn from(posture: profile::Posture) -> Self {
        Self {
            filesystem: posture.filesystem.name(),
            network: posture.network.name(),
            commands: posture.commands.name(),
            hardening: posture.hardening.name(),
        }
    }
}

impl From<pond_policy::limits::Limits> for Limits {
    fn from(limits: pond_policy::limits::Limits) -> Self {
        Self {
            memory_bytes: limits.memory.bytes(),
            cpus: limits.cpus.to_string(),
            pids: limits.pids.get(),
            tmpfs_bytes: limits.tmpfs.bytes(),
            disk_bytes: limits.disk.bytes,
            disk_inodes: limits.disk.inodes,
            nofile: limits.ulimits.nofile,
            core_bytes: limits.ulimits.core,
            stack_bytes: limits.ulimits.stack,
        }
    }
}

impl From<profile::Profile> for Profile {
    fn from(profile: profile::Profile) -> Self {
        Self {
            name: profile.name(),
            alias: profile.alias(),
            purpose: profile.purpose(),
            default_tier: profile.default_tier().name(),
            posture: profile.posture().into(),
            limits: profile.limits().map(Limits::from),
            timeout_seconds: profile.time().default.duration().as_secs(),
            max_timeout_seconds: profile.time().most.duration().as_secs(),
        }
    }
}

impl From<&run::Run> for Preflight {
    fn from(run: &run::Run) -> Self {
        Self {
            project: run.project.to_string(),
            stages: run.stages.iter().map(Stage::from).collect(),
            warnings: run.warnings().map(Warning::from).collect(),
        }
    }
}

impl From<&run::Stage> for Stage {
    fn from(stage: &run::Stage) -> Self {
        let dispatch = Dispatch::from(&stage.executor.dispatch);
        Self {
            name: stage.name.to_string(),
            needs: texts(&stage.needs),
            sandbox_block: dispatch.sandbox_block,
            required_capability: dispatch.required_capability,
            required_tags: dispatch.required_tags,
            timeout_seconds: stage.executor.timeout.duration().as_secs(),
        }
    }
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// A document as JSON. A number JSON cannot hold is written as the text of its literal.
pub fn value(node: &Node) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Bool(value) => Value::Bool(*value),
        Node::Number(number) => {
            serde_json::from_str(number.literal()).unwrap_or_else(|_| Value::from(number.literal()))
        }
        Node::Text(text) => Value::from(text.as_str()),
        Node::List(nodes) => nodes.iter().map(value).collect(),
        Node::Map(entries) => {
            Value::Object(entries.iter().map(|(key, node)| (key.clone(), value(node))).collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use pond_policy::settings::Settings;
    use serde_json::json;

    use super::*;
    use crate::decode::decode;

    fn render<T: Serialize>(value: T) -> Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn a_dispatch_is_the_contract_s_four_fields() {
        let block =
            decode(br#"{"profile": "harness", "backend": "gvisor", "overrides": {"pids_limit": 99}}"#)
                .unwrap();
        let dispatch = dispatch::resolve(Some(&block), None, &Settings::default()).unwrap();
        assert_eq!(
            render(Dispatch::from(&dispatch)),
            json!({
                "sandbox_block": {"profile": "untrusted-code-write", "tier": "trusted", "backend": "gvisor",
                                  "overrides": {"pids_limit": 99}},
                "required_capability": "sandbox.gvisor",
                "required_tags": ["pool:trusted"],
                "warnings": [],
            })
        );
    }

    #[test]
    fn a_policy_says_what_is_enforced() {
        let policy =
            sandbox::resolve(Some(&decode(b"profile: sealed").unwrap()), &Settings::default()).unwrap();
        assert_eq!(
            render(SandboxPolicy::from(&policy)),
            json!({
                "profile": "untrusted-code-test",
                "posture": {"filesystem": "throwaway-copy", "network": "none", "commands": "allowlist",
                            "hardening": "full"},
                "required_capability": "sandbox.*",
                "limits": {"memory_bytes": 2147483648u64, "cpus": "2", "pids": 256, "tmpfs_bytes": 268435456,
                           "disk_bytes": 2147483648u64, "disk_inodes": 200000, "nofile": 16384, "core_bytes": 0,
                           "stack_bytes": 8388608},
                "image": null,
                "allow_hosts": [],
                "timeout_seconds": 60,
            })
        );
    }

    #[test]
    fn refusals_carry_code_path_message_and_allowed() {
        let refusals = dispatch::resolve(Some(&decode(b"tier: gold").unwrap()), None, &Settings::default());
        let rendered = render(Refusals::from(refusals.unwrap_err()));
        assert_eq!(rendered["refusals"][0]["code"], "missing_profile");
        assert_eq!(
            rendered["refusals"][1],
            json!({"code": "unknown_tier", "path": "tier", "message": "\"gold\" is not known here",
                   "allowed": ["trusted", "byo", "any"]})
        );
    }
}
