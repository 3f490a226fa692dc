//! The measuring instrument of `cargo xtask bench`: a small process that launches something once per line it reads
//! and answers with the nanoseconds that took.
//!
//! Small, because what a spawn costs follows the memory of the spawner; a process of its own, because it then measures as
//! whatever user it was started as. `resident` holds one launcher and asks it again and again, as a worker does.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{BufRead, Read, Write, copy, sink, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pond_policy::node::Node;
use pond_policy::sandbox::SandboxPolicy;
use pond_policy::settings::Settings;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Ending, Job, Native, Remains, Running};
use pond_sandbox::record::{JobName, Live};
use pond_sandbox::state::StateDir;
use pond_wire::jail::{Console, Duty};
use pond_worker::supervise::{Bounds, Wiring, supervise};
use rustix::process::{Resource, getrlimit, setrlimit};

const USAGE: &str = "launch spawn PROGRAM [ARGUMENT…]\n\
    launch speak PROGRAM [ARGUMENT…]\n\
    launch resident POND STATE CHECKOUT PROGRAM [ARGUMENT…]\n\
    launch released POND STATE CHECKOUT PROGRAM [ARGUMENT…]\n\
    launch idle COUNT POND STATE CHECKOUT PROGRAM [ARGUMENT…]\n\
    launch lasting POND BACKEND PROGRAM [ARGUMENT…]";

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("launch: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: Vec<OsString>) -> Result<()> {
    let (mode, rest) = words.split_first().context(USAGE)?;
    match mode.to_str() {
        Some("spawn") => answer(|| spawn(rest)),
        Some("speak") => answer(|| speak(rest)),
        Some("resident") => repeat(&Resident::open(rest)?, Until::Ended),
        Some("released") => repeat(&Resident::open(rest)?, Until::Released),
        Some("idle") => {
            let (count, rest) = rest.split_first().context(USAGE)?;
            let count = count.to_str().and_then(|text| text.parse().ok()).context(USAGE)?;
            idle(&Resident::open(rest)?, count)
        }
        Some("lasting") => lasting(rest),
        Some(_) | None => bail!(USAGE),
    }
}

/// One launch per line of input, until there is no more.
fn answer(mut launch: impl FnMut() -> Result<Duration>) -> Result<()> {
    for line in stdin().lock().lines() {
        line?;
        let took = launch()?;
        writeln!(stdout().lock(), "{}", took.as_nanos())?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "starting a process is what is measured")]
fn spawn(words: &[OsString]) -> Result<Duration> {
    let (program, arguments) = words.split_first().context(USAGE)?;
    let started = Instant::now();
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let took = started.elapsed();
    ensure!(status.success(), "{} failed ({status})", program.display());
    Ok(took)
}

/// From the launch to the first byte of the program's output.
#[expect(clippy::disallowed_methods, reason = "starting a process is what is measured")]
fn speak(words: &[OsString]) -> Result<Duration> {
    let (program, arguments) = words.split_first().context(USAGE)?;
    let started = Instant::now();
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().context("a pipe was asked for")?;
    let heard = output.read(&mut [0; 1])?;
    let took = started.elapsed();
    copy(&mut output, &mut sink())?;
    let status = child.wait()?;
    ensure!(status.success() && heard == 1, "{} failed ({status})", program.display());
    Ok(took)
}

/// From the order for a sandbox that lasts to the first byte of a program in it: two commands, one after the other. Its removal is
/// nobody's figure.
fn lasting(words: &[OsString]) -> Result<()> {
    let [pond, backend, argv @ ..] = words else { bail!(USAGE) };
    let mut number = 0;
    answer(|| {
        number += 1;
        let id = OsString::from(format!("bench-{}-{number}", std::process::id()));
        let sandbox =
            |verb: &str, rest: &[OsString]| [&[pond.clone(), "sandbox".into(), verb.into()], rest].concat();
        let create = sandbox("create", &["--id".into(), id.clone(), "--backend".into(), backend.clone()]);
        let exec = sandbox("exec", &[&[id.clone(), "--".into()], argv].concat());
        let took = spawn(&create)? + speak(&exec)?;
        spawn(&sandbox("rm", &[id]))?;
        Ok(took)
    })
}

