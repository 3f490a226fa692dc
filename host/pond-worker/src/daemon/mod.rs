//! The worker's daemon: asks for jobs, holds each under its lease, and tells what came of it.
//!
//! Zone: host. It believes what is signed with the key it pinned, for the poll it has open, and nothing else; the orchestrator
//! between them can only delay. Who hands a result in asks for the next job with it, and polls where there is none. Jobs run in processes of their own, and so do probes. Losing this process costs the leases it
//! holds and no more: sandboxes end with it, and the next start says so and removes what is left.

mod child;
mod chunks;
mod enroll;
mod hold;
mod left;
mod look;
mod pace;
mod place;
mod process;
mod session;
mod source;
mod work;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pond_policy::settings::Settings;
use pond_seal::offer::{Addressee, Offer, OfferFault, SignedOffer};
use pond_seal::request::RequestNonce;
use pond_wire::orch::{Blob, Few, MOST_OFFER_BYTES, Next, NotAValue, Poll, PollReply, Route, Version};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

pub use child::Spare;
pub use enroll::{JoinFault, join};
pub use hold::JobFault;
pub use look::{LookFault, look};
pub use place::{Alone, Place, PlaceFault};
pub use session::{CallFault, Session};

use crate::because;
use crate::meant::{Meant, MeantFault, understand};
use hold::{Came, give_back, hold, refuse};
use pace::{InVain, Pace};

/// How long a poll is held open, and how much longer its answer may take.
const WAIT_SECONDS: u32 = 25;
const WAIT_MORE: Duration = Duration::from_secs(15);
/// How often a worker that gets no work asks whether that has changed.
const DRAINED: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What is to become of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Work,
    /// No more jobs; those that run are finished.
    Drain,
    /// Jobs that run are ended and given back.
    GiveUp,
}

/// Writes one line of the log: what happened, and about what.
pub type Log = fn(&str, &[(&str, &dyn Display)]);

#[derive(Debug)]
pub struct Daemon {
    pub session: Session,
    pub place: Place,
    /// What the operator demands of every sandbox on this machine.
    pub settings: Settings,
    /// Pond itself.
    pub executable: PathBuf,
    /// How many jobs at once.
    pub slots: usize,
    pub log: Log,
    /// Something may be different about this host.
    pub changed: Notify,
    /// The process of the next job.
    pub spare: Spare,
}

