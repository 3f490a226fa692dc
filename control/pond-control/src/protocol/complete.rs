//! A job is over. Its result is judged while the lease holds and recorded once, whatever it is: one that does not verify ends the
//! stage too, and says why. The same bytes again get the same answer, because the first one may have got lost.

use axum::http::StatusCode;
use pond_policy::reason::{Cause, Reason};
use pond_seal::Digest;
use pond_wire::orch::{Complete, CompleteReply, Version};

use super::gate::Caller;
use super::grant::Granted;
use super::hold::lease_of;
use super::intake::{self, IntakeFault, Verified};
use super::problem::Problem;
use super::rerun::Compared;
use crate::plane::Plane;
use crate::store::{Ballot, Completed, Completion, Lease, Moment, Outcome, Spent};

pub(super) async fn complete(
    plane: &Plane,
    caller: &Caller,
    body: &Complete,
    now: Moment,
) -> Result<CompleteReply, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    let envelope = body.statement.as_bytes();
    let Some(held) = plane.store.offered(&lease).await? else {
        return said_before(plane, &lease, envelope).await;
    };
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
        (Completed::Accepted(_), None) => Ok(CompleteReply::Accepted { version: Version }),
        (Completed::Accepted(_), Some(code)) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, reason.as_str()))
        }
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

async fn said_before(plane: &Plane, lease: &Lease, envelope: &[u8]) -> Result<CompleteReply, Problem> {
    let recorded = plane.store.recorded(lease).await?;
    let recorded = recorded.filter(|(digest, _)| *digest == Digest::of(envelope)).map(|(_, outcome)| outcome);
    match recorded {
        None => Err(Problem::stale()),
        Some(Outcome::Succeeded | Outcome::Failed) => Ok(CompleteReply::Accepted { version: Version }),
        Some(Outcome::Rejected) => {
            let detail = "the result was recorded as one that does not verify";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "result_rejected", detail))
        }
    }
}
