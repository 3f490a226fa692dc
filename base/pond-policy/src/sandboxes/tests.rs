//! Sandbox documents: what is accepted and what it comes to, and every kind of fault with its place.

use super::*;
use crate::testing::{faults, number};

fn read(document: Node) -> Result<Spec, Refusals> {
    super::read(&document, &Settings::default())
}

fn refused(document: Node) -> Vec<String> {
    faults(&read(document).unwrap_err())
}

/// A document of a box with these fields more.
fn boxed(more: Node) -> Node {
    merge(node!({"sandbox": {"profile": "box"}}), more)
}

#[test]
fn a_profile_is_enough() {
    let spec = read(node!({"sandbox": {"profile": "box"}})).unwrap();
    assert_eq!(spec.policy.profile(), Profile::Internet);
    assert_eq!((spec.idle_ttl, spec.cleanup_ttl), (Ttl::IDLE, Ttl::CLEANUP));
    assert_eq!((spec.id, spec.mounts, spec.companions), (None, vec![], vec![]));
}

#[test]
fn every_field_is_read() {
    let spec = read(node!({
        "id": "box-1",
        "labels": {"team": "x"},
        "sandbox": {"profile": "box", "backend": "docker", "overrides": {"memory": "1g"}},
        "mounts": [{"source": "/srv/in", "target": "/data/in"}, {"source": "/srv/out", "target": "/data/out", "writable": true}],
        "copies": [{"source": "/src/app", "target": "/workspace", "exclude": ["target", "*.log"]}],
        "builtin_tools": ["cargo", "git"],
        "env": {"A": "1"},
        "ports": [{"host": 8080, "sandbox": 80}],
        "agent": "claude-code",
        "model": "opus",
        "credentials": {"github.com": {"secret": "GH"}},
        "companions": {"db": {"image": "postgres:17", "env": {"P": "x"}, "command": ["postgres"],
            "limits": {"memory": "512m"},
            "healthcheck": {"test": ["pg_isready"], "interval": "2s", "retries": 9, "start_period": "10s"},
            "post_start_on_primary": [["createdb", "app"]]}},
        "idle_ttl": "1h",
        "cleanup_ttl": "never"
    }))
    .unwrap();
    assert_eq!(spec.id, SandboxId::parse("box-1"));
    assert_eq!(spec.mounts.iter().map(|mount| mount.writable).collect::<Vec<_>>(), [false, true]);
    assert_eq!(spec.copies[0].exclude, ["target", "*.log"]);
    assert_eq!(spec.tools, [Tool::Cargo, Tool::Git]);
    assert_eq!(spec.ports, [Published { host: 8080, sandbox: 80 }]);
    assert_eq!((spec.agent, spec.model.as_deref()), (Some(Agent::ClaudeCode), Some("opus")));
    assert_eq!(spec.credentials[0].username, "x-access-token");
    let [db] = spec.companions.as_slice() else { panic!("one companion") };
    let health = db.healthcheck.as_ref().unwrap();
    assert_eq!((db.alias.as_str(), db.post_start_on_primary.len()), ("db", 1));
    assert_eq!((health.interval.to_string(), health.timeout.to_string()), ("2s".into(), "30s".into()));
    assert_eq!((health.retries.get(), health.start_interval.to_string()), (9, "5s".into()));
    assert_eq!((spec.idle_ttl.to_string(), spec.cleanup_ttl.to_string()), ("1h".into(), "never".into()));
}

