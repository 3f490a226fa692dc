//! An orchestrator with a plan, before the real doors: it has every byte that ever passed, knows every public value, and may send
//! whatever it likes to anybody. One attack at a time, each with what becomes of it; none gains more than delay.

use std::sync::Arc;
use std::time::Duration;

use pond_control::protocol::{self, feed};
use pond_control::store::{Actor, WorkerId};
use pond_orchestrator::serve::{self, Upstream};
use pond_orchestrator::{Bounds, Relay};
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use pond_seal::bundle::DataKey;
use pond_seal::enroll::Identity;
use pond_seal::offer::{Addressee, Offer, SignedOffer, Source};
use pond_wire::feed::Told;
use pond_wire::orch::{self, Declined, PollReply, Route, Verdict, Version};
use serde_json::json;

use super::whole::{MANIFEST, bundle, finished, said};
use super::worker::{Sent, Worker, deliver, id, lease};
use super::world::{World, clock, document, later, listen, name, plain, project};

async fn keep_secret(world: &World) {
    let (acme, what) = (project("acme"), name("claude"));
    world
        .plane
        .store
        .set_credential(Some(&acme), &what, b"sk-of-acme", &Actor::System, clock())
        .await
        .unwrap();
}

fn with_model() -> String {
    document("acme", "      model: claude\n", "profile: untrusted-code-write")
}

/// Every kind of call of a job, as it was sent, in order.
async fn whole_job(world: &World, worker: &mut Worker) -> (Offer, Vec<Sent>) {
    let offer = worker.begun().await;
    let named = lease(&offer);
    let Source::Bundle { token } = offer.source.clone() else { panic!("no bundle") };
    let beat = orch::Heartbeat {
        version: Version,
        lease: named.clone(),
        cost_microcents: 1,
        egress_bytes: 0,
        output_bytes: 0,
        wanted: None,
        wanted_egress_bytes: None,
    };
    let mut calls = vec![
        worker.polling().0,
        worker.signed(Route::Acknowledge, &orch::Acknowledge { version: Version, lease: named.clone() }).0,
        worker.signed(Route::Seal, &json!({"version": 1, "lease": named, "credential": "claude"})).0,
        worker.signed(Route::Redeem, &orch::Redeem { version: Version, lease: named.clone(), token }).0,
        worker.signed(Route::Heartbeat, &beat).0,
    ];
    for call in &calls {
        assert_eq!(deliver(world.at, call).await.0, 200, "{}", call.path);
    }
    let envelope = finished(worker, &offer).await;
    let complete = worker.signed(Route::Complete, &worker.completion(&offer, envelope)).0;
    assert_eq!(deliver(world.at, &complete).await.0, 200);
    calls.push(complete);
    (offer, calls)
}

async fn code(world: &World, sent: &Sent) -> String {
    let (status, body) = deliver(world.at, sent).await;
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == 200 { "served".to_owned() } else { problem["code"].as_str().unwrap().to_owned() }
}

