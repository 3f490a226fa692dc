//! Which sandboxes this host really has. A name in a configuration proves nothing, so a small job runs on every backend that is
//! to be offered, and what was seen of it decides.
//!
//! Zone: host. Invariant: nothing is advertised that no canary of this process proved; whatever could not be looked at is not
//! there.

use std::path::Path;
use std::time::{Duration, Instant};

use pond_policy::backend::Backend;
use pond_policy::capability::Capability;
use pond_policy::sandbox::SandboxPolicy;
use pond_wire::contained::Kernel;
use pond_wire::jail::{Console, Door, Duty, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::checkout::{Checkout, CheckoutFault};
use crate::container::{ContainerFault, EngineSettings, Isolation, Nonce, Program, RelayFault};
use crate::native::{Ending, Job, Native, Remains, Running, RunningFault, SweepFault, abandon, remedy};
use crate::provider::{Provider, ProviderFault};
use crate::record::{JobName, Live, RecordFault};
use crate::state::{StateDir, StateFault};

/// Longer than a loaded host takes to start a container and to see it gone.
const PATIENCE: Duration = Duration::from_secs(60);

const HONEST: &str = "register under this name the runtime that it promises (/etc/docker/daemon.json), or name another one in \
                      SWARM_GVISOR_RUNTIME or SWARM_KATA_RUNTIME";

/// What was seen of a canary that was where it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Evidence {
    /// It ran behind every layer, each of which was tried from inside before it began.
    Native {
        kernel: String,
    },
    Container(Isolation),
}

#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Running(#[from] RunningFault),
    #[error("cleaning up after the canary")]
    Abandon(#[from] SweepFault),
    #[error(transparent)]
    Checkout(#[from] CheckoutFault),
    #[error(transparent)]
    State(#[from] StateFault),
    #[error("naming the canary: {0}")]
    Name(String),
    #[error("the canary did not run: could not {}", .step.describe())]
    NotLaunched { step: Step, source: std::io::Error },
    #[error("the canary ended as it should not: {0:?}")]
    Ended(Ending),
    #[error("the canary was not gone within {} s", PATIENCE.as_secs())]
    Silent,
    #[error("isolation_mismatch: the canary was not where a job of {0} has to be")]
    Elsewhere(&'static str),
    #[error("waiting for the canary")]
    Wait(#[source] std::io::Error),
    #[error("reading which kernel this host has")]
    Kernel(#[source] std::io::Error),
}

impl Unproven {
    /// What would help, where the message does not say it already.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NotLaunched { step, source } => remedy(*step, source.raw_os_error().unwrap_or(0)),
            Self::Elsewhere(_) => Some(HONEST),
            Self::Provider(ProviderFault::Container(fault)) if is_mismatch(fault) => Some(HONEST),
            Self::Running(RunningFault::Container(fault)) if is_mismatch(fault) => Some(HONEST),
            Self::Provider(_)
            | Self::Record(_)
            | Self::Running(_)
            | Self::Abandon(_)
            | Self::Checkout(_)
            | Self::State(_)
            | Self::Name(_)
            | Self::Ended(_)
            | Self::Silent
            | Self::Wait(_)
            | Self::Kernel(_) => None,
        }
    }
}

fn is_mismatch(fault: &ContainerFault) -> bool {
    matches!(fault, ContainerFault::Relay(RelayFault::Mismatch(_)))
}

/// A backend, and what its canary came to.
#[derive(Debug)]
pub struct Examined {
    pub backend: Backend,
    pub found: Result<Proven, Unproven>,
}

#[derive(Debug)]
pub struct Proven {
    pub evidence: Evidence,
    /// Whether a job could also be led to the whole internet by way of its gateway.
    pub internet: Result<(), Unproven>,
}

/// Where canaries run.
#[derive(Debug)]
pub struct Ground<'a> {
    pub state: &'a Path,
    /// Pond itself.
    pub executable: &'a Path,
    pub engine: &'a EngineSettings,
    pub policy: &'a SandboxPolicy,
    pub checkout: &'a Path,
}

/// Of what somebody would like to advertise, that which was proven on this host. Nothing proves confidential hardware yet.
pub fn filter_sandbox_capabilities(wanted: &[Capability], examined: &[Examined]) -> Vec<Capability> {
    let proven =
        |backend: Backend| examined.iter().any(|other| other.backend == backend && other.found.is_ok());
    let holds = |capability: &Capability| match capability {
        Capability::Backend(backend) => proven(*backend),
        Capability::Confidential(_) => false,
    };
    wanted.iter().copied().filter(holds).collect()
}

/// Runs jobs that do nothing on this backend, and says what was seen.
pub fn examine(backend: Backend, ground: &Ground<'_>) -> Examined {
    Examined { backend, found: found(backend, ground) }
}

fn found(backend: Backend, ground: &Ground<'_>) -> Result<Proven, Unproven> {
    let checkout = Checkout::open(ground.checkout)?;
    let state = StateDir::open(ground.state)?;
    let provider = match backend {
        Backend::Native => {
            Provider::Native(Native::open(state, ground.executable).map_err(ProviderFault::from)?)
        }
        Backend::Docker | Backend::Gvisor | Backend::Firecracker => {
            Provider::container(backend, state, ground.executable, ground.engine)?
        }
    };
    let canary = |kind: &str| Canary {
        name: format!("canary-{}-{backend}-{kind}", std::process::id()),
        policy: ground.policy,
        checkout: &checkout,
    };
    let evidence = prove(backend, &provider, &canary("alone"), &[])?;
    let internet = prove(backend, &provider, &canary("internet"), &[Door::Any]).map(drop);
    Ok(Proven { evidence, internet })
}

struct Canary<'a> {
    name: String,
    policy: &'a SandboxPolicy,
    checkout: &'a Checkout,
}

/// Nobody serves the doors; they only have to be there.
fn prove(
    backend: Backend,
    provider: &Provider,
    canary: &Canary<'_>,
    doors: &[Door],
) -> Result<Evidence, Unproven> {
    let record = provider.reserve(JobName::try_from(canary.name.clone()).map_err(Unproven::Name)?)?;
    match run(provider, canary, &record, doors) {
        Ok((ending, isolation)) => {
            record.close()?;
            judge(backend, ending, isolation)
        }
        // The very host that cannot launch must not keep the traces of an attempt.
        Err(fault) => {
            abandon(provider.state(), record)?;
            Err(fault)
        }
    }
}

fn run(
    provider: &Provider,
    canary: &Canary<'_>,
    record: &Live,
    doors: &[Door],
) -> Result<(Ending, Option<Isolation>), Unproven> {
    let argv = ["true".to_owned()];
    let job = Job {
        record,
        policy: canary.policy,
        checkout: canary.checkout,
        argv: &argv,
        env: &[],
        exhibits: &[],
        tools: &[],
        console: Console::Pipes,
        doors,
        home: &[],
        mounts: &[],
        filesystem: None,
        duty: Duty::Once,
    };
    let mut running = provider.launch(None, &job)?;
    // It says nothing and is told nothing.
    running.streams = None;
    let ending = attend(&mut running)?;
    let over = running.finish(ending)?;
    over.remains.map(Remains::remove).transpose()?;
    Ok((over.ending, over.isolation))
}

/// Waits for the end; a canary that fails, or takes too long, is killed.
fn attend(running: &mut Running) -> Result<Ending, Unproven> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let mut reports = [PollFd::from_borrowed_fd(running.reports(), PollFlags::IN)];
        match poll(&mut reports, left.ok().as_ref()) {
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(Unproven::Wait(errno.into())),
            Ok(0) => {
                running.kill()?;
                return Err(Unproven::Silent);
            }
            Ok(_) => {}
        }
        if let Some(ending) = running.take_report()? {
            return Ok(ending);
        }
        if running.has_failed() {
            running.kill()?;
        } else if let Some(_unserved) = running.doors.take() {
            running.go()?;
        }
    }
}

