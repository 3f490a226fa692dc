//! The command line: what may be asked, and which file answers. Usage errors exit 125 like every other refusal, so that
//! a script never takes one for the exit code of a job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::agent_cmd::AgentArgs;
use crate::apply_cmd::ApplyArgs;
use crate::attack::AttackArgs;
use crate::client::ServerArgs;
use crate::doctor::DoctorArgs;
use crate::explain::ExplainArgs;
use crate::failure::Failure;
use crate::host_cmd::{self, Host};
use crate::mcp::McpArgs;
use crate::orchestrator_cmd::OrchestratorArgs;
use crate::output::{self, REFUSED};
use crate::proof::key_cmd::{self, Key};
use crate::remote::audit::{self as audit_log, Audit};
use crate::remote::cancel::{self, CancelArgs};
use crate::remote::egress::{self, Egress};
use crate::remote::fetch::{self, FetchArgs};
use crate::remote::logs::{self, LogsArgs};
use crate::remote::project::{self, Project};
use crate::remote::secret::{self, Secret};
use crate::remote::show::{self, ShowArgs};
use crate::remote::submit::{self, SubmitArgs};
use crate::remote::token::{self, Token};
use crate::rules_cmd::{AllowArgs, DenyArgs};
use crate::run::{Begun, RunArgs};
use crate::runs::gc::GcArgs;
use crate::runs::list::RunsArgs;
use crate::sandbox_cmd::{Early, ExecArgs, Sandbox};
use crate::serve::{self, ServeArgs};
use crate::up::{self, UpArgs};
use crate::verify::VerifyArgs;
use crate::worker_cmd::{self, Worker};
use crate::{
    apply_cmd, attack, doctor, explain, orchestrator_cmd, policy_cmd, preflight_cmd, reference, rules_cmd,
    run, runs, sandbox_cmd, verify,
};

#[derive(Debug, Parser)]
#[command(name = "pond", version, about = "Runs coding agents and untrusted code, confined.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArgs>),
    Agent(Box<AgentArgs>),
    Apply(ApplyArgs),
    Runs(RunsArgs),
    /// Sandboxes that last.
    #[command(subcommand)]
    Sandbox(Sandbox),
    Submit(Box<SubmitArgs>),
    Show(ShowArgs),
    Logs(LogsArgs),
    Cancel(CancelArgs),
    Fetch(FetchArgs),
    Explain(ExplainArgs),
    Allow(AllowArgs),
    Deny(DenyArgs),
    Gc(GcArgs),
    Verify(VerifyArgs),
    /// The key this machine signs its runs with.
    #[command(subcommand)]
    Key(Key),
    Orchestrator(OrchestratorArgs),
    Attack(AttackArgs),
    Doctor(DoctorArgs),
    /// The sandbox contract: profiles, and what a block means.
    #[command(subcommand)]
    Policy(Policy),
    /// Check a whole run document, without running anything.
    Preflight(Preflight),
    /// Secrets of the control plane: stored and replaced, never shown.
    #[command(subcommand)]
    Secret(Secret),
    /// Projects of the control plane: each run belongs to one.
    #[command(subcommand)]
    Project(Project),
    /// The audit log of the control plane: read, exported, verified.
    #[command(subcommand)]
    Audit(Audit),
    /// Hosts that the control plane allows a project.
    #[command(subcommand)]
    Egress(Egress),
    /// Workers of a control plane, and this machine as one of them.
    #[command(subcommand)]
    Worker(Worker),
    /// Tokens of the control plane's API.
    #[command(subcommand)]
    Token(Token),
    /// Prepare this machine for ordinary users.
    #[command(subcommand)]
    Host(Host),
    Mcp(McpArgs),
    Up(UpArgs),
    Serve(ServeArgs),
    /// The OpenAPI document of a control plane.
    #[command(hide = true)]
    Openapi,
}

/// The same command line as far as a run goes: describing every other command to the parser takes as long as parsing.
#[derive(Debug, Parser)]
#[command(name = "pond", version, about = "Runs coding agents and untrusted code, confined.")]
struct RunCli {
    #[command(subcommand)]
    command: OnlyRun,
}

#[derive(Debug, Subcommand)]
enum OnlyRun {
    Run(Box<RunArgs>),
}

/// The same for sandboxes that last.
#[derive(Debug, Parser)]
#[command(name = "pond", version, about = "Runs coding agents and untrusted code, confined.")]
struct SandboxCli {
    #[command(subcommand)]
    command: OnlySandbox,
}

#[derive(Debug, Subcommand)]
enum OnlySandbox {
    /// Sandboxes that last.
    #[command(subcommand)]
    Sandbox(Sandbox),
}

/// And for the one of them that is called most.
#[derive(Debug, Parser)]
#[command(name = "pond", version, about = "Runs coding agents and untrusted code, confined.")]
struct ExecCli {
    #[command(subcommand)]
    command: OnlySandboxExec,
}

#[derive(Debug, Subcommand)]
enum OnlySandboxExec {
    /// Sandboxes that last.
    #[command(subcommand)]
    Sandbox(OnlyExec),
}

#[derive(Debug, Subcommand)]
enum OnlyExec {
    Exec(ExecArgs),
}

