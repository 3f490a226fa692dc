//! What a block may and may not say, as tables.

use super::*;
use crate::testing::{faults, number};

fn parse(node: &Node) -> Result<SandboxBlock, Refusals> {
    let mut refusals = Refusals::default();
    let block = SandboxBlock::accept(Some(node), &Path::root(), &Settings::default(), &mut refusals);
    refusals.finish(block)
}

fn refused(node: &Node) -> Vec<String> {
    faults(&parse(node).unwrap_err())
}

#[test]
fn printing_writes_defaults_out_and_parses_back() {
    for (typed, printed) in [
        (node!({"profile": "dev"}), node!({"profile": "none", "tier": "any"})),
        (
            node!({"overrides": {}, "allow_hosts": [], "profile": "review"}),
            node!({"profile": "untrusted-code-read", "tier": "trusted"}),
        ),
        (
            node!({"profile": "harness", "overrides": {"cpus": (number("0.50")), "memory": 1073741824, "pids_limit": "99"}}),
            node!({
                "profile": "untrusted-code-write", "tier": "trusted",
                "overrides": {"memory": "1g", "cpus": "0.5", "pids_limit": 99}
            }),
        ),
    ] {
        let block = parse(&typed).unwrap();
        assert_eq!(block.to_node(), printed);
        assert_eq!(parse(&printed), Ok(block));
    }
}

#[test]
fn all_faults_are_reported_in_document_order() {
    let block = node!({
        "teir": "byo",
        "profile": "untrusted-code-wriet",
        "backend": "kata",
        "tier": "gold",
        "allow_hosts": ["git.acme.com", "https://x.example.org/a", "git.acme.com", "169.254.169.254"],
        "overrides": {"network": "host", "memory": (number("NaN")), "cpus": null, "privileged": true},
        "backend": "gvisor"
    });
    assert_eq!(
        refused(&block),
        [
            "unknown_field teir",
            "unknown_profile profile",
            "unknown_backend backend",
            "unknown_tier tier",
            "host_invalid allow_hosts[1]",
            "host_duplicate allow_hosts[2]",
            "host_invalid allow_hosts[3]",
            "override_not_allowed overrides.network",
            "override_invalid overrides.memory",
            "wrong_type overrides.cpus",
            "override_not_allowed overrides.privileged",
            "duplicate_field backend",
        ]
    );
}

#[test]
fn refusals_say_what_would_do() {
    let list = parse(&node!({"profile": "untrusted-code-wriet"})).unwrap_err().into_list();
    assert_eq!(
        list[0].message,
        "\"untrusted-code-wriet\" is not known here; did you mean `untrusted-code-write`?"
    );
    assert_eq!(list[0].allowed, Profile::SPELLINGS);
    let list = parse(&node!({"profile": "harness", "overrides": {"netwrok": 1}})).unwrap_err().into_list();
    assert_eq!(list[0].allowed, OverrideKey::NAMES);
    let list = parse(&node!({})).unwrap_err().into_list();
    assert_eq!(list[0].allowed, Profile::SPELLINGS);
}

#[test]
fn names_are_exact() {
    for profile in ["", "None", "NONE", " none", "none\n", "nоne", "off", "untrusted_code_write"] {
        assert_eq!(refused(&node!({"profile": profile})), ["unknown_profile profile"], "{profile:?}");
    }
    for key in ["Profile", "profile ", "PROFILE", ""] {
        let block = Node::Map(vec![("profile".into(), node!("review")), (key.into(), node!("none"))]);
        assert_eq!(parse(&block).unwrap_err().codes(), [Code::UnknownField], "{key:?}");
    }
}