#[test]
fn all_faults_at_once() {
    let found = refused(node!({
        "id": "Box",
        "labels": {"io.pond.x": "1"},
        "network": "host",
        "sandbox": {"profile": "box", "tier": "any"},
        "mounts": [{"source": "in", "target": "/usr/x"}, {"source": "/a", "target": "/a/../b"}],
        "copies": [{"source": "/proc/1", "target": "/data"}, {"source": "/a", "target": "/data/x", "exclude": ["../y"]}],
        "builtin_tools": ["cargo", "docker", "cargo"],
        "ports": [{"host": 80, "sandbox": 0}, {"host": 81, "sandbox": 1}, {"host": 81, "sandbox": 2}],
        "agent": "claude",
        "credentials": {"*.x.com": {"secret": "a b"}},
        "companions": {"localhost": {"image": "x"}, "db": {"image": "./x", "healthcheck": {"test": ["CMD", "x"], "retries": 0}}},
        "idle_ttl": "0",
        "cleanup_ttl": "400d"
    }));
    assert_eq!(
        found,
        [
            "id_invalid id",
            "label_invalid labels[\"io.pond.x\"]",
            "unknown_field network",
            "rule_without_effect sandbox.tier",
            "source_path_invalid mounts[0].source",
            "target_reserved mounts[0].target",
            "target_invalid mounts[1].target",
            "source_path_invalid copies[0].source",
            "target_conflict copies[1].target",
            "exclude_invalid copies[1].exclude[0]",
            "unknown_tool builtin_tools[1]",
            "tool_duplicate builtin_tools[2]",
            "port_invalid ports[0].sandbox",
            "port_duplicate ports[2]",
            "unknown_agent agent",
            "host_invalid credentials[\"*.x.com\"]",
            "credential_invalid credentials[\"*.x.com\"].secret",
            "companions_unsupported companions",
            "alias_invalid companions.localhost",
            "companion_invalid companions.db.image",
            "healthcheck_invalid companions.db.healthcheck.test",
            "healthcheck_invalid companions.db.healthcheck.retries",
            "ttl_invalid idle_ttl",
            "ttl_invalid cleanup_ttl",
        ]
    );
}

#[test]
fn the_host_s_network_has_no_spelling() {
    for field in [
        "network",
        "network_mode",
        "net",
        "host_network",
        "networks",
        "privileged",
        "cap_add",
        "devices",
        "volumes",
    ] {
        let with = |at: Node| {
            let Node::Map(mut entries) = at else { panic!("an object") };
            entries.push((field.to_owned(), Node::text("host")));
            Node::Map(entries)
        };
        assert_eq!(refused(with(node!({"sandbox": {"profile": "box"}}))), [format!("unknown_field {field}")]);
        let block = with(node!({"profile": "box"}));
        assert_eq!(
            refused(Node::Map(vec![("sandbox".into(), block)])),
            [format!("unknown_field sandbox.{field}")]
        );
        let companion = Node::Map(vec![("db".into(), with(node!({"image": "x"})))]);
        let document = merge(
            node!({"sandbox": {"profile": "box", "backend": "docker"}}),
            Node::Map(vec![("companions".into(), companion)]),
        );
        assert_eq!(refused(document), [format!("unknown_field companions.db.{field}")]);
    }
}

#[test]
fn a_lasting_sandbox_is_confined() {
    assert_eq!(refused(node!({"sandbox": {"profile": "none"}})), ["unconfined_refused sandbox.profile"]);
    assert_eq!(refused(node!({})), ["missing_sandbox sandbox"]);
    assert_eq!(refused(node!({"sandbox": {}})), ["missing_profile sandbox.profile"]);
    for profile in confined() {
        let document = Node::Map(vec![("sandbox".into(), node!({"profile": (profile.name())}))]);
        assert!(read(document).is_ok(), "{profile}");
    }
    let floor = Settings { min_backend: Some(Backend::Gvisor), ..Settings::default() };
    let weak = super::read(&node!({"sandbox": {"profile": "box", "backend": "docker"}}), &floor).unwrap_err();
    assert_eq!(faults(&weak), ["backend_below_floor sandbox.backend"]);
}

#[test]
fn pond_s_own_places_stay_pond_s() {
    for own in [
        "/proc",
        "/proc/self",
        "/dev/shm",
        "/usr",
        "/usr/local/bin/x",
        "/etc/passwd",
        "/home/pond",
        "/home",
        "/tmp/x",
        "/.pond/x",
        "/run",
    ] {
        let document = boxed(node!({"mounts": [{"source": "/a", "target": (own)}]}));
        assert_eq!(refused(document), ["target_reserved mounts[0].target"], "{own}");
    }
    let at_workspace = |profile: &str| {
        read(
            node!({"sandbox": {"profile": (profile)}, "copies": [{"source": "/a", "target": "/workspace/sub"}]}),
        )
    };
    at_workspace("box").unwrap();
    for profile in ["review", "harness", "sealed"] {
        assert_eq!(
            faults(&at_workspace(profile).unwrap_err()),
            ["target_reserved copies[0].target"],
            "{profile}"
        );
    }
}

