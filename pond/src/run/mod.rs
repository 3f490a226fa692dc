//! `pond run`: one job, here and now, no server.
//!
//! Flags become a sandbox block, the block goes through the same resolution a worker uses, and only what that returns is run.
//! Whatever cannot be enforced on this host is refused before anything starts.

mod args;
mod attempt;
mod base;
pub(crate) mod counter;
pub(crate) mod desk;
mod disk_rate;
pub(crate) mod egress;
mod elsewhere;
mod export;
mod finding;
mod foreign;
mod gather;
pub(crate) mod git;
mod given_out;
pub(crate) mod listener;
pub(crate) mod model;
mod outlet;
mod pace;
mod record;
pub(crate) mod request;
mod rules;
mod shortage;
mod sink;
mod statement;
mod summary;
pub(crate) mod terminal;
pub(crate) mod traffic;
mod unconfined;
mod verdict;
mod warnings;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use pond_policy::backend::Backend;
use pond_policy::duration::Timeout;
use pond_policy::operator::Operator;
use pond_policy::profile::{Commands, Network};
use pond_policy::refusal::{Code, Refusal, Refusals};
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Launcher, Native, NativeFault, Provided, Tool};
use pond_sandbox::provider::Provider;
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_wire::jail::HomeFile;
use pond_worker::collect::Ignored;

pub(crate) use args::RunArgs;
pub(crate) use finding::{Finding, Kind};
pub(crate) use given_out::carry_out_order;
use model::{Key, Money, Wish};
use outlet::{Outlet, Patience};
use request::{Asker, Manner, Request, View};
use summary::Summary;
use verdict::Shortfall;
pub(crate) use verdict::Verdict;

use crate::audit::{self, Audit, Fate};
use crate::failure::{self, Failure};
use crate::{operator, output, runs, settings};

/// This very file, even when it was replaced or removed since it started.
pub(crate) const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// More than a launch on any control group layout holds at once.
const DESCRIPTORS: u64 = 64;

/// What was made ready before there was a run to speak of.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Made before anything else.
    Launcher(Launcher),
    /// With all that the next job gets in any case.
    Native(Box<Native>),
}

/// Or why it is not there.
pub(crate) type Begun = Result<Ready, NativeFault>;

impl Ready {
    pub(crate) fn native(self, state: StateDir) -> Result<Native, NativeFault> {
        match self {
            Self::Launcher(launcher) => Native::with(state, launcher),
            Self::Native(native) => Ok(*native),
        }
    }
}

/// The launcher of a command that was not made for one run.
pub(crate) fn launcher() -> Begun {
    Ok(Ready::Launcher(Launcher::start(std::path::Path::new(OWN_EXECUTABLE))?))
}

/// Runs the command; what keeps it from running is one line, or one object, and exit code 125.
pub(crate) fn main(args: &RunArgs, launcher: Begun) -> ExitCode {
    match resolve(args) {
        Err(refusals) => output::refused(refusals, args.json),
        Ok(resolved) => match run(args, &resolved, launcher) {
            Ok(code) => ExitCode::from(code),
            Err(fault) => output::failed(&shortage::advised(fault), args.json),
        },
    }
}

/// What a command line means, as far as it can be known without touching anything.
#[derive(Debug)]
struct Resolved {
    policy: SandboxPolicy,
    resolvers: Vec<SocketAddr>,
    disk_rate: Option<u64>,
    operator: Operator,
}

