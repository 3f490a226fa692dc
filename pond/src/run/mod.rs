//! `pond run`: one job, here and now, no server.
//!
//! Flags become a sandbox block, the block goes through the same resolution a worker uses, and only what that returns is run.
//! Whatever cannot be enforced on this host is refused before anything starts.

mod args;
mod sink;
mod summary;
mod terminal;
mod unconfined;
mod verdict;

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use pond_policy::backend::Backend;
use pond_policy::capability::Capability;
use pond_policy::duration::Timeout;
use pond_policy::profile::{Commands, Network};
use pond_policy::refusal::{Code, Refusal, Refusals};
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Job, Native, Provided, Tool, sweep};
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_wire::jail::Console;
use pond_worker::collect::{Caps, Collected, OverlayXattrs, Sources, collect};
use pond_worker::supervise::{Bounds, Ended, Wiring, supervise};

pub(crate) use args::RunArgs;
use sink::Sinks;
use summary::{ResultSummary, Summary};
use verdict::Verdict;

use crate::{output, settings};

/// More output than any build writes for a person to read; past it the job is printing to fill a disk.
const OUTPUT_BYTES: u64 = 256 << 20;

/// This very file, even when it was replaced or removed since it started.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Runs the command; what keeps it from running is one line, or one object, and exit code 125.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    match resolve(args) {
        Err(refusals) => output::refused(refusals, args.json),
        Ok(policy) => match run(args, &policy) {
            Ok(code) => ExitCode::from(code),
            Err(fault) => output::failed(&fault, args.json),
        },
    }
}

fn run(args: &RunArgs, policy: &SandboxPolicy) -> anyhow::Result<u8> {
    if policy.posture().commands == Commands::Allowlisted {
        pond_policy::command::check(&args.argv)
            .map_err(|denied| anyhow::anyhow!("{denied} [{}]; {}", denied.code(), denied.hint()))?;
    }
    let console = terminal::console(args.terminal())?;
    let env = terminal::environment(console, environment(&args.env)?);
    if !policy.profile().is_confined() {
        return unconfined::run(args, policy);
    }
    enforceable(policy)?;
    if !args.allow_hosts.is_empty() {
        bail!("the native backend's network is closed in this version; --allow-host would have no effect");
    }
    let directory = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let state = StateDir::open(&directory)?;
    let mut native = Native::open(state, Path::new(OWN_EXECUTABLE))?;
    sweep(native.state()).context("cleaning up after runs that were killed")?;
    let summary = launch(&mut native, args, policy, &env, console)?;
    report(args, &summary)?;
    Ok(summary.exit_code)
}

/// The worker's own resolution over the block the flags spell.
fn resolve(args: &RunArgs) -> Result<SandboxPolicy, Refusals> {
    let policy = pond_policy::sandbox::resolve(Some(&args.block()), &settings::sandbox()?)?;
    let Some(text) = &args.timeout else { return Ok(policy) };
    let path = pond_policy::path::Path::root().field("timeout");
    let refused = |refusal: Refusal| {
        let mut refusals = Refusals::default();
        refusals.add(refusal);
        refusals
    };
    let timeout = Timeout::parse(text)
        .map_err(|fault| refused(Refusal::new(Code::TimeoutInvalid, &path, fault.to_string())))?;
    policy.with_timeout(timeout, &path).map_err(refused)
}

/// Refuses what this host's native backend cannot do yet, rather than do less than was asked.
fn enforceable(policy: &SandboxPolicy) -> anyhow::Result<()> {
    match policy.requirement() {
        None => bail!("the policy asks for no sandbox"),
        Some(requirement) if !requirement.satisfied_by(&[Capability::Backend(Backend::Native)]) => {
            bail!("this command runs the native backend; {requirement} needs a worker that offers it")
        }
        Some(_) => {}
    }
    if policy.image().is_some() {
        bail!("the native backend runs on the host's own toolchain; it takes no image");
    }
    match policy.posture().network {
        Network::Internet => {
            bail!("the native backend has no way out to the internet; use untrusted-code-write")
        }
        Network::Open => bail!("an open network is not a sandbox"),
        Network::BrokerOnly | Network::Allowlist | Network::Sealed => Ok(()),
    }
}

fn environment(pairs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_variable(name) => Ok((name.to_owned(), value.to_owned())),
            _ => bail!("--env {pair:?}: write NAME=VALUE, the name of letters, digits and underscores"),
        })
        .collect()
}

fn tools(names: &[String]) -> anyhow::Result<Vec<Provided>> {
    let home = || settings::home().context("no home directory to take tools from; set HOME");
    names.iter().map(|name| Ok(Tool::parse(name)?.provide(&home()?)?)).collect()
}

fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) && name.bytes().all(plain)
}

fn launch(
    native: &mut Native,
    args: &RunArgs,
    policy: &SandboxPolicy,
    env: &[(String, String)],
    console: Console,
) -> anyhow::Result<Summary> {
    let checkout = Checkout::open(&args.checkout)?;
    let tools = tools(&args.tools)?;
    let name = new_name()?;
    let directory = native.state().runs().join(name.as_str());
    let job = Job {
        name: name.clone(),
        policy,
        checkout: &checkout,
        argv: &args.argv,
        env,
        exhibits: &[],
        tools: &tools,
        console,
    };
    let running = native.launch(&job)?;
    native.retire();
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("making {}", directory.display()))?;
    let mut sinks = Sinks::open(&directory, console, !args.json)?;
    let interrupt = pond_sys::signal::interrupts()?;
    let stdin = std::io::stdin();
    let person = terminal::take(console, stdin.as_fd())?;
    let wiring = Wiring {
        input: if person.is_some() || !stdin.is_terminal() { Some(stdin.as_fd()) } else { None },
        interrupt: Some(interrupt.as_fd()),
        terminal: person.as_ref(),
    };
    let bounds = Bounds { wall: policy.timeout().duration(), output_bytes: output_bytes(console) };
    let ended = supervise(running, wiring, bounds, |stream, bytes| sinks.take(stream, bytes));
    // Whatever happened, the terminal is whole again before anything is said on it.
    sinks.finish()?;
    drop(person);
    let mut ended = ended?;
    let collected = gather(&mut ended, &checkout, &directory)?;
    Ok(summarise(args, policy, &name, directory, &ended, collected))
}

/// A conversation may go on for days, and a terminal takes no more than a person can watch; only its log is bounded.
fn output_bytes(console: Console) -> u64 {
    match console {
        Console::Pipes => OUTPUT_BYTES,
        Console::Terminal { .. } => u64::MAX,
    }
}

/// Reads the result, now that nothing inside can change it any more.
fn gather(ended: &mut Ended, checkout: &Checkout, directory: &Path) -> anyhow::Result<Option<Collected>> {
    let Some(written) = ended.over.upper.take() else { return Ok(None) };
    let upper = written.as_fd().try_clone_to_owned()?;
    let lower = checkout.as_fd().try_clone_to_owned()?;
    let xattrs =
        if rustix::process::geteuid().is_root() { OverlayXattrs::Trusted } else { OverlayXattrs::User };
    let run = std::fs::File::open(directory)?;
    let collected = collect(&Sources { upper, lower, xattrs }, &Caps::default(), run.as_fd())?;
    Ok(Some(collected))
}

fn summarise(
    args: &RunArgs,
    policy: &SandboxPolicy,
    name: &JobName,
    directory: PathBuf,
    ended: &Ended,
    collected: Option<Collected>,
) -> Summary {
    let verdict = Verdict::of(ended);
    Summary {
        run: name.as_str().to_owned(),
        command: args.argv.clone(),
        profile: policy.profile().name(),
        backend: Backend::Native.name(),
        exit_code: verdict.code(),
        verdict,
        elapsed: ended.elapsed,
        peak_memory_bytes: ended.over.usage.memory_peak_bytes,
        output_bytes: ended.output_bytes,
        process_refusals: ended.over.usage.pids_denied.unwrap_or(0),
        result: collected.map(|collected| result(&collected, &directory)),
        network: "closed",
        directory,
    }
}

fn result(collected: &Collected, directory: &Path) -> ResultSummary {
    let record = &collected.record;
    ResultSummary {
        changed: record.changes.len(),
        rejected: record.rejected.len(),
        flagged: record
            .flagged
            .iter()
            .map(|flag| format!("{}: {}", flag.path, flag.category.why()))
            .collect(),
        git_metadata_changes: record.git_metadata_changes,
        output_sha256: record.manifest_sha256.to_string(),
        patch: directory.join("changes.patch"),
    }
}

/// A name that sorts by time and does not repeat.
#[expect(clippy::disallowed_methods, reason = "the command line is the edge where a run gets its time")]
fn new_name() -> anyhow::Result<JobName> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    JobName::try_from(format!("{stamp}-{:08x}", u32::from_le_bytes(random))).map_err(anyhow::Error::msg)
}

fn report(args: &RunArgs, summary: &Summary) -> anyhow::Result<()> {
    if args.json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, summary)?;
        writeln!(out)?;
    } else if !args.quiet {
        write!(std::io::stderr().lock(), "{}", summary.lines())?;
    }
    Ok(())
}
