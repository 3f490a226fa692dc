//! One job under its lease, from the offer to the accepted result.
//!
//! That a job begins is said before anything is asked or sent under its lease: at once of one that was polled for, since whoever polls
//! has nothing else to say and somebody may wait for the first output; of one that came with an answer soon, for there are others behind
//! it, and of one that is over before that, its result says it. Until then it has neither source nor secret nor a byte of any
//! connection: those come with calls of the lease.
//! The lease is kept on this machine's own clock, counted from before the call that renewed it was sent: when it cannot be
//! renewed the job is dead before anybody else may have it. Whatever happens, the job's directory and its run go. The directory
//! is there before the lease is taken, so that the next daemon knows what this one had.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pond_policy::run::Budget;
use pond_seal::offer::Offer;
use pond_wire::orch::{
    Acknowledge, AcknowledgeReply, Code, Decline, DeclineReply, Declined, Heartbeat, HeartbeatReply, Id,
    Lease, NotAValue, Route, Verdict, Version,
};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::{Instant, timeout_at};

use super::child::{ChildFault, Spent};
use super::chunks::ChunkFault;
use super::pace::Pace;
use super::place::PlaceFault;
use super::session::{CallFault, Session};
use super::source::SourceFault;
use super::work::work;
use super::{Asking, Daemon, Job, Phase};
use crate::because;
use crate::meant::Meant;
use crate::order::Lent;

/// The longest time between two heartbeats: how late a cancellation is heard.
const BEAT: Duration = Duration::from_secs(5);
/// How long it may go unsaid that a job began which came with an answer.
const UNSAID: Duration = Duration::from_millis(500);
/// How long a job whose lease is lost may take to be gone.
const GRACE: Duration = Duration::from_secs(40);
/// Before a worker that gave a job back asks for another, which may be the same.
const BREATH: Duration = Duration::from_secs(1);

/// What is to become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    Go,
    /// It ends; its result so far is wanted.
    Stop,
    /// It ends; nothing of it is wanted.
    Lost,
}