#[derive(Debug, thiserror::Error)]
enum PollFault {
    #[error("asking for work")]
    Call(#[from] CallFault),
    #[error("the offer does not hold")]
    Offer(#[from] OfferFault),
    #[error("the stage is not for this worker")]
    Meant(#[from] MeantFault),
    #[error("a value that no body can hold")]
    Value(#[from] NotAValue),
}

/// A job that the control plane offered for a question of this worker, and what it means here.
type Job = Box<(Offer, Meant)>;

/// What a poll came to.
enum Polled {
    Job(Job),
    Nothing(Duration),
}

/// What a worker says when it asks for work, and whether it does.
#[derive(Debug, Clone)]
struct Asking {
    known: Arc<watch::Sender<Vec<String>>>,
    phase: watch::Receiver<Phase>,
}

impl Asking {
    fn capabilities(&self) -> Result<Few<String, 16>, NotAValue> {
        Few::try_from(self.known.borrow().clone())
    }

    fn takes_jobs(&self) -> bool {
        *self.phase.borrow() == Phase::Work
    }

    /// What goes with a result: nothing from a worker that takes no more jobs.
    fn next(&self) -> Option<Next> {
        self.capabilities().ok().filter(|_| self.takes_jobs()).map(|capabilities| Next { capabilities })
    }
}

/// Works until the phase says otherwise, and then until every job is over.
pub async fn run(daemon: Arc<Daemon>, capabilities: Vec<String>, phase: watch::Receiver<Phase>) {
    let known = Arc::new(watch::Sender::new(capabilities));
    let looking = {
        let (daemon, known) = (Arc::clone(&daemon), Arc::clone(&known));
        tokio::spawn(async move { look::keep_looking(&daemon, &known).await })
    };
    // Before the first job: afterwards nobody could tell whose is whose.
    let mut handing_in = JoinSet::new();
    let unfinished: Arc<[PathBuf]> = daemon.place.unfinished().into();
    for left in daemon.place.left() {
        let (daemon, unfinished) = (Arc::clone(&daemon), Arc::clone(&unfinished));
        handing_in.spawn(async move { left::hand_in(&daemon, &left, &unfinished).await });
    }
    daemon.spare.fill(&daemon.executable, &daemon.place.state());
    let mut jobs = JoinSet::new();
    let mut leaving = phase.clone();
    let asking = Asking { known, phase };
    tokio::select! {
        () = take_jobs(&daemon, &asking, &mut jobs) => {}
        _ = leaving.wait_for(|phase| *phase != Phase::Work) => {}
    }
    (daemon.log)("draining", &[("jobs", &jobs.len())]);
    while jobs.join_next().await.is_some() {}
    looking.abort();
    handing_in.shutdown().await;
    daemon.spare.clear().await;
}

async fn take_jobs(daemon: &Arc<Daemon>, asking: &Asking, jobs: &mut JoinSet<()>) {
    let slots = Arc::new(Semaphore::new(daemon.slots));
    let (mut pace, mut in_vain) = (Pace::default(), InVain::default());
    loop {
        while jobs.try_join_next().is_some() {}
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match poll(daemon, asking).await {
            Ok(Polled::Job(job)) => {
                (pace, in_vain) = (Pace::default(), InVain::default());
                let (daemon, asking) = (Arc::clone(daemon), asking.clone());
                jobs.spawn(async move {
                    let (mut next, mut came) = (Some(job), Came::ByPoll);
                    while let Some(job) = next {
                        let (offer, meant) = *job;
                        // It came with the answer to a result that was handed in before.
                        if !asking.takes_jobs() {
                            give_back(&daemon, &offer).await;
                            break;
                        }
                        let ended = hold(&daemon, &offer, &meant, (came, asking.clone())).await;
                        (next, came) = (told(&daemon, &offer, ended), Came::WithAnAnswer);
                        daemon.spare.fill(&daemon.executable, &daemon.place.state());
                    }
                    drop(slot);
                });
            }
            Ok(Polled::Nothing(retry)) => {
                pace = Pace::default();
                tokio::time::sleep(in_vain.wait(retry)).await;
            }
            Err(fault) => {
                (daemon.log)("poll_failed", &[("error", &because(&fault))]);
                pace.wait().await;
            }
        }
    }
}

/// The job after this one, if there is one.
fn told(daemon: &Daemon, offer: &Offer, ended: Result<Option<Job>, JobFault>) -> Option<Job> {
    match ended {
        Ok(next) => {
            (daemon.log)("job_accepted", &[("job", &offer.job)]);
            next
        }
        Err(fault) => {
            (daemon.log)("job_failed", &[("job", &offer.job), ("error", &because(&fault))]);
            None
        }
    }
}

/// Asks once, and waits.
async fn poll(daemon: &Daemon, asking: &Asking) -> Result<Polled, PollFault> {
    let body = Poll { version: Version, wait_seconds: WAIT_SECONDS, capabilities: asking.capabilities()? };
    let patience = Duration::from_secs(WAIT_SECONDS.into()) + WAIT_MORE;
    let (reply, polled) = daemon.session.ask(Route::Poll, &body, patience).await?;
    match reply {
        PollReply::Nothing { retry_milliseconds, .. } => {
            let retry = Duration::from_millis(retry_milliseconds.into());
            Ok(Polled::Nothing(retry.clamp(pace::SHORTEST, LONGEST_RETRY)))
        }
        PollReply::Drain { .. } => Ok(Polled::Nothing(DRAINED)),
        PollReply::Offer { offer, .. } => opened(daemon, offer, polled).await.map(Polled::Job),
    }
}

/// An offer is read only if the control plane signed it for this worker, its key and this very question. One for a stage that means
/// nothing here, or something else, is refused at once and with the reason, so that nobody waits for it.
async fn opened(
    daemon: &Daemon,
    offer: Blob<MOST_OFFER_BYTES>,
    polled: RequestNonce,
) -> Result<Job, PollFault> {
    let session = &daemon.session;
    let worker_key = session.identity.keys().seal.id();
    let me = Addressee { worker: &session.worker, worker_key, polled };
    let offer = SignedOffer::from_bytes(offer.into_bytes()).verify(&session.control, me)?;
    match understand(&offer.executor, &offer.tenant, offer.policy, &daemon.settings) {
        Ok(meant) => Ok(Box::new((offer, meant))),
        Err(fault) => {
            refuse(daemon, &offer, fault.code()).await;
            Err(fault.into())
        }
    }
}
