//! A worker asks for work and is answered at once: a signed offer for exactly this poll, or nothing. Whoever holds polls open
//! stands before this door, and is believed in nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use pond_policy::reason::{Cause, Reason};
use pond_policy::stage::State;
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::offer::{Allotted, Offer, OfferFault, SignedOffer, Source};
use pond_seal::seal::SealKey;
use pond_wire::orch::{Blob, MOST_OFFER_BYTES, Next, Poll, PollReply, Version};

use super::gate::Caller;
use super::grant::Granted;
use super::inherit::{InheritFault, inherited};
use super::join::known;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{
    BundleFault, ClaimFault, Held, Lease, LeaseFault, Left, Moment, Offer as Claimed, WorkerState,
};

/// Jobs that may turn out not to be allowed any more before a poll is answered with nothing.
const MOST_REFUSED: usize = 16;
/// When a worker that found nothing asks again.
const SOON: u32 = 100;
/// When one asks again that gets nothing until an operator looked at it.
const LATER: u32 = 30_000;
/// How much longer than its run a worker lets a job run: first it is told, and this holds without anybody to tell it.
const OVERDUE: Duration = Duration::from_secs(10);
/// How old the last sign of life may be before it is written anew.
const SEEN_MILLISECONDS: i64 = 10_000;

/// What a tree that is still to be put together means to whoever asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    /// It waits for it.
    Waits,
    /// The job goes back at once, to be had by a poll.
    GivesBack,
}

pub(super) async fn poll(
    plane: &Arc<Plane>,
    caller: &mut Caller,
    body: &Poll,
    now: Moment,
) -> Result<PollReply, Problem> {
    ask(plane, caller, (body.capabilities.as_slice(), Making::Waits), now).await
}

/// The next job of a worker whose result was just taken, under the same rules as if it polled: the offer answers the call that brought
/// the result. Whatever is in the way is no fault of the result: there is no offer then, and a poll will say why. Nor does the result wait
/// for more than a claim.
pub(super) async fn next(
    plane: &Arc<Plane>,
    caller: &mut Caller,
    asked: &Next,
) -> Option<Blob<MOST_OFFER_BYTES>> {
    // Not when the call came: the lease of the next job begins now.
    let now = plane.now();
    match ask(plane, caller, (asked.capabilities.as_slice(), Making::GivesBack), now).await {
        Ok(PollReply::Offer { offer, .. }) => Some(offer),
        Ok(PollReply::Nothing { .. } | PollReply::Drain { .. }) | Err(_) => None,
    }
}

async fn ask(
    plane: &Arc<Plane>,
    caller: &mut Caller,
    (capabilities, making): (&[String], Making),
    now: Moment,
) -> Result<PollReply, Problem> {
    learn(plane, caller, capabilities, now).await?;
    // Without a key nothing can be sealed to it: it gets no work.
    let key = caller.seal_key.clone().ok_or_else(no_key)?;
    match caller.worker.state {
        WorkerState::Active => {}
        WorkerState::Draining => return Ok(PollReply::Drain { version: Version }),
        WorkerState::Quarantined | WorkerState::Revoked => return Ok(nothing(LATER)),
    }
    for _ in 0..MOST_REFUSED {
        let keys = (&caller.worker.id, caller.worker.generation);
        let claimed = match plane.store.claim(keys, 1, now).await {
            Ok(mut offers) => offers.pop(),
            Err(ClaimFault::Store(fault)) => return Err(fault.into()),
            Err(ClaimFault::OtherKeys) => break,
            Err(ClaimFault::UnknownWorker(_) | ClaimFault::NotActive(_)) => return Ok(nothing(LATER)),
        };
        let Some(claimed) = claimed else { break };
        plane.bell.ring();
        if making == Making::GivesBack && claimed.held.as_ref().is_none_or(|held| held.inherits) {
            plane.store.give_back(&claimed.lease, now).await?;
            plane.bell.ring();
            break;
        }
        if let Some(offer) = offer(plane, caller, &key, claimed, now).await? {
            return Ok(PollReply::Offer { version: Version, offer });
        }
    }
    Ok(nothing(SOON))
}

fn nothing(retry_milliseconds: u32) -> PollReply {
    PollReply::Nothing { version: Version, retry_milliseconds }
}

/// What the host can enforce now, and that it is there.
async fn learn(plane: &Plane, caller: &mut Caller, said: &[String], now: Moment) -> Result<(), Problem> {
    let capabilities = known(said);
    let worker = &mut caller.worker;
    let old = worker.seen_at.0.saturating_add(SEEN_MILLISECONDS) < now.0;
    if capabilities == worker.have.capabilities && !old {
        return Ok(());
    }
    if plane.store.set_capabilities(&worker.id, &capabilities, now).await? {
        plane.bell.ring();
    }
    worker.have.capabilities = capabilities;
    Ok(())
}