fn run(args: &RunArgs, resolved: &Resolved, launcher: Begun) -> anyhow::Result<u8> {
    let Resolved { policy, operator, .. } = resolved;
    if args.manner() != Manner::Quiet {
        let said = warnings::warnings(policy, operator, &args.allow_hosts);
        said.iter().for_each(|line| output::say(&format!("pond: warning: {line}")));
    }
    enough_descriptors()?;
    if let Some(flag) = args.argv.first().filter(|word| word.starts_with('-')) {
        let words = format!(
            "{flag} is no flag of `pond run`, see `pond run --help`; a program of that name is ./{flag}"
        );
        return Err(Failure::Usage.because(words));
    }
    large_enough_files(policy)?;
    let console = terminal::console(args.terminal())?;
    let program = args.argv.first().map_or("", String::as_str);
    let (agent, money) = (args.agent(), Money::Cents(args.max_cost_cents));
    let wish = |model| Wish { model, money, program, agent, key: Key::OfOperator };
    let model = args.model.as_deref().map(|model| model::choose(operator, &wish(model))).transpose()?;
    let network = if policy.profile().is_confined() {
        Some(egress::plan(policy, operator, &args.allow_hosts, model.is_some())?)
    } else if model.is_some() {
        bail!("a model's key is kept from a job by its sandbox; {} has none", policy.profile().name())
    } else {
        None
    };
    let led = network.iter().flat_map(|network| network.env.clone());
    let led = led.chain(model.iter().flat_map(|model| model.harness.env.clone())).collect();
    let env = terminal::environment(console, environment(led, &args.env)?);
    let home = model.iter().flat_map(|model| model.harness.files.clone());
    let request = Request {
        asker: Asker::Person,
        argv: &args.argv,
        policy,
        backend: request::backend(policy),
        checkout: &args.checkout,
        view: if args.snapshot { View::Snapshot } else { View::Live },
        env,
        home: home.map(|(path, content)| HomeFile { path, content }).collect(),
        artifacts: export::declared(&args.artifacts)?,
        ignored: if args.keep_ignored { Ignored::Keep } else { Ignored::LeaveOut },
        tools: tools(&args.tools)?,
        console,
        manner: args.manner(),
        out: args.out.as_deref(),
        resolvers: &resolved.resolvers,
        disk_rate: resolved.disk_rate,
        begun: RefCell::default(),
        way_out: RefCell::new(network.map(|network| (network, model))),
    };
    if !policy.profile().is_confined()
        && let Some(flag) = args.idle_unconfined()
    {
        bail!(
            "{flag} means nothing without a sandbox, and {} has none; leave one of them out",
            policy.profile().name()
        );
    }
    Ok(carry_out(&request, runs::state()?, launcher)?.returncode)
}

/// Runs what was asked for, and writes down that it was.
fn carry_out(request: &Request<'_>, state: StateDir, launcher: Begun) -> anyhow::Result<Ran> {
    let (policy, argv) = (request.policy, request.argv);
    let audit = Audit::open(&state)?;
    let backend = if policy.profile().is_confined() { request.backend.name() } else { "none" };
    let command = audit::Command { argv, profile: policy.profile().name(), backend };
    if policy.posture().commands == Commands::Allowlisted
        && let Err(denied) = pond_policy::command::check(argv)
    {
        audit.append(&command, &Fate::Denied(denied.code()))?;
        let words = format!("{denied} [{}]; {}", denied.code(), denied.hint());
        return Err(failure::known(denied.code(), words));
    }
    let ran = if policy.profile().is_confined() {
        confined(request, state, launcher)
    } else {
        drop(launcher);
        unconfined::run(request)
    };
    match ran {
        Ok(ran) => {
            let Ran { id, returncode, elapsed, timed_out } = &ran;
            let fate = Fate::Ran {
                id: id.as_str(),
                returncode: *returncode,
                elapsed: *elapsed,
                timed_out: *timed_out,
            };
            audit.append(&command, &fate)?;
            Ok(ran)
        }
        Err(fault) => {
            let begun = request.begun.take();
            let fate = begun.as_ref().map_or(Fate::DidNotRun, |id| Fate::Broke { id: id.as_str() });
            match audit.append(&command, &fate) {
                Ok(()) => Err(fault),
                Err(unsaid) => Err(fault.context(format!("{unsaid:#}"))),
            }
        }
    }
}

/// What the audit log says of a command that ran.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) id: JobName,
    pub(crate) returncode: u8,
    elapsed: Duration,
    timed_out: bool,
}

fn confined(request: &Request<'_>, state: StateDir, launcher: Begun) -> anyhow::Result<Ran> {
    let backend = request.backend;
    enforceable(request.policy, backend)?;
    settings::engine().check()?;
    // Before anything is started: most of what a person gets wrong is wrong here.
    let checkout = Checkout::open(request.checkout)?;
    checkout.keep_apart(&state)?;
    let provider = match backend {
        Backend::Native => Provider::Native(launcher?.native(state)?),
        Backend::Docker | Backend::Gvisor | Backend::Firecracker => {
            // Its own begins later, by when there is something to know.
            drop(launcher);
            Provider::container(backend, state, std::path::Path::new(OWN_EXECUTABLE), &settings::engine())?
        }
    };
    let mut provider = provider.at_rate(request.disk_rate);
    if request.manner != Manner::Quiet
        && let Some(warning) = disk_rate::warning(request.disk_rate, &provider)
    {
        output::say(&format!("pond: warning: {warning}"));
    }
    if request.manner != Manner::Quiet
        && let Some(warning) = foreign::warning(request, &checkout)
    {
        output::say(&format!("pond: warning: {warning}"));
    }
    let (id, summary) = attempt::run(&mut provider, request, &checkout)?;
    let returncode = match report(request.manner, &summary) {
        Ok(()) => summary.exit_code,
        Err(fault) => {
            // The run is kept, and somebody may still read what goes here.
            let kept = summary.directory.display();
            output::say(&format!(
                "pond: the summary could not be written: {fault:#}; the run is kept in {kept}"
            ));
            summary.verdict.code_with(Some(Shortfall::Failed))
        }
    };
    let timed_out = summary.verdict == Verdict::TimedOut;
    Ok(Ran { id, returncode, elapsed: summary.elapsed, timed_out })
}

