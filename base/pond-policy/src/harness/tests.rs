//! Templates, dummy keys, and each agent's files and variables once filled in.

use super::*;

fn values(secret: &dyn Fn(&str) -> Option<String>) -> Values<'_> {
    Values { model: "m-1", broker_url: "http://127.0.0.1:8377", dummy_key: "sk-dummy", secret }
}

fn no_secret(_: &str) -> Option<String> {
    None
}

#[test]
fn templates_are_filled_once_and_unknown_names_are_faults() {
    let secret =
        |name: &str| ["TOKEN", "npm-token", "v1.2_x", "9"].contains(&name).then(|| "{{MODEL}}".to_owned());
    let values = values(&secret);
    for (text, expected) in [
        ("a {{MODEL}} b {{BROKER_URL}}/v1 {{SECRET:MODEL_KEY}}", "a m-1 b http://127.0.0.1:8377/v1 sk-dummy"),
        ("{{SECRET:TOKEN}}", "{{MODEL}}"),
        ("{{SECRET:npm-token}}{{SECRET:v1.2_x}}{{{{SECRET:9}}}}", "{{MODEL}}{{MODEL}}{{{{MODEL}}}}"),
        ("{{{SECRET:TOKEN}}}", "{{{MODEL}}}"),
        ("{{ SECRET:a b }} {{secret:x}} {{{Theirs}}}", "{{ SECRET:a b }} {{secret:x}} {{{Theirs}}}"),
        ("{{ jinja }} {{lower}} {{{{MODEL}}}}", "{{ jinja }} {{lower}} {{m-1}}"),
        ("{{MODEL", "{{MODEL"),
        ("", ""),
    ] {
        assert_eq!(fill(text, &values).as_deref(), Ok(expected), "{text}");
    }
    assert_eq!(fill("{{MODLE}}", &values), Err(TemplateFault::Unknown("\"MODLE\"".into())));
    assert_eq!(fill("{{SECRET:OTHER}}", &values), Err(TemplateFault::NoSecret("\"OTHER\"".into())));
    for (text, name) in [
        ("{{SECRET:}}", ""),
        ("a {{SECRET:a b}}", "a b"),
        ("{{SECRET: TOKEN}}", " TOKEN"),
        ("{{{SECRET:-x}}}", "-x"),
        ("{{SECRET:{{MODEL}}}}", "{{MODEL"),
        ("{{SECRET:TOKEN", "TOKEN"),
        ("{{SECRET:TOKEN} }", "TOKEN} }"),
    ] {
        let fault = TemplateFault::SecretName(format!("\"{name}\""));
        assert_eq!(fill(text, &values), Err(fault.clone()), "{text}");
        assert_eq!(check(text), Err(fault), "{text}");
    }
    assert_eq!(check("{{MODLE}}"), Err(TemplateFault::Unknown("\"MODLE\"".into())));
    assert_eq!(check("{{SECRET:nobody-knows}} {{MODEL}} {{ theirs }}"), Ok(()));
    assert!(!format!("{values:?}").contains("dummy"));
}

#[test]
fn c113_dummy_keys_have_the_shape_and_the_length_and_differ() {
    let (one, two) = ([7u8; DUMMY_ENTROPY], std::array::from_fn(|at| u8::try_from(at).unwrap_or(0)));
    for (api, prefix, length) in [
        (Api::Anthropic, "sk-ant-api03-", 108),
        (Api::Openai, "sk-proj-", 164),
        (Api::OpenaiChat, "sk-", 51),
        (Api::Gemini, "AIza", 39),
    ] {
        let key = dummy_key(api, 20, &two);
        assert!(key.starts_with(prefix) && key.len() == length, "{key}");
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{key}");
        assert_ne!(dummy_key(api, 20, &one), key);
        assert_eq!(dummy_key(api, 200, &two).len(), 200);
        assert!(dummy_key(api, 9999, &two).len() <= 300);
    }
}