/// Attack: send each call of a finished job again. At once, and to a control plane that started anew and remembers no number.
pub(crate) async fn each_kind_of_call_replayed_has_no_second_effect(world: &mut World) {
    keep_secret(world).await;
    let source = bundle(world, b"the packed tree", &DataKey::generate().unwrap()).await;
    let run = world.submit_with(&with_model(), Some(&source)).await;
    let mut worker = world.worker().await;
    let (_, calls) = whole_job(world, &mut worker).await;
    for call in &calls {
        assert_eq!(code(world, call).await, "request_replayed", "{}", call.path);
    }
    let before = effects(world).await;
    world.restart(Settings::default()).await;
    let mut answers = Vec::new();
    for call in &calls {
        answers.push((call.path.as_str(), code(world, call).await));
    }
    let stale = "lease_stale".to_owned();
    let expected = [
        ("/orch/poll", "served".to_owned()),
        ("/orch/acknowledge", stale.clone()),
        ("/orch/seal", stale.clone()),
        ("/orch/bundle/redeem", stale),
        // The answer is that the lease is lost; the same result again is told that it was accepted.
        ("/orch/heartbeat", "served".to_owned()),
        ("/orch/complete", "served".to_owned()),
    ];
    assert_eq!(answers, expected);
    assert_eq!(effects(world).await, before);
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

/// What was given out or counted.
async fn effects(world: &World) -> Vec<(String, String)> {
    let counts = ["credential.released", "bundle.redeemed", "result.accepted", "stage.leased", "stage.ended"];
    world.audit().await.into_iter().filter(|(action, _)| counts.contains(&action.as_str())).collect()
}

/// Attack: a poll of before a restart, sent again while a job waits. It leases the job to a worker that does not know; the offer
/// answers a question nobody has open, and the job goes back in time.
pub(crate) async fn a_poll_replayed_to_a_new_process_costs_time(world: &mut World) {
    let mut worker = world.worker().await;
    let (poll, _) = worker.polling();
    assert_eq!(deliver(world.at, &poll).await.0, 200);
    let run = world.submit(&plain()).await;
    world.restart(Settings::default()).await;
    worker.at = world.at;
    let (status, body) = deliver(world.at, &poll).await;
    let Ok(PollReply::Offer { offer, .. }) = orch::decode(&body) else { panic!("no offer: {status}") };
    let (_, polled) = worker.polling();
    let me = Addressee { worker: &worker.name, worker_key: worker.identity.keys().seal.id(), polled };
    let believed = SignedOffer::from_bytes(offer.into_bytes()).verify(&worker.control, me).map(drop);
    assert_eq!(believed.map_err(|fault| fault.code()), Err("offer_replayed"));
    world.plane.store.expire(later(11)).await.unwrap();
    let offer = worker.begun().await;
    let envelope = finished(&mut worker, &offer).await;
    worker.complete(&offer, envelope).await.unwrap();
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

/// Attack: give one worker's job to another, which calls under the lease it was shown.
pub(crate) async fn a_job_handed_to_another_worker_is_nobody_s(world: &mut World) {
    keep_secret(world).await;
    let source = bundle(world, b"the packed tree", &DataKey::generate().unwrap()).await;
    let run = world.submit_with(&with_model(), Some(&source)).await;
    let (mut holder, mut other) = (world.worker().await, world.worker().await);
    let (sent, _) = holder.polling();
    let reply = deliver(world.at, &sent).await.1;
    let Ok(PollReply::Offer { offer: blob, .. }) = orch::decode(&reply) else { panic!("no offer") };
    let (_, polled) = other.polling();
    let me = Addressee { worker: &other.name, worker_key: other.identity.keys().seal.id(), polled };
    let signed = SignedOffer::from_bytes(blob.as_bytes().to_vec());
    assert_eq!(
        signed.verify(&other.control, me).map(drop).map_err(|fault| fault.code()),
        Err("offer_worker")
    );
    // One that does not look is refused by the control plane, whatever it asks for.
    let seal = holder.identity.keys().seal.id();
    let polled = sent
        .head
        .as_deref()
        .and_then(|head| pond_seal::request::SignedHead::parse(head).ok())
        .unwrap()
        .nonce();
    let me = Addressee { worker: &holder.name, worker_key: seal, polled };
    let offer = signed.verify(&holder.control, me).unwrap();
    let stale = || Err("lease_stale".to_owned());
    let Source::Bundle { token } = offer.source.clone() else { panic!("no bundle") };
    assert_eq!(other.acknowledge(&offer).await.map(drop), stale());
    holder.acknowledge(&offer).await.unwrap();
    assert_eq!(other.acknowledge(&offer).await.map(drop), stale());
    assert_eq!(other.seal(&offer, "claude").await.map(drop), stale());
    assert_eq!(other.redeem(&offer, &token).await.map(drop), stale());
    assert_eq!(other.heartbeat(&offer, 1).await, Ok(Verdict::Lost {}));
    assert_eq!(other.decline(&offer, Declined::GivenBack {}).await, stale());
    let theirs = other.sign(Digest::of(MANIFEST), said(&offer, Vec::new()));
    assert_eq!(other.complete(&offer, theirs).await, stale());
    assert_eq!(world.stage(&run).await.0, "running");
    let envelope = finished(&mut holder, &offer).await;
    holder.complete(&offer, envelope).await.unwrap();
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

/// Attack: a result of the orchestrator's own, and the result of one job for another.
pub(crate) async fn a_result_forged_or_moved_is_no_result(world: &mut World) {
    let runs = [world.submit(&plain()).await, world.submit(&plain()).await];
    let mut worker = world.worker().await;
    let offers = [worker.begun().await, worker.begun().await];
    let honest = finished(&mut worker, &offers[0]).await;
    let sent = worker.signed(Route::Complete, &worker.completion(&offers[0], honest.clone())).0;
    let forger = Identity::generate().unwrap();
    let mut stranger = Worker::new(world.at, worker.control.clone(), forger, &[]);
    stranger.name.clone_from(&worker.name);
    let forged = stranger.sign(Digest::of(MANIFEST), said(&offers[0], Vec::new()));
    // In its own name, with the worker's: no pinned key signed the request.
    assert_eq!(stranger.complete(&offers[0], forged.clone()).await, Err("request_signature".to_owned()));
    // Another body, or another job, below a signature that was for this one.
    let swapped = serde_json::to_vec(&worker.completion(&offers[0], forged)).unwrap();
    assert_eq!(code(world, &Sent { body: swapped, ..sent.clone() }).await, "request_signature");
    let moved = serde_json::to_vec(&worker.completion(&offers[1], honest)).unwrap();
    assert_eq!(code(world, &Sent { body: moved, ..sent.clone() }).await, "request_signature");
    for run in &runs {
        assert_eq!(world.stage(run).await.0, "running");
    }
    assert_eq!(code(world, &sent).await, "served");
    assert_eq!(world.stage(&runs[0]).await.0, "succeeded");
}

/// Attack: more tags and capabilities than were granted and signed, wherever there is a field to write them in.
pub(crate) async fn tags_and_capabilities_are_not_what_is_said_on_the_way(world: &mut World) {
    let token = world.token(Tier::Byo, Some("acme")).await;
    let mut worker =
        Worker::new(world.at, world.plane.key.public(), Identity::generate().unwrap(), &["sandbox.native"]);
    // The enrolment is not signed by a pinned key yet: what is said of capabilities there holds until the first signed word.
    let honest =
        std::mem::replace(&mut worker.can, vec!["sandbox.native".to_owned(), "sandbox.gvisor".to_owned()]);
    worker.join(&token).await.unwrap();
    worker.can = honest;
    assert_eq!(worker.tags, ["pool:byo", "tenant:acme"]);
    let gvisor = world
        .submit(&document("acme", "", "profile: untrusted-code-write, tier: byo, backend: gvisor"))
        .await;
    let trusted = world.submit(&plain()).await;
    assert_eq!(worker.poll().await, Ok(None));
    for extra in [json!({"tags": ["pool:trusted"]}), json!({"tier": "trusted"}), json!({"tenant": "other"})] {
        let mut body = json!({"version": 1, "wait_seconds": 0, "capabilities": ["sandbox.native"]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let sent = worker.signed(Route::Poll, &body).0;
        assert_eq!(code(world, &sent).await, "body_malformed", "{extra}");
    }
    let (mut poll, _) = worker.polling();
    poll.body = String::from_utf8(poll.body).unwrap().replace("native", "gvisor").into_bytes();
    assert_eq!(code(world, &poll).await, "request_signature");
    for run in [gvisor, trusted] {
        assert_eq!(world.stage(&run).await.0, "queued");
    }
    let id = WorkerId::parse(&worker.name).unwrap();
    let known = world.plane.store.worker(&id).await.unwrap().unwrap().have;
    let tags: Vec<String> = known.tags.iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["pool:byo", "tenant:acme"]);
}

/// Attack: what an orchestrator is told, kept and read. It names jobs, needs and workers, and nothing that anybody keeps secret.
pub(crate) async fn the_feed_tells_no_secret(world: &mut World) {
    keep_secret(world).await;
    let source = bundle(world, b"the packed tree of acme", &DataKey::generate().unwrap()).await;
    world.submit_with(&with_model(), Some(&source)).await;
    let worker = world.worker().await;
    let mut told = feed::follow(Arc::clone(&world.plane));
    let mut lines = String::new();
    while !(lines.contains(r#""kind":"job""#) && lines.contains(&worker.name)) {
        let line = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
        let line = line.unwrap_or_else(|_| panic!("waited a minute for the feed: {lines}")).unwrap();
        lines += &String::from_utf8(line.to_line().unwrap()).unwrap();
    }
    let seal = worker.identity.keys().seal.to_hex();
    for secret in ["sk-of-acme", "claude", "make", "the packed tree", &seal] {
        assert!(!lines.contains(secret), "{secret}: {lines}");
    }
}

/// Attack: lines of a feed that nobody told. The poll is passed on for a job that is none, or for tags that were not granted, and
/// the control plane answers from its own records.
pub(crate) async fn forged_lines_of_the_feed_bring_nothing(world: &mut World) {
    let relay = Arc::new(Relay::new(Bounds { intents: 9, intents_per_project: 9, waiting: 9 }));
    let upstream = Upstream::Here(protocol::router(Arc::clone(&world.plane)));
    let (at, _) = listen(serve::router(upstream, Arc::clone(&relay))).await;
    let mut worker = world.worker_of(Tier::Byo, Some("acme"), &["sandbox.native"]).await;
    (worker.at, worker.wait_seconds) = (at, 60);
    let run = world.submit(&plain()).await;
    let tags = vec!["pool:trusted".to_owned()];
    let capabilities = worker.can.clone();
    relay.start_over();
    relay.hear(Told::Worker { worker: id(&worker.name), tags: tags.clone(), capabilities });
    for job in ["job_00000000000000000000000000000000", "job_11111111111111111111111111111111"] {
        let capability = Some("sandbox.native".to_owned());
        relay.hear(Told::Job {
            job: id(job),
            project: id("acme"),
            capability,
            tags: tags.clone(),
            avoid: Vec::new(),
        });
        assert_eq!(worker.poll().await, Ok(None));
    }
    assert_eq!(world.stage(&run).await.0, "queued");
}