#[derive(Debug, thiserror::Error)]
pub enum JobFault {
    #[error("acknowledging the job")]
    Acknowledge(#[from] CallFault),
    #[error("the lease is lost")]
    Lost,
    #[error("fetching the source")]
    Source(#[from] SourceFault),
    #[error("credential {name} was not released: {code}")]
    Withheld { name: String, code: String },
    #[error("opening credential {0}")]
    Release(String, #[source] pond_seal::seal::OpenFault),
    #[error("asking for a credential")]
    Seal(#[source] CallFault),
    #[error("a place for the job")]
    Place(#[from] PlaceFault),
    #[error(transparent)]
    Child(#[from] ChildFault),
    #[error("handing on what the job wrote")]
    Chunks(#[from] ChunkFault),
    #[error("{message} [{code}]")]
    Failed { code: String, message: String },
    #[error("reading the job's result")]
    Result(#[source] std::io::Error),
    #[error("the result has {has} bytes; {most} are left of what the run may keep")]
    TooMuch { has: u64, most: u64 },
    #[error("the result was not accepted")]
    Complete(#[source] CallFault),
    #[error("a value that no body can hold")]
    Value(#[from] NotAValue),
}

/// What a job needs to know while it is held.
pub(super) struct Held<'a> {
    pub(super) daemon: &'a Daemon,
    pub(super) offer: &'a Offer,
    pub(super) meant: &'a Meant,
    pub(super) lease: Lease,
    pub(super) spent: watch::Sender<Spent>,
    pub(super) output_bytes: AtomicU64,
    /// Something is to be said before the next heartbeat is due.
    pub(super) beat: Notify,
    /// What the job may use in all, each time that is said.
    pub(super) lent: watch::Sender<Lent>,
    pub(super) asking: Asking,
    /// Until when the lease held that was acknowledged.
    begun: OnceCell<Instant>,
}

impl Held<'_> {
    /// Says that the job begins, if that was not said; until when the lease held then.
    pub(super) async fn begin(&self) -> Result<Instant, CallFault> {
        let said = self.begun.get_or_try_init(|| acknowledge(&self.daemon.session, &self.lease, self.offer));
        said.await.copied()
    }

    /// Whoever asked for more gets to know what there is, and nobody else takes it for an answer.
    fn answered(&self, asked: Spent, (microcents, egress_bytes): (u64, u64)) {
        if !asked.wants() {
            return;
        }
        self.spent.send_modify(|spent| {
            spent.wanted = spent.wanted.filter(|wanted| Some(*wanted) != asked.wanted);
            let bytes = spent.wanted_egress_bytes;
            spent.wanted_egress_bytes = bytes.filter(|wanted| Some(*wanted) != asked.wanted_egress_bytes);
        });
        self.lent.send_modify(|lent| {
            if asked.wanted.is_some() {
                lent.microcents.answer(microcents);
            }
            if asked.wanted_egress_bytes.is_some() {
                lent.egress_bytes.answer(egress_bytes);
            }
        });
    }
}

/// How an offer came here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    ByPoll,
    WithAnAnswer,
}

/// What ends the holding of a job.
enum End {
    Done(Result<Option<Job>, JobFault>),
    LeaseLost,
    GivenUp,
}

/// Runs an offered job; what comes after it, if there is something.
pub(super) async fn hold(
    daemon: &Daemon,
    offer: &Offer,
    meant: &Meant,
    (came, asking): (Came, Asking),
) -> Result<Option<Job>, JobFault> {
    let mut phase = asking.phase.clone();
    let lease = lease_of(offer)?;
    let desk = daemon.place.desk(&offer.job, offer.lease_epoch)?;
    let (course, courses) = watch::channel(Course::Go);
    let spent = watch::Sender::default();
    let (beat, lent) = (Notify::new(), watch::Sender::default());
    let (output_bytes, begun) = (AtomicU64::new(0), OnceCell::new());
    let held = Held { daemon, offer, meant, lease, spent, output_bytes, beat, lent, asking, begun };
    let working = work(&held, desk, courses);
    let unsaid = match came {
        Came::ByPoll => Duration::ZERO,
        Came::WithAnAnswer => UNSAID,
    };
    let keeping = keep(&held, unsaid, &course);
    tokio::pin!(working, keeping);
    let end = tokio::select! {
        done = &mut working => End::Done(done),
        () = &mut keeping => End::LeaseLost,
        _ = phase.wait_for(|phase| *phase == Phase::GiveUp) => End::GivenUp,
    };
    let given_up = match end {
        End::Done(done) => {
            if let Err(fault) = &done {
                let declined = fault.declined();
                let breathes = matches!(declined, Some(Declined::GivenBack {}));
                decline(&held, declined).await;
                if breathes {
                    tokio::time::sleep(BREATH).await;
                }
            }
            return done;
        }
        End::LeaseLost => false,
        End::GivenUp => true,
    };
    course.send_replace(Course::Lost);
    // It is told to end; one that does not is killed with everything it started when this is dropped.
    match tokio::time::timeout(GRACE, &mut working).await {
        // A lease is over with the result that was taken, which may be known here before the answer that says so has come.
        Ok(Ok(next)) => return Ok(next),
        Ok(Err(_)) if given_up => decline(&held, Some(Declined::GivenBack {})).await,
        Ok(Err(_)) | Err(_) => {}
    }
    if !given_up {
        (daemon.log)("lease_lost", &[("job", &offer.job)]);
    }
    Err(JobFault::Lost)
}

/// An offer that nothing was done with goes back.
pub(super) async fn give_back(daemon: &Daemon, offer: &Offer) {
    if let Ok(lease) = lease_of(offer) {
        hand_in(daemon, lease, Declined::GivenBack {}).await;
    }
}

/// An offer that this worker will do nothing with, and nor would another.
pub(super) async fn refuse(daemon: &Daemon, offer: &Offer, code: &str) {
    if let (Ok(lease), Some(declined)) = (lease_of(offer), refused(code)) {
        hand_in(daemon, lease, declined).await;
    }
}

fn refused(code: &str) -> Option<Declined> {
    Code::try_from(code.to_owned()).ok().map(|reason| Declined::Refused { reason })
}

async fn decline(held: &Held<'_>, declined: Option<Declined>) {
    if let Some(declined) = declined {
        hand_in(held.daemon, held.lease.clone(), declined).await;
    }
}

/// Hands the lease in. A word that does not arrive costs the time until the lease lapses.
async fn hand_in(daemon: &Daemon, lease: Lease, declined: Declined) {
    let body = Decline { version: Version, lease, declined };
    if let Err(fault) = daemon.session.call::<DeclineReply>(Route::Decline, &body).await {
        (daemon.log)("decline_failed", &[("job", &body.lease.job.as_str()), ("error", &because(&fault))]);
    }
}

fn lease_of(offer: &Offer) -> Result<Lease, NotAValue> {
    Ok(Lease { job: Id::try_from(offer.job.clone())?, epoch: offer.lease_epoch })
}

impl JobFault {
    /// What is said of a job that has no result: nothing where something of it may have run, or where the lease is over.
    fn declined(&self) -> Option<Declined> {
        let code = match self {
            Self::Source(fault) if fault.may_pass() => return Some(Declined::GivenBack {}),
            Self::Source(_) => "source_failed",
            Self::Withheld { .. } | Self::Release(..) | Self::Seal(_) => "credential_withheld",
            Self::Failed { code, .. } => code,
            Self::TooMuch { .. } => Budget::Artifacts.code(),
            Self::Acknowledge(_)
            | Self::Lost
            | Self::Place(_)
            | Self::Child(_)
            | Self::Chunks(_)
            | Self::Result(_)
            | Self::Complete(_)
            | Self::Value(_) => return None,
        };
        refused(code)
    }
}

/// Says that the job begins; the lease holds until the time this returns.
async fn acknowledge(session: &Session, lease: &Lease, offer: &Offer) -> Result<Instant, CallFault> {
    let body = Acknowledge { version: Version, lease: lease.clone() };
    let deadline = Instant::now() + Duration::from_secs(offer.acknowledge_seconds.into());
    let mut pace = Pace::default();
    loop {
        let sent = Instant::now();
        match session.call::<AcknowledgeReply>(Route::Acknowledge, &body).await {
            Ok(reply) => return Ok(sent + holds(reply.lease_seconds)),
            Err(fault) if fault.may_pass() && Instant::now() < deadline => pace.wait().await,
            Err(fault) => return Err(fault),
        }
    }
}

/// A lease as this side counts it: shorter, so that killing takes place within it.
fn holds(lease_seconds: u32) -> Duration {
    Duration::from_secs(lease_seconds.into()) * 9 / 10
}

/// Says in time that the job begins, and renews the lease for as long as that can be done; returns when it is lost.
async fn keep(held: &Held<'_>, unsaid: Duration, course: &watch::Sender<Course>) {
    let soon = holds(held.offer.acknowledge_seconds) / 3;
    if !unsaid.is_zero() {
        tokio::time::sleep(unsaid.min(soon)).await;
    }
    let Ok(mut until) = held.begin().await else { return };
    let mut pace = Pace::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut asked = held.spent.subscribe();
        tokio::select! {
            () = tokio::time::sleep(BEAT.min(left / 3)) => {}
            () = held.beat.notified() => {}
            _ = asked.wait_for(|spent| spent.wants()) => {}
        }
        let sent = Instant::now();
        let spent = *held.spent.borrow();
        let beat = Heartbeat {
            version: Version,
            lease: held.lease.clone(),
            cost_microcents: spent.cost_microcents,
            egress_bytes: spent.egress_bytes,
            output_bytes: held.output_bytes.load(Ordering::Relaxed),
            wanted: spent.wanted,
            wanted_egress_bytes: spent.wanted_egress_bytes,
        };
        let call = held.daemon.session.call::<HeartbeatReply>(Route::Heartbeat, &beat);
        match timeout_at(until, call).await {
            Ok(Ok(HeartbeatReply {
                verdict: Verdict::Continue { lease_seconds, lent_microcents, lent_egress_bytes },
                ..
            })) => {
                until = sent + holds(lease_seconds);
                held.answered(spent, (lent_microcents, lent_egress_bytes));
                pace = Pace::default();
            }
            Ok(Ok(HeartbeatReply { verdict: Verdict::Cancel { reason }, .. })) => {
                if course.send_if_modified(|course| std::mem::replace(course, Course::Stop) == Course::Go) {
                    (held.daemon.log)(
                        "job_cancelled",
                        &[("job", &held.offer.job), ("reason", &reason.as_str())],
                    );
                }
                held.answered(spent, (0, 0));
                until = sent + holds(held.offer.lease_seconds);
            }
            Ok(Ok(HeartbeatReply { verdict: Verdict::Lost {}, .. })) => return,
            Ok(Err(fault)) if !fault.may_pass() => return,
            Ok(Err(_)) if Instant::now() < until => {
                // A wait that is longer than the lease ends with it.
                if timeout_at(until, pace.wait()).await.is_err() {
                    return;
                }
            }
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
