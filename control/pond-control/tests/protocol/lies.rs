//! Lies of a worker that holds its lease and signs well, about what nobody asked it: each is refused, or gains it nothing.

use pond_control::store::RunId;
use pond_policy::model::Microcents;
use pond_policy::run::Budget;
use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::offer::Offer;
use pond_seal::result::{Limit, Log, Outcome, RunResult, Stream, UtcTime};
use pond_wire::orch::{self, ChunkReply, Version};
use pond_wire::tree::{Entry, Moment};

use super::whole::{MANIFEST, finished, packed, said};
use super::worker::{Worker, piece_of};
use super::world::{World, clock, document, plain};

/// A job that was begun and sent what it sends, and what an honest worker would say of it.
async fn ready(world: &World, worker: &mut Worker) -> (RunId, Offer, RunResult) {
    let run = world.submit(&plain()).await;
    let offer = worker.begun().await;
    let logs = vec![worker.stream(&offer, orch::Stream::Result, &packed()).await];
    let said = said(&offer, logs);
    (run, offer, said)
}

async fn tell(worker: &mut Worker, offer: &Offer, said: RunResult) -> Result<(), String> {
    let envelope = worker.sign(Digest::of(MANIFEST), said);
    worker.complete(offer, envelope).await
}

pub(crate) async fn an_image_is_the_one_that_was_asked_for(world: &mut World) {
    let mut worker = world.worker_of(pond_policy::tier::Tier::Trusted, None, &["sandbox.docker"]).await;
    let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
    let (by_digest, by_name) = (format!("sha256:{one}"), "tools:1".to_owned());
    let no = || Err("statement_image".to_owned());
    for (asked, told, outcome) in [
        (&by_digest, None, no()),
        (&by_digest, Some(other), no()),
        (&by_digest, Some(one), Ok(())),
        (&by_name, None, no()),
        (&by_name, Some(other), Ok(())),
    ] {
        let sandbox =
            format!("profile: untrusted-code-write, backend: docker, overrides: {{image: \"{asked}\"}}");
        world.submit(&document("acme", "", &sandbox)).await;
        let offer = worker.begun().await;
        let logs = vec![worker.stream(&offer, orch::Stream::Result, &packed()).await];
        let mut said = said(&offer, logs);
        said.backend.name = "docker".to_owned();
        said.image = told;
        assert_eq!(tell(&mut worker, &offer, said).await, outcome, "{asked} {told:?}");
    }
}

/// Two runs of one document, both held by one worker: what was signed for one is nothing to the other.
pub(crate) async fn a_statement_counts_for_its_own_run_alone(world: &mut World) {
    let mut worker = world.worker().await;
    let (one, first) = (world.submit(&plain()).await, worker.begun().await);
    let (other, second) = (world.submit(&plain()).await, worker.begun().await);
    let [good, swapped] = [finished(&mut worker, &first).await, finished(&mut worker, &second).await];
    assert_eq!(worker.complete(&first, swapped.clone()).await, Err("statement_job".to_owned()));
    assert_eq!(world.stage(&one).await.0, "failed");
    worker.complete(&second, swapped).await.unwrap();
    assert_eq!(world.stage(&other).await.0, "succeeded");
    assert_eq!(worker.complete(&first, good).await, Err("lease_stale".to_owned()), "it had its say");
}

pub(crate) async fn who_lied_once_is_not_heard_again(world: &mut World) {
    let mut worker = world.worker().await;
    let (run, offer, honest) = ready(world, &mut worker).await;
    let mut lie = honest.clone();
    lie.command_sha256 = Digest::of(b"another");
    assert_eq!(tell(&mut worker, &offer, lie).await, Err("statement_command".to_owned()));
    assert_eq!(tell(&mut worker, &offer, honest).await, Err("lease_stale".to_owned()));
    assert_eq!(world.stage(&run).await.0, "failed");
}

/// Well signed, digests and all, with a size in it that is not that of its content.
pub(crate) async fn a_tree_that_is_not_as_long_as_it_says_is_none(world: &mut World) {
    let mut worker = world.worker().await;
    let (name, modified) = (b"changes.patch".to_vec(), Moment { seconds: 0, nanos: 0 });
    for size in [1, 1 << 20, 1 << 62] {
        let entry = Entry::File { name: name.clone(), mode: 0o644, modified, size }.encode().unwrap();
        let tree = [&entry[..], b"more than a byte", &packed()].concat();
        world.submit(&plain()).await;
        let offer = worker.begun().await;
        let logs = vec![worker.stream(&offer, orch::Stream::Result, &tree).await];
        assert_eq!(
            tell(&mut worker, &offer, said(&offer, logs)).await,
            Err("result_tree".to_owned()),
            "{size}"
        );
    }
}

pub(crate) async fn no_contradiction_is_a_success(world: &mut World) {
    let mut worker = world.worker().await;
    let endings = [
        (Outcome::Exited { code: 0 }, 1),
        (Outcome::Exited { code: 0 }, 125),
        (Outcome::Exited { code: 7 }, 0),
        (Outcome::Signaled { signal: 9 }, 0),
        (Outcome::TimedOut {}, 0),
        (Outcome::Killed { limit: Limit::Memory }, 0),
        (Outcome::Interrupted {}, 0),
    ];
    for (outcome, exit_code) in endings {
        let (run, offer, mut said) = ready(world, &mut worker).await;
        (said.outcome, said.exit_code) = (outcome.clone(), exit_code);
        tell(&mut worker, &offer, said).await.unwrap();
        assert_eq!(world.stage(&run).await.0, "failed", "{outcome:?} with {exit_code}");
    }
}

