//! Acts: opens a container backend on this host, and launches jobs through the engine.
//!
//! The order: record, storage, container, streams, start, names down, the process behind it, doors. Whatever fails on the way is
//! left to the record, from which everything made is found again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use http::Method;
use pond_policy::backend::Backend;
use pond_policy::limits::Limits;
use pond_wire::contained::{Kernel, Kind, Order, frame};
use pond_wire::jail::{Console, Identity, JailPlan, Scratch};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::engine::{Ask, Body, Engine, EngineFault};
use super::image::{self, ImageFault};
use super::plan::{self, Facts, id_of};
use super::probe::{self, Chosen, EngineSettings, ProbeFault};
use super::reap;
use super::relay::{Relay, RelayFault, Transit};
use super::request::{Created, Inspected};
use super::stage::{self, Stage, StageFault};
use crate::checkout::CheckoutFault;
use crate::native::cgroup::{self, Usage};
use crate::native::{
    self, Ends, IdRange, IdsFault, Job, Launcher, LauncherFault, Place, PlanFault, Quota, Running, Scenery,
    ScratchFault, Streams,
};
use crate::record::{JobName, Live, Made, Record, RecordFault};
use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum ContainerFault {
    #[error("the policy does not confine the job")]
    Unconfined,
    #[error(
        "the container backends mount the job's disk, which only root can; run pond as root, or use the native backend"
    )]
    NotRoot,
    #[error("the container backends give a job no terminal; run it without --tty, or use the native backend")]
    Terminal,
    #[error("pond's own executable {0} is not there any more; install it again")]
    Executable(PathBuf),
    #[error(transparent)]
    Probe(#[from] ProbeFault),
    #[error(transparent)]
    Engine(#[from] EngineFault),
    #[error(transparent)]
    Image(#[from] ImageFault),
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error(transparent)]
    Checkout(#[from] CheckoutFault),
    #[error(transparent)]
    Plan(#[from] PlanFault),
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Ids(#[from] IdsFault),
    #[error(transparent)]
    Scratch(#[from] ScratchFault),
    #[error(transparent)]
    Stage(#[from] StageFault),
    #[error("spelling a request for the container engine")]
    Request(#[source] serde_json::Error),
    #[error("looking at the container's first process")]
    Process(#[source] io::Error),
    #[error("isolation_mismatch: {0}")]
    Mismatch(&'static str),
    #[error("connecting the container's streams")]
    Pipes(#[source] io::Error),
    #[error(transparent)]
    Relay(#[from] RelayFault),
}

/// A container backend of this host, ready to launch.
#[derive(Debug)]
pub struct Container {
    state: StateDir,
    state_id: String,
    launcher: Launcher,
    engine: Engine,
    runtime: Chosen,
    executable: String,
    places: OnceLock<Vec<Place>>,
}

impl Container {
    /// `executable` is pond itself, which becomes the launcher and pid 1 of containers.
    pub fn open(
        state: StateDir,
        executable: &Path,
        backend: Backend,
        settings: &EngineSettings,
    ) -> Result<Self, ContainerFault> {
        if !rustix::process::geteuid().is_root() {
            return Err(ContainerFault::NotRoot);
        }
        let engine = probe::engine(settings)?;
        let runtime = probe::runtime(&engine, backend, settings)?;
        let launcher = Launcher::start(executable)?;
        let named = std::fs::read_link(executable).unwrap_or_else(|_| executable.to_owned());
        let executable = named.to_str().filter(|_| named.is_file()).map(str::to_owned);
        let executable = executable.ok_or(ContainerFault::Executable(named))?;
        let state_id = reap::state_id(&state).map_err(ContainerFault::Process)?;
        Ok(Self { state, state_id, launcher, engine, runtime, executable, places: OnceLock::new() })
    }

    pub fn state(&self) -> &StateDir {
        &self.state
    }

    pub fn retire(&mut self) {
        self.launcher.retire();
    }

    pub fn reserve(&self, job: JobName) -> Result<Live, RecordFault> {
        let made =
            Made::Container { engine: self.engine.socket().to_owned(), name: reap::container_name(&job) };
        Live::write(&self.state, Record { job, made })
    }

    pub fn launch(&self, job: &Job<'_>) -> Result<Running, ContainerFault> {
        let limits = job.policy.limits().ok_or(ContainerFault::Unconfined)?;
        if let Console::Terminal { .. } = job.console {
            return Err(ContainerFault::Terminal);
        }
        let range = native::take_range()?;
        let plan = self.plan(job, limits, &range)?;
        let image = image::ensure(&self.engine, &plan.root)?;
        let quota = Quota { bytes: limits.disk.bytes, inodes: limits.disk.inodes };
        let disk = native::disk(&self.state.scratch(), &self.state.workshop(job.record.job()), quota)?;
        let directory = self.state.stage(job.record.job());
        let scenery = Scenery { checkout: job.checkout.as_fd(), disk: &disk };
        let stage = Stage::build(&self.launcher, directory, &plan, &scenery)?;
        let facts = Facts {
            plan: &plan,
            limits,
            id: id_of(range.base()),
            runtime: &self.runtime.name,
            image: &image,
            stage: &stage.directory.display().to_string(),
            executable: &self.executable,
            job: job.record.job().as_str(),
            state: &self.state_id,
        };
        let container = self.create(&facts, job.record.job())?;
        let (streams, early) = self.engine.attach(&container)?;
        self.act("starting the container", &format!("/containers/{container}/start"))?;
        stage::take_down(&stage.directory)?;
        let (pid, process) = self.process(&container)?;
        let order = Order { plan, kernel: self.runtime.kernel };
        self.connect(Connection { container, streams, early, pid, process, order, upper: stage.upper, range })
    }

    fn plan(&self, job: &Job<'_>, limits: Limits, range: &IdRange) -> Result<JailPlan, ContainerFault> {
        let replaced = job.checkout.without_credentials()?;
        let (owner_uid, owner_gid) = (job.checkout.owner_uid, job.checkout.owner_gid);
        let mut plan = native::plan(&native::Facts {
            places: self.places.get_or_init(native::places),
            identity: Identity::Range { base: range.base(), owner_uid, owner_gid },
            scratch: Scratch::Ext4Image,
            user: id_of(range.base()),
            checkout: &job.checkout.named,
            replaced: &replaced,
            filesystem: job.policy.posture().filesystem,
            limits,
            argv: job.argv,
            env: job.env,
            exhibits: job.exhibits,
            tools: job.tools,
            console: job.console,
            doors: job.doors,
            home: job.home,
        })?;
        // Pid 1 is the same user here; with one more for it, it is the control group that says when there are too many.
        plan.rlimits.processes += 1;
        Ok(plan)
    }

    fn create(&self, facts: &Facts<'_>, job: &JobName) -> Result<String, ContainerFault> {
        let request = plan::create(facts).map_err(ContainerFault::Request)?;
        let body = Body::json(&request).map_err(ContainerFault::Request)?;
        let path = format!("/containers/create?name={}", reap::container_name(job));
        let ask = Ask { what: "creating the container", method: Method::POST, path: &path, body };
        Ok(self.engine.read::<Created>(ask)?.id)
    }

    fn act(&self, what: &'static str, path: &str) -> Result<(), EngineFault> {
        self.engine.done(Ask { what, method: Method::POST, path, body: Body::Nothing }).map(drop)
    }

    /// The container's first process as this host sees it, held so that its number cannot come to mean another.
    fn process(&self, container: &str) -> Result<(Pid, OwnedFd), ContainerFault> {
        let inspected = reap::inspect(&self.engine, container)?;
        let gone = || ContainerFault::Process(io::ErrorKind::NotFound.into());
        let inspected = inspected.filter(|found| found.state.running).ok_or_else(gone)?;
        if inspected.host_config.runtime != self.runtime.name {
            return Err(ContainerFault::Mismatch("the engine ran the container under another runtime"));
        }
        let pid = Pid::from_raw(inspected.state.pid).ok_or_else(gone)?;
        let process =
            pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| ContainerFault::Process(errno.into()))?;
        if !cgroup::is_in_group_named(pid, container).map_err(ContainerFault::Process)? {
            return Err(ContainerFault::Mismatch(
                "the engine's number for the container's first process means another one here",
            ));
        }
        self.confirm_kernel(pid)?;
        Ok((pid, process))
    }

    /// On the host's kernel pid 1 is a process of this host that runs pond's own file; on any other it is not.
    fn confirm_kernel(&self, pid: Pid) -> Result<(), ContainerFault> {
        let of = |path: &str| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        let failed = |errno: rustix::io::Errno| ContainerFault::Process(errno.into());
        let ours = of(&self.executable).map_err(failed)?;
        let runs_here = of(&format!("/proc/{}/exe", pid.as_raw_nonzero())).map_err(failed)? == ours;
        match (self.runtime.kernel, runs_here) {
            (Kernel::Host, true) | (Kernel::Gvisor, false) => Ok(()),
            (Kernel::Host, false) => {
                Err(ContainerFault::Mismatch("the container's first process is not the one pond asked for"))
            }
            (Kernel::Gvisor, true) => Err(ContainerFault::Mismatch(
                "the runtime that should be gVisor runs containers on the host's own kernel",
            )),
        }
    }

    fn connect(&self, made: Connection) -> Result<Running, ContainerFault> {
        let pipes = Pipes::new().map_err(ContainerFault::Pipes)?;
        let (report, theirs) = pond_sys::socket::pair().map_err(ContainerFault::Pipes)?;
        let plan = &made.order.plan;
        if !plan.doors.is_empty() {
            self.launcher.visit(plan, theirs.as_fd(), made.process.as_fd())?;
        }
        let order = serde_json::to_vec(&made.order).map_err(ContainerFault::Request)?;
        let mut transit = Transit::default();
        let too_large = || ContainerFault::Pipes(io::ErrorKind::FileTooLarge.into());
        transit.to_engine = frame(Kind::Order, &order).ok_or_else(too_large)?;
        transit.frames.push(&made.early).map_err(RelayFault::from)?;
        made.streams.set_nonblocking(true).map_err(ContainerFault::Pipes)?;
        let relay = Relay {
            engine: made.streams,
            process: made.process.try_clone().map_err(ContainerFault::Pipes)?,
            pid: made.pid,
            report: Some(theirs),
            lifeline: Some(pipes.lifeline.0),
            stdin: Some(pipes.stdin.0),
            stdout: Some(pipes.stdout.1),
            stderr: Some(pipes.stderr.1),
            upper: made.upper,
            start: plan.start,
        };
        let engine = self.engine.again()?;
        let container = made.container;
        let thread = std::thread::Builder::new().name("container".to_owned());
        let thread = thread.spawn(move || {
            // This thread must not be the one that a signal for pond ends.
            drop(pond_sys::signal::interrupts());
            attend(relay, transit, &engine, &container)
        });
        let thread = thread.map_err(ContainerFault::Pipes)?;
        let streams = Streams { stdin: pipes.stdin.1, stdout: pipes.stdout.0, stderr: pipes.stderr.0 };
        let ends = Ends { streams: Some(streams), lifeline: pipes.lifeline.1, report };
        Ok(Running::contained(ends, made.process, thread, made.range))
    }
}

/// Stays with a container to its end, and sees it removed.
fn attend(relay: Relay, transit: Transit, engine: &Engine, container: &str) -> Result<Usage, ContainerFault> {
    let relayed = relay.run(transit);
    let told = reap::inspect(engine, container)?;
    reap::remove(engine, container)?;
    let usage = relayed?.unwrap_or_else(|| killed(told.as_ref()));
    Ok(usage)
}

/// Of a container that did not live to be read, the engine still knows whether memory was the reason.
fn killed(told: Option<&Inspected>) -> Usage {
    let oom_kills = told.map(|told| u64::from(told.state.oom_killed));
    Usage { oom_kills, ..Usage::default() }
}

/// A container that runs, and everything that belongs to it.
struct Connection {
    container: String,
    streams: std::os::unix::net::UnixStream,
    early: Vec<u8>,
    pid: Pid,
    process: OwnedFd,
    order: Order,
    upper: OwnedFd,
    range: IdRange,
}

/// Both ends of the job's streams on this side: (read, write).
struct Pipes {
    stdin: (OwnedFd, OwnedFd),
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
    lifeline: (OwnedFd, OwnedFd),
}

impl Pipes {
    /// The relay's ends do not block.
    fn new() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let (stdin, stdout, stderr, lifeline) = (pipe()?, pipe()?, pipe()?, pipe()?);
        for end in [&stdin.0, &stdout.1, &stderr.1] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { stdin, stdout, stderr, lifeline })
    }
}
