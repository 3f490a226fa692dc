//! Each agent's own settings, as templates. Everything that phones home besides the model is turned off: it would only be
//! refused, and slowly. No agent asks before it acts: the sandbox is the permission, and the patch is what a person decides
//! about.

use super::Templates;
use super::agent::Agent;
use crate::model::Api;

const CLAUDE_STATE: &str = r#"{
  "hasCompletedOnboarding": true,
  "bypassPermissionsModeAccepted": true,
  "projects": {"/workspace": {"hasTrustDialogAccepted": true}}
}
"#;

const CLAUDE_SETTINGS: &str = r#"{
  "permissions": {"defaultMode": "bypassPermissions"},
  "skipDangerousModePermissionPrompt": true
}
"#;

/// The `openai` provider of Codex is reserved and prefers a WebSocket, so it gets one of its own. Its sandbox needs
/// namespaces, which a job cannot make; with it on, no command of Codex runs and no file is written.
const CODEX: &str = r#"model = "{{MODEL}}"
model_provider = "pond"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.pond]
name = "pond"
base_url = "{{BROKER_URL}}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false

[tools]
web_search = false

[analytics]
enabled = false

[features]
apps = false
plugins = false

[projects."/workspace"]
trust_level = "trusted"
"#;

const GEMINI: &str = r#"{
  "general": {"disableAutoUpdate": true, "disableUpdateNag": true},
  "privacy": {"usageStatisticsEnabled": false},
  "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}}
}
"#;

/// Both web tools have the provider search and fetch.
const GEMINI_POLICY: &str = r#"[[rule]]
toolName = ["google_web_search", "web_fetch"]
decision = "deny"
priority = 999

[[rule]]
toolName = "*"
decision = "allow"
priority = 998
allowRedirection = true
"#;

/// What Aider keeps for itself stays out of the checkout, and so out of the patch; a commit would stay behind and costs a call.
const AIDER: &str = "analytics-disable: true
auto-commits: false
chat-history-file: /tmp/aider.chat.history.md
check-update: false
dirty-commits: false
gitignore: false
input-history-file: /tmp/aider.input.history
show-model-warnings: false
show-release-notes: false
yes-always: true
";

pub(super) fn files(agent: Agent, api: Api) -> Templates {
    match agent {
        Agent::ClaudeCode => vec![
            (".claude.json", CLAUDE_STATE.to_owned()),
            (".claude/settings.json", CLAUDE_SETTINGS.to_owned()),
        ],
        Agent::Codex => vec![(".codex/config.toml", CODEX.to_owned())],
        Agent::GeminiCli => vec![
            (".gemini/settings.json", GEMINI.to_owned()),
            (".gemini/policies/pond.toml", GEMINI_POLICY.to_owned()),
        ],
        Agent::Opencode => vec![(".config/opencode/opencode.json", opencode(api))],
        Agent::Aider => vec![(".aider.conf.yml", AIDER.to_owned())],
    }
}

fn opencode(api: Api) -> String {
    let (provider, path, package) = match api {
        Api::Anthropic => ("anthropic", "/v1", ""),
        Api::Openai => ("openai", "/v1", ""),
        Api::OpenaiChat => ("pond", "/v1", "\"npm\": \"@ai-sdk/openai-compatible\", "),
        Api::Gemini => ("google", "/v1beta", ""),
    };
    format!(
        "{{\n  \"model\": \"{provider}/{{{{MODEL}}}}\",\n  \"small_model\": \"{provider}/{{{{MODEL}}}}\",\n  \
         \"autoupdate\": false,\n  \"share\": \"disabled\",\n  \"permission\": {{\"*\": \"allow\"}},\n  \
         \"provider\": {{\"{provider}\": {{{package}\"options\": {{\"baseURL\": \"{{{{BROKER_URL}}}}{path}\", \"apiKey\": \"{{{{SECRET:MODEL_KEY}}}}\"}}, \
         \"models\": {{\"{{{{MODEL}}}}\": {{}}}}}}}}\n}}\n"
    )
}

pub(super) fn environment(agent: Agent, api: Api) -> Templates {
    let fixed: &[(&'static str, &str)] = match agent {
        Agent::ClaudeCode => &[
            ("ANTHROPIC_BASE_URL", "{{BROKER_URL}}"),
            ("ANTHROPIC_AUTH_TOKEN", "{{SECRET:MODEL_KEY}}"),
            ("ANTHROPIC_MODEL", "{{MODEL}}"),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL", "{{MODEL}}"),
            ("ANTHROPIC_DEFAULT_SONNET_MODEL", "{{MODEL}}"),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "{{MODEL}}"),
            ("CLAUDE_CODE_SUBAGENT_MODEL", "{{MODEL}}"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
        ],
        Agent::Codex => &[],
        Agent::GeminiCli => &[("GEMINI_MODEL", "{{MODEL}}")],
        Agent::Opencode => &[("OPENCODE_DISABLE_MODELS_FETCH", "1"), ("OPENCODE_DISABLE_AUTOUPDATE", "1")],
        Agent::Aider => return aider(api),
    };
    fixed.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
}

fn aider(api: Api) -> Templates {
    let family = match api {
        Api::Anthropic => "anthropic",
        Api::Openai | Api::OpenaiChat => "openai",
        Api::Gemini => "gemini",
    };
    let model = format!("{family}/{{{{MODEL}}}}");
    vec![
        ("AIDER_MODEL", model.clone()),
        ("AIDER_WEAK_MODEL", model),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
    ]
}

/// The API's own variables as well, except where an agent would send two credentials.
pub(super) fn sdk_environment(api: Api, agent: Agent) -> Templates {
    match agent {
        Agent::ClaudeCode => Vec::new(),
        Agent::Codex | Agent::GeminiCli | Agent::Opencode | Agent::Aider => sdk_variables(api),
    }
}

/// What the libraries read. Anthropic's base has no version, OpenAI's has; LiteLLM has names of its own, and for Gemini wants
/// the version that Google's own library adds.
pub(super) fn sdk_variables(api: Api) -> Templates {
    let fixed: &[(&'static str, &str)] = match api {
        Api::Anthropic => &[
            ("ANTHROPIC_BASE_URL", "{{BROKER_URL}}"),
            ("ANTHROPIC_API_BASE", "{{BROKER_URL}}"),
            ("ANTHROPIC_API_KEY", "{{SECRET:MODEL_KEY}}"),
        ],
        Api::Openai | Api::OpenaiChat => &[
            ("OPENAI_BASE_URL", "{{BROKER_URL}}/v1"),
            ("OPENAI_API_BASE", "{{BROKER_URL}}/v1"),
            ("OPENAI_API_KEY", "{{SECRET:MODEL_KEY}}"),
        ],
        Api::Gemini => &[
            ("GOOGLE_GEMINI_BASE_URL", "{{BROKER_URL}}"),
            ("GEMINI_API_BASE", "{{BROKER_URL}}/v1beta"),
            ("GEMINI_API_KEY", "{{SECRET:MODEL_KEY}}"),
        ],
    };
    let common = [("POND_MODEL", "{{MODEL}}"), ("POND_BROKER_URL", "{{BROKER_URL}}")];
    fixed.iter().chain(&common).map(|(name, text)| (*name, (*text).to_owned())).collect()
}
