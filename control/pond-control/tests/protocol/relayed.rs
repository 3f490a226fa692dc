//! With an orchestrator between them: in the same process, and in another over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use pond_control::protocol::{self, feed};
use pond_control::store::{Actor, NewToken};
use pond_orchestrator::serve::{self, Upstream};
use pond_orchestrator::{Bounds, Link, Relay, follow_here, follow_there};
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::enroll::Identity;
use pond_wire::orch::PollReply;
use zeroize::Zeroizing;

use super::whole::finished;
use super::worker::Worker;
use super::world::{World, clock, listen, plain};

const BOUNDS: Bounds = Bounds { intents: 100, intents_per_project: 100, waiting: 100 };

/// Until the orchestrator knows of so many jobs and waiting workers.
async fn until(relay: &Relay, expected: (usize, usize)) {
    for _ in 0..6000 {
        if relay.waiting() == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited a minute for {expected:?} jobs and workers; there are {:?}", relay.waiting());
}

async fn known(relay: &Relay, worker: &Worker) {
    let id = super::worker::id(&worker.name);
    for _ in 0..6000 {
        if relay.applicant(&id, &worker.can).is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited a minute for the orchestrator to hear of a worker");
}

async fn in_between(world: &World, here: bool) -> (Arc<Relay>, std::net::SocketAddr) {
    let (relay, plane) = (Arc::new(Relay::new(BOUNDS)), Arc::clone(&world.plane));
    let upstream = if here {
        let (relay, told) = (Arc::clone(&relay), feed::follow(Arc::clone(&plane)));
        tokio::spawn(async move { follow_here(&relay, told).await });
        Upstream::Here(protocol::router(plane))
    } else {
        let token = Bearer::generate(Kind::Relay).unwrap();
        let new = NewToken { bearer: &token, scopes: &[], project: None, expires_at: None };
        plane.store.issue_token(new, &Actor::System, clock()).await.unwrap();
        let doors: Router = protocol::router(Arc::clone(&plane)).merge(feed::router(plane));
        let (at, _) = listen(doors).await;
        let link = Arc::new(Link::new(&format!("http://{at}"), None).unwrap());
        let (relay, to, token) =
            (Arc::clone(&relay), Arc::clone(&link), Zeroizing::new(token.to_text().to_string()));
        tokio::spawn(async move { follow_there(&relay, &to, &token, |_| ()).await });
        Upstream::There(link)
    };
    let (at, _) = listen(serve::router(upstream, Arc::clone(&relay))).await;
    (relay, at)
}

pub(crate) async fn a_poll_that_waits_is_answered_when_a_job_comes(world: &mut World) {
    for here in [true, false] {
        let (relay, at) = in_between(world, here).await;
        let mut worker = world.worker().await;
        (worker.at, worker.wait_seconds) = (at, 60);
        known(&relay, &worker).await;
        let polling = tokio::spawn(async move {
            let offer = worker.poll().await.unwrap();
            (worker, offer)
        });
        until(&relay, (0, 1)).await;
        let run = world.submit(&plain()).await;
        let (mut worker, offer) = polling.await.unwrap();
        let offer = offer.unwrap_or_else(|| panic!("no job within a minute"));
        assert_eq!(offer.run, run.to_string());
        worker.acknowledge(&offer).await.unwrap();
        let envelope = finished(&mut worker, &offer).await;
        worker.complete(&offer, envelope).await.unwrap();
        assert_eq!(world.stage(&run).await.0, "succeeded", "in one process: {here}");
        until(&relay, (0, 0)).await;
        world
            .plane
            .store
            .revoke(&pond_control::store::WorkerId::parse(&worker.name).unwrap(), &Actor::System, clock())
            .await
            .unwrap();
    }
}

pub(crate) async fn a_poll_of_a_stranger_is_the_control_plane_s(world: &mut World) {
    let (_, at) = in_between(world, true).await;
    let mut worker = world.worker().await;
    (worker.at, worker.wait_seconds) = (at, 0);
    let mut stranger = Worker::new(at, worker.control.clone(), Identity::generate().unwrap(), &[]);
    stranger.name = format!("worker_{}", "0".repeat(32));
    stranger.wait_seconds = 60;
    assert_eq!(stranger.poll().await, Err("worker_unknown".to_owned()), "at once");
    assert!(matches!(worker.asked().await, Ok(PollReply::Nothing { .. })));
    stranger.name = "no id".to_owned();
    assert_eq!(stranger.poll().await, Err("request_head_malformed".to_owned()));
}
