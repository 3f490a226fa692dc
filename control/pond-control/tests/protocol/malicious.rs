//! A worker that is enrolled, holds the lease, and lies. Every lie has a code of its own, and none is accepted.

use base64ct::{Base64, Encoding};
use pond_control::store::{Actor, Moment, WorkerId};
use pond_control::ticker::{Pace, tick};
use pond_seal::Digest;
use pond_seal::enroll::Identity;
use pond_seal::envelope::{Purpose, seal, seal_as};
use pond_seal::offer::Offer;
use pond_seal::statement::Statement;
use pond_wire::orch;
use serde_json::{Value, json};

use super::whole::{MANIFEST, finished, said};
use super::worker::Worker;
use super::world::{World, clock, later, plain};

/// What the honest statement says.
fn payload(envelope: &[u8]) -> Value {
    let envelope: Value = serde_json::from_slice(envelope).unwrap();
    serde_json::from_slice(&Base64::decode_vec(envelope["payload"].as_str().unwrap()).unwrap()).unwrap()
}

/// Signs what an honest statement says after a change to it.
fn resigned(worker: &Worker, envelope: &[u8], place: &str, value: Value) -> Vec<u8> {
    let mut payload = payload(envelope);
    *payload.pointer_mut(place).unwrap() = value;
    seal(&serde_json::to_vec(&payload).unwrap(), &worker.identity.signing).unwrap()
}

/// The envelope with a field of its own changed.
fn enveloped(envelope: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut envelope: Value = serde_json::from_slice(envelope).unwrap();
    change(&mut envelope);
    serde_json::to_vec(&envelope).unwrap()
}

/// A job that was begun and done, and what was signed about it.
async fn honest(world: &World, worker: &mut Worker) -> (Offer, Vec<u8>) {
    world.submit(&plain()).await;
    let offer = worker.begun().await;
    let envelope = finished(worker, &offer).await;
    (offer, envelope)
}

/// What is tried, and the code it ends in.
const LIES: [(&str, &str); 14] = [
    ("a field changed after it was signed", "signature_invalid"),
    ("another worker's key", "key_unknown"),
    ("another's key under this one's id", "signature_invalid"),
    ("no signature", "signature_count"),
    ("another payload type", "payload_type"),
    ("another predicate", "predicate_type"),
    ("a newer predicate", "predicate_version"),
    ("another statement type", "statement_type"),
    ("another subject", "subject_malformed"),
    ("an earlier result", "statement_job"),
    ("an older epoch", "statement_lease"),
    ("an input it was not given", "statement_input"),
    ("a fabricated result", "result_file"),
    ("a log that was cut", "statement_stream"),
];

/// The lie, made of what an honest worker signed.
fn lie(name: &str, (worker, other): (&Worker, &Worker), envelope: &[u8], earlier: &[u8]) -> Vec<u8> {
    let plain = serde_json::to_vec(&payload(envelope)).unwrap();
    let stranger = seal(&plain, &other.identity.signing).unwrap();
    let again = |place: &str, value: Value| resigned(worker, envelope, place, value);
    match name {
        "a field changed after it was signed" => enveloped(envelope, |sealed| {
            let mut said = payload(envelope);
            said["predicate"]["exitCode"] = json!(7);
            sealed["payload"] = Base64::encode_string(&serde_json::to_vec(&said).unwrap()).into();
        }),
        "another worker's key" => stranger,
        "another's key under this one's id" => enveloped(&stranger, |sealed| {
            let own = worker.identity.keys().signing.id().to_string();
            sealed["signatures"][0]["keyid"] = own.into();
        }),
        "no signature" => enveloped(envelope, |sealed| sealed["signatures"] = json!([])),
        "another payload type" => seal_as(Purpose::Rotation, &plain, &worker.identity.signing).unwrap(),
        "another predicate" => again("/predicateType", json!("https://slsa.dev/provenance/v1")),
        "a newer predicate" => again("/predicateType", json!("urn:pond:attestation:run-result:v2")),
        "another statement type" => again("/_type", json!("https://in-toto.io/Statement/v0.1")),
        "another subject" => again("/subject/0/name", json!("elsewhere.json")),
        "an earlier result" => earlier.to_vec(),
        "an older epoch" => again("/predicate/job/lease/epoch", json!(0)),
        "an input it was not given" => again("/predicate/input/treeSha256", json!(Digest::of(b"another"))),
        // Signed well, about a result that was never sent.
        "a fabricated result" => {
            again("/predicate/output/patch", json!({"sha256": Digest::of(b"made up"), "bytes": 7}))
        }
        "a log that was cut" => again("/predicate/logs/0/bytes", json!(1)),
        unknown => panic!("{unknown}"),
    }
}