#[test]
fn every_agent_is_led_to_the_broker_and_given_no_other_key() {
    for agent in Agent::ALL {
        for api in Api::ALL {
            let Some(harness) = for_agent(*agent, *api, &values(&no_secret)) else { continue };
            let harness = harness.unwrap();
            let all = format!("{harness:?}");
            assert!(
                all.contains("http://127.0.0.1:8377") && all.contains("sk-dummy") && all.contains("m-1"),
                "{all}"
            );
            assert!(!all.contains("{{") || all.contains("{{ "), "{agent} {api}: {all}");
            let mut names: Vec<&String> = harness.env.iter().map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), harness.env.len(), "{agent} {api}: a variable twice");
        }
    }
    assert_eq!(for_agent(Agent::ClaudeCode, Api::Openai, &values(&no_secret)), None);
    assert_eq!(Agent::of_program("/usr/bin/claude"), Some(Agent::ClaudeCode));
    assert_eq!(Agent::of_program("claude2"), None);
}

/// A job cannot make namespaces, so an agent that insists on a sandbox of its own does nothing at all; one that asks
/// before it acts does nothing where nobody answers.
#[test]
fn no_agent_asks_or_confines_itself() {
    for (agent, api, path, expected) in [
        (
            Agent::ClaudeCode,
            Api::Anthropic,
            ".claude/settings.json",
            "\"defaultMode\": \"bypassPermissions\"",
        ),
        (
            Agent::ClaudeCode,
            Api::Anthropic,
            ".claude.json",
            "\"/workspace\": {\"hasTrustDialogAccepted\": true}",
        ),
        (
            Agent::Codex,
            Api::Openai,
            ".codex/config.toml",
            "approval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n",
        ),
        (Agent::GeminiCli, Api::Gemini, ".gemini/settings.json", "\"folderTrust\": {\"enabled\": false}"),
        (
            Agent::GeminiCli,
            Api::Gemini,
            ".gemini/policies/pond.toml",
            "toolName = \"*\"\ndecision = \"allow\"\n",
        ),
        (
            Agent::Opencode,
            Api::OpenaiChat,
            ".config/opencode/opencode.json",
            "\"permission\": {\"*\": \"allow\"}",
        ),
        (Agent::Aider, Api::Anthropic, ".aider.conf.yml", "yes-always: true\n"),
    ] {
        let harness = for_agent(agent, api, &values(&no_secret)).unwrap().unwrap();
        let file = harness.files.iter().find(|(own, _)| own == path).map(|(_, text)| text.as_str());
        assert!(file.is_some_and(|text| text.contains(expected)), "{agent}: {path}: {file:?}");
    }
}

#[test]
fn opencode_s_file_is_json_and_codex_has_no_websocket() {
    let opencode = for_agent(Agent::Opencode, Api::Gemini, &values(&no_secret)).unwrap().unwrap();
    assert_eq!(
        opencode.files[0].1,
        "{\n  \"model\": \"google/m-1\",\n  \"small_model\": \"google/m-1\",\n  \"autoupdate\": false,\n  \
         \"share\": \"disabled\",\n  \"permission\": {\"*\": \"allow\"},\n  \"provider\": {\"google\": {\"options\": {\"baseURL\": \
         \"http://127.0.0.1:8377/v1beta\", \"apiKey\": \"sk-dummy\"}, \"models\": {\"m-1\": {}}}}\n}\n"
    );
    let codex = for_agent(Agent::Codex, Api::Openai, &values(&no_secret)).unwrap().unwrap();
    assert!(codex.files[0].1.contains("supports_websockets = false\n"));
    assert!(codex.files[0].1.contains("base_url = \"http://127.0.0.1:8377/v1\"\n"));
}

#[test]
fn proxy_variables_come_in_both_cases_and_never_as_socks() {
    let env = proxy_environment("127.0.0.1", 3128);
    let get = |name: &str| env.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        assert_eq!(get(name), Some("http://127.0.0.1:3128"));
        assert_eq!(get(&name.to_ascii_uppercase()), Some("http://127.0.0.1:3128"));
    }
    assert_eq!(get("no_proxy"), get("NO_PROXY"));
    assert_eq!(get("NO_PROXY"), Some("localhost,127.0.0.1,::1"));
    assert!(get("JAVA_TOOL_OPTIONS").unwrap().contains("-Dhttps.proxyPort=3128"));
    assert!(!env.iter().any(|(_, value)| value.contains("socks")));
}