#[test]
fn wrong_types_are_refused_and_null_is_not_absent() {
    let values = [
        node!(null),
        node!(true),
        node!(7),
        node!([]),
        node!({}),
        node!(["none"]),
        node!({"profile": "none"}),
    ];
    for value in &values {
        let block = Node::Map(vec![("profile".into(), value.clone())]);
        assert_eq!(refused(&block), ["wrong_type profile"], "{value:?}");
        for field in ["tier", "backend"] {
            let block = Node::Map(vec![("profile".into(), node!("harness")), (field.into(), value.clone())]);
            assert_eq!(refused(&block), [format!("wrong_type {field}")], "{value:?}");
        }
    }
    for block in [node!(null), node!(true), node!(7), node!("none"), node!([]), node!([{"profile": "none"}])]
    {
        assert_eq!(refused(&block), ["wrong_type ."], "{block:?}");
    }
    for value in [node!(null), node!("git.acme.com"), node!({})] {
        let block = Node::Map(vec![("profile".into(), node!("harness")), ("allow_hosts".into(), value)]);
        assert_eq!(refused(&block), ["wrong_type allow_hosts"]);
    }
    for key in OverrideKey::NAMES {
        for value in [node!(null), node!(true), node!([]), node!({})] {
            let overrides = Node::Map(vec![((*key).to_owned(), value)]);
            let block =
                Node::Map(vec![("profile".into(), node!("harness")), ("overrides".into(), overrides)]);
            assert_eq!(refused(&block), [format!("wrong_type overrides.{key}")]);
        }
    }
}

#[test]
fn limits_outside_reason_are_refused() {
    for literal in ["NaN", ".inf", "-1", "1e999", "0", "99999999999999999999", "0.1"] {
        for key in ["memory", "pids_limit", "tmpfs_size"] {
            let overrides = Node::Map(vec![(key.to_owned(), number(literal))]);
            let block =
                Node::Map(vec![("profile".into(), node!("harness")), ("overrides".into(), overrides)]);
            assert_eq!(refused(&block), [format!("override_invalid overrides.{key}")], "{literal}");
        }
    }
}

#[test]
fn a_rule_that_cannot_act_is_refused() {
    for profile in Profile::ALL {
        let hosts = parse(&node!({"profile": (profile.name()), "allow_hosts": ["git.acme.com"]}));
        if profile.has_allowlist() {
            assert_eq!(hosts.map(|block| block.allow_hosts().len()), Ok(1));
        } else {
            assert_eq!(faults(&hosts.unwrap_err()), ["rule_without_effect allow_hosts"], "{profile}");
        }
    }
    let block = node!({
        "profile": "none", "backend": "gvisor", "allow_hosts": ["git.acme.com"], "overrides": {"memory": "1g"}
    });
    assert_eq!(
        refused(&block),
        ["rule_without_effect backend", "rule_without_effect allow_hosts", "rule_without_effect overrides"]
    );
}

#[test]
fn lists_are_bounded() {
    let hosts = (0..=MOST_HOSTS).map(|number| node!(format!("h{number}.acme.com").as_str())).collect();
    let block =
        Node::Map(vec![("profile".into(), node!("harness")), ("allow_hosts".into(), Node::List(hosts))]);
    assert_eq!(refused(&block), ["too_many allow_hosts"]);
}

#[test]
fn model_hosts_are_the_broker_s() {
    let block = node!({"profile": "harness", "allow_hosts": ["api.anthropic.com"]});
    assert_eq!(refused(&block), ["host_reserved allow_hosts[0]"]);
}

#[test]
fn hostile_keys_are_printed_harmlessly() {
    let block = Node::Map(vec![("profile".into(), node!("review")), ("\u{1b}]0;x\u{7}".into(), node!(1))]);
    let refusals = parse(&block).unwrap_err();
    assert!(!refusals.to_string().contains(['\u{1b}', '\u{7}']));
    assert_eq!(faults(&refusals), ["unknown_field [\"\\u{1b}]0;x\\u{7}\"]"]);
}

#[test]
fn a_flood_of_fields_is_refused_unread() {
    let flood = (0..1001).map(|number| (format!("k{number}"), node!(1))).collect();
    assert_eq!(refused(&Node::Map(flood)), ["too_many ."]);
}
