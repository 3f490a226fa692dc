//! The backend that a run was given, whichever it is: one way to reserve, launch and let go.

use std::path::Path;

use pond_policy::backend::Backend;
use pond_policy::sandbox::SandboxPolicy;
use pond_wire::contained::Transfer;

use crate::checkout::Checkout;
use crate::container::{Contained, Container, ContainerFault, EngineSettings};
use crate::native::cgroup::{Around, DiskRate, Mode, NoDiskRate};
use crate::native::{Begun, Job, LaunchFault, Native, NativeFault, Running};
use crate::record::{JobName, Live, RecordFault};
use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum ProviderFault {
    #[error(transparent)]
    Native(#[from] NativeFault),
    #[error(transparent)]
    Launch(#[from] LaunchFault),
    #[error(transparent)]
    Container(#[from] ContainerFault),
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// A backend of this host, ready to launch. There is none for a backend that is not really there.
#[derive(Debug)]
pub enum Provider {
    Native(Native),
    Container(Container),
}

impl Provider {
    /// One of the backends that an engine runs.
    pub fn container(
        backend: Backend,
        state: StateDir,
        executable: &Path,
        settings: &EngineSettings,
    ) -> Result<Self, ProviderFault> {
        Ok(Self::Container(Container::open(state, executable, backend, settings)?))
    }

    /// Holds jobs to so many bytes a second on their disk, each way. Where this host cannot, [`Self::disk_rate`] says so.
    #[must_use]
    pub fn at_rate(self, bytes_per_second: Option<u64>) -> Self {
        match self {
            Self::Native(native) => Self::Native(native.at_rate(bytes_per_second)),
            Self::Container(container) => Self::Container(container.at_rate(bytes_per_second)),
        }
    }

    pub fn state(&self) -> &StateDir {
        match self {
            Self::Native(native) => native.state(),
            Self::Container(container) => container.state(),
        }
    }

    /// What the control groups around those of jobs leave them; an engine keeps its own where pond does not look.
    pub fn around(&self) -> Around {
        match self {
            Self::Native(native) => native.around(),
            Self::Container(_) => Around::default(),
        }
    }

    /// Which kind of control groups jobs get; an engine makes its own.
    pub fn groups(&self) -> Option<Mode> {
        match self {
            Self::Native(native) => Some(native.groups()),
            Self::Container(_) => None,
        }
    }

    /// How fast jobs may use the disk, where somebody said so.
    pub fn disk_rate(&self) -> Option<Result<DiskRate, NoDiskRate>> {
        match self {
            Self::Native(native) => native.disk_rate(),
            Self::Container(container) => container.disk_rate(),
        }
    }

    /// How a job's copy gets to it; a native job has it before it.
    pub fn transfer(&self) -> Transfer {
        match self {
            Self::Native(_) => Transfer::Bind,
            Self::Container(container) => container.transfer(),
        }
    }

    /// The container that runs a job of this name now, whoever launched it; a native job has none.
    pub fn contained(&self, job: &JobName) -> Result<Option<Contained>, ProviderFault> {
        match self {
            Self::Native(_) => Ok(None),
            Self::Container(container) => Ok(container.find(job)?),
        }
    }

    /// Launches nothing more; what it launched runs on.
    pub fn retire(&mut self) {
        match self {
            Self::Native(native) => native.retire(),
            Self::Container(container) => container.retire(),
        }
    }

    /// Makes ready what the next job gets if it is like this one; an engine has nothing to make ready.
    pub fn stand_by(&self, policy: &SandboxPolicy, checkout: &Checkout) -> Result<(), ProviderFault> {
        match self {
            Self::Native(native) => Ok(native.stand_by(policy, checkout.owner())?),
            Self::Container(_) => Ok(()),
        }
    }

    /// The record comes first: from then on a sweep can clean up after us at any step.
    pub fn reserve(&self, job: JobName) -> Result<Live, ProviderFault> {
        match self {
            Self::Native(native) => Ok(native.reserve(job)?),
            Self::Container(container) => Ok(container.reserve(job)?),
        }
    }

    /// Sets off what a launch needs no plan for; an engine has nothing to do before it has one.
    pub fn begin(&mut self, record: &Live, policy: &SandboxPolicy) -> Result<Option<Begun>, ProviderFault> {
        match self {
            Self::Native(native) => Ok(Some(native.begin(record, policy)?)),
            Self::Container(_) => Ok(None),
        }
    }

    /// Launches the job, from where it was begun.
    pub fn launch(&self, begun: Option<Begun>, job: &Job<'_>) -> Result<Running, ProviderFault> {
        match (self, begun) {
            (Self::Native(native), Some(begun)) => Ok(native.carry_on(begun, job)?),
            (Self::Native(native), None) => Ok(native.launch(job)?),
            (Self::Container(container), _) => Ok(container.launch(job)?),
        }
    }
}