/// When a launch counts as over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Everything inside is dead, its groups and its record are gone: the verdict stands.
    Ended,
    /// Its disk and its mounts are gone too, as after a collection.
    Released,
}

fn repeat(resident: &Resident, until: Until) -> Result<()> {
    let mut number = 0;
    resident.stand_by()?;
    answer(|| {
        number += 1;
        let took = resident.once(number, until)?;
        // As the process does that waits for a worker's next job.
        resident.stand_by()?;
        Ok(took)
    })
}

/// One launcher, kept for every launch.
struct Resident {
    native: Native,
    policy: SandboxPolicy,
    checkout: Checkout,
    argv: Vec<String>,
}

impl Resident {
    fn open(words: &[OsString]) -> Result<Self> {
        let [pond, state, checkout, argv @ ..] = words else { bail!(USAGE) };
        let block = Node::Map(vec![("profile".to_owned(), Node::text("untrusted-code-write"))]);
        let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default())
            .map_err(|refusals| anyhow::anyhow!("{refusals:?}"))?;
        let argv = argv.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>();
        Ok(Self {
            native: Native::open(StateDir::open(&PathBuf::from(state))?, Path::new(pond))?,
            policy,
            checkout: Checkout::open(Path::new(checkout))?,
            argv: argv.context("the command is not UTF-8")?,
        })
    }

    fn stand_by(&self) -> Result<()> {
        Ok(self.native.stand_by(&self.policy, self.checkout.owner())?)
    }

    fn launch(&self, number: u32) -> Result<(Live, Running)> {
        let name = JobName::try_from(format!("bench-{}-{number}", std::process::id()));
        let record = self.native.reserve(name.map_err(anyhow::Error::msg)?)?;
        let job = Job {
            record: &record,
            policy: &self.policy,
            checkout: &self.checkout,
            argv: &self.argv,
            env: &[],
            exhibits: &[],
            tools: &[],
            console: Console::Pipes,
            doors: &[],
            home: &[],
            mounts: &[],
            filesystem: None,
            duty: Duty::Once,
        };
        let running = self.native.launch(&job)?;
        Ok((record, running))
    }

    fn once(&self, number: u32, until: Until) -> Result<Duration> {
        let bounds = Bounds { wall: Duration::from_secs(60), output_bytes: 1 << 20 };
        let started = Instant::now();
        let (record, running) = self.launch(number)?;
        let wiring = Wiring { input: None, interrupt: None, terminal: None, rooms: &[] };
        let mut ended = supervise(running, wiring, bounds, |_, _| Ok(String::new()))?;
        ended.over.remains.take().map(Remains::remove).transpose()?;
        let (ending, ended_after) = (ended.over.ending, started.elapsed());
        drop(ended);
        record.close()?;
        let took = match until {
            Until::Ended => ended_after,
            Until::Released => started.elapsed(),
        };
        ensure!(matches!(ending, Ending::Exited { code: 0, .. }), "the job ended with {ending:?}");
        Ok(took)
    }
}

/// Launches all, says so, holds them until the input ends, and ends them.
fn idle(resident: &Resident, count: u32) -> Result<()> {
    raise_descriptor_limit()?;
    let mut held = Vec::new();
    for number in 0..count {
        let (record, running) = resident.launch(number)?;
        // Its first byte of output says that the command itself runs.
        let streams = running.streams.as_ref().context("a job without a terminal has pipes")?;
        let heard = rustix::io::read(&streams.stdout, &mut [0; 1])?;
        ensure!(heard == 1, "job {number} ended at once");
        held.push((record, running));
    }
    writeln!(stdout().lock(), "{}", held.len())?;
    stdin().lock().lines().try_for_each(|line| line.map(drop))?;
    for (record, mut running) in held {
        running.kill()?;
        let ending = loop {
            if let Some(ending) = running.take_report()? {
                break ending;
            }
        };
        running.finish(ending)?.remains.map(Remains::remove).transpose()?;
        record.close()?;
    }
    Ok(())
}

/// A worker holds about ten descriptors per job.
fn raise_descriptor_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
