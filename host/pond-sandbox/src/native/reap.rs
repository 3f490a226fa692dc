//! Cleans up after jobs whose owner died, from their records alone. Mounts, loop devices and processes went with the owner's
//! descriptors; what can be left is an empty control group, a record and a half-written result.

use super::cgroup::{self, CgroupFault};
use crate::record::{self, Made, RecordFault};
use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum SweepFault {
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Cgroup(#[from] CgroupFault),
    #[error("removing the unfinished result of {job}")]
    Result { job: String, source: std::io::Error },
}

/// What a sweep removed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Swept {
    pub jobs: Vec<String>,
}

/// Idempotent: a second sweep finds nothing.
pub fn sweep(state: &StateDir) -> Result<Swept, SweepFault> {
    let mut swept = Swept::default();
    for dead in record::dead(state)? {
        let job = dead.job.as_str().to_owned();
        if let Some(Made::Native { cgroups }) = &dead.made {
            cgroup::reclaim(cgroups)?;
        }
        match std::fs::remove_dir_all(state.runs().join(&job)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(SweepFault::Result { job, source });
            }
            Ok(()) | Err(_) => {}
        }
        dead.close()?;
        swept.jobs.push(job);
    }
    Ok(swept)
}
