//! Acts: opens the backend on this host, and launches jobs through the privileged launcher.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pond_policy::limits::Limits;
use pond_policy::profile::Filesystem;
use pond_policy::sandbox::SandboxPolicy;
use pond_wire::jail::{Console, Door, Duty, HomeFile, Identity, JOB_ID, Scratch, word};
use rustix::fs::Uid;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup::{
    Around, Birthplace, CgroupFault, CgroupHost, CgroupLimits, DiskRate, JobCgroup, Mode, NoDiskRate,
};
use super::footing::{self, Footing, FootingFault, Owner};
use super::ids::{self, IdRange, IdsFault};
use super::launcher::{Belongings, Child, Groundwork, Launcher, LauncherFault};
use super::mount::Mount;
use super::plan::{Exhibit, Facts, PlanFault, plan, scratch_of};
use super::running::{Running, Streams};
use super::scratch::{self, Quota, ScratchFault};
use super::spare::{Origin, Spare};
use super::toolchain::{self, Place};
use super::tools::Provided;
use crate::checkout::{Checkout, CheckoutFault};
use crate::record::{JobName, Live, Made, Record, RecordFault};
use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum NativeFault {
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error(transparent)]
    Cgroup(#[from] CgroupFault),
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchFault {
    #[error("the policy does not confine the job")]
    Unconfined,
    #[error(transparent)]
    Checkout(#[from] CheckoutFault),
    #[error(transparent)]
    Plan(#[from] PlanFault),
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Ids(#[from] IdsFault),
    #[error(transparent)]
    Footing(#[from] FootingFault),
    #[error(transparent)]
    Cgroup(#[from] CgroupFault),
    #[error(transparent)]
    Scratch(#[from] ScratchFault),
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    #[error("letting the job into its control groups")]
    Enter(#[source] io::Error),
    #[error("finding a name for what the next job gets")]
    Name(#[source] io::Error),
    #[error("making the job's pipes")]
    Pipes(#[source] io::Error),
    #[error("only root can mount a disk that outlives a stop; a sandbox that lasts needs one")]
    NoDisk,
}

/// The native backend of this host, ready to launch.
#[derive(Debug)]
pub struct Native {
    state: StateDir,
    launcher: Launcher,
    cgroups: CgroupHost,
    /// How fast jobs may use the disk, where somebody said so and this host can hold it.
    disk_rate: Option<Result<DiskRate, NoDiskRate>>,
    /// What this host has to offer, looked at once, while the first launch is under way.
    places: OnceLock<Vec<Place>>,
    /// Made for the next job, or for one that is about to begin.
    spare: Mutex<Spare>,
}

/// One job to launch.
#[derive(Debug)]
pub struct Job<'a> {
    /// What [`Native::reserve`] gave for it.
    pub record: &'a Live,
    pub policy: &'a SandboxPolicy,
    pub checkout: &'a Checkout,
    pub argv: &'a [String],
    pub env: &'a [(String, String)],
    /// Files of the host shown to this job besides the toolchain.
    pub exhibits: &'a [Exhibit],
    /// Toolchains of a home directory, offered by name.
    pub tools: &'a [Provided],
    pub console: Console,
    /// Listeners for a gateway; the job then waits for [`Running::go`].
    pub doors: &'a [Door],
    /// What the job finds in its home directory.
    pub home: &'a [HomeFile],
    /// What of the host's was declared to be in the sandbox itself.
    pub mounts: &'a [Mount],
    /// How it sees the checkout, where that is not as its profile says.
    pub filesystem: Option<Filesystem>,
    pub duty: Duty,
}

/// A launch of which everything is under way that needs no plan.
#[derive(Debug)]
pub struct Begun {
    birthplace: Birthplace,
    scratch: Scratch,
    footing: Option<Footing>,
    /// Of a sandbox that lasts.
    range: Option<IdRange>,
}

/// The disk of a sandbox that lasts: a file that stays where it is.
#[derive(Debug)]
pub struct KeptImage<'a> {
    pub path: &'a Path,
    /// Whether there is anything on it yet.
    pub is_new: bool,
}

impl Native {
    /// `executable` is pond itself, which becomes the launcher.
    pub fn open(state: StateDir, executable: &Path) -> Result<Self, NativeFault> {
        // Before the launcher: on cgroup v2 this process may have to step out of its own group, alone.
        let cgroups = CgroupHost::detect()?;
        Self::of(state, Launcher::start(executable)?, cgroups)
    }

    /// With a launcher that was there before.
    pub fn with(state: StateDir, launcher: Launcher) -> Result<Self, NativeFault> {
        Self::of(state, launcher, CgroupHost::detect()?)
    }

    fn of(state: StateDir, launcher: Launcher, cgroups: CgroupHost) -> Result<Self, NativeFault> {
        launcher.adopt()?;
        Ok(Self {
            state,
            launcher,
            cgroups,
            disk_rate: None,
            places: OnceLock::new(),
            spare: Mutex::default(),
        })
    }

    /// Holds jobs to so many bytes a second of the disk below the state directory, each way; where this host cannot,
    /// [`Self::disk_rate`] says so.
    #[must_use]
    pub fn at_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        let is_memory = !rustix::process::geteuid().is_root();
        self.disk_rate = bytes_per_second.map(|rate| match is_memory {
            true => Err(NoDiskRate::Memory),
            false => self.cgroups.disk_rate(&self.state.scratch(), rate),
        });
        self
    }

    /// Nothing where nobody asked for a limit.
    pub fn disk_rate(&self) -> Option<Result<DiskRate, NoDiskRate>> {
        self.disk_rate
    }

    fn bounds(&self, limits: Limits) -> CgroupLimits {
        let disk_rate = self.disk_rate.and_then(Result::ok);
        CgroupLimits { memory: limits.memory, cpus: limits.cpus, pids: limits.pids, disk_rate }
    }

    /// What the control groups around those of jobs leave them.
    pub fn around(&self) -> Around {
        self.cgroups.around()
    }

    /// Which kind of control groups jobs get.
    pub fn groups(&self) -> Mode {
        self.cgroups.mode()
    }

    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// Launches nothing more; the launcher ends while the jobs it made run on.
    pub fn retire(&mut self) {
        self.launcher.retire();
    }

    /// The record comes first: from then on a sweep can clean up after us at any step. Whoever holds it closes it when
    /// all that was made for the job is gone, or abandons it.
    pub fn reserve(&self, job: JobName) -> Result<Live, LaunchFault> {
        if let Some(record) = self.spare().give(&self.state, &job) {
            return Ok(record);
        }
        let made = Made::Native { cgroups: self.cgroups.directories(job.as_str()) };
        Ok(Live::write(&self.state, Record { job, made })?)
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn birthplace(&self, record: &Live, limits: Limits) -> Result<(Birthplace, Origin), CgroupFault> {
        self.spare().birthplace(&self.cgroups, record.job(), &self.bounds(limits))
    }

    /// Lets the launcher begin with what needs no plan. A process of ours then waits in namespaces of its own; dropping what
    /// this returns ends it, unless it waited before: that one goes with the launcher, or with the next ground.
    pub fn begin(&self, record: &Live, policy: &SandboxPolicy) -> Result<Begun, LaunchFault> {
        let limits = policy.limits().ok_or(LaunchFault::Unconfined)?;
        let scratch = scratch_of(rustix::process::geteuid(), limits);
        let (birthplace, origin) = self.birthplace(record, limits)?;
        // A child that waits in groups which are not this job's is nobody's.
        let footing =
            self.launcher.take_footing().filter(|footing| !footing.has_child || origin == Origin::Spare);
        let quota = quota(limits);
        let disk = match scratch {
            Scratch::Tmpfs(_) => None,
            Scratch::Ext4Image if footing.as_ref().is_some_and(|footing| footing.disk == Some(quota)) => None,
            Scratch::Ext4Image | Scratch::KeptImage => {
                Some(scratch::disk(&self.state.scratch(), &self.state.workshop(record.job()), quota)?)
            }
        };
        let (on_ground, has_child) =
            (footing.is_some(), footing.as_ref().is_some_and(|there| there.has_child));
        if !has_child || disk.is_some() {
            let group = if has_child { None } else { birthplace.directory() };
            self.launcher.prepare(&Groundwork { group, disk: disk.as_ref(), on_ground })?;
        }
        Ok(Begun { birthplace, scratch, footing, range: None })
    }

    /// Makes ready, and has the launcher make ready, what the next job gets if it is like this one: for whoever knows that there is time
    /// for it.
    pub fn stand_by(&self, policy: &SandboxPolicy, owner: Owner) -> Result<(), LaunchFault> {
        let limits = policy.limits().ok_or(LaunchFault::Unconfined)?;
        // What there was goes first.
        *self.spare() = Spare::default();
        let spare = Spare::make(&self.state, &self.cgroups, self.bounds(limits))?;
        let quota = quota(limits);
        let disk = match scratch_of(rustix::process::geteuid(), limits) {
            Scratch::Tmpfs(_) => None,
            Scratch::Ext4Image | Scratch::KeptImage => scratch::nameless_disk(&self.state.scratch(), quota)?,
        };
        self.launcher.lay(owner, &Child::AtOnce(spare.directory()), disk.map(|disk| (quota, disk)))?;
        *self.spare() = spare;
        Ok(())
    }

    /// The same for a sandbox whose disk is kept. Only root can mount one.
    pub fn begin_kept(
        &self,
        record: &Live,
        policy: &SandboxPolicy,
        image: &KeptImage<'_>,
    ) -> Result<Begun, LaunchFault> {
        let limits = policy.limits().ok_or(LaunchFault::Unconfined)?;
        if !rustix::process::geteuid().is_root() {
            return Err(LaunchFault::NoDisk);
        }
        let quota = quota(limits);
        let workshop = self.state.workshop(record.job());
        let disk = scratch::kept(&self.state.scratch(), &workshop, image.path, quota, image.is_new)?;
        let (birthplace, _of_its_own) = self.birthplace(record, limits)?;
        let groundwork = Groundwork { group: birthplace.directory(), disk: Some(&disk), on_ground: false };
        self.launcher.prepare(&groundwork)?;
        let range = ids::take_range_of(image.path.as_os_str()).map_err(FootingFault::from)?;
        Ok(Begun { birthplace, scratch: Scratch::KeptImage, footing: None, range: Some(range) })
    }

    pub fn launch(&self, job: &Job<'_>) -> Result<Running, LaunchFault> {
        self.carry_on(self.begin(job.record, job.policy)?, job)
    }

    /// Launches the job that was begun, with the same record and policy.
    pub fn carry_on(&self, begun: Begun, job: &Job<'_>) -> Result<Running, LaunchFault> {
        let Begun { birthplace, scratch, footing, range: own } = begun;
        let limits = job.policy.limits().ok_or(LaunchFault::Unconfined)?;
        let replaced = job.checkout.replaced_for_job()?;
        let (places, range) = footing.map_or((None, None), |footing| (Some(footing.places), footing.range));
        let owner = job.checkout.owner();
        let (identity, range) = match range.or(own) {
            Some(range) => (footing::range_identity(&range, owner), Some(range)),
            None => footing::identity(owner)?,
        };
        let mounts: Vec<_> = job.mounts.iter().flat_map(Mount::entries).collect();
        let plan = plan(&Facts {
            places: places.as_ref().unwrap_or_else(|| self.places.get_or_init(toolchain::probe)),
            identity,
            scratch,
            user: JOB_ID,
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
        let pipes = Pipes::new(identity, job.console).map_err(LaunchFault::Pipes)?;
        let with = Belongings {
            stdio: pipes.stdio.iter().flat_map(Stdio::theirs).collect(),
            lifeline: pipes.lifeline.0.as_fd(),
            report: pipes.report.1.as_fd(),
            checkout: job.checkout.as_fd(),
        };
        let bounds = self.bounds(limits);
        let group = if self.cgroups.is_complete(&birthplace) {
            let group = self.cgroups.complete(birthplace, &bounds)?;
            pipes.let_in(&group)?;
            self.launcher.launch(&plan, &with)?;
            group
        } else {
            // They are made while the launcher makes the job's disk. The child waits for them, and ends if this process does.
            self.launcher.launch(&plan, &with)?;
            let group = self.cgroups.complete(birthplace, &bounds)?;
            pipes.let_in(&group)?;
            group
        };
        drop(with);
        Ok(Running::new(pipes.keep(), group, range, job.duty))
    }
}

fn quota(limits: Limits) -> Quota {
    Quota { bytes: limits.disk.bytes, inodes: limits.disk.inodes }
}

/// Both ends of everything the job is connected by: (read, write), and (ours, theirs) for the report socket.
struct Pipes {
    /// Absent when the job gets a terminal.
    stdio: Option<Stdio>,
    lifeline: (OwnedFd, OwnedFd),
    report: (OwnedFd, OwnedFd),
}

struct Stdio {
    stdin: (OwnedFd, OwnedFd),
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
}

impl Stdio {
    fn theirs(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.0.as_fd(), self.stdout.1.as_fd(), self.stderr.1.as_fd()]
    }
}

/// The job must own its streams, or it could not open /dev/stderr.
pub(super) fn pipe_of(owner: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fchown(&reader, Some(Uid::from_raw(owner)), None)?;
    Ok((reader, writer))
}

/// Our ends.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) streams: Option<Streams>,
    pub(crate) lifeline: OwnedFd,
    pub(crate) report: OwnedFd,
}

impl Pipes {
    fn new(identity: Identity, console: Console) -> io::Result<Self> {
        let owner = match identity {
            Identity::Range { base, .. } => base + JOB_ID,
            Identity::Single { uid, .. } => uid,
        };
        let pipe = || pipe_of(owner);
        let stdio = match console {
            Console::Pipes => Some(Stdio { stdin: pipe()?, stdout: pipe()?, stderr: pipe()? }),
            Console::Terminal { .. } => None,
        };
        Ok(Self { stdio, lifeline: pipe()?, report: pond_sys::socket::pair()? })
    }

    /// Lets pid 1 into its groups, without which it does nothing; it finds the word when it looks.
    fn let_in(&self, group: &JobCgroup) -> Result<(), LaunchFault> {
        match pond_sys::socket::send(&self.report.0, &[word::ENTER], &group.entry().v1) {
            // It has ended; its report says why.
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(LaunchFault::Enter),
        }
    }

    /// Closes the job's ends, so that end-of-file means what it says.
    fn keep(self) -> Ends {
        Ends {
            streams: self.stdio.map(|Stdio { stdin, stdout, stderr }| Streams {
                stdin: stdin.1,
                stdout: stdout.0,
                stderr: stderr.0,
            }),
            lifeline: self.lifeline.1,
            report: self.report.0,
        }
    }
}