#[derive(Debug, Subcommand)]
enum Policy {
    /// The table of profiles.
    Profiles {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Decide a sandbox block as dispatch would, or as a worker would.
    Resolve(Resolve),
    /// The JSON Schema of a document.
    Schema {
        /// The run document, or what a signed statement says about a run.
        #[arg(value_enum, default_value = "run")]
        of: SchemaOf,
    },
    /// Every variable, and every field of pond.toml, as Markdown.
    Settings,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    Run,
    Sandbox,
    RunResult,
}

#[derive(Debug, Args)]
pub(crate) struct Resolve {
    /// The block, or an object with the one key `sandbox`, as JSON or YAML; `-` reads standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// The project the work belongs to.
    #[arg(long, value_name = "P")]
    pub(crate) project: Option<String>,
    /// Resolve as a worker: print the policy it would enforce.
    #[arg(long)]
    pub(crate) worker: bool,
    /// The answer is always JSON; accepted so that scripts can ask for it everywhere.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Preflight {
    /// The run document, as JSON or YAML; `-` reads standard input.
    pub(crate) file: PathBuf,
    /// Have the control plane judge it, under its own settings and with its own projects.
    #[arg(long)]
    pub(crate) remote: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What `pond run` is asked for, with the launcher it begins with.
pub(crate) fn run(launcher: Begun) -> ExitCode {
    match RunCli::try_parse() {
        Ok(RunCli { command: OnlyRun::Run(args) }) => run::main(&args, launcher),
        Err(error) => usage(&error),
    }
}

/// What `pond sandbox` is asked for, with the keeper that may be needed.
pub(crate) fn sandbox(early: Early) -> ExitCode {
    match SandboxCli::try_parse() {
        Ok(SandboxCli { command: OnlySandbox::Sandbox(command) }) => sandbox_cmd::main(&command, early),
        Err(error) => usage(&error),
    }
}

/// `pond sandbox exec`, and nothing else.
pub(crate) fn sandbox_exec() -> ExitCode {
    match ExecCli::try_parse() {
        Ok(ExecCli { command: OnlySandboxExec::Sandbox(OnlyExec::Exec(args)) }) => {
            sandbox_cmd::main(&Sandbox::Exec(args), None)
        }
        Err(error) => usage(&error),
    }
}

/// The same for `pond agent`, which is a run.
pub(crate) fn agent(launcher: Begun) -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Agent(args) }) => run_agent(&args, launcher),
        Ok(_) => ExitCode::from(REFUSED),
        Err(error) => usage(&error),
    }
}

fn run_agent(args: &AgentArgs, launcher: Begun) -> ExitCode {
    let operator = match crate::operator::load() {
        Ok(operator) => operator,
        Err(refusals) => return output::refused(refusals, false),
    };
    match args.as_run(&operator).map(RunCli::try_parse_from) {
        Ok(Ok(RunCli { command: OnlyRun::Run(args) })) => run::main(&args, launcher),
        Ok(Err(error)) => usage(&error),
        Err(fault) => output::told(&fault),
    }
}

pub(crate) fn any() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.command {
        Command::Run(args) => run::main(&args, run::launcher()),
        Command::Agent(args) => run_agent(&args, run::launcher()),
        Command::Apply(args) => apply_cmd::main(&args),
        Command::Runs(args) => runs::list::main(&args),
        Command::Sandbox(command) => sandbox_cmd::main(&command, None),
        Command::Submit(args) => submit::main(&args),
        Command::Show(args) => show::main(&args),
        Command::Logs(args) => logs::main(&args),
        Command::Cancel(args) => cancel::main(&args),
        Command::Fetch(args) => fetch::main(&args),
        Command::Secret(command) => secret::main(&command),
        Command::Project(command) => project::main(&command),
        Command::Audit(command) => audit_log::main(&command),
        Command::Egress(command) => egress::main(&command),
        Command::Token(command) => token::main(&command),
        Command::Explain(args) => explain::main(&args),
        Command::Allow(args) => rules_cmd::allow(args),
        Command::Deny(args) => rules_cmd::deny(args),
        Command::Gc(args) => runs::gc::main(&args),
        Command::Verify(args) => verify::main(&args),
        Command::Key(key) => key_cmd::main(&key),
        Command::Orchestrator(args) => orchestrator_cmd::main(&args),
        Command::Attack(args) => attack::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Policy(Policy::Profiles { json }) => policy_cmd::profiles(json),
        Command::Policy(Policy::Resolve(args)) => policy_cmd::resolve(&args),
        Command::Policy(Policy::Schema { of }) => policy_cmd::schema(of),
        Command::Policy(Policy::Settings) => reference::print(),
        Command::Preflight(args) => preflight_cmd::preflight(&args),
        Command::Worker(worker) => worker_cmd::main(&worker),
        Command::Host(host) => host_cmd::main(&host),
        Command::Mcp(args) => crate::mcp::main(&args),
        Command::Up(args) => up::main(&args),
        Command::Serve(args) => serve::main(&args),
        Command::Openapi => crate::output::lines(pond_control::api::openapi_document().trim_end()),
    }
}

/// Help and version are answers; anything else is a refusal.
fn usage(error: &clap::Error) -> ExitCode {
    // What comes after two dashes is the job's.
    let mut own = std::env::args_os().take_while(|word| word != "--");
    if error.use_stderr() && own.any(|word| word == "--json") {
        let words = error.to_string();
        return output::failed(&Failure::Usage.because(words.trim().to_owned()), true);
    }
    let printed = error.print();
    if printed.is_ok() && error.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
}

#[cfg(test)]
mod documented;
