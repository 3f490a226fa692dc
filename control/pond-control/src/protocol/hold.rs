//! The holder of a lease begins, and says that it is still there.

use pond_policy::reason::{Cause, Reason};
use pond_wire::orch::{
    Acknowledge, AcknowledgeReply, Code, Decline, DeclineReply, Declined, Heartbeat, HeartbeatReply,
    Lease as Named, Verdict, Version,
};

use super::gate::Caller;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Held, JobId, Lease, LeaseFault, Moment, Renewed, Spent, Wanted};

/// The lease a body names, in the caller's own name: nobody speaks for another worker.
pub(super) fn lease_of(caller: &Caller, named: &Named) -> Result<Lease, Problem> {
    let job = JobId::parse(named.job.as_str()).ok_or_else(Problem::stale)?;
    Ok(Lease { job, worker: caller.worker.id.clone(), epoch: named.epoch })
}

/// What a lease that is good at this moment is about.
pub(super) async fn current(
    plane: &Plane,
    caller: &Caller,
    named: &Named,
    now: Moment,
) -> Result<(Lease, Held), Problem> {
    let lease = lease_of(caller, named)?;
    let held = plane.store.held(&lease).await?.filter(|held| held.until >= now);
    held.map(|held| (lease, held)).ok_or_else(Problem::stale)
}

pub(super) async fn acknowledge(
    plane: &Plane,
    caller: &Caller,
    body: &Acknowledge,
    now: Moment,
) -> Result<AcknowledgeReply, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    let renewed = plane.store.acknowledge(&lease, now).await?;
    plane.bell.ring();
    Ok(AcknowledgeReply { version: Version, lease_seconds: left(renewed, now) })
}

pub(super) async fn heartbeat(
    plane: &Plane,
    caller: &Caller,
    body: &Heartbeat,
    now: Moment,
) -> Result<HeartbeatReply, Problem> {
    let reply = |verdict| Ok(HeartbeatReply { version: Version, verdict });
    let Ok(lease) = lease_of(caller, &body.lease) else { return reply(Verdict::Lost {}) };
    let spent = Spent {
        cost_microcents: body.cost_microcents,
        egress_bytes: body.egress_bytes,
        output_bytes: body.output_bytes,
        wanted: body.wanted.map(|wanted| Wanted {
            least_microcents: wanted.least_microcents,
            most_microcents: wanted.most_microcents,
        }),
        wanted_egress_bytes: body.wanted_egress_bytes,
    };
    match plane.store.heartbeat(&lease, spent, now).await {
        Ok(Renewed { cancel: true, .. }) => {
            plane.bell.ring();
            reply(Verdict::Cancel { reason: cancelled(plane.store.cancel_code(&lease).await?)? })
        }
        Ok(renewed) => reply(Verdict::Continue {
            lease_seconds: left(renewed, now),
            lent_microcents: renewed.lent_microcents,
            lent_egress_bytes: renewed.lent_egress_bytes,
        }),
        Err(LeaseFault::Stale) => reply(Verdict::Lost {}),
        Err(LeaseFault::Store(fault)) => Err(fault.into()),
    }
}

/// The holder of a lease hands it in without a result. Its word ends no stage that anybody else could run: what it refuses is
/// refused by pond's own rules everywhere, and a worker that lies about that only loses its own work.
pub(super) async fn decline(
    plane: &Plane,
    caller: &Caller,
    body: &Decline,
    now: Moment,
) -> Result<DeclineReply, Problem> {
    let lease = lease_of(caller, &body.lease)?;
    match &body.declined {
        Declined::GivenBack {} => plane.store.give_back(&lease, now).await?,
        Declined::Lost {} => plane.store.lose(&lease, now).await?,
        Declined::Refused { reason } => {
            let reason = format!("the worker could not run it: {}", reason.as_str());
            let reason = Reason::of(Cause::WorkerRefused, reason).to_string();
            plane.store.refuse(&lease, &reason, now).await?;
        }
    }
    plane.bell.ring();
    Ok(DeclineReply { version: Version })
}

fn cancelled(code: String) -> Result<Code, Problem> {
    let code = if code.is_empty() { Cause::Cancelled.name().to_owned() } else { code };
    Code::try_from(code).map_err(|_| Problem::internal("message_encoding"))
}

/// Durations, not times: no worker's clock is believed, nor ours by a worker.
fn left(renewed: Renewed, now: Moment) -> u32 {
    u32::try_from(renewed.until.0.saturating_sub(now.0) / 1000).unwrap_or(0)
}
