//! What an orchestrator is told: the jobs that wait and the workers there are. In this process through a channel, to another one
//! as lines of a long response.
//!
//! After the bell the store is read once and compared with what was told before. Of each need only the oldest jobs are told: a
//! claim gives the oldest anyway. What has waited for a while is told again, so that an orchestrator that gave it to a worker that went
//! away hears of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pond_policy::route::Need;
use pond_seal::bearer::{Bearer, Kind};
use pond_wire::feed::{PATH, Told};
use pond_wire::orch::Id;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;

use super::notes::Notes;
use super::problem::Problem;
use crate::plane::{LOOK_AGAIN, Plane};
use crate::store::{Actor, Fault, JobId, Queued, TokenFault, WorkerId, WorkerState};

/// Jobs of one need that are told.
const MOST_OF_A_NEED: u32 = 64;
/// Lines ahead of a reader that is slow.
const AHEAD: usize = 256;
/// Told jobs from which on nobody waits for the next to be told at once.
const BACKLOG: usize = 16;
/// How long nobody looks then: who hands a result in gets the next job without an orchestrator's knowing of it.
const BREATH: Duration = Duration::from_millis(25);
/// Orchestrators that read at once.
const MOST_READERS: usize = 64;
/// How long one answer goes on.
const LONGEST: Duration = Duration::from_secs(600);
/// After how long a job that still waits is told again.
const AGAIN: Duration = Duration::from_secs(1);

/// Everything there is, then what changes, until the receiver is dropped.
#[must_use]
pub fn follow(plane: Arc<Plane>) -> mpsc::Receiver<Told> {
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut bell = plane.bell.listen();
        let mut so_far = SoFar::default();
        // A store that does not answer is asked again; the reader waits meanwhile.
        while so_far.tell(&plane, &to).await.is_ok() && !to.is_closed() {
            if so_far.jobs.len() >= BACKLOG {
                sleep(BREATH).await;
            }
            bell.wait().await;
        }
    });
    from
}

/// The lines for orchestrators in other processes, for those who show a token of kind `relay`.
pub fn router(plane: Arc<Plane>) -> Router {
    let places = Arc::new(Semaphore::new(MOST_READERS));
    let door = Arc::new(Door { plane, places, notes: Notes::default() });
    Router::new().route(PATH, get(serve)).with_state(door)
}

struct Door {
    plane: Arc<Plane>,
    places: Arc<Semaphore>,
    notes: Notes,
}

async fn serve(State(door): State<Arc<Door>>, headers: HeaderMap) -> Response {
    match lines(&door, &headers).await {
        Ok(response) => response,
        Err(problem) => {
            door.notes.refused(&door.plane, &Actor::Nobody, PATH, &problem).await;
            problem.into_response()
        }
    }
}

async fn lines(door: &Door, headers: &HeaderMap) -> Result<Response, Problem> {
    let plane = &door.plane;
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|text| Bearer::parse(text.strip_prefix("Bearer ")?).ok());
    let shown = shown.filter(|bearer| bearer.kind() == Kind::Relay).ok_or_else(refused)?;
    match plane.store.authenticate(&shown, plane.now()).await {
        Ok(_) => {}
        Err(TokenFault::Refused) => return Err(refused()),
        Err(TokenFault::Store(fault)) => return Err(fault.into()),
    }
    let place = Arc::clone(&door.places).try_acquire_owned().map_err(|_| Problem::unavailable())?;
    let mut told = follow(Arc::clone(plane));
    let (to, from) = mpsc::channel::<Result<Bytes, serde_json::Error>>(AHEAD);
    tokio::spawn(async move {
        let _place = place;
        let passing = async {
            while let Some(line) = told.recv().await {
                if to.send(line.to_line().map(Bytes::from)).await.is_err() {
                    return;
                }
            }
        };
        // A token is looked at when the lines are asked for; they are asked for again after this.
        if let Err(_long_enough) = tokio::time::timeout(LONGEST, passing).await {}
    });
    Ok(Body::from_stream(ReceiverStream::new(from)).into_response())
}

fn refused() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "a good token of kind relay is needed")
}

/// Whoever listened is gone.
struct Gone;

#[derive(Default)]
struct SoFar {
    jobs: HashMap<JobId, Instant>,
    workers: HashMap<Id, Told>,
    looked: Option<Instant>,
}

impl SoFar {
    async fn tell(&mut self, plane: &Plane, to: &mpsc::Sender<Told>) -> Result<(), Gone> {
        let mut lines = Vec::new();
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN) {
            lines.extend(self.workers(plane).await.unwrap_or_default());
            lines.push(Told::Still {});
            self.looked = Some(Instant::now());
        }
        lines.extend(self.jobs(plane).await.unwrap_or_default());
        for line in lines {
            to.send(line).await.map_err(|_| Gone)?;
        }
        Ok(())
    }

    async fn jobs(&mut self, plane: &Plane) -> Result<Vec<Told>, Fault> {
        let queued = plane.store.queued(MOST_OF_A_NEED).await?;
        let waits: HashSet<&JobId> = queued.iter().map(|queued| &queued.job).collect();
        let mut lines = Vec::new();
        self.jobs.retain(|job, _| {
            let stays = waits.contains(job);
            lines.extend(name(job.as_str()).filter(|_| !stays).map(|job| Told::JobGone { job }));
            stays
        });
        let now = Instant::now();
        for Queued { job, need, avoid } in &queued {
            let told = self.jobs.get(job).is_some_and(|told| now.duration_since(*told) < AGAIN);
            if let Some(line) = waiting(job, need, avoid).filter(|_| !told) {
                self.jobs.insert(job.clone(), now);
                lines.push(line);
            }
        }
        Ok(lines)
    }

    async fn workers(&mut self, plane: &Plane) -> Result<Vec<Told>, Fault> {
        let all = plane.store.workers().await?;
        let active = all.iter().filter(|worker| worker.state == WorkerState::Active);
        let now: HashMap<Id, Told> = active
            .filter_map(|worker| {
                let (id, again) = (name(worker.id.as_str())?, name(worker.id.as_str())?);
                let told = Told::Worker {
                    worker: again,
                    tags: worker.have.tags.iter().map(ToString::to_string).collect(),
                    capabilities: worker.have.capabilities.iter().map(ToString::to_string).collect(),
                };
                Some((id, told))
            })
            .collect();
        let gone = self.workers.keys().filter(|id| !now.contains_key(*id));
        let mut lines: Vec<Told> = gone.map(|worker| Told::WorkerGone { worker: worker.clone() }).collect();
        let news = now.iter().filter(|(id, told)| self.workers.get(*id) != Some(told));
        lines.extend(news.map(|(_, told)| told.clone()));
        self.workers = now;
        Ok(lines)
    }
}

fn waiting(job: &JobId, need: &Need, avoid: &[WorkerId]) -> Option<Told> {
    Some(Told::Job {
        job: name(job.as_str())?,
        project: name(need.project().as_str())?,
        capability: need.capability().map(|capability| capability.to_string()),
        tags: need.tags().iter().map(ToString::to_string).collect(),
        avoid: avoid.iter().map(|worker| name(worker.as_str())).collect::<Option<Vec<_>>>()?,
    })
}

fn name(text: &str) -> Option<Id> {
    Id::try_from(text.to_owned()).ok()
}
