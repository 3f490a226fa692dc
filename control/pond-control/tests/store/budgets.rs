//! What a run may use besides money: counted over all its stages, and the end of it.

use pond_control::store::{Chunk, LogFault, RunId, STRAGGLING_OUTPUT, Spent, Stream};
use pond_policy::reason::Reason;
use pond_policy::run::Budget;
use pond_seal::chain::{Chain, Place};

use super::world::{START, World, at, document};

/// Stages without needs, and what their run may use.
pub(crate) fn limited(stages: &[&str], budgets: &str) -> String {
    document(stages).replacen("stages:", &format!("budgets: {{{budgets}}}\nstages:"), 1)
}

/// One stream of a lease, sent piece by piece.
struct Sender<'a> {
    world: &'a World,
    lease: &'a pond_control::store::Lease,
    stream: Stream,
    place: Place,
}

impl<'a> Sender<'a> {
    fn new(world: &'a World, lease: &'a pond_control::store::Lease, stream: Stream) -> Self {
        let place = Chain::begin(lease.job.as_str(), lease.epoch, stream).at();
        Self { world, lease, stream, place }
    }

    /// Whether the job was told to stop.
    async fn send(&mut self, bytes: &[u8]) -> Result<bool, LogFault> {
        let link = self.place.link(bytes);
        let chunk = Chunk {
            stream: self.stream,
            sequence: self.place.seq,
            offset: self.place.offset,
            bytes,
            chain: link.head,
        };
        let stored = self.world.store.append_log(self.lease, chunk, at(1)).await?;
        self.place = Place {
            seq: stored.next.next_sequence,
            offset: stored.next.next_offset,
            head: stored.next.chain,
        };
        Ok(stored.cancel)
    }
}

/// `budget used of limit`, for those that were used.
async fn used(world: &World, run: &RunId) -> Vec<String> {
    let standing = world.store.standing(run, at(1)).await.unwrap();
    let bytes = standing.iter().filter(|one| ![Budget::WallClock, Budget::Cost].contains(&one.budget));
    bytes
        .filter(|one| one.used > 0)
        .map(|one| format!("{} {} of {}", one.budget, one.used, one.limit))
        .collect()
}

async fn crossings(world: &World, run: &RunId) -> Vec<String> {
    let events = world.store.events(run, Default::default(), 100).await.unwrap();
    let crossed = events.iter().filter(|event| event.action.name() == "run.budget_crossed");
    crossed.map(|event| event.detail.clone()).collect()
}

