//! The blocks of the founding documents, resolved as those documents say, on both sides of the contract.

use crate::dispatch;
use crate::node::Node;
use crate::profile::{Filesystem, Network};
use crate::sandbox;
use crate::settings::Settings;
use crate::testing::{faults, project};

/// Capability, tags, filesystem, network, and limits as the worker sees them.
fn resolved(block: &Node) -> (String, Vec<String>, Filesystem, Network, String) {
    let settings = Settings::default();
    let dispatch = dispatch::resolve(Some(block), Some(&project("acme")), &settings).unwrap();
    let policy = sandbox::resolve(Some(&dispatch.block.to_node()), &settings).unwrap();
    let limits = policy
        .limits()
        .map(|limits| format!("{} {} {} {}", limits.memory, limits.cpus, limits.pids, limits.tmpfs));
    (
        dispatch.required_capability.map(|requirement| requirement.to_string()).unwrap_or_default(),
        dispatch.required_tags.iter().map(ToString::to_string).collect(),
        policy.posture().filesystem,
        policy.posture().network,
        limits.unwrap_or_default(),
    )
}

#[test]
fn the_guide_s_full_block() {
    let block = node!({
        "profile": "untrusted-code-write",
        "tier": "trusted",
        "backend": "firecracker",
        "allow_hosts": ["git.acme.com"],
        "overrides": {"image": "your/agent:latest", "memory": "4g", "cpus": "2"}
    });
    let expected = (
        "sandbox.firecracker".to_owned(),
        vec!["pool:trusted".to_owned()],
        Filesystem::ThrowawayCopy,
        Network::Allowlist,
        "4g 2 512 512m".to_owned(),
    );
    assert_eq!(resolved(&block), expected);
    let policy = sandbox::resolve(Some(&block), &Settings::default()).unwrap();
    assert_eq!(policy.image().map(ToString::to_string).as_deref(), Some("your/agent:latest"));
    let allow: Vec<String> = policy.allow().iter().map(ToString::to_string).collect();
    for host in ["pypi.org", "registry.npmjs.org", "static.crates.io", "github.com", "git.acme.com"] {
        assert_eq!(allow.iter().filter(|rule| *rule == host).count(), 1, "{host}");
    }
}

#[test]
fn the_design_s_block() {
    let block = node!({
        "profile": "untrusted-code-write", "tier": "trusted", "backend": "gvisor",
        "allow_hosts": ["git.acme.com"],
        "overrides": {
            "image": "your/agent:1", "memory": "4g", "cpus": "2", "pids_limit": 512, "tmpfs_size": "256m"
        }
    });
    let dispatch = dispatch::resolve(Some(&block), None, &Settings::default()).unwrap();
    assert_eq!(dispatch.block.to_node(), block);
    assert_eq!(resolved(&block).4, "4g 2 512 256m");
}

#[test]
fn the_guide_s_minimal_block_is_an_opt_out_with_a_warning() {
    let block = node!({"profile": "none"});
    let dispatch = dispatch::resolve(Some(&block), None, &Settings::default()).unwrap();
    assert_eq!(dispatch.required_capability, None);
    assert_eq!(dispatch.warnings[0].code.name(), "unconfined_sandbox");
    let required = Settings { require_sandbox: true, ..Settings::default() };
    assert_eq!(
        faults(&dispatch::resolve(Some(&block), None, &required).unwrap_err()),
        ["unconfined_refused profile"]
    );
    assert_eq!(
        faults(&sandbox::resolve(Some(&block), &required).unwrap_err()),
        ["unconfined_refused profile"]
    );
}

#[test]
fn the_guide_s_hardened_block() {
    let block = node!({
        "profile": "untrusted-code-write", "tier": "trusted", "backend": "firecracker",
        "overrides": {"image": "your/agent:latest", "memory": "4g"}
    });
    assert_eq!(resolved(&block).0, "sandbox.firecracker");
}

#[test]
fn the_guide_s_private_registries() {
    let block = node!({"profile": "harness", "allow_hosts": ["git.acme.com", "artifactory.acme.com"]});
    let policy = sandbox::resolve(Some(&block), &Settings::default()).unwrap();
    let allow: Vec<String> = policy.allow().iter().map(ToString::to_string).collect();
    assert!(allow.ends_with(&["git.acme.com".to_owned(), "artifactory.acme.com".to_owned()]));
}

#[test]
fn the_review_sandbox_of_the_fifth_document() {
    let policy = sandbox::resolve(Some(&node!({"profile": "sealed"})), &Settings::default()).unwrap();
    let limits = policy.limits().unwrap();
    assert_eq!(policy.posture().network, Network::Sealed);
    assert_eq!(policy.posture().commands.name(), "allowlist");
    assert_eq!(policy.timeout().duration().as_secs(), 60);
    assert_eq!(format!("{} {} {}", limits.memory, limits.cpus, limits.tmpfs), "2g 2 256m");
    assert_eq!(policy.allow(), []);
}

#[test]
fn the_box_of_the_fourth_document() {
    let block = node!({"profile": "box"});
    let (_, tags, filesystem, network, _) = resolved(&block);
    assert_eq!((filesystem, network), (Filesystem::DeclaredOnly, Network::Internet));
    assert_eq!(tags, ["pool:trusted"]);
}

#[test]
fn no_profile_never_runs() {
    for block in [None, Some(node!({})), Some(node!({"tier": "trusted"}))] {
        let expected = if block.is_some() { "missing_profile profile" } else { "missing_profile ." };
        let refused = dispatch::resolve(block.as_ref(), None, &Settings::default()).unwrap_err();
        assert_eq!(faults(&refused), [expected]);
        assert_eq!(sandbox::resolve(block.as_ref(), &Settings::default()).unwrap_err(), refused);
    }
}
