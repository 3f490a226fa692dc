//! A stage with `verify`, through the real doors: several workers, one of which may lie.

use pond_control::store::{Standing, WorkerId, WorkerState};
use pond_policy::operator::Percent;
use pond_policy::settings::Settings;
use pond_seal::Digest;
use pond_seal::offer::Offer;
use pond_seal::result::Outcome;
use pond_wire::orch;

use super::whole::{packed_with, said};
use super::worker::Worker;
use super::world::{World, plain};

const ONE: &str = r#"{"path":"one","mode":"100644","size":3,"sha256":"aa"}"#;
const OTHER: &str = r#"{"path":"one","mode":"100644","size":3,"sha256":"bb"}"#;
const GONE: &str = r#"{"path":"two","deleted":true}"#;

fn manifest(entries: &[&str]) -> Vec<u8> {
    format!("{{\"format\":\"pond-manifest-1\",\"entries\":[\n{}\n]}}\n", entries.join(",\n")).into_bytes()
}

fn verified(how: &str) -> String {
    format!("{}    verify: {{{how}}}\n", plain())
}

/// A whole result: this manifest, this exit code.
async fn completes(worker: &mut Worker, offer: &Offer, manifest: &[u8], code: u8) -> Result<(), String> {
    let logs = vec![worker.stream(offer, orch::Stream::Result, &packed_with(manifest)).await];
    let mut said = said(offer, logs);
    (said.outcome, said.exit_code) = (Outcome::Exited { code }, code);
    let envelope = worker.sign(Digest::of(manifest), said);
    worker.complete(offer, envelope).await
}

async fn ran(worker: &mut Worker, manifest: &[u8], code: u8) {
    let offer = worker.begun().await;
    completes(worker, &offer, manifest, code).await.unwrap();
}

async fn state(world: &World, worker: &Worker) -> WorkerState {
    let id = WorkerId::parse(&worker.name).unwrap();
    world.plane.store.worker(&id).await.unwrap().unwrap().state
}

pub(crate) async fn one_who_lies_is_outvoted_and_the_paths_are_named(world: &mut World) {
    let run = world.submit(&verified("quorum: 2")).await;
    let (mut liar, mut one, mut two) = (world.worker().await, world.worker().await, world.worker().await);
    ran(&mut liar, &manifest(&[OTHER, GONE]), 0).await;
    assert_eq!(world.stage(&run).await.0, "queued");
    assert!(liar.poll().await.unwrap().is_none(), "the same worker cannot confirm itself");
    ran(&mut one, &manifest(&[ONE]), 0).await;
    assert!(one.poll().await.unwrap().is_none());
    ran(&mut two, &manifest(&[ONE]), 0).await;
    assert_eq!(world.stage(&run).await, ("succeeded".to_owned(), String::new()));
    let view = world.plane.store.run(&run).await.unwrap().unwrap();
    let results = world.plane.store.results(&view.stages[0].id).await.unwrap();
    let stands: Vec<Standing> = results.iter().map(|result| result.standing).collect();
    assert_eq!(stands, [Standing::Distrusted, Standing::Confirmed, Standing::Confirmed]);
    assert_eq!(results[1].differs, ["one", "two"]);
    assert_eq!(results[2].differs, Vec::<String>::new());
    assert_eq!(
        (state(world, &liar).await, state(world, &one).await),
        (WorkerState::Quarantined, WorkerState::Active)
    );
}

pub(crate) async fn what_is_compared_is_what_was_asked(world: &mut World) {
    let (mut one, mut two) = (world.worker().await, world.worker().await);
    let (here, there) = (manifest(&[ONE]), manifest(&[OTHER]));
    let (more, broken) = (manifest(&[ONE, GONE]), b"no manifest".to_vec());
    // (how, the two outputs and exit codes, the state after both)
    for (how, first, second, then) in [
        ("quorum: 2, compare: manifest", (&here, 0), (&here, 0), "succeeded"),
        ("quorum: 2, compare: manifest", (&here, 0), (&there, 0), "queued"),
        ("quorum: 2, compare: manifest", (&here, 0), (&here, 1), "queued"),
        ("quorum: 2, compare: paths", (&here, 0), (&there, 0), "succeeded"),
        ("quorum: 2, compare: paths", (&here, 0), (&more, 0), "queued"),
        ("quorum: 2, compare: exit", (&here, 0), (&more, 0), "succeeded"),
        ("quorum: 2, compare: exit", (&here, 1), (&more, 1), "failed"),
        ("quorum: 2, compare: exit", (&here, 0), (&here, 3), "queued"),
        ("quorum: 2, compare: exit", (&broken, 0), (&here, 0), "succeeded"),
        ("quorum: 1, compare: manifest", (&here, 0), (&here, 0), "succeeded"),
    ] {
        let run = world.submit(&verified(how)).await;
        ran(&mut one, first.0, first.1).await;
        if how.starts_with("quorum: 2") {
            assert_eq!(world.stage(&run).await.0, "queued", "{how}");
            ran(&mut two, second.0, second.1).await;
        }
        assert_eq!(world.stage(&run).await.0, then, "{how} {second:?}");
        world.cancel(&run).await;
    }
    let run = world.submit(&verified("quorum: 2, compare: paths")).await;
    let offer = one.begun().await;
    let unread = completes(&mut one, &offer, &broken, 0).await;
    assert_eq!(unread, Err("result_file".to_owned()), "paths that cannot be read cannot be compared");
    assert_eq!(world.stage(&run).await.0, "failed");
}

pub(crate) async fn an_operator_has_results_confirmed_at_random(world: &mut World) {
    world.operator.spot_check_percent = Some(Percent::MOST);
    world.restart(Settings::default()).await;
    let mut one = world.worker().await;
    let run = world.submit(&plain()).await;
    ran(&mut one, &manifest(&[ONE]), 0).await;
    assert_eq!(world.stage(&run).await.0, "succeeded", "there is nobody else to ask");
    let mut two = world.worker().await;
    let run = world.submit(&plain()).await;
    ran(&mut one, &manifest(&[ONE]), 0).await;
    assert_eq!(world.stage(&run).await.0, "queued");
    // The dice were thrown; the rate of now does not matter to a check that is under way.
    world.operator.spot_check_percent = None;
    world.restart(Settings::default()).await;
    (one.at, two.at) = (world.at, world.at);
    assert!(one.poll().await.unwrap().is_none());
    ran(&mut two, &manifest(&[ONE]), 0).await;
    assert_eq!(world.stage(&run).await.0, "succeeded");
    let run = world.submit(&plain()).await;
    ran(&mut one, &manifest(&[ONE]), 0).await;
    assert_eq!(world.stage(&run).await.0, "succeeded", "without a rate nobody is asked");
}
