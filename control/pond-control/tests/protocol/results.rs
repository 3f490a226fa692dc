//! Results that are not what was asked for, and output out of place: each has its code, and none is taken for something else.

use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::enroll::Identity;
use pond_seal::offer::Offer;
use pond_seal::result::{EMPTY_MANIFEST, FileDigest, InputKind, Log, Output, RunResult, Stream};
use pond_wire::orch::{self, ChunkReply, Version};

use super::whole::{MANIFEST, digest, packed, said};
use super::worker::{Worker, piece_of};
use super::world::{World, plain};

/// A change to what an honest worker would sign.
type Lie = fn(&mut RunResult);

const LIES: [(&str, Lie); 26] = [
    ("statement_job", |said| said.job.id.push('0')),
    ("statement_job", |said| said.job.attempt += 1),
    ("statement_lease", |said| said.job.lease = None),
    ("statement_lease", |said| said.job.lease.as_mut().unwrap().epoch += 1),
    ("statement_lease", |said| said.job.lease.as_mut().unwrap().worker.push('0')),
    ("statement_input", |said| said.input.tree_sha256 = Some(Digest::of(b"another"))),
    ("statement_input", |said| said.input.kind = InputKind::Checkout),
    ("statement_command", |said| said.command_sha256 = Digest::of(b"[\"false\"]")),
    ("statement_backend", |said| said.backend.name = "none".to_owned()),
    ("statement_policy", |said| said.policy.offered_sha256 = None),
    ("statement_policy", |said| said.policy.profile = "untrusted-code-test".to_owned()),
    ("statement_policy", |said| said.limits.memory_bytes = (4 << 30) + 1),
    ("statement_policy", |said| said.limits.cpus = "2.001".to_owned()),
    ("statement_policy", |said| said.limits.cpus = "all".to_owned()),
    ("statement_policy", |said| said.limits.pids = 513),
    ("statement_policy", |said| said.limits.tmpfs_bytes = (512 << 20) + 1),
    ("statement_policy", |said| said.limits.disk_bytes = (10 << 30) + 1),
    ("statement_policy", |said| said.limits.disk_inodes = 1_000_001),
    ("statement_policy", |said| said.limits.timeout_seconds = 101),
    ("statement_stream", |said| said.logs[0].bytes -= 1),
    // Nothing, where something was sent; and something, where nothing was.
    ("statement_stream", |said| (said.logs[0].sha256, said.logs[0].bytes) = (Digest::of(b""), 0)),
    ("statement_stream", |said| said.logs.push(Log { stream: Stream::Stderr, ..said.logs[0].clone() })),
    ("statement_stream", |said| said.logs.truncate(1)),
    ("statement_stream", |said| said.logs.push(said.logs[0].clone())),
    ("result_file", |said| {
        let other = digest(b"other changes");
        if let Output::Collected { changes, .. } = &mut said.output {
            *changes = other;
        }
    }),
    ("result_file", |said| {
        let other = digest(b"another patch");
        if let Output::Collected { patch, .. } = &mut said.output {
            *patch = other;
        }
    }),
];

async fn logs(worker: &mut Worker, offer: &Offer) -> Vec<Log> {
    let out = worker.stream(offer, orch::Stream::Stdout, b"output").await;
    vec![out, worker.stream(offer, orch::Stream::Result, &packed()).await]
}

