//! Decoding is total; what the parser accepts, the schema accepts; JSON and YAML spellings of a document agree.

use std::sync::LazyLock;

use jsonschema::Validator;
use pond_policy::dispatch;
use pond_policy::node::{Node, Number};
use pond_policy::run;
use pond_policy::sandboxes;
use pond_policy::settings::Settings;
use proptest::prelude::*;

use crate::contract::value;
use crate::decode::{decode, decode_json, decode_yaml};
use crate::schema;

static RUN_SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema::run_document()).expect("a valid schema"));

static SANDBOX_SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema::sandbox_document()).expect("a valid schema"));

/// Text that leans towards the grammar of both formats.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "'", "\n", "  ", "- ", "? ", "&a ", "*a", "!!str ", "<<",
            "---\n", "...\n", "|\n", ">-\n", "#", "\\u", "\\ud800", "null", "true", ".nan", "1e9", "profile",
            "none", "\t", "%YAML", "\u{0}",
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn any_node() -> impl Strategy<Value = Node> {
    let scalar = prop_oneof![
        Just(Node::Null),
        any::<bool>().prop_map(Node::Bool),
        any::<i64>().prop_map(|number| Node::Number(Number::from_literal(number.to_string()))),
        "\\PC{0,8}".prop_map(Node::Text),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Node::List),
            proptest::collection::btree_map("\\PC{0,6}", inner, 0..4)
                .prop_map(|entries| Node::Map(entries.into_iter().collect())),
        ]
    })
}

/// Documents near the shape of a run.
fn any_run() -> impl Strategy<Value = Node> {
    let name = proptest::sample::select(vec!["a", "b", "c", "a b"]);
    let profile = proptest::sample::select(vec!["none", "review", "harness", "sealed", "box", "dev"]);
    let memory = proptest::sample::select(vec!["512m", "4G", "1", "16777216", "4gb", "0x10"]);
    let argument = proptest::sample::select(vec!["pytest", "é", "", "a\nb", "-x"]);
    let path = proptest::sample::select(vec!["out", "a/b c", "é", "/etc", "..", "a/\u{85}"]);
    let stage = (name, profile, memory, argument, path).prop_map(|(name, profile, memory, argument, path)| {
        serde_json::json!({"name": name, "executor": {
            "kind": "swarm", "command": ["pytest", argument], "artifacts": [path], "harness_files": {path: argument},
            "env": {"A_1": argument}, "timeout": "60s",
            "sandbox": if matches!(profile, "none" | "dev") {
                serde_json::json!({"profile": profile})
            } else {
                serde_json::json!({"profile": profile, "overrides": {"memory": memory, "cpus": 0.5, "image": "a/b:1"}})
            }}})
    });
    proptest::collection::vec(stage, 0..3).prop_map(|stages| {
        let document = serde_json::json!({"project": "acme", "stages": stages});
        decode_json(document.to_string().as_bytes()).expect("JSON")
    })
}

/// Documents near the shape of a sandbox.
fn any_sandbox() -> impl Strategy<Value = Node> {
    let one = |of: &'static [&'static str]| proptest::sample::select(of);
    let profile = one(&["box", "harness", "review", "sealed", "none"]);
    let path = one(&["/data", "/data/x", "/é", "/usr", "/a b", "a", "/.."]);
    let word = one(&["a", "box-1", "Box", "10m", "never", "1", "cargo", "git", "é", "a\nb", "github.com"]);
    let backend = one(&["docker", "gvisor", "native"]);
    (profile, path, word, backend, 0_u32..70_000).prop_map(|(profile, path, word, backend, port)| {
        let document = serde_json::json!({
            "sandbox": {"profile": profile, "backend": backend}, "labels": {"k": word},
            "mounts": [{"source": path, "target": path, "writable": true}], "builtin_tools": ["cargo", "npm"],
            "env": {"A": word}, "ports": [{"host": port, "sandbox": "80"}], "idle_ttl": "never", "cleanup_ttl": port,
            "credentials": {"github.com": {"secret": "GH", "username": word}},
            "companions": {"db": {"image": "pg:17", "healthcheck": {"test": ["pg_isready", word], "interval": 2},
                                  "post_start_on_primary": [["true"]], "limits": {"memory": "1g"}}}});
        decode_json(document.to_string().as_bytes()).expect("JSON")
    })
}

proptest! {
    #[test]
    fn decoding_is_total(text in any_text(), bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for input in [text.as_bytes(), &bytes] {
            for decoded in [decode(input), decode_json(input), decode_yaml(input)] {
                if let Err(refusals) = decoded {
                    let printed = refusals.to_string();
                    prop_assert!(!printed.is_empty() && !printed.contains(char::is_control), "{printed:?}");
                }
            }
        }
    }

    #[test]
    fn json_survives_the_round_trip_and_is_yaml_too(node in any_node()) {
        let json = value(&node).to_string();
        prop_assert_eq!(decode_json(json.as_bytes()), Ok(node.clone()));
        let yaml = decode_yaml(json.as_bytes());
        prop_assert_eq!(yaml, Ok(node), "{}", json);
    }

    #[test]
    fn what_the_parser_accepts_the_schema_accepts(node in any_run()) {
        if run::preflight(&node, &Settings::default()).is_ok() {
            let errors: Vec<String> = RUN_SCHEMA.iter_errors(&value(&node)).map(|error| error.to_string()).collect();
            prop_assert_eq!(errors, Vec::<String>::new());
        }
    }

    #[test]
    fn a_sandbox_the_parser_accepts_the_schema_accepts(node in any_sandbox()) {
        if sandboxes::read(&node, &Settings::default()).is_ok() {
            let errors: Vec<String> =
                SANDBOX_SCHEMA.iter_errors(&value(&node)).map(|error| error.to_string()).collect();
            prop_assert_eq!(errors, Vec::<String>::new());
        }
    }
}

#[test]
fn every_printed_block_fits_the_schema() {
    let schema = jsonschema::validator_for(&schema::sandbox_block()).unwrap();
    for text in [
        r#"{"profile": "untrusted-code-write", "tier": "trusted", "backend": "firecracker", "allow_hosts": ["git.acme.com"],
            "overrides": {"image": "your/agent:latest", "memory": "4g", "cpus": "2"}}"#,
        r#"{"profile": "untrusted-code-write", "tier": "trusted", "backend": "gvisor", "allow_hosts": ["git.acme.com"],
            "overrides": {"image": "your/agent:1", "memory": "4g", "cpus": "2", "pids_limit": 512, "tmpfs_size": "256m"}}"#,
        r#"{"profile": "harness", "allow_hosts": ["*.acme.com", "git.acme.com:8443", "xn--bcher-kva.acme.com"]}"#,
        r#"{"profile": "none"}"#,
        r#"{"profile": "box", "overrides": {"memory": 4294967296, "cpus": 0.5, "pids_limit": "99"}}"#,
    ] {
        let node = decode(text.as_bytes()).unwrap();
        let dispatch = dispatch::resolve(Some(&node), None, &Settings::default()).unwrap();
        for node in [node, dispatch.block.to_node()] {
            let errors: Vec<String> =
                schema.iter_errors(&value(&node)).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{text}");
        }
    }
}
