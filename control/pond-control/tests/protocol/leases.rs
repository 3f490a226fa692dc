//! Who holds a lease may do everything with it; who held one, nothing.

use pond_control::store::{Actor, Moment, WorkerId, WorkerState};
use pond_control::ticker::{Pace, Ticked, tick};
use pond_wire::orch::{self, Declined, Verdict};

use super::whole::finished;
use super::worker::{Worker, piece_of};
use super::world::{World, clock, later, plain};

pub(crate) async fn a_revoked_worker_loses_everything_at_once(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    let envelope = finished(&mut worker, &offer).await;
    let id = WorkerId::parse(&worker.name).unwrap();
    world.plane.store.revoke(&id, &Actor::System, clock()).await.unwrap();
    let revoked = || Err("worker_revoked".to_owned());
    assert_eq!(worker.heartbeat(&offer, 0).await.map(drop), revoked());
    assert_eq!(worker.complete(&offer, envelope).await, revoked());
    assert_eq!(worker.poll().await.map(drop), revoked());
    assert_eq!(world.stage(&run).await.0, "queued");
    let mut other = world.worker().await;
    let again = other.begun().await;
    assert_eq!(again.job, offer.job);
    assert!(again.lease_epoch > offer.lease_epoch);
}

pub(crate) async fn a_lease_that_is_over_is_good_for_nothing(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    let envelope = finished(&mut worker, &offer).await;
    let ticked = tick(&world.plane, Pace::default(), Moment(0), later(61)).await.unwrap();
    assert_eq!(ticked, Ticked { lapsed: 1, ..Ticked::default() });
    worthless(&mut worker, &offer, &envelope).await;

    let mut other = world.worker().await;
    let again = other.begun().await;
    assert_eq!((again.job.as_str(), again.lease_epoch), (offer.job.as_str(), offer.lease_epoch + 1));
    worthless(&mut worker, &offer, &envelope).await;
    // Nor does it help to name the other's lease.
    worthless(&mut worker, &again, &envelope).await;
    let envelope = finished(&mut other, &again).await;
    other.complete(&again, envelope).await.unwrap();
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

async fn worthless(worker: &mut Worker, offer: &pond_seal::offer::Offer, envelope: &[u8]) {
    let stale = || Err("lease_stale".to_owned());
    assert_eq!(worker.acknowledge(offer).await.map(drop), stale());
    assert_eq!(worker.seal(offer, "claude").await.map(drop), stale());
    assert_eq!(worker.redeem(offer, "pond_bundle_0_0").await.map(drop), stale());
    assert_eq!(worker.heartbeat(offer, 0).await, Ok(Verdict::Lost {}));
    let mut chain =
        pond_seal::chain::Chain::begin(&offer.job, offer.lease_epoch, pond_seal::result::Stream::Stderr);
    let chunk = piece_of(offer, orch::Stream::Stderr, &mut chain, b"x");
    assert_eq!(worker.chunk(&chunk).await.map(drop), stale());
    assert_eq!(worker.complete(offer, envelope.to_vec()).await, stale());
    for declined in [Declined::GivenBack {}, Declined::Lost {}, refused()] {
        assert_eq!(worker.decline(offer, declined).await, stale());
    }
}

fn refused() -> Declined {
    Declined::Refused { reason: orch::Code::try_from("job_failed".to_owned()).unwrap() }
}

pub(crate) async fn a_job_is_handed_in_for_another_or_for_good(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    worker.decline(&offer, Declined::GivenBack {}).await.unwrap();
    assert_eq!(world.stage(&run).await.0, "queued");
    let again = worker.begun().await;
    assert_eq!((again.job.as_str(), again.lease_epoch), (offer.job.as_str(), offer.lease_epoch + 1));
    worker.decline(&again, refused()).await.unwrap();
    let reason = "the worker could not run it: job_failed [worker_refused]".to_owned();
    assert_eq!(world.stage(&run).await, ("failed".to_owned(), reason));
    assert_eq!(worker.decline(&again, refused()).await, Err("lease_stale".to_owned()));
}

/// Whoever hands it in like that has lost it, as if the lease had lapsed.
pub(crate) async fn a_job_that_is_lost_again_and_again_is_given_up(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let most = 2 * world.plane.store.rules().poison_after;
    for epoch in 1..=most {
        assert_eq!(world.stage(&run).await.0, "queued");
        let offer = worker.begun().await;
        assert_eq!(offer.lease_epoch, epoch);
        worker.decline(&offer, Declined::Lost {}).await.unwrap();
        assert_eq!(worker.decline(&offer, Declined::Lost {}).await, Err("lease_stale".to_owned()));
    }
    let reason = "too many workers were lost on it [poisoned]".to_owned();
    assert_eq!(world.stage(&run).await, ("failed".to_owned(), reason));
    let id = WorkerId::parse(&worker.name).unwrap();
    let state = world.plane.store.worker(&id).await.unwrap().unwrap().state;
    assert_eq!(state, WorkerState::Active, "it is the job's victim");
}

pub(crate) async fn a_cancelled_job_is_told(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    world.plane.store.cancel(&run, "enough", &Actor::System, clock()).await.unwrap();
    let verdict = worker.heartbeat(&offer, 0).await.unwrap();
    assert!(matches!(&verdict, Verdict::Cancel { reason } if reason.as_str() == "cancelled"), "{verdict:?}");
    let envelope = finished(&mut worker, &offer).await;
    worker.complete(&offer, envelope).await.unwrap();
    assert_eq!(world.stage(&run).await, ("cancelled".to_owned(), "enough".to_owned()));
}
