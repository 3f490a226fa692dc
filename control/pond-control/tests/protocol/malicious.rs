//! A worker that is enrolled, holds the lease, and lies. Every lie has a code of its own, and none is accepted.

use base64ct::{Base64, Encoding};
use pond_control::store::{Actor, WorkerId};
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

pub(crate) async fn no_lie_is_accepted_and_each_has_its_code(world: &mut World) {
    let mut worker = world.worker().await;
    let other = world.worker().await;
    let (first, replayed) = honest(world, &mut worker).await;
    worker.complete(&first, replayed.clone()).await.unwrap();
    let mut codes = Vec::new();
    let names = [
        "a field changed after it was signed",
        "another worker's key",
        "another's key under this one's id",
        "no signature",
        "another payload type",
        "another predicate",
        "a newer predicate",
        "another statement type",
        "another subject",
        "an earlier result",
        "an older epoch",
        "an input it was not given",
        "a fabricated result",
        "a log that was cut",
    ];
    for name in names {
        let (offer, envelope) = honest(world, &mut worker).await;
        let stranger = |said: &[u8]| {
            seal(&serde_json::to_vec(&payload(said)).unwrap(), &other.identity.signing).unwrap()
        };
        let own_id = worker.identity.keys().signing.id().to_string();
        let lie = match name {
            "a field changed after it was signed" => enveloped(&envelope, |sealed| {
                let mut said = payload(&envelope);
                said["predicate"]["exitCode"] = json!(7);
                sealed["payload"] = Base64::encode_string(&serde_json::to_vec(&said).unwrap()).into();
            }),
            "another worker's key" => stranger(&envelope),
            "another's key under this one's id" => {
                enveloped(&stranger(&envelope), |sealed| sealed["signatures"][0]["keyid"] = own_id.into())
            }
            "no signature" => enveloped(&envelope, |sealed| sealed["signatures"] = json!([])),
            "another payload type" => {
                let bytes = serde_json::to_vec(&payload(&envelope)).unwrap();
                seal_as(Purpose::Rotation, &bytes, &worker.identity.signing).unwrap()
            }
            "another predicate" => {
                resigned(&worker, &envelope, "/predicateType", json!("https://slsa.dev/provenance/v1"))
            }
            "a newer predicate" => {
                resigned(&worker, &envelope, "/predicateType", json!("urn:pond:attestation:run-result:v2"))
            }
            "another statement type" => {
                resigned(&worker, &envelope, "/_type", json!("https://in-toto.io/Statement/v0.1"))
            }
            "another subject" => resigned(&worker, &envelope, "/subject/0/name", json!("elsewhere.json")),
            "an earlier result" => replayed.clone(),
            "an older epoch" => resigned(&worker, &envelope, "/predicate/job/lease/epoch", json!(0)),
            "an input it was not given" => {
                resigned(&worker, &envelope, "/predicate/input/treeSha256", json!(Digest::of(b"another")))
            }
            "a fabricated result" => {
                // Signed well, about a result that was never sent.
                let patch = json!({"sha256": Digest::of(b"made up"), "bytes": 7});
                resigned(&worker, &envelope, "/predicate/output/patch", patch)
            }
            _ => resigned(&worker, &envelope, "/predicate/logs/0/bytes", json!(1)),
        };
        codes.push((name, worker.complete(&offer, lie).await.unwrap_err()));
    }
    let told: Vec<&str> = codes.iter().map(|(_, code)| code.as_str()).collect();
    let expected = [
        "signature_invalid",
        "key_unknown",
        "signature_invalid",
        "signature_count",
        "payload_type",
        "predicate_type",
        "predicate_version",
        "statement_type",
        "subject_malformed",
        "statement_job",
        "statement_lease",
        "statement_input",
        "result_file",
        "statement_stream",
    ];
    assert_eq!(told, expected, "{codes:?}");
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
    tick(&world.plane, Pace::default(), later(61)).await.unwrap();
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