/// The worker's own resolution over the block the flags spell, and the operator's settings around it.
fn resolve(args: &RunArgs) -> Result<Resolved, Refusals> {
    let (resolvers, disk_rate) = (settings::resolvers()?, settings::disk_rate()?);
    let operator = operator::load()?;
    Ok(Resolved { policy: policy(args)?, resolvers, disk_rate, operator })
}

fn policy(args: &RunArgs) -> Result<SandboxPolicy, Refusals> {
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

/// Refuses what no backend can do yet, rather than do less than was asked.
fn enforceable(policy: &SandboxPolicy, backend: Backend) -> anyhow::Result<()> {
    if policy.requirement().is_none() {
        bail!("the policy asks for no sandbox");
    }
    if let (Some(image), Backend::Native) = (policy.image(), backend) {
        bail!(
            "the native backend stands on the host's own toolchain and takes no image; for {image} name a backend with \
             --backend docker, gvisor or firecracker"
        );
    }
    match policy.posture().network {
        Network::Open => bail!("an open network is not a sandbox"),
        Network::BrokerOnly | Network::Allowlist | Network::Sealed | Network::Internet => Ok(()),
    }
}

/// Running out half-way would also keep pond from cleaning up.
fn enough_descriptors() -> anyhow::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(limit) if limit < DESCRIPTORS => {
            bail!(
                "only {limit} open files are allowed, and a run takes up to {DESCRIPTORS}; raise `ulimit -n`"
            )
        }
        Some(_) | None => Ok(()),
    }
}

/// A disk is one file: over the limit the kernel would end pond without a word.
fn large_enough_files(policy: &SandboxPolicy) -> anyhow::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match (limit, policy.limits().map(|limits| limits.disk.bytes)) {
        (Some(limit), Some(disk)) if limit < disk => {
            bail!(
                "files of only {limit} bytes are allowed, and the job's disk takes {disk}; raise `ulimit -f`"
            )
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// What leads the job's tools out, then the caller's own, which may say otherwise.
fn environment(led: Vec<(String, String)>, pairs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    led.into_iter()
        .map(Ok)
        .chain(pairs.iter().map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_variable(name) => Ok((name.to_owned(), value.to_owned())),
            _ => Err(Failure::Usage.because(format!(
                "--env {pair:?}: write NAME=VALUE, the name of letters, digits and underscores"
            ))),
        }))
        .collect()
}

fn tools(names: &[String]) -> anyhow::Result<Vec<Provided>> {
    let home = || settings::home().context("no home directory to take tools from; set HOME");
    let tool = |name: &String| {
        Tool::parse(name).map_err(|fault| failure::known(Code::UnknownTool.name(), fault.to_string()))
    };
    names.iter().map(|name| Ok(tool(name)?.provide(&home()?)?)).collect()
}

fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) && name.bytes().all(plain)
}

/// A name that sorts by time, to the microsecond, and does not repeat.
fn new_name(now: jiff::Timestamp) -> anyhow::Result<JobName> {
    let mut random = [0; 2];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let (stamp, micros) = (now.strftime("%Y%m%d-%H%M%S"), now.subsec_nanosecond().unsigned_abs() / 1000);
    JobName::try_from(format!("{stamp}-{micros:05x}{:04x}", u16::from_le_bytes(random)))
        .map_err(anyhow::Error::msg)
}

/// The summary, for a reader who may stall as well: after a job that was stopped pond does not wait for them either.
fn report(manner: Manner, summary: &Summary) -> anyhow::Result<()> {
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let (to, text) = match manner {
        Manner::Json => (stdout.as_fd(), serde_json::to_string_pretty(summary)? + "\n"),
        Manner::Summary => (stderr.as_fd(), summary.lines()),
        Manner::Quiet => return Ok(()),
    };
    let interrupt = pond_sys::signal::interrupts()?;
    let patience = match summary.verdict.was_stopped() {
        true => Patience::Short,
        false => Patience::UntilInterrupted(interrupt.as_fd()),
    };
    Outlet::new(to)?.finish(text.as_bytes(), patience)?;
    Ok(())
}
