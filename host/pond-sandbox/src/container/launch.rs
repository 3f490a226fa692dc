//! Acts: opens a container backend on this host, and launches jobs through the engine.
//!
//! The order: record, storage, container, streams, start, names down, the process behind it, the copy where it does not get in by
//! itself, doors. Whatever fails on the way is left to the record, from which everything made is found again.

mod attend;
mod connect;
mod fault;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use http::Method;
use pond_policy::backend::Backend;
use pond_policy::limits::Limits;
use pond_wire::contained::{Kernel, Order, Transfer};
use pond_wire::jail::{
    BindKind, CheckoutView, Console, Duty, HOME, Identity, JailPlan, RootEntry, Scratch, TmpfsCap, WORKSPACE,
};
use pond_wire::tree::TreeCaps;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::canary::Mismatch;
use super::engine::{Ask, Body, Engine, EngineFault};
use super::ground;
use super::image::{self, Given, Volumes};
use super::keep::{KeepFault, Kept};
use super::mounts;
use super::network;
use super::plan::{self, Facts, id_of};
use super::probe::{self, Chosen, EngineSettings, Loopback};
use super::reap;
use super::relay::{FileId, RelayFault};
use super::request::{Create, Created, Throttle};
use super::stage::{self, Layer, Parcel, Stage};
use super::transfer::{self, Incoming, Readers};
use crate::native::cgroup::{CgroupFault, CgroupLimits, DiskRate, Foreign, NoDiskRate};
use crate::native::{self, Disk, IdRange, Job, KeptImage, Launcher, Place, Quota, Running, Scenery};
use crate::record::{JobName, Live, Made, Record, RecordFault, nonce};
use crate::state::StateDir;

pub(crate) use attend::Attended;
pub(super) use connect::{Connection, Wires};
pub use fault::ContainerFault;

/// The file that says which names are where.
const HOSTS: &str = "/etc/hosts";

