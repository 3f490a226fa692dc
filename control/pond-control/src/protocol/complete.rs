//! A job is over. Its result is judged while the lease holds and recorded once, whatever it is: one that does not verify ends the
//! stage too, and says why. The same bytes again get the same answer, because the first one may have got lost. Who hands a result in may
//! ask for its next job with it; that never changes what becomes of the result.

use std::sync::Arc;

use axum::http::StatusCode;
use pond_policy::reason::{Cause, Reason};
use pond_seal::Digest;
use pond_wire::orch::{Complete, CompleteReply, Version};

use super::gate::Caller;
use super::grant::Granted;
use super::hold::lease_of;
use super::intake::{self, IntakeFault, Verified};
use super::output;
use super::poll;
use super::problem::Problem;
use super::rerun::{self, Compared};
use crate::plane::Plane;
use crate::store::{Ballot, Chunk, Completed, Completion, Held, Lease, LogPiece, Moment, Outcome, Spent};

pub(super) async fn complete(
    plane: &Arc<Plane>,
    caller: &mut Caller,
    body: &Complete,
    now: Moment,
) -> Result<CompleteReply, Problem> {
    let next = match (take_in(plane, caller, body, now).await?, &body.next) {
        (After::Next, Some(asked)) => poll::next(plane, caller, asked).await,
        (After::Next, None) | (After::Nothing, Some(_) | None) => None,
    };
    Ok(CompleteReply::Accepted { version: Version, next })
}

/// What the answer to a result may bring besides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Next,
    /// The result counted before: whoever says it again, or for somebody else, gets the answer and no second job. Or its run goes on:
    /// what comes next is likely a stage whose tree is still to be put together, for which a poll can wait and a result should not.
    Nothing,
}

/// Returns when the result counts.
async fn take_in(plane: &Plane, caller: &Caller, body: &Complete, now: Moment) -> Result<After, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    let envelope = body.statement.as_bytes();
    let Some(held) = plane.store.offered(&lease).await? else {
        return said_before(plane, &lease, envelope).await;
    };
    if let Some(piece) = &body.last {
        let piece = output::last(piece)?;
        if at_once(plane, caller, (&lease, &held), (piece, envelope), now).await? {
            plane.bell.ring();
            return Ok(After::Next);
        }
        match store_last(plane, &lease, piece, now).await {
            // Over meanwhile, perhaps by the same words sent twice.
            Err(problem) if problem == Problem::stale() => {
                return said_before(plane, &lease, envelope).await;
            }
            stored => stored?,
        }
    }
    // What is not allowed any more was not allowed to produce a result either.
    let granted = Granted::judge(plane, &held, &caller.worker.have);
    let (verified, code) = match &granted {
        Err(withheld) => {
            let reason = Reason::of(Cause::Withheld, withheld.to_string());
            (rejected(&reason), Some(Cause::Withheld.name()))
        }
        Ok(granted) => match intake::judge(plane, caller, (&lease, &held, granted), envelope).await {
            Ok(verified) => (verified, None),
            Err(IntakeFault::Rejected(fault)) => {
                (rejected(&Reason::new(fault.code(), fault.to_string())), Some(fault.code()))
            }
            Err(IntakeFault::Store(fault)) => return Err(fault.into()),
        },
    };
    let Verified { outcome, reason, compared, spent } = &verified;
    let completion = Completion { lease: &lease, outcome: *outcome, reason, spent: *spent, envelope };
    let ballot = compared.as_ref().map(|Compared { digest, quorum, differs }| Ballot {
        digest: *digest,
        quorum: *quorum,
        differs,
    });
    let completed = plane.store.complete_among(completion, ballot, now).await?;
    plane.bell.ring();
    match (completed, code) {
        (Completed::Stale, _) => Err(Problem::stale()),
        (Completed::Replayed, _) => said_before(plane, &lease, envelope).await,
        (Completed::Accepted(_), None) => match plane.store.is_over(&held.run).await {
            Ok(true) => Ok(After::Next),
            Ok(false) | Err(_) => Ok(After::Nothing),
        },
        (Completed::Accepted(_), Some(code)) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, reason.as_str()))
        }
    }
}

/// A job that did well and says all it has to say in one call: its end and its result are written together. Whether it was that; if
/// not, nothing was changed.
async fn at_once(
    plane: &Plane,
    caller: &Caller,
    (lease, held): (&Lease, &Held),
    (piece, envelope): (Chunk<'_>, &[u8]),
    now: Moment,
) -> Result<bool, Problem> {
    let Ok(granted) = Granted::judge(plane, held, &caller.worker.have) else { return Ok(false) };
    if !rerun::stands_alone(plane, held, granted.verify) {
        return Ok(false);
    }
    let Chunk { sequence, offset, bytes, .. } = piece;
    let whole = LogPiece { sequence, offset, bytes: bytes.to_vec() };
    let judged = intake::judge_whole(plane, caller, (lease, held, &granted), (envelope, whole)).await;
    let Verified { outcome, reason, spent, .. } = match judged {
        Ok(verified) => verified,
        Err(IntakeFault::Rejected(_)) => return Ok(false),
        Err(IntakeFault::Store(fault)) => return Err(fault.into()),
    };
    let completion = Completion { lease, outcome, reason: &reason, spent, envelope };
    Ok(plane.store.complete_whole(completion, piece, now).await?)
}

/// The last piece of a job that is over. One of which nobody said that it began has begun all the same, if its offer still stands.
async fn store_last(plane: &Plane, lease: &Lease, piece: Chunk<'_>, now: Moment) -> Result<(), Problem> {
    match output::store_last(plane, lease, piece, now).await {
        Err(problem) if problem == Problem::stale() => {
            plane.store.acknowledge(lease, now).await?;
            output::store_last(plane, lease, piece, now).await
        }
        stored => stored,
    }
}

fn rejected(reason: &Reason) -> Verified {
    Verified {
        outcome: Outcome::Rejected,
        reason: reason.to_string(),
        compared: None,
        spent: Spent::default(),
    }
}

async fn said_before(plane: &Plane, lease: &Lease, envelope: &[u8]) -> Result<After, Problem> {
    let recorded = plane.store.recorded(lease).await?;
    let recorded = recorded.filter(|(digest, _)| *digest == Digest::of(envelope)).map(|(_, outcome)| outcome);
    match recorded {
        None => Err(Problem::stale()),
        Some(Outcome::Succeeded | Outcome::Failed) => Ok(After::Nothing),
        Some(Outcome::Rejected) => {
            let detail = "the result was recorded as one that does not verify";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "result_rejected", detail))
        }
    }
}
