//! The flags of `pond run`, and the sandbox block they spell.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use pond_policy::harness::Agent;
use pond_policy::node::Node;

use super::request::Manner;

/// Run a command in a sandbox, here and now, on a throwaway copy of the current directory.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: the command's own; 124 timed out; 125 pond refused or failed and nothing ran; \
                        137 killed by a limit (the summary says which)."
)]
pub(crate) struct RunArgs {
    /// The isolation posture; see `pond policy profiles`.
    #[arg(long, default_value = "untrusted-code-write")]
    profile: String,
    /// How strong the boundary must be: native, docker, gvisor or firecracker.
    #[arg(long)]
    backend: Option<String>,
    /// An image of the container engine's to run in, such as your/agent:1; it must be there, nothing is pulled.
    #[arg(long)]
    image: Option<String>,
    /// A host the job may reach over TLS besides the defaults.
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(crate) allow_hosts: Vec<String>,
    /// A model of pond.toml the job may talk to, as NAME or NAME:ID; its key stays outside.
    #[arg(long, value_name = "NAME[:ID]")]
    pub(crate) model: Option<String>,
    /// The agent whose settings the job gets, where its command does not begin with that: claude, codex, gemini, opencode
    /// or aider.
    #[arg(long, value_name = "NAME", requires = "model", value_parser = AGENTS)]
    agent: Option<String>,
    /// What the model may cost in all.
    #[arg(long, value_name = "CENTS", default_value_t = 100, requires = "model")]
    pub(crate) max_cost_cents: u64,
    /// Memory limit, such as 512m or 4g.
    #[arg(long)]
    memory: Option<String>,
    /// Processor limit, such as 2 or 0.5.
    #[arg(long)]
    cpus: Option<String>,
    /// How many processes and threads may exist at once.
    #[arg(long, value_name = "N")]
    pids: Option<String>,
    /// Size of /tmp, such as 256m.
    #[arg(long = "tmp", value_name = "SIZE")]
    tmpfs_size: Option<String>,
    /// Time limit, such as 30s, 10m or 1h.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// An environment variable for the job. Nothing is inherited.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// A toolchain of your home directory the job may use, read-only: cargo, nvm, pyenv or uv.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Give the job a terminal; by itself for an agent's own command on a terminal. Ctrl-] three times ends the job.
    #[arg(long, short, conflicts_with_all = ["json", "no_tty"])]
    tty: bool,
    /// Give the job pipes, whatever its command.
    #[arg(long)]
    no_tty: bool,
    /// The directory the job works on.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) checkout: PathBuf,
    /// Work on a private copy of the checkout made now, so that editing it meanwhile does not matter.
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// A file or directory below the checkout to hand over, even if ignored; may be repeated.
    #[arg(long = "artifact", value_name = "PATH")]
    pub(crate) artifacts: Vec<OsString>,
    /// Also put the patch, the manifest, the logs, the summary and the artifacts into this new directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Keep files that the checkout's own ignore rules match and git does not track, such as build output.
    #[arg(long)]
    pub(crate) keep_ignored: bool,
    /// Print one JSON object instead of the job's output and a summary.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing but what the job says.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

/// Agents whose command is a conversation, so that on a terminal they get one.
const AGENTS: [&str; 5] = ["aider", "claude", "codex", "gemini", "opencode"];

/// Whether the job should have a terminal, as far as the flags and the command say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalWish {
    Required,
    WherePossible,
    Unwanted,
}

impl RunArgs {
    pub(crate) fn terminal(&self) -> TerminalWish {
        let program = self.argv.first().and_then(|program| program.rsplit('/').next());
        let is_agent = program.is_some_and(|name| AGENTS.contains(&name));
        match (self.tty, self.no_tty || self.json) {
            (true, _) => TerminalWish::Required,
            (false, false) if is_agent => TerminalWish::WherePossible,
            (false, _) => TerminalWish::Unwanted,
        }
    }

    pub(super) fn agent(&self) -> Option<Agent> {
        self.agent.as_deref().and_then(Agent::of_program)
    }

    pub(super) fn manner(&self) -> Manner {
        match (self.json, self.quiet) {
            (true, _) => Manner::Json,
            (false, true) => Manner::Quiet,
            (false, false) => Manner::Summary,
        }
    }

    /// A flag that was given and could never take effect without a sandbox.
    pub(super) fn idle_unconfined(&self) -> Option<&'static str> {
        let given = [
            (self.timeout.is_some(), "--timeout"),
            (!self.env.is_empty(), "--env"),
            (self.json, "--json"),
            (self.out.is_some(), "--out"),
            (self.snapshot, "--snapshot"),
            (!self.artifacts.is_empty(), "--artifact"),
            (!self.tools.is_empty(), "--tool"),
            (self.keep_ignored, "--keep-ignored"),
            (self.terminal() == TerminalWish::Required, "--tty"),
        ];
        given.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// The block a stage would carry to get the same sandbox: flags and files go through one parser.
    pub(crate) fn block(&self) -> Node {
        let mut fields = vec![("profile".to_owned(), Node::text(&self.profile))];
        if let Some(backend) = &self.backend {
            fields.push(("backend".to_owned(), Node::text(backend)));
        }
        if !self.allow_hosts.is_empty() {
            let hosts = self.allow_hosts.iter().map(Node::text).collect();
            fields.push(("allow_hosts".to_owned(), Node::List(hosts)));
        }
        let overrides: Vec<(String, Node)> = [
            ("image", &self.image),
            ("memory", &self.memory),
            ("cpus", &self.cpus),
            ("pids_limit", &self.pids),
            ("tmpfs_size", &self.tmpfs_size),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| (name.to_owned(), Node::text(value))))
        .collect();
        if !overrides.is_empty() {
            fields.push(("overrides".to_owned(), Node::Map(overrides)));
        }
        Node::Map(fields)
    }
}
