//! The last piece of a result comes with the end of its job: both count, or neither does, and nothing passes that would not have
//! passed by itself.

use pond_control::store::Stream as Stored;
use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::offer::Offer;
use pond_seal::result::{FileDigest, Log, RunResult, Stream};
use pond_wire::orch::{self, Blob, CompleteReply, Hash, Last, Route};

use super::whole::{MANIFEST, digest, packed, said};
use super::worker::Worker;
use super::world::{World, plain};

/// All of a result as one piece.
pub(crate) fn whole(offer: &Offer, bytes: &[u8]) -> Last {
    let link = Chain::begin(&offer.job, offer.lease_epoch, Stream::Result).extend(bytes);
    let head = Hash::try_from(link.head.to_string()).unwrap();
    Last { seq: link.seq, offset: link.offset, bytes: Blob::new(bytes.to_vec()).unwrap(), head }
}

pub(crate) fn log(stream: Stream, bytes: &[u8]) -> Log {
    let FileDigest { sha256, bytes } = digest(bytes);
    Log { stream, sha256, bytes, truncated: false }
}

pub(crate) async fn end(
    worker: &mut Worker,
    offer: &Offer,
    last: Last,
    said: RunResult,
) -> Result<(), String> {
    let envelope = worker.sign(Digest::of(MANIFEST), said);
    let body = orch::Complete { last: Some(last), ..worker.completion(offer, envelope) };
    worker.call::<CompleteReply>(Route::Complete, &body).await.map(drop)
}

/// What is kept of a stream.
async fn kept(world: &World, offer: &Offer, stream: Stored) -> Vec<u8> {
    let job = pond_control::store::JobId::parse(&offer.job).unwrap();
    let pieces = world.plane.store.log(&job, stream, 0, 100).await.unwrap();
    pieces.into_iter().flat_map(|piece| piece.bytes).collect()
}

pub(crate) async fn a_small_result_comes_with_the_end_of_its_job(world: &mut World) {
    let mut worker = world.worker().await;
    // Alone, and after output.
    for output in [&b""[..], b"output"] {
        let run = world.submit(&plain()).await;
        let offer = worker.begun().await;
        let mut logs = vec![log(Stream::Result, &packed())];
        if !output.is_empty() {
            logs.push(worker.stream(&offer, orch::Stream::Stdout, output).await);
        }
        let said = said(&offer, logs);
        let envelope = worker.sign(Digest::of(MANIFEST), said);
        let body =
            orch::Complete { last: Some(whole(&offer, &packed())), ..worker.completion(&offer, envelope) };
        for _ in 0..2 {
            let reply: CompleteReply = worker.call(Route::Complete, &body).await.unwrap();
            assert_eq!(
                reply,
                CompleteReply::Accepted { version: orch::Version, next: None },
                "also when it is said again"
            );
        }
        assert_eq!(world.stage(&run).await.0, "succeeded");
        assert_eq!(kept(world, &offer, Stored::Result).await, packed());
        assert_eq!(kept(world, &offer, Stored::Stdout).await, output);
        let accepted = world.audit().await;
        let accepted = accepted.iter().filter(|(action, _)| action == "result.accepted").count();
        assert_eq!(accepted, if output.is_empty() { 1 } else { 2 });
        let last = whole(&offer, &packed());
        let late = super::whole::said(&offer, Vec::new());
        assert_eq!(end(&mut worker, &offer, last, late).await, Err("lease_stale".to_owned()));
    }
}

pub(crate) async fn what_comes_with_the_end_is_judged_like_the_rest(world: &mut World) {
    type Lie = fn(&Offer, &mut Last, &mut RunResult);
    const LIES: [(&str, &str, Lie); 6] = [
        // Neither counts, and the job goes on.
        ("chunk_hash", "running", |_, last, _| last.bytes = Blob::new(b"other".to_vec()).unwrap()),
        ("chunk_out_of_place", "running", |_, last, _| (last.seq, last.offset) = (1, 10)),
        ("chunk_empty", "running", |_, last, _| last.bytes = Blob::new(Vec::new()).unwrap()),
        // The piece is there, and the statement is not about it.
        ("statement_stream", "failed", |offer, last, _| *last = whole(offer, &packed()[..9])),
        ("statement_stream", "failed", |_, _, said| said.logs.clear()),
        ("statement_lease", "failed", |_, _, said| said.job.lease.as_mut().unwrap().epoch += 1),
    ];
    let mut worker = world.worker().await;
    for (code, state, lie) in LIES {
        let run = world.submit(&plain()).await;
        let offer = worker.begun().await;
        let (mut last, mut said) =
            (whole(&offer, &packed()), said(&offer, vec![log(Stream::Result, &packed())]));
        lie(&offer, &mut last, &mut said);
        assert_eq!(end(&mut worker, &offer, last, said).await, Err(code.to_owned()));
        assert_eq!(world.stage(&run).await.0, state, "{code}");
        world.cancel(&run).await;
    }
    // Output that the statement does not name.
    let run = world.submit(&plain()).await;
    let offer = worker.begun().await;
    worker.stream(&offer, orch::Stream::Stdout, b"hidden").await;
    let silent = said(&offer, vec![log(Stream::Result, &packed())]);
    let last = whole(&offer, &packed());
    assert_eq!(end(&mut worker, &offer, last, silent).await, Err("statement_stream".to_owned()));
    assert_eq!(world.stage(&run).await.0, "failed");
}
