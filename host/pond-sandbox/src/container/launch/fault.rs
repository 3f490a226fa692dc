//! Why a container backend is not opened or a job not launched; each variant names the step.

use std::io;
use std::path::PathBuf;

use super::super::engine::EngineFault;
use super::super::image::ImageFault;
use super::super::mounts::MountsFault;
use super::super::probe::ProbeFault;
use super::super::relay::RelayFault;
use super::super::stage::StageFault;
use super::super::transfer::TransferFault;
use crate::checkout::CheckoutFault;
use crate::native::cgroup::{CgroupFault, NoDiskRate};
use crate::native::{IdsFault, LauncherFault, PlanFault, ScratchFault};
use crate::record::RecordFault;

#[derive(Debug, thiserror::Error)]
pub enum ContainerFault {
    #[error("the policy does not confine the job")]
    Unconfined,
    #[error(
        "the container backends mount the job's disk, which only root can; run pond as root, or use the native backend"
    )]
    NotRoot,
    #[error(
        "a virtual machine gives a job no terminal: nobody has seen one work there; run it without --tty, or on another backend"
    )]
    Terminal,
    #[error(
        "the runtime {0} has a network stack of its own, into which no gateway reaches; register it with \
         \"runtimeArgs\": [\"--network=host\"] (a container of pond's has no network but loopback), or run the job sealed"
    )]
    NoDoors(String),
    #[error(
        "the runtime {0} is a virtual machine with a network of its own, into which no gateway reaches; run the job sealed \
         (--profile untrusted-code-test), or use the gvisor backend"
    )]
    NoWayIn(String),
    #[error(
        "a virtual machine does not see this host's toolchain; name an image of the engine's with --image, for instance one made \
         by `tar -C / -c usr bin lib lib64 etc/ssl | docker import - tools`"
    )]
    NoImage,
    #[error(
        "a container that lasts keeps what it writes on a disk of this host, which a virtual machine and a streamed copy do not have"
    )]
    NoDisk,
    #[error("a virtual machine shares no directory with this host, so the job cannot have {0}")]
    Shared(String),
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
    #[error("the container engine will not hold the job to all its limits: {0}")]
    Discarded(String),
    #[error("the container engine does not hold the job to its limits")]
    Limits(#[source] CgroupFault),
    #[error("the job cannot be held to its rate on its own disk")]
    DiskRate(#[from] NoDiskRate),
    #[error("the container engine gave a container no id that could be one")]
    NoId,
    #[error("looking at the container's first process")]
    Process(#[source] io::Error),
    #[error(transparent)]
    Mounts(#[from] MountsFault),
    #[error("connecting the container's streams")]
    Pipes(#[source] io::Error),
    #[error(transparent)]
    Relay(#[from] RelayFault),
    #[error(transparent)]
    Transfer(#[from] TransferFault),
}
