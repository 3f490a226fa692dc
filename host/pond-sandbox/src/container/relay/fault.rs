//! Why a container's streams are not relayed any more.

use std::io;

use pond_wire::jail::ReportFault;

use super::super::canary::Mismatch;
use super::super::frames::FramesFault;
use crate::native::cgroup::CgroupFault;

#[derive(Debug, thiserror::Error)]
pub enum RelayFault {
    #[error("relaying a container's streams")]
    Relay(#[source] io::Error),
    #[error("pid 1 of the container sent something that is no frame")]
    Frame(#[from] FramesFault),
    #[error("pid 1 of the container sent something that is no report")]
    Report(#[from] ReportFault),
    #[error("the container engine let go of the job while it ran")]
    EngineGone,
    #[error("isolation_mismatch")]
    Mismatch(#[from] Mismatch),
    #[error("pid 1 of the container sent evidence that cannot be read")]
    Evidence(#[source] serde_json::Error),
    #[error("reading what the container used")]
    Counters(#[source] CgroupFault),
    #[error("killing the container")]
    Kill(#[source] io::Error),
}
