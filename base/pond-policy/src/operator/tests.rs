//! What the operator's file may say, and every way it can be wrong.

use super::*;
use crate::model::{Api, Auth, Rates};
use crate::node::Number;

fn map(entries: &[(&str, Node)]) -> Node {
    Node::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

fn text(text: &str) -> Node {
    Node::text(text)
}

fn list(items: &[&str]) -> Node {
    Node::List(items.iter().map(|item| text(item)).collect())
}

fn number(literal: &str) -> Node {
    Node::Number(Number::from_literal(literal))
}

fn claude(changes: &[(&str, Node)]) -> Node {
    let mut entries = vec![
        ("api", text("anthropic")),
        ("credential", text("env:ANTHROPIC_API_KEY")),
        ("models", list(&["claude-sonnet-4-5"])),
    ];
    for (key, value) in changes {
        entries.retain(|(own, _)| own != key);
        entries.push((*key, value.clone()));
    }
    map(&[("model", map(&[("claude", map(&entries))]))])
}

fn faults(document: &Node) -> Vec<String> {
    let refusals = Operator::read(document).unwrap_err();
    refusals.into_list().iter().map(|fault| format!("{} {}", fault.code, fault.path)).collect()
}

#[test]
fn a_model_takes_its_api_s_own_place_and_header() {
    let operator = Operator::read(&claude(&[])).unwrap();
    let model = operator.model("claude").unwrap();
    assert_eq!(
        (model.api, model.auth, model.upstream.authority()),
        (Api::Anthropic, Auth::XApiKey, "api.anthropic.com".into())
    );
    assert_eq!(model.credential, Credential::Env("ANTHROPIC_API_KEY".into()));
    assert_eq!(model.ids[0].0, "claude-sonnet-4-5");
    assert_eq!((model.upstream_private, model.provider_tools), (false, false));
    assert_eq!(Operator::read(&map(&[])), Ok(Operator::default()));
}

#[test]
fn a_custom_model_brings_its_price_and_a_missing_rate_is_no_discount() {
    let document = map(&[
        (
            "model",
            map(&[(
                "local",
                map(&[
                    ("api", text("openai-chat")),
                    ("upstream", text("https://10.0.0.5:8443/v")),
                    ("upstream_private", Node::Bool(true)),
                    ("ca_file", text("/etc/pond/ca.pem")),
                    ("auth", text("api-key")),
                    ("credential", text("file:/etc/pond/key")),
                    ("models", list(&["qwen/qwen-72b"])),
                ]),
            )]),
        ),
        (
            "price",
            map(&[(
                "qwen/qwen-72b",
                map(&[
                    ("input", number("0.5")),
                    ("output", text("1.25")),
                    ("max_input", number("128000")),
                    ("max_output", number("8000")),
                ]),
            )]),
        ),
    ]);
    let operator = Operator::read(&document).unwrap();
    let half = 50_000_000;
    let rates = Rates {
        input: half,
        cache_read: half,
        cache_write_5m: half,
        cache_write_1h: half,
        output: 125_000_000,
    };
    assert_eq!(
        operator.models[0].ids[0].1,
        Price { rates, long: None, max_input: 128_000, max_output: 8000 }
    );
    assert_eq!(operator.models[0].credential, Credential::File("/etc/pond/key".into()));
}

#[test]
fn every_fault_is_named_with_its_place() {
    for (change, fault) in [
        (("api", text("Anthropic")), "unknown_api model.claude.api"),
        (("auth", text("basic")), "unknown_auth model.claude.auth"),
        (("credential", text("sk-ant-api03-oops")), "credential_invalid model.claude.credential"),
        (("credential", text("env:A B")), "credential_invalid model.claude.credential"),
        (("credential", text("file:key")), "credential_invalid model.claude.credential"),
        (("upstream", text("http://a.example")), "upstream_invalid model.claude.upstream"),
        (("upstream", text("https://10.0.0.1")), "upstream_invalid model.claude.upstream"),
        (("upstream_private", text("yes")), "wrong_type model.claude.upstream_private"),
        (("ca_file", text("ca.pem")), "path_invalid model.claude.ca_file"),
        (("models", list(&[])), "too_few model.claude.models"),
        (("models", list(&["claude-sonnet-latest"])), "price_missing model.claude.models[0]"),
        (("models", list(&["gpt-5", "gpt-5"])), "duplicate_field model.claude.models[1]"),
        (("key", text("sk-secret")), "unknown_field model.claude.key"),
    ] {
        assert_eq!(faults(&claude(std::slice::from_ref(&change))), [fault], "{change:?}");
    }
    let chat = claude(&[("api", text("openai-chat"))]);
    assert_eq!(faults(&chat), ["upstream_missing model.claude.upstream"]);
    let price = |entries: &[(&str, Node)]| map(&[("price", map(&[("m", map(entries))]))]);
    assert_eq!(
        faults(&price(&[("input", number("1e3")), ("output", number("-1")), ("max_input", number("0"))])),
        [
            "missing_field price.m.max_output",
            "price_invalid price.m.input",
            "price_invalid price.m.output",
            "price_invalid price.m.max_input"
        ]
    );
    let egress = map(&[(
        "egress",
        map(&[
            ("presets", list(&["pypy"])),
            ("allow", list(&["API.example.com", "*.com"])),
            ("open", Node::Bool(true)),
        ]),
    )]);
    assert_eq!(
        faults(&egress),
        [
            "unknown_preset egress.presets[0]",
            "host_invalid egress.allow[0]",
            "host_invalid egress.allow[1]",
            "unknown_field egress.open"
        ]
    );
}

#[test]
fn c79_c80_caps_can_be_lowered_and_never_raised() {
    let caps = |entries: &[(&str, Node)]| map(&[("egress", map(&[("caps", map(entries))]))]);
    let lowered = caps(&[("tunnel_bytes", text("1m")), ("idle_seconds", number("30"))]);
    let expected = Caps {
        tunnel_bytes: TunnelBytes::from_bytes(1 << 20).unwrap(),
        idle_seconds: IdleSeconds::parse("30").unwrap(),
        ..Caps::default()
    };
    assert_eq!(Operator::read(&lowered).unwrap().egress.caps, expected);
    let raised = caps(&[
        ("tunnel_bytes", text("17g")),
        ("job_bytes", text("65g")),
        ("idle_seconds", number("601")),
        ("lifetime_seconds", number("86401")),
        ("tunnels", number("1")),
    ]);
    assert_eq!(
        faults(&raised),
        [
            "budget_invalid egress.caps.tunnel_bytes",
            "budget_invalid egress.caps.job_bytes",
            "budget_invalid egress.caps.idle_seconds",
            "budget_invalid egress.caps.lifetime_seconds",
            "unknown_field egress.caps.tunnels",
        ]
    );
}

#[test]
fn a_credential_is_never_repeated_in_full() {
    let document = claude(&[("credential", text(&format!("sk-ant-{}", "s".repeat(200))))]);
    let shown = Operator::read(&document).unwrap_err().to_string();
    assert!(!shown.contains("ssssssss"), "{shown}");
}

/// Whichever field a key is pasted into, and as whichever, no fault has it.
#[test]
fn a_pasted_key_is_never_repeated() {
    const KEY: &str = "sk-ant-api03-PASTED0000";
    let url = format!("https://user:{KEY}@models.example.com");
    for (field, value) in [
        ("api", text(KEY)),
        ("auth", text(KEY)),
        ("upstream", text(KEY)),
        ("upstream", text(&url)),
        ("ca_file", text(KEY)),
        ("models", list(&[KEY])),
        ("models", list(&["claude-sonnet-4-5", KEY, KEY])),
        ("credential", text(KEY)),
        ("provider_tools", text(KEY)),
        (KEY, text("x")),
    ] {
        let shown = Operator::read(&claude(&[(field, value)])).unwrap_err().to_string();
        assert!(!shown.contains("PASTED"), "{field}: {shown}");
    }
    let document = map(&[
        (KEY, text("x")),
        ("model", map(&[("sk/PASTED", map(&[]))])),
        ("price", map(&[("m", map(&[("input", text(KEY)), (KEY, text("x"))]))])),
    ]);
    let shown = Operator::read(&document).unwrap_err().to_string();
    assert!(!shown.contains("PASTED"), "{shown}");
    let near = Operator::read(&claude(&[("api", text("antropic"))])).unwrap_err().to_string();
    assert!(near.contains("\"antropic\" is not known here; did you mean `anthropic`?"), "{near}");
}

#[test]
fn c137_c138_c141_what_a_host_can_be_used_for_besides_is_said_when_the_file_is_read() {
    let egress = |entries: &[(&str, Node)]| {
        let operator = Operator::read(&map(&[("egress", map(entries))])).unwrap();
        let warned = operator.warnings.iter();
        warned.map(|warning| format!("{} {}", warning.path, warning.code.name())).collect::<Vec<_>>()
    };
    let allow = list(&["git.acme.com", "api.github.com", "gist.github.com", "crates.io"]);
    assert_eq!(
        egress(&[("allow", allow)]),
        [
            "egress.allow[1] host_write_channel",
            "egress.allow[2] host_write_channel",
            "egress.allow[3] host_not_needed"
        ]
    );
    assert_eq!(egress(&[("presets", list(&["pypi", "go"]))]), ["egress.presets[1] host_path_leak"]);
    assert_eq!(egress(&[("deny", list(&["gist.github.com"]))]), Vec::<String>::new());
}

#[test]
fn c136_a_model_s_host_is_not_for_the_allowlist() {
    let Node::Map(mut document) = claude(&[("upstream", text("https://llm.acme.example.com"))]) else {
        panic!()
    };
    document.push(("egress".into(), map(&[("allow", list(&["*.acme.example.com"]))])));
    assert_eq!(faults(&Node::Map(document)), ["host_reserved egress.allow"]);
}