#[test]
fn targets_neither_repeat_nor_nest() {
    for (one, other) in [("/data", "/data"), ("/data", "/data/x"), ("/data/x/y", "/data")] {
        let document = boxed(node!({
            "mounts": [{"source": "/a", "target": (one)}], "copies": [{"source": "/b", "target": (other)}]
        }));
        assert_eq!(refused(document), ["target_conflict copies[0].target"], "{one} {other}");
    }
    let apart = boxed(
        node!({"mounts": [{"source": "/a", "target": "/data/a"}, {"source": "/a", "target": "/data/ab"}]}),
    );
    read(apart).unwrap();
}

#[test]
fn what_could_never_act_is_refused() {
    assert_eq!(refused(boxed(node!({"workspace": "/src"}))), ["rule_without_effect workspace"]);
    let sealed = node!({
        "sandbox": {"profile": "sealed"}, "model": "m", "agent": "codex", "ports": [{"host": 1, "sandbox": 1}],
        "credentials": {"github.com": {"secret": "a"}}, "companions": {"db": {"image": "x"}}
    });
    let found = refused(sealed);
    assert_eq!(found.iter().filter(|fault| fault.starts_with("rule_without_effect")).count(), 5, "{found:?}");
    let review = node!({"sandbox": {"profile": "review"}, "credentials": {"github.com": {"secret": "a"}}});
    assert_eq!(refused(review), ["rule_without_effect credentials"]);
}

#[test]
fn companions_need_a_backend_that_has_them() {
    let with = |backend: &str| {
        read(
            node!({"sandbox": {"profile": "box", "backend": (backend)}, "companions": {"db": {"image": "x"}}}),
        )
    };
    with("docker").unwrap();
    with("gvisor").unwrap();
    for backend in ["native", "firecracker"] {
        let refusals = with(backend).unwrap_err();
        assert_eq!(faults(&refusals), ["companions_unsupported companions"]);
        assert_eq!(refusals.into_list()[0].allowed, ["docker", "gvisor"]);
    }
    assert_eq!(
        refused(boxed(node!({"companions": {"db": {"image": "x"}}}))),
        ["companions_unsupported companions"]
    );
    read(boxed(node!({"companions": {}}))).unwrap();
}

#[test]
fn a_companion_is_given_once() {
    let twice = Node::Map(vec![("db".into(), node!({"image": "x"})), ("db".into(), node!({"image": "y"}))]);
    let document = Node::Map(vec![
        ("sandbox".into(), node!({"profile": "box", "backend": "docker"})),
        ("companions".into(), twice),
    ]);
    assert_eq!(refused(document), ["duplicate_field companions.db"]);
}

#[test]
fn a_secret_pasted_where_its_name_belongs_is_not_repeated() {
    let key = "ghp_0123456789 abcdefABCDEF";
    let document = boxed(node!({"credentials": {"github.com": {"secret": (key)}}}));
    let refusals = read(document).unwrap_err();
    assert_eq!(faults(&refusals), ["credential_invalid credentials[\"github.com\"].secret"]);
    assert!(!refusals.to_string().contains("ghp_"));
}

#[test]
fn values_of_other_types_are_refused() {
    let found = refused(node!({
        "id": (number("7")), "labels": ["a"], "sandbox": {"profile": "box"}, "mounts": {"a": "b"},
        "copies": [(number("1"))], "ports": [{"host": true, "sandbox": "x"}], "idle_ttl": null
    }));
    assert_eq!(
        found,
        [
            "wrong_type id",
            "wrong_type labels",
            "wrong_type mounts",
            "wrong_type copies[0]",
            "wrong_type ports[0].host",
            "port_invalid ports[0].sandbox",
            "wrong_type idle_ttl",
        ]
    );
}
