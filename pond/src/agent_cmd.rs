//! `pond agent`: an agent on the current directory, in a terminal, with a model through the broker; a summary and a patch at the end.
//!
//! It is `pond run` with an agent's defaults: which model it can speak to, what that may cost, where its program must be. Invariant:
//! what it decides are flags of `pond run`, and nothing else starts a job; what is missing is said with what to write or install.

use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use pond_policy::harness::Agent;
use pond_policy::model::Api;
use pond_policy::operator::Operator;
use pond_sandbox::native::SEARCH;

/// Enough for a conversation: some agents reserve half a dollar for every call.
const USUAL_CENTS: u64 = 500;

/// Work with an agent on a throwaway copy of the current directory: claude, codex, gemini, opencode, aider, or any command after `--`.
#[derive(Debug, Args)]
#[command(
    after_help = "What it changed is kept as a patch: `pond apply` takes it over. Exit codes are those of `pond run`."
)]
pub(crate) struct AgentArgs {
    /// A model of pond.toml, as NAME or NAME:ID; without it the one the agent can speak to, and another command has none.
    #[arg(long, value_name = "NAME[:ID]")]
    model: Option<String>,
    /// What the model may cost in all.
    #[arg(long, value_name = "CENTS", default_value_t = USUAL_CENTS)]
    max_cost_cents: u64,
    /// How strong the boundary must be: native, docker, gvisor or firecracker.
    #[arg(long)]
    backend: Option<String>,
    /// An image of the container engine's that has the agent in it.
    #[arg(long)]
    image: Option<String>,
    /// A host the agent may reach over TLS besides the defaults.
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// A toolchain of your home directory, read-only: cargo, nvm, pyenv or uv.
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// Memory limit, such as 4g.
    #[arg(long)]
    memory: Option<String>,
    /// Time limit, such as 2h.
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// The directory the agent works on.
    #[arg(long, value_name = "DIR", default_value = ".")]
    checkout: PathBuf,
    /// Also put the patch, the logs and the summary into this new directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The agent and its own arguments, or another command.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "AGENT")]
    argv: Vec<String>,
}

impl AgentArgs {
    /// The command line of `pond run` that does it.
    pub(crate) fn as_run(&self, operator: &Operator) -> anyhow::Result<Vec<String>> {
        let program = self.argv.first().context("name an agent, or a command after `--`")?;
        let agent = Agent::of_program(program);
        // An image has programs of its own, and a toolchain of a home is not where others are.
        if self.image.is_none() && self.tools.is_empty() {
            is_there(program, agent, &SEARCH.map(Path::new))?;
        }
        let model = match (&self.model, agent) {
            (Some(model), _) => Some(model.clone()),
            (None, Some(agent)) => Some(model_for(agent, operator)?),
            (None, None) => None,
        };
        let mut words: Vec<String> = vec!["pond".into(), "run".into()];
        let mut flag = |name: &str, value: &str| words.extend([format!("--{name}={value}")]);
        if let Some(model) = &model {
            flag("model", model);
            flag("max-cost-cents", &self.max_cost_cents.to_string());
        }
        for (name, value) in [
            ("backend", &self.backend),
            ("image", &self.image),
            ("memory", &self.memory),
            ("timeout", &self.timeout),
        ] {
            value.iter().for_each(|value| flag(name, value));
        }
        self.allow_hosts.iter().for_each(|host| flag("allow-host", host));
        self.tools.iter().for_each(|tool| flag("tool", tool));
        for (name, path) in [("checkout", Some(&self.checkout)), ("out", self.out.as_ref())] {
            let Some(path) = path else { continue };
            flag(name, path.to_str().with_context(|| format!("--{name}: the path is not UTF-8"))?);
        }
        if stdin().is_terminal() && stdout().is_terminal() {
            words.push("--tty".into());
        }
        words.push("--".into());
        words.extend(self.argv.iter().cloned());
        Ok(words)
    }
}

/// The one model of the operator's file that the agent can speak to.
fn model_for(agent: Agent, operator: &Operator) -> anyhow::Result<String> {
    let fitting: Vec<&str> = operator
        .models
        .iter()
        .filter(|model| agent.speaks(model.api))
        .map(|model| model.name.as_str())
        .collect();
    match fitting.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => bail!(
            "{} has no model to speak to. Write into pond.toml (root: /etc/pond/pond.toml; others: ~/.config/pond/pond.toml):\n{}",
            agent.program(),
            example(agent)
        ),
        several => bail!("{} can speak to {}: choose with --model NAME", agent.program(), several.join(", ")),
    }
}