pub(crate) async fn output_over_its_budget_ends_the_run_and_is_kept(world: &World) {
    let run = world.submit(&limited(&["a", "b", "c a"], "max_output_bytes: 10")).await;
    let worker = world.worker("w").await;
    let (one, two) = (world.started(&worker, START).await, world.started(&worker, START).await);
    let mut out = Sender::new(world, &one.lease, Stream::Stdout);
    let mut err = Sender::new(world, &two.lease, Stream::Stderr);
    assert!(!out.send(b"123456").await.unwrap());
    assert!(!err.send(b"7890").await.unwrap(), "exactly as much as there is");
    assert_eq!(used(world, &run).await, ["max_output_bytes 10 of 10"]);
    assert!(err.send(b"!").await.unwrap(), "one byte too many");
    assert!(out.send(b"on its way").await.unwrap(), "kept, and told to stop");
    let why = "the run's max_output_bytes is 10 bytes, and it came to 11";
    assert_eq!(
        world.told(&run).await,
        ["a running", "b running", &format!("c cancelled {why}"), "run active"]
    );
    for lease in [&one.lease, &two.lease] {
        assert!(world.store.heartbeat(lease, Spent::default(), at(2)).await.unwrap().cancel);
        world.store.give_back(lease, at(3)).await.unwrap();
    }
    let [a, b, c] = ["a", "b", "c"].map(|stage| format!("{stage} cancelled {why}"));
    assert_eq!(world.told(&run).await, [a, b, c, "run cancelled".to_owned()]);
    assert_eq!(crossings(world, &run).await, [r#"{"budget":"max_output_bytes","limit":10,"figure":11}"#]);
    let kept = world.store.log(&one.lease.job, Stream::Stdout, 0, 9).await.unwrap();
    let kept: Vec<u8> = kept.into_iter().flat_map(|piece| piece.bytes).collect();
    assert_eq!(kept, b"123456on its way");
    // A worker that goes on for ever is not listened to for ever.
    let run = world.submit(&limited(&["d"], "max_output_bytes: 10")).await;
    let offer = world.started(&worker, at(4)).await;
    let mut out = Sender::new(world, &offer.lease, Stream::Stdout);
    let piece = vec![b'x'; 256 << 10];
    let refused = loop {
        if let Err(fault) = out.send(&piece).await {
            break fault;
        }
    };
    assert!(matches!(refused, LogFault::BudgetSpent), "{refused:?}");
    let used = world.store.standing(&run, at(5)).await.unwrap();
    let output = used.iter().find(|one| one.budget == Budget::Output).unwrap();
    assert!(output.used <= 10 + STRAGGLING_OUTPUT, "{output:?}");
}

pub(crate) async fn a_result_over_its_budget_is_not_kept(world: &World) {
    let run = world.submit(&limited(&["a", "b"], "max_artifact_bytes: 10")).await;
    let worker = world.worker("w").await;
    let (one, two) = (world.started(&worker, START).await, world.started(&worker, START).await);
    let mut first = Sender::new(world, &one.lease, Stream::Result);
    let mut second = Sender::new(world, &two.lease, Stream::Result);
    first.send(b"12345678").await.unwrap();
    assert!(matches!(second.send(b"901").await, Err(LogFault::BudgetSpent)));
    assert_eq!(used(world, &run).await, ["max_artifact_bytes 8 of 10"]);
    let why = "the run's max_artifact_bytes is 10 bytes, and it came to 11";
    let cancel = world.run(&run).await.run.cancel;
    assert_eq!(cancel, Some(Reason::new("budget_artifacts", why)));
    world.store.refuse(&two.lease, "too much", at(2)).await.unwrap();
    assert_eq!(world.told(&run).await[1], format!("b cancelled {why}"));
}

pub(crate) async fn egress_is_counted_over_all_stages(world: &World) {
    let run = world.submit(&limited(&["a", "b"], "max_egress_bytes: 100")).await;
    let worker = world.worker("w").await;
    let (one, two) = (world.started(&worker, START).await, world.started(&worker, START).await);
    let sent = |egress_bytes| Spent { egress_bytes, ..Spent::default() };
    assert!(!world.store.heartbeat(&one.lease, sent(60), at(1)).await.unwrap().cancel);
    assert!(!world.store.heartbeat(&one.lease, sent(10), at(2)).await.unwrap().cancel, "never less");
    assert!(!world.store.heartbeat(&two.lease, sent(40), at(3)).await.unwrap().cancel);
    assert_eq!(used(world, &run).await, ["max_egress_bytes 100 of 100"]);
    assert!(
        world.store.heartbeat(&two.lease, sent(41), at(4)).await.unwrap().cancel,
        "told by the same call"
    );
    assert!(world.store.heartbeat(&one.lease, sent(60), at(4)).await.unwrap().cancel);
    assert_eq!(crossings(world, &run).await, [r#"{"budget":"max_egress_bytes","limit":100,"figure":101}"#]);
    // However large the lie, it is a figure.
    assert!(world.store.heartbeat(&one.lease, sent(u64::MAX), at(5)).await.unwrap().cancel);
    assert!(world.store.heartbeat(&two.lease, sent(u64::MAX), at(5)).await.unwrap().cancel);
}

pub(crate) async fn the_wall_clock_ends_a_run_that_waits_or_works(world: &World) {
    let run = world.submit(&limited(&["a", "b", "c a"], "wall_clock: 30s")).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, START).await;
    assert_eq!(world.store.end_overdue(at(30)).await.unwrap(), 0);
    assert_eq!(world.store.end_overdue(at(31)).await.unwrap(), 1);
    assert_eq!(world.store.end_overdue(at(32)).await.unwrap(), 0, "once");
    let why = "the run's wall_clock is 30 seconds, and it came to 31";
    let [b, c] = ["b", "c"].map(|stage| format!("{stage} cancelled {why}"));
    assert_eq!(world.told(&run).await, ["a running".to_owned(), b, c, "run active".to_owned()]);
    assert!(world.store.heartbeat(&offer.lease, Spent::default(), at(33)).await.unwrap().cancel);
    world.store.give_back(&offer.lease, at(34)).await.unwrap();
    assert_eq!(world.told(&run).await[0], format!("a cancelled {why}"));
    world.nothing_for(&worker, at(35)).await;
}

pub(crate) async fn a_run_has_what_its_document_asked_for(world: &World) {
    let asked = "wall_clock: 2h, max_cost_cents: 7, max_output_bytes: 1m";
    let run = world.submit(&limited(&["a"], asked)).await;
    let standing = world.store.standing(&run, at(60)).await.unwrap();
    let told: Vec<String> =
        standing.iter().map(|one| format!("{} {} of {}", one.budget, one.used, one.limit)).collect();
    let own = [
        "wall_clock 60 of 7200",
        "max_cost_cents 0 of 7",
        "max_output_bytes 0 of 1048576",
        "max_artifact_bytes 0 of 4294967296",
        "max_egress_bytes 0 of 68719476736",
    ];
    assert_eq!(told, own);
    let worker = world.worker("w").await;
    let offer = world.started(&worker, at(60)).await;
    let left = world.store.held(&offer.lease).await.unwrap().unwrap().left;
    assert_eq!((left.wall(at(60)).as_secs(), left.output_bytes), (7140, 1 << 20));
}
