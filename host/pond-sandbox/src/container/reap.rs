//! Removes what is left of a container, from its record alone. A container is pond's only if both of its labels say so.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};

use super::engine::{Ask, Body, Engine, EngineFault};
use super::plan::{JOB_LABEL, STATE_LABEL};
use super::request::Inspected;
use super::stage::{self, StageFault};
use crate::native::cgroup::kill_all_in;
use crate::record::JobName;
use crate::state::StateDir;

/// How long an engine may take to remove what it was told to.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to say what became of a dead run's container: whoever starts a job waits for that.
const SWEEPING: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum ReclaimFault {
    #[error(transparent)]
    Engine(#[from] EngineFault),
    #[error(transparent)]
    Stage(#[from] StageFault),
    #[error("looking at the state directory")]
    State(#[source] io::Error),
    #[error("killing what is left of the container")]
    Kill(#[source] io::Error),
}

impl ReclaimFault {
    /// The engine is not there, or somebody else is: what it holds can only be removed when it is back.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Engine(
                EngineFault::Connect { .. } | EngineFault::Silent { .. } | EngineFault::Stranger { .. }
            )
        )
    }
}

pub(super) fn container_name(job: &JobName) -> String {
    format!("pond-{}", job.as_str())
}

/// Which state directory this is, whatever it is called.
pub(super) fn state_id(state: &StateDir) -> io::Result<String> {
    let stat = rustix::fs::stat(state.live())?;
    Ok(format!("{:x}-{:x}", stat.st_dev, stat.st_ino))
}

pub(super) fn inspect(engine: &Engine, container: &str) -> Result<Option<Inspected>, EngineFault> {
    let path = format!("/containers/{container}/json");
    engine.find(Ask {
        what: "looking at the container",
        method: Method::GET,
        path: &path,
        body: Body::Nothing,
    })
}

/// Returns when the container is gone.
pub(super) fn remove(engine: &Engine, container: &str) -> Result<(), EngineFault> {
    let path = format!("/containers/{container}?force=true&v=true");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ask =
            Ask { what: "removing the container", method: Method::DELETE, path: &path, body: Body::Nothing };
        match engine.done(ask) {
            Ok(_) => return Ok(()),
            Err(EngineFault::Refused { status, .. }) if status == StatusCode::NOT_FOUND => return Ok(()),
            // Somebody else is removing it.
            Err(EngineFault::Refused { status, .. })
                if status == StatusCode::CONFLICT && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// Removes the job's container and takes its storage down.
pub(crate) fn reclaim(
    state: &StateDir,
    job: &JobName,
    socket: &Path,
    name: &str,
) -> Result<(), ReclaimFault> {
    stage::take_down(&state.stage(job))?;
    let engine = Engine::new(socket, "")?;
    let state_id = state_id(state).map_err(ReclaimFault::State)?;
    let found = inspect(&engine.again()?.within(SWEEPING), name)?;
    match found {
        Some(found) if is_ours(&found, job, &state_id) => {
            // A runtime that failed half-way has left processes that the engine does not count as the container's.
            kill_all_in(&found.id).map_err(ReclaimFault::Kill)?;
            Ok(remove(&engine, &found.id)?)
        }
        Some(_) | None => Ok(()),
    }
}

fn is_ours(found: &Inspected, job: &JobName, state: &str) -> bool {
    let label = |name| found.config.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    label(JOB_LABEL) == Some(job.as_str()) && label(STATE_LABEL) == Some(state)
}