/// A table of pond.toml that would do.
fn example(agent: Agent) -> String {
    let (name, api, variable, id) = match Api::ALL.iter().find(|api| agent.speaks(**api)) {
        Some(Api::Openai | Api::OpenaiChat) => ("gpt", "openai", "OPENAI_API_KEY", "gpt-5.6-sol"),
        Some(Api::Gemini) => ("gemini", "gemini", "GEMINI_API_KEY", "gemini-2.5-pro"),
        Some(Api::Anthropic) | None => ("claude", "anthropic", "ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    };
    format!("[model.{name}]\napi = \"{api}\"\ncredential = \"env:{variable}\"\nmodels = [\"{id}\"]")
}

/// A program that is not where a sandbox looks is said before anything starts.
fn is_there(program: &str, agent: Option<Agent>, places: &[&Path]) -> anyhow::Result<()> {
    if program.contains('/') || places.iter().any(|place| place.join(program).is_file()) {
        return Ok(());
    }
    let seen = "a sandbox sees the programs in /usr and not those in your home";
    match agent {
        Some(agent) => bail!(
            "{program} is not installed where a sandbox sees it: {seen}. Install it once, as root:\n{}\nor name an image that has it \
             with --image, or use nvm's with --tool nvm",
            install(agent)
        ),
        None => bail!(
            "{program} is no agent pond knows (claude, codex, gemini, opencode, aider) and no program in /usr/bin or its like: {seen}"
        ),
    }
}

const fn install(agent: Agent) -> &'static str {
    match agent {
        Agent::ClaudeCode => "npm install -g @anthropic-ai/claude-code",
        Agent::Codex => "npm install -g @openai/codex",
        Agent::GeminiCli => "npm install -g @google/gemini-cli",
        Agent::Opencode => "npm install -g opencode-ai",
        Agent::Aider => {
            "python3 -m venv /usr/local/lib/aider && /usr/local/lib/aider/bin/pip install aider-chat && ln -s \
             /usr/local/lib/aider/bin/aider /usr/local/bin/"
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which `pond run` an agent becomes, and what is said when something is missing.
    use clap::Parser;
    use pond_wire::decode::decode_toml;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AgentArgs,
    }

    fn operator(models: &[(&str, &str)]) -> Operator {
        let table = |(name, api): &(&str, &str)| {
            let id = match *api {
                "anthropic" => "claude-sonnet-4-5",
                "gemini" => "gemini-2.5-pro",
                _ => "gpt-5.6-sol",
            };
            format!("[model.{name}]\napi = \"{api}\"\ncredential = \"env:K_{name}\"\nmodels = [\"{id}\"]\n")
        };
        let text: String = models.iter().map(table).collect();
        Operator::read(&decode_toml(text.as_bytes()).unwrap()).unwrap()
    }

    fn run_of(words: &[&str], operator: &Operator) -> anyhow::Result<Vec<String>> {
        let line = ["agent", "--image=i"].iter().chain(words);
        let mut run = Line::try_parse_from(line).unwrap().args.as_run(operator)?;
        run.retain(|word| word != "--tty");
        Ok(run)
    }

    #[test]
    fn an_agent_gets_the_model_it_can_speak_to() {
        let operator = operator(&[("main", "anthropic"), ("gpt", "openai")]);
        let run = run_of(&["claude", "-p", "fix it"], &operator).unwrap();
        assert_eq!(
            run,
            [
                "pond",
                "run",
                "--model=main",
                "--max-cost-cents=500",
                "--image=i",
                "--checkout=.",
                "--",
                "claude",
                "-p",
                "fix it"
            ]
        );
        let run = run_of(&["--max-cost-cents", "9", "codex"], &operator).unwrap();
        assert_eq!(run[2..4], ["--model=gpt", "--max-cost-cents=9"]);
        let fault = run_of(&["aider"], &operator).unwrap_err().to_string();
        assert_eq!(fault, "aider can speak to main, gpt: choose with --model NAME");
        let run = run_of(&["--model", "gpt:x", "aider"], &operator).unwrap();
        assert_eq!(run[2], "--model=gpt:x");
    }

    #[test]
    fn any_command_does_and_has_no_model_unasked() {
        let run = run_of(&["--", "./agent", "--model", "x"], &operator(&[("main", "anthropic")])).unwrap();
        assert_eq!(run[2..], ["--image=i", "--checkout=.", "--", "./agent", "--model", "x"]);
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_write() {
        for (agent, table) in [
            ("claude", "[model.claude]\napi = \"anthropic\""),
            ("codex", "[model.gpt]\napi = \"openai\""),
            ("gemini", "[model.gemini]"),
        ] {
            let fault = run_of(&[agent], &operator(&[])).unwrap_err().to_string();
            assert!(fault.contains("pond.toml") && fault.contains(table), "{fault}");
            let block = fault.split_once(":\n").unwrap().1;
            Operator::read(&decode_toml(block.as_bytes()).unwrap()).unwrap();
        }
        let nowhere = [Path::new("/nonexistent")];
        for agent in Agent::ALL {
            let fault = is_there(agent.program(), Some(*agent), &nowhere).unwrap_err().to_string();
            assert!(fault.contains("install"), "{fault}");
        }
        assert!(is_there("cluade", None, &nowhere).unwrap_err().to_string().contains("no agent pond knows"));
        is_there("./mine", None, &nowhere).unwrap();
    }
}