/// What a statement says of times is in the statement; when the control plane had it is in its own books.
pub(crate) async fn no_clock_of_a_worker_is_believed(world: &mut World) {
    let mut worker = world.worker().await;
    let time = |text: &str| UtcTime::try_from(text.to_owned()).unwrap();
    let (early, late) = (time("1970-01-01T00:00:00.000Z"), time("2999-01-01T00:00:00.000Z"));
    for (started, finished) in [(early.clone(), early.clone()), (late.clone(), late.clone()), (late, early)] {
        let before = clock();
        let (run, offer, mut said) = ready(world, &mut worker).await;
        (said.started_on, said.finished_on) = (started, finished);
        said.usage.elapsed_ms = u64::MAX;
        tell(&mut worker, &offer, said).await.unwrap();
        let view = world.plane.store.run(&run).await.unwrap().unwrap();
        let ended = view.run.ended_at.unwrap();
        assert!((before..=clock()).contains(&ended), "{ended:?}");
    }
}

pub(crate) async fn what_was_spent_is_not_taken_back(world: &mut World) {
    let mut worker = world.worker().await;
    let (run, offer, mut said) = ready(world, &mut worker).await;
    worker.heartbeat(&offer, 3 * Microcents::PER_CENT).await.unwrap();
    said.cost_microcents = 0;
    tell(&mut worker, &offer, said).await.unwrap();
    let standing = world.plane.store.standing(&run, clock()).await.unwrap();
    let used = |budget| standing.iter().find(|tally| tally.budget == budget).unwrap().used;
    assert_eq!((used(Budget::Cost), used(Budget::Egress)), (3, 2), "as the heartbeat said");
}

/// Paths twice, out of order or leading elsewhere: nothing of such a manifest is taken over by the next stage.
pub(crate) async fn a_path_is_told_once(world: &mut World) {
    let mut worker = world.worker().await;
    for paths in
        [["x", "x"], ["x", "y/./z"], ["x", "/y"], ["x", "y/../x"], ["x", "y//z"], ["x", ""], ["y", "x"]]
    {
        let text = "project: acme\nstages:\n";
        let stage = |name: &str, needs: &str| {
            let body = document("acme", "", "profile: untrusted-code-write");
            let (_, executor) = body.split_once("- name: build\n").unwrap();
            format!("  - name: {name}\n    needs: [{needs}]\n{executor}")
        };
        let run = world.submit(&format!("{text}{}{}", stage("a", ""), stage("b", "a"))).await;
        let offer = worker.begun().await;
        let line = |path: &str| {
            format!(
                "{{\"path\":\"{path}\",\"mode\":\"100644\",\"size\":1,\"sha256\":\"{}\"}}",
                Digest::of(b"1")
            )
        };
        let manifest =
            format!("{{\"format\":\"pond-manifest-1\",\"entries\":[\n{}\n]}}\n", paths.map(line).join(",\n"));
        let tree = super::whole::packed_with(manifest.as_bytes());
        let logs = vec![worker.stream(&offer, orch::Stream::Result, &tree).await];
        let envelope = worker.sign(Digest::of(manifest.as_bytes()), said(&offer, logs));
        worker.complete(&offer, envelope).await.unwrap();
        assert_eq!(worker.poll().await.unwrap(), None, "{paths:?}");
        let view = world.plane.store.run(&run).await.unwrap().unwrap();
        let reason = view.stages[1].reason.to_string();
        assert!(reason.contains("what a changed cannot be read [needs_unusable]"), "{paths:?}: {reason}");
    }
}

pub(crate) async fn output_after_its_end_is_refused(world: &mut World) {
    world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    let mut chain = Chain::begin(&offer.job, offer.lease_epoch, Stream::Stdout);
    let first = piece_of(&offer, orch::Stream::Stdout, &mut chain, b"x");
    worker.chunk(&first).await.unwrap();
    // As if all that is kept had come.
    world.raw("UPDATE log_chunk SET start = 67108863").await;
    let mut next = piece_of(&offer, orch::Stream::Stdout, &mut chain, b"y");
    next.offset = 67_108_864;
    assert_eq!(worker.chunk(&next).await, Ok(ChunkReply::Full { version: Version }));
    // Past a gap there is nothing either.
    (next.seq, next.offset) = (9, 67_108_900);
    let expected = ChunkReply::Expected { version: Version, seq: 1, offset: 67_108_864 };
    assert_eq!(worker.chunk(&next).await, Ok(expected));
    // What was kept is what is signed for; a byte that was refused is not.
    let log = |text: &[u8]| Log {
        stream: Stream::Stdout,
        sha256: Digest::of(text),
        bytes: u64::try_from(text.len()).unwrap(),
        truncated: true,
    };
    let result = worker.stream(&offer, orch::Stream::Result, &packed()).await;
    let lie = said(&offer, vec![log(b"xy"), result]);
    assert_eq!(tell(&mut worker, &offer, lie).await, Err("statement_stream".to_owned()));
}
