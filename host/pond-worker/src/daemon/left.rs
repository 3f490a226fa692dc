//! Jobs of a daemon that was killed: their directories say which leases it had. Each is handed in as soon as nothing works on it any
//! more, so that nobody waits for the lease to lapse; it counts as lost all the same.

use std::path::PathBuf;
use std::time::Duration;

use pond_wire::orch::{Decline, DeclineReply, Declined, Id, Lease, Route, Version};

use super::Daemon;
use super::pace::Pace;
use super::place::Left;
use crate::because;

/// How often it is looked whether the process of a dead daemon's job has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// `unfinished` are the runs of such jobs: what nobody will tell any more goes with the last word about its job.
pub(super) async fn hand_in(daemon: &Daemon, left: &Left, unfinished: &[PathBuf]) {
    while left.is_in_use() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if let Ok(job) = Id::try_from(left.job.clone()) {
        tell(daemon, Lease { job, epoch: left.epoch }).await;
    }
    if let Err(fault) = left.remove().and_then(|()| daemon.place.forget(unfinished)) {
        (daemon.log)("desk_left", &[("job", &left.job), ("error", &because(&fault))]);
    }
}

/// Until somebody has heard it. A refusal says that the lease is over, which is what is wanted.
async fn tell(daemon: &Daemon, lease: Lease) {
    let body = Decline { version: Version, lease, declined: Declined::Lost {} };
    let mut pace = Pace::default();
    loop {
        match daemon.session.call::<DeclineReply>(Route::Decline, &body).await {
            Ok(_) => return (daemon.log)("job_handed_in", &[("job", &body.lease.job.as_str())]),
            Err(fault) if fault.may_pass() => pace.wait().await,
            Err(_over_already) => return,
        }
    }
}
