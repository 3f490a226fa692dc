//! The agent command lines whose settings pond knows.

use crate::model::Api;

named_enum! {
    pub enum Agent {
        ClaudeCode => "claude-code",
        Codex => "codex",
        GeminiCli => "gemini-cli",
        Opencode => "opencode",
        Aider => "aider",
    }
}

impl Agent {
    /// The agent that a program's name starts, if it is one of these.
    pub fn of_program(program: &str) -> Option<Self> {
        match program.rsplit('/').next()? {
            "claude" => Some(Self::ClaudeCode),
            "codex" => Some(Self::Codex),
            "gemini" => Some(Self::GeminiCli),
            "opencode" => Some(Self::Opencode),
            "aider" => Some(Self::Aider),
            _ => None,
        }
    }

    /// The program that starts this agent.
    pub const fn program(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini",
            Self::Opencode => "opencode",
            Self::Aider => "aider",
        }
    }

    pub const fn speaks(self, api: Api) -> bool {
        match (self, api) {
            (Self::ClaudeCode, Api::Anthropic)
            | (Self::Codex, Api::Openai)
            | (Self::GeminiCli, Api::Gemini) => true,
            (Self::ClaudeCode | Self::Codex | Self::GeminiCli, _) => false,
            (Self::Opencode | Self::Aider, _) => true,
        }
    }
}