/// A container backend of this host, ready to launch.
#[derive(Debug)]
pub struct Container {
    state: StateDir,
    state_id: String,
    launcher: Launcher,
    engine: Engine,
    runtime: Chosen,
    executable: String,
    disk_rate: Option<Result<DiskRate, NoDiskRate>>,
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
        let (engine, runtime) = probe::open(backend, settings)?;
        let launcher = Launcher::start(executable)?;
        let named = std::fs::read_link(executable).unwrap_or_else(|_| executable.to_owned());
        let executable = named.to_str().filter(|_| named.is_file()).map(str::to_owned);
        let executable = executable.ok_or(ContainerFault::Executable(named))?;
        let state_id = reap::state_id(&state).map_err(ContainerFault::Process)?;
        Ok(Self {
            state,
            state_id,
            launcher,
            engine,
            runtime,
            executable,
            disk_rate: None,
            places: OnceLock::new(),
        })
    }

    /// Holds jobs to so many bytes a second on the disk their copies lie on, each way. Where this host cannot,
    /// [`Self::disk_rate`] says so.
    #[must_use]
    pub fn at_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.disk_rate = bytes_per_second.map(|rate| match self.runtime.transfer {
            Transfer::Bind => DiskRate::of_containers(&self.state.scratch(), rate),
            Transfer::Stream => Err(NoDiskRate::Memory),
        });
        self
    }

    /// How fast jobs may use the disk, where somebody said so.
    pub fn disk_rate(&self) -> Option<Result<DiskRate, NoDiskRate>> {
        self.disk_rate
    }

    pub fn state(&self) -> &StateDir {
        &self.state
    }

    pub fn transfer(&self) -> Transfer {
        self.runtime.transfer
    }

    pub fn retire(&mut self) {
        self.launcher.retire();
    }

    /// The container that runs a job of this name now, by the engine's word.
    pub fn find(&self, job: &JobName) -> Result<Option<Contained>, ContainerFault> {
        let found = reap::inspect(&self.engine, &reap::container_name(job))?;
        let running = found.filter(|found| found.state.running);
        Ok(running.and_then(|found| Some(Contained { id: found.id, first: Pid::from_raw(found.state.pid)? })))
    }

    pub fn reserve(&self, job: JobName) -> Result<Live, RecordFault> {
        let made =
            Made::Container { engine: self.engine.socket().to_owned(), name: reap::container_name(&job) };
        Live::write(&self.state, Record { job, made })
    }

    pub fn launch(&self, job: &Job<'_>) -> Result<Running, ContainerFault> {
        self.connect(self.make(job, Manner::Once)?)
    }

    /// A container that lasts, for many programs. The job's console is the place for their terminals, and its command the
    /// companion's own; a sandbox itself runs nothing before it is asked to.
    pub fn keep(&self, job: &Job<'_>, company: &Company<'_>) -> Result<Kept, KeepFault> {
        match (self.runtime.kernel, self.runtime.transfer) {
            (Kernel::Host | Kernel::Gvisor, Transfer::Bind) => {}
            (Kernel::Machine, _) | (_, Transfer::Stream) => return Err(ContainerFault::NoDisk.into()),
        }
        self.settle(self.make(job, Manner::Lasts(company))?)
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    pub(super) fn runtime_name(&self) -> &str {
        &self.runtime.name
    }

    /// A container that runs, and waits for its order.
    fn make(&self, job: &Job<'_>, manner: Manner<'_>) -> Result<Connection, ContainerFault> {
        let limits = job.policy.limits().ok_or(ContainerFault::Unconfined)?;
        self.can_take(job)?;
        let given = job
            .policy
            .image()
            .map(|image| image::given(&self.engine, image, manner.volumes()))
            .transpose()?;
        let range = native::take_range()?;
        let mut plan = self.plan(job, limits, &range, given.as_ref(), manner)?;
        manner.furnish(&mut plan, given.as_ref())?;
        self.can_show(&plan)?;
        let command = match plan.duty {
            Duty::Once => Vec::new(),
            Duty::Serve => std::mem::take(&mut plan.program.argv),
        };
        let (image, unset) = match &given {
            Some(given) => (given.id.clone(), given.names()),
            None => (image::ensure(&self.engine, &plan.root)?, Vec::new()),
        };
        let disk = self.disk(job, limits, manner)?;
        let directory = self.state.stage(job.record.job());
        let scenery = Scenery { checkout: job.checkout.as_fd(), disk: &disk };
        let stage = Stage::build(&self.launcher, directory, &plan, &scenery)?;
        let nonce = nonce().map_err(ContainerFault::Pipes)?;
        let rates = self.rates(&stage.layer)?;
        let facts = Facts {
            plan: &plan,
            limits,
            kernel: self.runtime.kernel,
            transfer: self.runtime.transfer,
            id: id_of(range.base()),
            runtime: &self.runtime.name,
            image: &image,
            unset: &unset,
            nonce: &nonce,
            stage: &stage.directory.display().to_string(),
            job: job.record.job().as_str(),
            state: &self.state_id,
            beside: manner.beside().map(|(id, _)| id),
            throttles: &throttles(&rates)?,
        };
        let request = plan::create(&facts).map_err(ContainerFault::Request)?;
        self.survey(job, &request, &plan::places(&facts))?;
        let program = program_of(&request)?;
        let container = self.create(&request, job.record.job())?;
        let (streams, early) = self.engine.attach(&container)?;
        self.act("starting the container", &format!("/containers/{container}/start"))?;
        let parcel = match self.runtime.transfer {
            Transfer::Bind => None,
            Transfer::Stream => Some(stage.parcel()?),
        };
        stage::take_down(&stage.directory)?;
        let (pid, process, groups) = self.process(&container, manner.beside().map(|(_, first)| first))?;
        self.holds(&groups, limits, &rates).map_err(ContainerFault::Limits)?;
        let incoming = match parcel {
            None => None,
            Some(parcel) => self.send(&container, &facts, parcel, &stage.layer.upper)?,
        };
        let first_user = plan::first_user(&facts);
        let order = Order { plan, kernel: self.runtime.kernel, transfer: self.runtime.transfer };
        Ok(Connection {
            container,
            image,
            streams,
            early,
            pid,
            process,
            groups,
            order,
            layer: stage.layer,
            range,
            program,
            nonce,
            first_user,
            incoming,
            command,
        })
    }

    /// Whether the kernel holds the container to what the engine was asked for.
    fn holds(&self, groups: &Foreign, limits: Limits, rates: &[DiskRate]) -> Result<(), CgroupFault> {
        let Limits { memory, cpus, pids, .. } = limits;
        let held = CgroupLimits { memory, cpus, pids, disk_rate: None };
        groups.hold(&held, plan::own_threads(self.runtime.kernel))?;
        rates.iter().try_for_each(|rate| groups.hold_disk(*rate))
    }

    /// The disk below, to which what goes past the job's own is charged, and the job's own.
    fn rates(&self, layer: &Layer) -> Result<Vec<DiskRate>, ContainerFault> {
        let Some(rate) = self.disk_rate.and_then(Result::ok) else { return Ok(Vec::new()) };
        let own = rustix::fs::fstat(&layer.upper).map_err(|errno| ContainerFault::Process(errno.into()))?;
        Ok(vec![rate, rate.on(own.st_dev)])
    }

    /// As large as the quota; a new one, or one that was kept.
    fn disk(&self, job: &Job<'_>, limits: Limits, manner: Manner<'_>) -> Result<Disk, ContainerFault> {
        let quota = Quota { bytes: limits.disk.bytes, inodes: limits.disk.inodes };
        let (scratch, workshop) = (self.state.scratch(), self.state.workshop(job.record.job()));
        Ok(match manner.image() {
            None => native::disk(&scratch, &workshop, quota)?,
            Some(image) => native::kept(&scratch, &workshop, image.path, quota, image.is_new)?,
        })
    }

    fn can_take(&self, job: &Job<'_>) -> Result<(), ContainerFault> {
        match (job.console, self.runtime.kernel) {
            (Console::Terminal { .. }, Kernel::Machine) => return Err(ContainerFault::Terminal),
            (Console::Terminal { .. }, Kernel::Host | Kernel::Gvisor) | (Console::Pipes, _) => {}
        }
        if !job.doors.is_empty() && self.runtime.loopback == Loopback::Private {
            let name = self.runtime.name.clone();
            return Err(match self.runtime.kernel {
                Kernel::Machine => ContainerFault::NoWayIn(name),
                Kernel::Host | Kernel::Gvisor => ContainerFault::NoDoors(name),
            });
        }
        match (self.runtime.kernel, job.policy.image()) {
            (Kernel::Machine, None) => Err(ContainerFault::NoImage),
            (Kernel::Machine, Some(_)) | (Kernel::Host | Kernel::Gvisor, _) => Ok(()),
        }
    }

    /// Files a runtime copies into a machine; directories it does not.
    fn can_show(&self, plan: &JailPlan) -> Result<(), ContainerFault> {
        let shared = plan.root.iter().find_map(|entry| match entry {
            RootEntry::Bind { path, kind: BindKind::Directory, .. }
            | RootEntry::Mount { path, .. }
            | RootEntry::Throwaway { path, .. } => Some(path),
            RootEntry::Bind { kind: BindKind::File, .. }
            | RootEntry::Directory { .. }
            | RootEntry::Symlink { .. }
            | RootEntry::File { .. }
            | RootEntry::Device { .. } => None,
        });
        match (self.runtime.kernel, shared) {
            (Kernel::Machine, Some(path)) => Err(ContainerFault::Shared(path.clone())),
            (Kernel::Machine, None) | (Kernel::Host | Kernel::Gvisor, _) => Ok(()),
        }
    }

    /// Sends the job's copy and its home into the running container. Returns where the copy goes when it comes out again.
    fn send(
        &self,
        container: &str,
        facts: &Facts<'_>,
        parcel: Parcel,
        upper: &OwnedFd,
    ) -> Result<Option<Incoming>, ContainerFault> {
        let [workspace, home] = transfer::rooms(facts.limits);
        let readers = match facts.plan.checkout {
            CheckoutView::ReadOnly(_) => Readers::Others,
            CheckoutView::Copy(_) | CheckoutView::Empty => Readers::Owner,
        };
        let caps = |room: TmpfsCap| TreeCaps { entries: room.inodes, bytes: room.bytes };
        let into = |target: &str, owner, root: &OwnedFd, readers, room| {
            let connection = self.engine.execute(container, &plan::unpacker(target, owner))?;
            Ok::<_, ContainerFault>(transfer::deliver(connection, root, readers, caps(room))?)
        };
        let sent = into(WORKSPACE, plan::owner(facts.plan, facts.id), &parcel.workspace, readers, workspace)?;
        if !facts.plan.home.is_empty() {
            into(HOME, facts.id, &parcel.home, Readers::Owner, home)?;
        }
        let upper = upper.try_clone().map_err(ContainerFault::Pipes)?;
        Ok(match readers {
            Readers::Others => None,
            Readers::Owner => Some(Incoming::new(upper, sent, transfer::caps_of(workspace))),
        })
    }

    fn plan(
        &self,
        job: &Job<'_>,
        limits: Limits,
        range: &IdRange,
        given: Option<&Given>,
        manner: Manner<'_>,
    ) -> Result<JailPlan, ContainerFault> {
        let replaced = job.checkout.replaced_for_job()?;
        let (owner_uid, owner_gid) = (job.checkout.owner_uid, job.checkout.owner_gid);
        let mounts: Vec<_> = job.mounts.iter().flat_map(native::Mount::entries).collect();
        // An image has a toolchain of its own.
        let places = match given {
            None => self.places.get_or_init(native::places).as_slice(),
            Some(_) => &[],
        };
        let mut plan = native::plan(&native::Facts {
            places,
            identity: Identity::Range { base: range.base(), owner_uid, owner_gid },
            scratch: manner.scratch(),
            user: id_of(range.base()),
            checkout: &job.checkout.named,
            replaced: &replaced,
            filesystem: job.filesystem.unwrap_or(job.policy.posture().filesystem),
            limits,
            argv: job.argv,
            env: job.env,
            exhibits: job.exhibits,
            tools: job.tools,
            console: job.console,
            doors: job.doors,
            home: job.home,
            mounts: &mounts,
            duty: job.duty,
        })?;
        // Pid 1 is the same user here; with one more for it, it is the control group that says when there are too many.
        plan.rlimits.processes += 1;
        plan.root.push(plan::program(&self.executable));
        if let Some(given) = given {
            given.dress(&mut plan);
        }
        Ok(plan)
    }

    /// Looks at what an image that the job names has where something will be mounted, in a container that the record leads to as
    /// to the job's own.
    fn survey(
        &self,
        job: &Job<'_>,
        request: &Create,
        places: &BTreeMap<String, BindKind>,
    ) -> Result<(), ContainerFault> {
        let Some(image) = job.policy.image() else { return Ok(()) };
        let container = self.create(&plan::bare(request.clone()), job.record.job())?;
        ground::check(&self.engine, &container, image.as_str(), places)?;
        Ok(reap::remove(&self.engine, &container)?)
    }

    fn create(&self, request: &Create, job: &JobName) -> Result<String, ContainerFault> {
        let body = Body::json(request).map_err(ContainerFault::Request)?;
        let path = format!("/containers/create?name={}", reap::container_name(job));
        let ask = Ask { what: "creating the container", method: Method::POST, path: &path, body };
        let Created { id, warnings } = self.engine.read(ask)?;
        if let Some(discarded) = warnings.unwrap_or_default().into_iter().next() {
            return Err(ContainerFault::Discarded(discarded));
        }
        // It becomes part of paths, and tells our processes from others.
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id { Ok(id) } else { Err(ContainerFault::NoId) }
    }

    fn act(&self, what: &'static str, path: &str) -> Result<(), EngineFault> {
        self.engine.done(Ask { what, method: Method::POST, path, body: Body::Nothing }).map(drop)
    }

    /// The container's first process as this host sees it, held so that its number cannot come to mean another; where it stands on the
    /// network it should, on mounts that give it nothing.
    fn process(
        &self,
        container: &str,
        beside: Option<Pid>,
    ) -> Result<(Pid, OwnedFd, Foreign), ContainerFault> {
        let inspected = reap::inspect(&self.engine, container)?;
        let gone = || ContainerFault::Process(io::ErrorKind::NotFound.into());
        let inspected = inspected.filter(|found| found.state.running).ok_or_else(gone)?;
        if inspected.host_config.runtime != self.runtime.name {
            return Err(RelayFault::from(Mismatch::Runtime).into());
        }
        let pid = Pid::from_raw(inspected.state.pid).ok_or_else(gone)?;
        let process =
            pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| ContainerFault::Process(errno.into()))?;
        let groups = Foreign::of(pid, container).map_err(ContainerFault::Process)?;
        let groups = groups.ok_or(RelayFault::from(Mismatch::Process))?;
        let is_apart = |first| network::is_shared(pid, first).map(|is_shared| !is_shared);
        let is_closed = network::is_closed(pid).map_err(ContainerFault::Process)?;
        if !is_closed || beside.map_or(Ok(false), is_apart).map_err(ContainerFault::Process)? {
            return Err(RelayFault::from(Mismatch::Network).into());
        }
        match self.runtime.kernel {
            Kernel::Host => mounts::harden(pid, process.as_fd())?,
            // Whose devices are not this host's.
            Kernel::Gvisor | Kernel::Machine => {}
        }
        Ok((pid, process, groups))
    }
}

