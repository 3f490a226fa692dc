//! Properties of the sandbox document over arbitrary and over plausible documents.

use proptest::prelude::*;

use super::*;
use crate::node::Number;

const WORDS: [&str; 26] = [
    "id",
    "labels",
    "sandbox",
    "workspace",
    "mounts",
    "copies",
    "builtin_tools",
    "env",
    "ports",
    "agent",
    "model",
    "credentials",
    "companions",
    "idle_ttl",
    "cleanup_ttl",
    "source",
    "target",
    "writable",
    "exclude",
    "host",
    "image",
    "healthcheck",
    "test",
    "profile",
    "backend",
    "network",
];

const VALUES: [&str; 16] = [
    "box",
    "harness",
    "sealed",
    "none",
    "docker",
    "native",
    "/a",
    "/data",
    "/data/x",
    "/usr",
    "..",
    "cargo",
    "10m",
    "never",
    "github.com",
    "db",
];

fn any_node() -> impl Strategy<Value = Node> {
    let scalar = prop_oneof![
        Just(Node::Null),
        any::<bool>().prop_map(Node::Bool),
        any::<i32>().prop_map(|number| Node::Number(Number::from_literal(number.to_string()))),
        proptest::sample::select(&VALUES[..]).prop_map(Node::text),
        ".{0,8}".prop_map(Node::Text),
    ];
    scalar.prop_recursive(5, 48, 6, |inner| {
        let key = prop_oneof![
            6 => proptest::sample::select(&WORDS[..]).prop_map(str::to_owned),
            1 => ".{0,6}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Node::List),
            proptest::collection::vec((key, inner), 0..8).prop_map(Node::Map),
        ]
    })
}

fn any_target() -> impl Strategy<Value = String> {
    prop_oneof!["(/(data|a|b|ab|usr|workspace|\\.\\.|)){1,4}", "/[ -~]{0,12}"]
}

fn mounting(targets: &[String]) -> Node {
    let mount = |target: &String| {
        Node::Map(vec![("source".into(), Node::text("/a")), ("target".into(), Node::text(target.as_str()))])
    };
    Node::Map(vec![
        ("sandbox".into(), Node::Map(vec![("profile".into(), Node::text("box"))])),
        ("mounts".into(), Node::List(targets.iter().map(mount).collect())),
    ])
}

proptest! {
    #[test]
    fn reading_is_total_deterministic_and_safe_to_show(node in any_node()) {
        let first = read(&node, &Settings::default());
        prop_assert_eq!(&first, &read(&node, &Settings::default()));
        if let Err(refusals) = first {
            let list = refusals.into_list();
            prop_assert!(!list.is_empty() && list.len() <= 101);
            prop_assert!(list.is_sorted_by_key(|refusal| &refusal.path));
            prop_assert!(list.iter().all(|refusal| !refusal.to_string().contains(char::is_control)));
        }
    }

    #[test]
    fn accepted_targets_are_apart_and_nobody_else_s(targets in proptest::collection::vec(any_target(), 1..5)) {
        if let Ok(spec) = read(&mounting(&targets), &Settings::default()) {
            let apart = |one: &str, other: &str| {
                let (one, other) = (std::path::Path::new(one), std::path::Path::new(other));
                !one.starts_with(other) && !other.starts_with(one)
            };
            for (number, mount) in spec.mounts.iter().enumerate() {
                let parts: Vec<_> = std::path::Path::new(&mount.target).components().collect();
                let spelled = std::path::PathBuf::from_iter(&parts);
                prop_assert_eq!(spelled.to_str(), Some(mount.target.as_str()));
                prop_assert!(parts.len() > 1 && !parts.contains(&std::path::Component::ParentDir));
                prop_assert!(RESERVED.iter().all(|own| apart(own, &mount.target)));
                prop_assert!(spec.mounts.iter().take(number).all(|other| apart(&other.target, &mount.target)));
            }
        }
    }

    #[test]
    fn nothing_on_top_changes_nothing(node in any_node()) {
        if let Node::Map(_) = node {
            prop_assert_eq!(merge(node.clone(), Node::Map(Vec::new())), node);
        }
    }

    #[test]
    fn what_is_on_top_is_there(base in any_node(), over in any_node()) {
        let id = |node: &Node| match node {
            Node::Map(entries) => entries.iter().find(|(key, _)| key == "id").map(|(_, value)| value.clone()),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_) => None,
        };
        if let Some(wanted) = id(&over) {
            let merged = merge(base.clone(), over);
            match base {
                Node::Map(_) | Node::Null => prop_assert_eq!(id(&merged), Some(wanted)),
                // No document, and none is made of it.
                Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_) => prop_assert_eq!(merged, base),
            }
        }
    }
}