pub(crate) async fn no_lie_is_accepted_and_each_has_its_code(world: &mut World) {
    let (mut worker, other) = (world.worker().await, world.worker().await);
    let (first, earlier) = honest(world, &mut worker).await;
    worker.complete(&first, earlier.clone()).await.unwrap();
    for (name, code) in LIES {
        let (offer, envelope) = honest(world, &mut worker).await;
        let lie = lie(name, (&worker, &other), &envelope, &earlier);
        assert_eq!(worker.complete(&offer, lie).await, Err(code.to_owned()), "{name}");
    }
    let accepted = world.audit().await.into_iter().filter(|(action, _)| action == "result.accepted").count();
    assert_eq!(accepted, 1, "the honest one");
}

pub(crate) async fn a_result_is_nobody_else_s_and_not_for_later(world: &mut World) {
    let (mut worker, mut other) = (world.worker().await, world.worker().await);
    let (offer, envelope) = honest(world, &mut worker).await;
    // Somebody else with a good signature of his own, for a lease he does not hold.
    let theirs = Statement { subject: Digest::of(MANIFEST), result: said(&offer, Vec::new()) };
    let theirs = theirs.sign(&other.identity.signing).unwrap();
    assert_eq!(other.complete(&offer, theirs).await, Err("lease_stale".to_owned()));
    assert_eq!(other.complete(&offer, envelope.clone()).await, Err("lease_stale".to_owned()));
    let nobody = Worker::new(world.at, world.plane.key.public(), Identity::generate().unwrap(), &[]);
    let mut nobody = Worker { name: worker.name.clone(), ..nobody };
    assert_eq!(nobody.complete(&offer, envelope.clone()).await, Err("request_signature".to_owned()));
    // After its time, and after it was revoked.
    tick(&world.plane, Pace::default(), Moment(0), later(61)).await.unwrap();
    assert_eq!(worker.complete(&offer, envelope.clone()).await, Err("lease_stale".to_owned()));
    let id = WorkerId::parse(&worker.name).unwrap();
    world.plane.store.revoke(&id, &Actor::System, clock()).await.unwrap();
    assert_eq!(worker.complete(&offer, envelope).await, Err("worker_revoked".to_owned()));
    let accepted = world.audit().await.into_iter().any(|(action, _)| action == "result.accepted");
    assert!(!accepted);
}

pub(crate) async fn output_without_end_is_cut(world: &mut World) {
    world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    let mut chain =
        pond_seal::chain::Chain::begin(&offer.job, offer.lease_epoch, pond_seal::result::Stream::Stdout);
    let first = super::worker::piece_of(&offer, orch::Stream::Stdout, &mut chain, b"x");
    worker.chunk(&first).await.unwrap();
    // As if a quarter of a million pieces of a byte had come.
    world.raw("UPDATE log_chunk SET seq = 262143, start = 262143").await;
    let mut next = first.clone();
    (next.seq, next.offset) = (262_144, 262_144);
    assert_eq!(worker.chunk(&next).await, Ok(orch::ChunkReply::Full { version: orch::Version }));
    world.raw("UPDATE log_chunk SET seq = 0, start = 67108863").await;
    (next.seq, next.offset) = (1, 67_108_864);
    assert_eq!(worker.chunk(&next).await, Ok(orch::ChunkReply::Full { version: orch::Version }));
}