/// Pond's own file as it hangs for the container, which is the only one that has it.
fn program_of(request: &Create) -> Result<FileId, ContainerFault> {
    let hung = plan::staged_program(request).ok_or(io::ErrorKind::NotFound.into());
    hung.and_then(FileId::of).map_err(ContainerFault::Process)
}

/// Each disk as the engine is told of it.
fn throttles(rates: &[DiskRate]) -> Result<Vec<Throttle>, NoDiskRate> {
    let throttle = |rate: &DiskRate| Ok(Throttle { path: rate.name()?, rate: rate.bytes_per_second() });
    rates.iter().map(throttle).collect()
}

/// What a container that lasts has around it.
#[derive(Debug, Clone, Copy)]
pub struct Company<'a> {
    /// The container whose network it shares, and that one's first process; then it is a companion.
    pub beside: Option<(&'a str, Pid)>,
    /// Names by which everybody on its network is reached, at its loopback.
    pub aliases: &'a [String],
    /// Where what it writes outlives it.
    pub disk: Option<&'a KeptImage<'a>>,
}

/// How a container is to live.
#[derive(Debug, Clone, Copy)]
enum Manner<'a> {
    Once,
    Lasts(&'a Company<'a>),
}

impl<'a> Manner<'a> {
    /// The disk that outlives it, if one does.
    fn image(self) -> Option<&'a KeptImage<'a>> {
        match self {
            Self::Once => None,
            Self::Lasts(company) => company.disk,
        }
    }

