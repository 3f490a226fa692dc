//! The processes of a control plane, as an operator starts them: each with a state of its own, ended with the value that stands for it.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::census::descendants;
use super::super::driver::Driver;
use super::super::idle::{proportional_kib, resident_kib};
use super::super::stand::{Stand, read};
use crate::run::Invocation;

/// The longest a process may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing happens before memory is read.
const REST: Duration = Duration::from_secs(5);
const WORKERS: u32 = 4;

/// A process that ends with this value.
#[derive(Debug)]
struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        // One that has ended already is reaped all the same.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// `pond up` or `pond serve`, ready.
#[derive(Debug)]
pub(super) struct Up {
    role: Role,
    /// Apart from those of other measurements.
    name: &'static str,
    pub(super) address: String,
    pub(super) token: String,
}

/// What one role holds with all its processes, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) role: &'static str,
    pub(super) proportional: i64,
    pub(super) resident: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) runs: u32,
    pub(super) workers: u32,
    pub(super) took: Duration,
}

impl Up {
    pub(super) fn start(stand: &Stand, name: &'static str) -> Result<Self> {
        let up = Self::serving(stand, "up", name)?;
        wait(&stand.path(&format!("{name}.log")), "working")?;
        Ok(up)
    }

    fn serving(stand: &Stand, role: &str, name: &'static str) -> Result<Self> {
        let command = pond(stand, name, &[role, "--listen", "127.0.0.1:0", "--json"]);
        let mut role = Role(command.converse(stand.path(&format!("{name}.log")).as_ref())?);
        let mut said = String::new();
        BufReader::new(role.0.stdout.take().context("a pipe was asked for")?).read_line(&mut said)?;
        let field = |name: &str| {
            let (_, rest) = said.split_once(&format!("\"{name}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let missing = || format!("`{command}` did not say where it listens: {said}");
        let (address, token) = field("listening").zip(field("admin_token")).with_context(missing)?;
        Ok(Self { role, name, address, token })
    }

    /// A command of this control plane's operator.
    fn told(&self, stand: &Stand, words: &[&str]) -> Result<String> {
        let command = pond(stand, "operator", words);
        let said = command.env("POND_URL", &self.address).env("POND_TOKEN", &self.token).capture()?;
        let token = said.split_ascii_whitespace().find(|word| word.starts_with("pond_"));
        Ok(token.with_context(|| format!("no token in {said:?}"))?.to_owned())
    }

    fn orchestrator(&self, stand: &Stand) -> Result<(Role, String)> {
        let token = self.told(stand, &["token", "create", "--relay"])?;
        let words = ["orchestrator", "--listen", "127.0.0.1:0", "--control", &self.address];
        let log = stand.path(&format!("{}-orchestrator.log", self.name));
        let command = pond(stand, "orchestrator", &words).env("POND_RELAY_TOKEN", &token);
        let role = Role(command.start(log.as_ref())?);
        const ADDRESS: &str = "\"address\":\"";
        let said = wait(&log, ADDRESS)?;
        let (_, address) = said.split_once(ADDRESS).context("it said where it listens")?;
        Ok((role, format!("http://{}", address.split('"').next().unwrap_or_default())))
    }

    fn join(&self, stand: &Stand, name: &str, orchestrator: &str) -> Result<()> {
        let token = self.told(stand, &["worker", "token"])?;
        pond(stand, name, &["worker", "join", "--control", orchestrator, &token]).capture().map(drop)
    }
}

fn pond(stand: &Stand, name: &str, words: &[&str]) -> Invocation {
    let command = stand.command(&[&[stand.path("pond").as_str()], words].concat());
    command.env("POND_STATE_DIR", &stand.path(&format!("state-{name}")))
}

fn start_worker(stand: &Stand, name: &str) -> Result<Role> {
    let log = stand.path(&format!("{name}.log"));
    Ok(Role(pond(stand, name, &["worker", "run", "--jobs", "1"]).start(log.as_ref())?))
}

/// What the log holds once it has this in it.
fn wait(log: &str, what: &str) -> Result<String> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Ok(said) = read(log)
            && said.contains(what)
        {
            return Ok(said);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{log} did not say {what:?} within {PATIENCE:?}")
}

/// Four workers behind an orchestrator, each in a process of its own with one job at a time, and a queue that is there already.
pub(super) fn drain(stand: &Stand, runs: u32) -> Result<Drained> {
    let serve = Up::serving(stand, "serve", "drained")?;
    let (_orchestrator, address) = serve.orchestrator(stand)?;
    let names: Vec<String> = (0..WORKERS).map(|number| format!("worker{number}")).collect();
    for name in &names {
        serve.join(stand, name, &address)?;
    }
    let words = [&stand.path("dispatch"), "drain", &serve.address, &serve.token, &runs.to_string()];
    let mut driver = Driver::start(&stand.command(&words), &stand.log)?;
    driver.number()?;
    let _workers = names.iter().map(|name| start_worker(stand, name)).collect::<Result<Vec<_>>>()?;
    Ok(Drained { runs, workers: WORKERS, took: Duration::from_nanos(driver.number()?) })
}

pub(super) fn idle(stand: &Stand) -> Result<Vec<Held>> {
    let up = Up::start(stand, "idle-up")?;
    let mut roles = vec![held("up", &up.role)?];
    drop(up);
    let serve = Up::serving(stand, "serve", "idle-serve")?;
    let (orchestrator, address) = serve.orchestrator(stand)?;
    serve.join(stand, "worker-idle", &address)?;
    let worker = start_worker(stand, "worker-idle")?;
    wait(&stand.path("worker-idle.log"), "working")?;
    for (name, role) in [("serve", &serve.role), ("orchestrator", &orchestrator), ("worker", &worker)] {
        roles.push(held(name, role)?);
    }
    Ok(roles)
}

fn held(role: &'static str, process: &Role) -> Result<Held> {
    std::thread::sleep(REST);
    let (mut proportional, mut resident) = (0, 0);
    for pid in descendants(process.0.id())? {
        proportional += proportional_kib(pid)?;
        resident += resident_kib(pid)?;
    }
    Ok(Held { role, proportional, resident })
}