pub(crate) async fn a_result_that_is_not_what_was_asked_is_rejected(world: &mut World) {
    let mut worker = world.worker().await;
    for (code, lie) in LIES {
        let run = world.submit(&plain()).await;
        let offer = worker.begun().await;
        let mut said = said(&offer, logs(&mut worker, &offer).await);
        lie(&mut said);
        let envelope = worker.sign(Digest::of(MANIFEST), said);
        rejected(world, &mut worker, &offer, envelope, code).await;
        let (state, reason) = world.stage(&run).await;
        assert_eq!(state, "failed");
        assert!(reason.contains(code), "{reason}");
    }
    let run = world.submit(&plain()).await;
    let offer = worker.begun().await;
    let honest = said(&offer, logs(&mut worker, &offer).await);
    let stranger = Identity::generate().unwrap().signing;
    let forged =
        pond_seal::statement::Statement { subject: Digest::of(MANIFEST), result: honest }.sign(&stranger);
    rejected(world, &mut worker, &offer, forged.unwrap(), "key_unknown").await;
    assert_eq!(world.stage(&run).await.0, "failed");

    for (code, subject, tree) in [
        ("result_file", Digest::of(b"no manifest"), packed()),
        ("result_tree", Digest::of(MANIFEST), packed()[..9].to_vec()),
    ] {
        world.submit(&plain()).await;
        let offer = worker.begun().await;
        let logs = vec![worker.stream(&offer, orch::Stream::Result, &tree).await];
        let envelope = worker.sign(subject, said(&offer, logs));
        rejected(world, &mut worker, &offer, envelope, code).await;
    }
    // Vouching for an output that is not there.
    for output in [Output::Nothing {}, Output::NotCollected {}] {
        world.submit(&plain()).await;
        let offer = worker.begun().await;
        let mut said = said(&offer, Vec::new());
        said.output = output;
        let envelope = worker.sign(Digest::of(b"made up"), said);
        rejected(world, &mut worker, &offer, envelope, "result_file").await;
    }
    world.submit(&plain()).await;
    let offer = worker.begun().await;
    rejected(world, &mut worker, &offer, b"{}".to_vec(), "envelope_malformed").await;
}

async fn rejected(world: &World, worker: &mut Worker, offer: &Offer, envelope: Vec<u8>, code: &str) {
    let before = recorded(world).await;
    assert_eq!(worker.complete(offer, envelope.clone()).await, Err(code.to_owned()));
    assert_eq!(recorded(world).await, before + 1, "{code}");
    assert_eq!(worker.complete(offer, envelope).await, Err("result_rejected".to_owned()), "{code} again");
}

async fn recorded(world: &World) -> usize {
    world.audit().await.into_iter().filter(|(action, _)| action == "result.rejected").count()
}

pub(crate) async fn output_out_of_place_is_told(world: &mut World) {
    world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    let mut chain = Chain::begin(&offer.job, offer.lease_epoch, Stream::Stdout);
    let first = piece_of(&offer, orch::Stream::Stdout, &mut chain, b"one");
    let second = piece_of(&offer, orch::Stream::Stdout, &mut chain, b"two");
    let expected = |seq, offset| Ok(ChunkReply::Expected { version: Version, seq, offset });
    let stored = || Ok(ChunkReply::Stored { version: Version, pause_milliseconds: 0, cancel: false });
    assert_eq!(worker.chunk(&second).await, expected(0, 0));
    assert_eq!(worker.chunk(&first).await, stored());
    assert_eq!(worker.chunk(&first).await, stored(), "sent again");
    let mut changed = second.clone();
    changed.bytes = orch::Blob::new(b"TWO".to_vec()).unwrap();
    assert_eq!(worker.chunk(&changed).await, Err("chunk_hash".to_owned()));
    let mut other = first.clone();
    other.bytes = orch::Blob::new(b"ONE".to_vec()).unwrap();
    assert_eq!(worker.chunk(&other).await, Err("chunk_out_of_place".to_owned()));
    assert_eq!(worker.chunk(&second).await, stored());
    let mut empty = second.clone();
    empty.bytes = orch::Blob::new(Vec::new()).unwrap();
    assert_eq!(worker.chunk(&empty).await, Err("chunk_empty".to_owned()));
    let twice = FileDigest { sha256: Digest::of(b"onetwo"), bytes: 6 };
    let log = Log { stream: Stream::Stdout, sha256: twice.sha256, bytes: twice.bytes, truncated: false };
    let mut said = said(&offer, vec![log]);
    said.output = Output::Nothing {};
    let envelope = worker.sign(Digest::of(EMPTY_MANIFEST), said);
    worker.complete(&offer, envelope).await.unwrap();
}