/// What makes a job one of this backend. A container's evidence was judged before the job began; here it must be that of this
/// backend and no other.
fn judge(backend: Backend, ending: Ending, isolation: Option<Isolation>) -> Result<Evidence, Unproven> {
    match ending {
        Ending::Exited { code: 0, .. } => {}
        Ending::NotLaunched { step, errno } => {
            return Err(Unproven::NotLaunched { step, source: std::io::Error::from_raw_os_error(errno) });
        }
        other @ (Ending::Exited { .. } | Ending::Signaled { .. } | Ending::NotBegun | Ending::Lost) => {
            return Err(Unproven::Ended(other));
        }
    }
    match (backend, isolation) {
        (Backend::Native, None) => {
            let kernel = std::fs::read_to_string("/proc/version").map_err(Unproven::Kernel)?;
            Ok(Evidence::Native { kernel: kernel.trim().to_owned() })
        }
        (_, Some(seen)) if fits(backend, &seen) => Ok(Evidence::Container(seen)),
        (_, None | Some(_)) => Err(Unproven::Elsewhere(backend.name())),
    }
}

fn fits(backend: Backend, seen: &Isolation) -> bool {
    let on_the_host = seen.inside.boot_id == seen.host_boot_id
        && seen.host_sees == Program::PidOne
        && seen.nonce == Nonce::Visible;
    let apart = !seen.inside.boot_id.is_empty()
        && seen.inside.boot_id != seen.host_boot_id
        && seen.host_sees == Program::Another
        && seen.nonce == Nonce::Hidden;
    match backend {
        Backend::Native => false,
        Backend::Docker => seen.kernel == Kernel::Host && on_the_host,
        Backend::Gvisor => seen.kernel == Kernel::Gvisor && apart,
        Backend::Firecracker => seen.kernel == Kernel::Machine && apart,
    }
}

#[cfg(test)]
mod tests;
