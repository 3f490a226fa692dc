//! Which worker gets which job, decided by the control plane alone.

use std::time::Duration;

use pond_control::store::{Actor, Moment, WorkerId};
use pond_control::ticker::{Pace, tick};
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_wire::orch::PollReply;

use super::world::{World, clock, document, later, plain, project};

pub(crate) async fn a_tenant_s_own_worker_sees_no_other_tenant(world: &mut World) {
    world.plane.store.create_project(&project("other"), &Actor::System, clock()).await.unwrap();
    world.submit(&document("other", "", "profile: untrusted-code-write, tier: any")).await;
    world.submit(&document("other", "", "profile: untrusted-code-write, tier: byo")).await;
    world.submit(&document("acme", "", "profile: untrusted-code-write, tier: trusted")).await;
    let mut own = world.worker_of(Tier::Byo, Some("acme"), &["sandbox.native", "sandbox.gvisor"]).await;
    assert_eq!(own.poll().await, Ok(None));
    world.submit(&document("acme", "", "profile: untrusted-code-write, tier: byo")).await;
    let offer = own.poll().await.unwrap().unwrap();
    assert_eq!(offer.tenant, "acme");
    assert_eq!(own.poll().await, Ok(None));
    let mut trusted = world.worker().await;
    let tenants =
        [trusted.poll().await.unwrap().unwrap().tenant, trusted.poll().await.unwrap().unwrap().tenant];
    assert_eq!(tenants, ["other", "acme"], "any and trusted; never byo's");
    assert_eq!(trusted.poll().await, Ok(None));
}

pub(crate) async fn what_nobody_may_take_says_why_and_ends(world: &mut World) {
    let run = world.submit(&document("acme", "", "profile: untrusted-code-write, backend: gvisor")).await;
    let mut worker = world.worker().await;
    assert_eq!(worker.poll().await, Ok(None));
    let why = "no worker offers sandbox.gvisor in pool:trusted [no_worker]".to_owned();
    assert_eq!(world.stage(&run).await, ("queued".to_owned(), why.clone()));
    let pace = Pace { unmatched: Duration::from_secs(60), ..Pace::default() };
    assert_eq!(tick(&world.plane, pace, Moment(0), later(30)).await.unwrap().unmatched, 0);
    assert_eq!(tick(&world.plane, pace, Moment(0), later(90)).await.unwrap().unmatched, 1);
    assert_eq!(world.stage(&run).await, ("failed".to_owned(), why));

    // A host that can enforce more now says so with its next poll.
    let run = world.submit(&document("acme", "", "profile: untrusted-code-write, backend: gvisor")).await;
    worker.can.push("sandbox.gvisor".to_owned());
    worker.can.push("sandbox.made-up".to_owned());
    assert_eq!(worker.poll().await.unwrap().unwrap().run, run.to_string());
}

pub(crate) async fn a_stage_that_is_not_allowed_any_more_is_not_dispatched(world: &mut World) {
    // Written to the store under other settings: nobody asked preflight.
    let unconfined = world.submit(&document("acme", "", "profile: none")).await;
    let confined = world.submit(&plain()).await;
    let demanding = Settings { require_sandbox: true, ..Settings::default() };
    world.restart(demanding).await;
    let mut worker = world.worker().await;
    let offer = worker.poll().await.unwrap().unwrap();
    assert_eq!(offer.run, confined.to_string());
    let (state, reason) = world.stage(&unconfined).await;
    assert_eq!(state, "refused");
    assert!(reason.contains("unconfined_refused"), "{reason}");
    assert_eq!(worker.poll().await, Ok(None));

    // Demanded between offer and secret: nothing more is given out for it.
    worker.acknowledge(&offer).await.unwrap();
    let floor = pond_policy::backend::Backend::from_name("gvisor");
    world.restart(Settings { require_sandbox: true, min_backend: floor, ..Settings::default() }).await;
    worker.at = world.at;
    assert_eq!(worker.seal(&offer, "claude").await.map(drop), Err("withheld".to_owned()));
}

pub(crate) async fn a_drained_worker_is_told(world: &mut World) {
    world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let id = WorkerId::parse(&worker.name).unwrap();
    world.plane.store.drain(&id, &Actor::System, clock()).await.unwrap();
    assert!(matches!(worker.asked().await.unwrap(), PollReply::Drain { .. }));
    world.plane.store.release(&id, &Actor::System, clock()).await.unwrap();
    assert!(matches!(worker.asked().await.unwrap(), PollReply::Offer { .. }));
}