/// The offer of a job that was claimed; none when it is not allowed any more, which ends its stage.
async fn offer<const MOST: usize>(
    plane: &Arc<Plane>,
    caller: &Caller,
    key: &SealKey,
    Claimed { lease, held, .. }: Claimed,
    now: Moment,
) -> Result<Option<Blob<MOST>>, Problem> {
    let lease = &lease;
    let held = match held {
        Some(held) => held,
        None => match plane.store.held(lease).await? {
            Some(held) => held,
            None => return Ok(None),
        },
    };
    let held = match held.inherits {
        false => held,
        true => match made_apart(plane, lease, held).await {
            Ok(held) => held,
            Err(InheritFault::Unusable(reason)) => {
                return refuse(plane, lease, &reason, now).await.map(|()| None);
            }
            Err(InheritFault::Here(problem)) => return Err(problem),
        },
    };
    let granted = match Granted::judge(plane, &held, &caller.worker.have) {
        Ok(granted) => granted,
        Err(withheld) => {
            let reason = Reason::of(Cause::Withheld, withheld.to_string());
            return refuse(plane, lease, &reason, now).await.map(|()| None);
        }
    };
    let source = source(plane, lease, &held, granted.not_after).await?;
    let cost_microcents = if granted.costs { plane.store.lend(lease).await? } else { 0 };
    let allotted = allotted(&held.left, cost_microcents);
    let granted = granted.within(held.left.wall(now).saturating_add(OVERDUE));
    let signed = sign(plane, caller, (lease, &held, granted), key, (source, allotted))?;
    match Blob::new(signed.as_bytes().to_vec()) {
        Ok(blob) => {
            plane.store.remember_offer(lease, held);
            Ok(Some(blob))
        }
        Err(_) => {
            let reason = Reason::of(Cause::OfferTooLarge, "the stage is too large to be offered");
            plane.store.refuse(lease, &reason.to_string(), now).await?;
            plane.bell.ring();
            Ok(None)
        }
    }
}

/// In a task of its own: whoever asked may go away meanwhile, and what was begun is finished for whoever asks next.
async fn made_apart(plane: &Arc<Plane>, lease: &Lease, held: Held) -> Result<Held, InheritFault> {
    let (plane, lease) = (Arc::clone(plane), lease.clone());
    let making = tokio::spawn(async move { inherited(&plane, &lease, held).await });
    making.await.unwrap_or_else(|_| Err(InheritFault::Here(Problem::internal("source_making"))))
}

/// One byte more than is left: the worker stops there, and whoever counts here sees that it was too much.
fn allotted(left: &Left, cost_microcents: u64) -> Allotted {
    Allotted {
        cost_microcents,
        output_bytes: left.output_bytes.saturating_add(1),
        artifact_bytes: left.artifact_bytes,
        egress_bytes: left.egress_bytes.saturating_add(1),
    }
}

fn no_key() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "no_pinned_key", "the worker has no pinned key to seal to")
}

async fn refuse(plane: &Plane, lease: &Lease, reason: &Reason, now: Moment) -> Result<(), Problem> {
    match plane.store.refuse(lease, &reason.to_string(), now).await {
        Ok(()) => plane.bell.ring(),
        Err(LeaseFault::Stale) => {}
        Err(LeaseFault::Store(fault)) => return Err(fault.into()),
    }
    Ok(())
}

async fn source(plane: &Plane, lease: &Lease, held: &Held, not_after: u64) -> Result<Source, Problem> {
    let Some((bundle, _)) = &held.source else { return Ok(Source::Empty {}) };
    let token = Bearer::generate(Kind::Bundle).map_err(|_| Problem::internal("no_random_bytes"))?;
    let expires_at = Moment(i64::try_from(not_after).unwrap_or(i64::MAX).saturating_mul(1000));
    plane.store.issue_bundle_token(bundle, lease, &token.stored().sha256, expires_at).await?;
    Ok(Source::Bundle { token: token.to_text().as_str().to_owned() })
}

fn sign(
    plane: &Plane,
    caller: &Caller,
    (lease, held, granted): (&Lease, &Held, Granted),
    key: &SealKey,
    (source, allotted): (Source, Allotted),
) -> Result<SignedOffer, Problem> {
    let rules = plane.store.rules();
    let seconds = |span: std::time::Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
    let offer = Offer {
        answers: caller.nonce,
        worker: caller.worker.id.to_string(),
        worker_key: key.id(),
        tenant: held.project.to_string(),
        run: held.run.to_string(),
        stage: held.work.name.clone(),
        job: lease.job.to_string(),
        attempt: u32::try_from(held.attempt).unwrap_or(u32::MAX),
        lease_epoch: lease.epoch,
        lease_seconds: seconds(rules.lease),
        acknowledge_seconds: seconds(rules.offer),
        deadline_seconds: seconds(granted.deadline),
        not_after: granted.not_after,
        input: granted.input,
        policy: granted.policy,
        executor: granted.executor,
        credentials: granted.credentials,
        source,
        allotted,
    };
    SignedOffer::sign(&offer, &plane.key).map_err(|fault: OfferFault| Problem::internal(fault.code()))
}

impl From<BundleFault> for Problem {
    fn from(fault: BundleFault) -> Self {
        match fault {
            BundleFault::Store(fault) => fault.into(),
            BundleFault::Vault(_) => Self::internal("vault"),
            BundleFault::Stale => Self::stale(),
            BundleFault::Token => {
                Self::new(StatusCode::GONE, "bundle_token", "the token is good for nothing under this lease")
            }
        }
    }
}

/// A lease that only waits for the worker's word gives out no secret.
pub(super) fn is_running(held: &Held) -> Result<(), Problem> {
    let unacknowledged = || {
        let detail = "say first that the job starts";
        Problem::new(StatusCode::CONFLICT, "lease_unacknowledged", detail)
    };
    if held.state == State::Running { Ok(()) } else { Err(unacknowledged()) }
}