    fn scratch(self) -> Scratch {
        if self.image().is_some() { Scratch::KeptImage } else { Scratch::Ext4Image }
    }

    fn volumes(self) -> Volumes {
        match self {
            Self::Once => Volumes::Refused,
            Self::Lasts(_) => Volumes::OnDisk,
        }
    }

    fn beside(self) -> Option<(&'a str, Pid)> {
        match self {
            Self::Once => None,
            Self::Lasts(company) => company.beside,
        }
    }

    /// What a container that lasts has besides a job's.
    fn furnish(self, plan: &mut JailPlan, given: Option<&Given>) -> Result<(), ContainerFault> {
        let Self::Lasts(company) = self else { return Ok(()) };
        for entry in &mut plan.root {
            if let RootEntry::File { path, content } = entry
                && path == HOSTS
            {
                let names = company.aliases.iter().map(|alias| format!("127.0.0.1 {alias}\n"));
                content.extend(names);
            }
        }
        if let Some(given) = given {
            given.furnish(plan);
        }
        match (company.beside, given) {
            (Some(_), Some(given)) => Ok(given.take_over(plan)?),
            (Some(_), None) => Err(ContainerFault::NoImage),
            (None, _) => Ok(()),
        }
    }
}

/// A container as this host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contained {
    /// What its control groups are called.
    pub id: String,
    /// Pid 1, or the process that stands for it.
    pub first: Pid,
}
