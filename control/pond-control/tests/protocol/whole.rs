//! A job from the queue to its accepted result, with everything an honest worker does.

use std::io::{Read, Write};

use pond_control::store::{Actor, BundleId, NewBundle, Stream};
use pond_policy::settings::Settings;
use pond_seal::Digest;
use pond_seal::bundle::{DataKey, Decrypting, Encrypting};
use pond_seal::offer::{Offer, Source};
use pond_seal::result::{self, RunResult};
use pond_seal::secret::Secret;
use pond_wire::orch;

use super::said;
pub(crate) use super::said::{MANIFEST, digest};
use super::worker::Worker;
use super::world::{World, clock, document, plain, project};

pub(crate) const PATCH: &[u8] = b"--- a\n+++ b\n";
/// The packed result of a job: its three files.
pub(crate) fn packed() -> Vec<u8> {
    packed_with(MANIFEST)
}

pub(crate) fn packed_with(manifest: &[u8]) -> Vec<u8> {
    said::packed(PATCH, manifest)
}

/// What an honest worker says of a job that did well.
pub(crate) fn said(offer: &Offer, logs: Vec<result::Log>) -> RunResult {
    said::said(offer, PATCH, logs)
}

/// Output, result and statement of a job that was begun.
pub(crate) async fn finished(worker: &mut Worker, offer: &Offer) -> Vec<u8> {
    let mut logs = vec![worker.stream(offer, orch::Stream::Stdout, b"one\ntwo\n").await];
    logs.push(worker.stream(offer, orch::Stream::Stderr, b"").await);
    logs.push(worker.stream(offer, orch::Stream::Result, &packed()).await);
    worker.sign(Digest::of(MANIFEST), said(offer, logs))
}

/// A bundle of this text, as the API would store it.
pub(crate) async fn bundle(world: &World, text: &[u8], key: &DataKey) -> BundleId {
    let mut writer = Encrypting::new(Vec::new(), key).unwrap();
    writer.write_all(text).unwrap();
    let ciphertext = writer.finish().unwrap();
    std::fs::write(world.plane.files.join("bundle-1"), &ciphertext).unwrap();
    let (acme, secret) = (project("acme"), key.to_secret());
    let new = NewBundle {
        project: &acme,
        place: "bundle-1",
        digest: Digest::of(&ciphertext),
        input: Digest::of(b"the tree"),
        size: u64::try_from(ciphertext.len()).unwrap(),
        key: secret.expose(),
    };
    world.plane.store.store_bundle(new, &Actor::System, clock()).await.unwrap()
}

pub(crate) async fn a_job_goes_all_the_way(world: &mut World) {
    let store = &world.plane.store;
    let (acme, model) = (project("acme"), super::world::name("claude"));
    store.set_credential(Some(&acme), &model, b"sk-of-acme", &Actor::System, clock()).await.unwrap();
    let key = DataKey::generate().unwrap();
    let source = bundle(world, b"the packed tree", &key).await;
    let text = document("acme", "      model: claude:opus\n", "profile: untrusted-code-write");
    let run = world.submit_with(&text, Some(&source)).await;
    let mut worker = world.worker().await;
    assert_eq!(worker.tags, ["pool:trusted"]);

    let offer = worker.begun().await;
    assert_eq!((offer.tenant.as_str(), offer.stage.as_str(), offer.attempt), ("acme", "build", 1));
    assert_eq!((offer.deadline_seconds, offer.lease_seconds), (100, 60));
    assert_eq!(
        (offer.input, offer.credentials.as_slice()),
        (Digest::of(b"the tree"), ["claude".to_owned()].as_slice())
    );
    let executor: serde_json::Value = serde_json::from_str(&offer.executor).unwrap();
    assert_eq!(executor["command"], serde_json::json!(["make"]));
    assert_eq!(world.stage(&run).await.0, "running");

    assert_eq!(worker.seal(&offer, "claude").await.unwrap(), Ok(b"sk-of-acme".to_vec()));
    let Source::Bundle { token } = offer.source.clone() else { panic!("no bundle") };
    let (released, ciphertext) = worker.redeem(&offer, &token).await.unwrap();
    let released = DataKey::from_secret(&Secret::new(released)).unwrap();
    let mut plain = Vec::new();
    Decrypting::new(ciphertext.as_slice(), &released, 1 << 20).unwrap().read_to_end(&mut plain).unwrap();
    assert_eq!(plain, b"the packed tree");
    let verdict = worker.heartbeat(&offer, 7).await.unwrap();
    assert!(matches!(verdict, orch::Verdict::Continue { lease_seconds: 59..=60, .. }), "{verdict:?}");

    let envelope = finished(&mut worker, &offer).await;
    worker.complete(&offer, envelope.clone()).await.unwrap();
    assert_eq!(world.stage(&run).await, ("succeeded".to_owned(), String::new()));
    let view = world.plane.store.run(&run).await.unwrap().unwrap();
    let results = world.plane.store.results(&view.stages[0].id).await.unwrap();
    assert_eq!((results.len(), &results[0].envelope), (1, &envelope));
    let log = world.plane.store.log(&results[0].job, Stream::Stdout, 0, 10).await.unwrap();
    assert_eq!(log.concat_bytes(), b"one\ntwo\n");
    let audit: Vec<String> = world.audit().await.into_iter().map(|(action, _)| action).collect();
    for action in
        ["worker.enrolled", "stage.leased", "credential.released", "bundle.redeemed", "result.accepted"]
    {
        assert!(audit.iter().any(|written| written == action), "{action} in {audit:?}");
    }
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<pond_control::store::LogPiece> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|piece| piece.bytes.clone()).collect()
    }
}

pub(crate) async fn a_control_plane_that_restarts_goes_on(world: &mut World) {
    let (acme, model) = (project("acme"), super::world::name("claude"));
    let store = &world.plane.store;
    store.set_credential(Some(&acme), &model, b"sk-of-acme", &Actor::System, clock()).await.unwrap();
    let run = world.submit(&document("acme", "      model: claude\n", "profile: untrusted-code-write")).await;
    let mut worker = world.worker().await;
    let offer = worker.poll().await.unwrap().unwrap();
    for step in 0..4 {
        world.restart(Settings::default()).await;
        worker.at = world.at;
        match step {
            0 => drop(worker.acknowledge(&offer).await.unwrap()),
            1 => assert_eq!(worker.seal(&offer, "claude").await.unwrap(), Ok(b"sk-of-acme".to_vec())),
            2 => assert_eq!(worker.stream(&offer, orch::Stream::Stderr, b"").await.bytes, 0),
            _ => {
                let envelope = finished(&mut worker, &offer).await;
                worker.complete(&offer, envelope).await.unwrap();
            }
        }
    }
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

pub(crate) async fn what_was_sent_twice_counts_once(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    worker.acknowledge(&offer).await.unwrap();
    let envelope = finished(&mut worker, &offer).await;
    worker.complete(&offer, envelope.clone()).await.unwrap();
    worker.complete(&offer, envelope.clone()).await.unwrap();
    let mut other = said(&offer, Vec::new());
    other.exit_code = 1;
    let other = worker.sign(Digest::of(MANIFEST), other);
    assert_eq!(worker.complete(&offer, other).await, Err("lease_stale".to_owned()));
    let accepted = world.audit().await.into_iter().filter(|(action, _)| action == "result.accepted").count();
    assert_eq!((accepted, world.stage(&run).await.0.as_str()), (1, "succeeded"));
}
