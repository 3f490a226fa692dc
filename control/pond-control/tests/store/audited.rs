//! The audit log as a tree: it grows by what was committed, whoever grows it, and whatever somebody with the database changes in
//! it shows.

use pond_control::store::{Outcome, Store, TreeFault};
use pond_seal::Digest;
use pond_seal::audit::checkpoint::Checkpoint;
use pond_seal::audit::proof::check_consistency;
use pond_seal::audit::tile::WIDTH;
use pond_seal::audit::tree::{Growing, leaf};
use pond_seal::key::SigningKey;

use super::world::{World, at, document};

/// Everything that the log says, as somebody who checks it does: all lines, and the checkpoint they must lead to.
pub(crate) async fn checked(store: &Store, key: &SigningKey) -> Result<Checkpoint, String> {
    let note = store.checkpoint().await.unwrap().ok_or("no checkpoint")?;
    let checkpoint = Checkpoint::verify(&note, &key.public()).map_err(|fault| fault.code().to_owned())?;
    let mut growing = Growing::default();
    for number in 0..checkpoint.size.div_ceil(256) {
        let lines = store.tree_entries(number).await.unwrap();
        let left = usize::try_from(checkpoint.size - growing.size()).unwrap();
        if lines.len() != left.min(WIDTH) {
            return Err("count".to_owned());
        }
        lines.iter().for_each(|line| growing.push(leaf(line.as_bytes()), |_, _| {}));
    }
    let found = Checkpoint { size: growing.size(), root: growing.root() };
    if found == checkpoint { Ok(checkpoint) } else { Err("root".to_owned()) }
}

/// Workers have names of their own.
fn fresh() -> usize {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// So many runs of two stages, a result each; the log has more than a tile of entries after ten.
async fn worked(world: &World, runs: usize) {
    let worker = world.worker(&format!("worker-{}", fresh())).await;
    for _ in 0..runs {
        world.submit(&document(&["a", "b a"])).await;
        for _ in 0..2 {
            let offer = world.started(&worker, at(1)).await;
            world.complete(&offer.lease, Outcome::Succeeded, at(2)).await;
        }
    }
}

pub(crate) async fn the_log_grows_and_proves_what_it_holds(world: &World) {
    let key = SigningKey::generate().unwrap();
    assert_eq!(world.store.checkpoint().await.unwrap(), None);
    let mut before = Vec::new();
    for runs in [1, 2, 30] {
        worked(world, runs).await;
        assert!(world.store.grow_tree(&key).await.unwrap() > 0);
        assert_eq!(world.store.grow_tree(&key).await.unwrap(), 0);
        before.push(checked(&world.store, &key).await.unwrap());
    }
    let now = *before.last().unwrap();
    assert!(now.size > 256 && before[0].size < before[1].size, "{before:?}");
    for old in before {
        let hashes = world.store.tree_consistency(old.size, now.size).await.unwrap();
        check_consistency((old.size, &old.root), (now.size, &now.root), &hashes).unwrap();
    }
    let beyond = world.store.tree_consistency(1, now.size + 1).await;
    assert!(matches!(beyond, Err(TreeFault::Proof(_))), "{beyond:?}");
}

pub(crate) async fn an_accepted_result_has_evidence(world: &World) {
    let key = SigningKey::generate().unwrap();
    let run = world.submit(&document(&["a"])).await;
    let worker = world.worker("w").await;
    let offer = world.started(&worker, at(1)).await;
    world.complete(&offer.lease, Outcome::Succeeded, at(2)).await;
    let stage = world.run(&run).await.stages.remove(0).id;
    let envelope = Digest::of(b"envelope");
    let ask = async || world.store.evidence(&stage, &offer.lease.job, &envelope).await.unwrap();
    assert_eq!(ask().await, None, "it is not in the tree yet");
    world.store.grow_tree(&key).await.unwrap();
    let early = ask().await.unwrap();
    worked(world, 30).await;
    world.store.grow_tree(&key).await.unwrap();
    let late = ask().await.unwrap();
    assert_eq!((early.index, &early.entry), (late.index, &late.entry));
    assert_ne!(early.checkpoint, late.checkpoint);
    for evidence in [early, late] {
        evidence.verify(&key.public()).unwrap();
        let read = pond_seal::audit::entry::Read::parse(&evidence.entry).unwrap();
        assert!(read.accepts(offer.lease.job.as_str(), &envelope));
    }
    let other = world.store.evidence(&stage, &offer.lease.job, &Digest::of(b"another")).await.unwrap();
    assert_eq!(other, None);
}

pub(crate) async fn several_who_grow_it_make_one_tree(world: &World) {
    let key = SigningKey::generate().unwrap();
    let beside = world.beside().await;
    worked(world, 20).await;
    let (one, two) = tokio::join!(world.store.grow_tree(&key), beside.grow_tree(&key));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    worked(world, 1).await;
    let (one, two) = tokio::join!(world.store.grow_tree(&key), beside.grow_tree(&key));
    assert!(one.unwrap() + two.unwrap() > 0);
    beside.grow_tree(&key).await.unwrap();
    checked(&world.store, &key).await.unwrap();
    beside.close().await;
}

/// What is done to a log of several tiles, and what undoes it.
const TAMPERING: [(&str, &str, &str); 17] = [
    ("at", "UPDATE audit SET at = at + 1 WHERE seq = 100", "UPDATE audit SET at = at - 1 WHERE seq = 100"),
    (
        "actor",
        "UPDATE audit SET actor = actor || 'x' WHERE seq = 100",
        "UPDATE audit SET actor = substr(actor, 1, length(actor) - 1) WHERE seq = 100",
    ),
    (
        "action",
        "UPDATE audit SET action = 'x' || action WHERE seq = 100",
        "UPDATE audit SET action = substr(action, 2) WHERE seq = 100",
    ),
    (
        "project",
        "UPDATE audit SET project = 'evil' WHERE seq = 100",
        "UPDATE audit SET project = 'acme' WHERE seq = 100",
    ),
    (
        "no project",
        "UPDATE audit SET project = NULL WHERE seq = 100",
        "UPDATE audit SET project = 'acme' WHERE seq = 100",
    ),
    (
        "subject",
        "UPDATE audit SET subject = subject || ' ' WHERE seq = 100",
        "UPDATE audit SET subject = substr(subject, 1, length(subject) - 1) WHERE seq = 100",
    ),
    (
        "detail",
        "UPDATE audit SET detail = detail || ' ' WHERE seq = 100",
        "UPDATE audit SET detail = substr(detail, 1, length(detail) - 1) WHERE seq = 100",
    ),
    ("tx", "UPDATE audit SET tx = tx - 1 WHERE seq = 100", "UPDATE audit SET tx = tx + 1 WHERE seq = 100"),
    (
        "seq",
        "UPDATE audit SET seq = 1000000 + seq WHERE seq = 100",
        "UPDATE audit SET seq = 100 WHERE seq = 1000100",
    ),
    (
        "an entry more",
        "INSERT INTO audit (seq, tx, at, actor, action, project, subject, detail)
        SELECT -5, tx, at, actor, action, project, subject, detail FROM audit WHERE seq = 100",
        "DELETE FROM audit WHERE seq = -5",
    ),
    (
        "one before the first",
        "INSERT INTO audit (seq, tx, at, actor, action, project, subject, detail)
        SELECT -5, -1, at, actor, action, project, subject, detail FROM audit WHERE seq = 100",
        "DELETE FROM audit WHERE seq = -5",
    ),
    (
        "the run it is listed under",
        "UPDATE audit SET run_id = 'x' || run_id WHERE seq = 100",
        "UPDATE audit SET run_id = substr(run_id, 2) WHERE seq = 100",
    ),
    (
        "the stage it is listed under",
        "UPDATE audit SET stage_id = 'x' || coalesce(stage_id, '') WHERE seq = 100",
        "UPDATE audit SET stage_id = nullif(substr(stage_id, 2), '') WHERE seq = 100",
    ),
    (
        "no run",
        "UPDATE audit SET run_id = NULL WHERE seq BETWEEN 97 AND 103",
        "UPDATE audit SET run_id = CASE WHEN action LIKE 'run.%' THEN subject
            ELSE (SELECT run_id FROM stage WHERE stage.id = subject) END WHERE seq BETWEEN 97 AND 103",
    ),
    (
        "a run of something that is none's",
        "UPDATE audit SET run_id = 'run_x' WHERE action LIKE 'worker.%'",
        "UPDATE audit SET run_id = NULL WHERE action LIKE 'worker.%'",
    ),
    ("two swapped", SWAP, SWAP),
    ("an entry less", "DELETE FROM audit WHERE seq = 100", ""),
];
const SWAP: &str = "UPDATE audit SET seq = -1 WHERE seq = 100; UPDATE audit SET seq = 100 WHERE seq = 101;
     UPDATE audit SET seq = 101 WHERE seq = -1";

/// Whoever has a database can let it take numbers.
async fn unlocked(world: &World) {
    if !world.address.starts_with("sqlite:") {
        world.raw("ALTER TABLE audit ALTER COLUMN seq SET GENERATED BY DEFAULT").await;
    }
}

pub(crate) async fn whatever_is_changed_in_the_log_shows(world: &World) {
    let key = SigningKey::generate().unwrap();
    worked(world, 25).await;
    unlocked(world).await;
    world.store.grow_tree(&key).await.unwrap();
    checked(&world.store, &key).await.unwrap();
    for (what, change, back) in TAMPERING {
        world.raw(change).await;
        let found = checked(&world.store, &key).await;
        assert!(found.is_err(), "{what}: {found:?}");
        if !back.is_empty() {
            world.raw(back).await;
            let undone = checked(&world.store, &key).await;
            assert!(undone.is_ok(), "{what} was undone: {undone:?}");
        }
    }
}

/// What is done to the tree, and what the control plane says when it is to sign for more.
const UPROOTING: [(&str, &str, &str); 8] = [
    (
        "a hash of the edge",
        "UPDATE audit_tile SET hashes = (SELECT hashes FROM audit_tile WHERE level = 1) WHERE level = 0 AND number = 1",
        "edge is damaged",
    ),
    ("a tile less", "DELETE FROM audit_tile WHERE level = 1", "a tile is missing"),
    // What comes next would not be in the tree.
    ("a later end", "UPDATE audit_tree SET last_seq = last_seq + 1", "is not the one that was added"),
    ("an end far off", "UPDATE audit_tree SET last_tx = last_tx + 1", "is not the one that was added"),
    ("a smaller tree", "UPDATE audit_tree SET size = 256", "entries, and had"),
    (
        "another checkpoint",
        "UPDATE audit_tree SET checkpoint = 'x' || checkpoint",
        "not one of this control plane",
    ),
    ("none", "UPDATE audit_tree SET checkpoint = ''", "not one of this control plane"),
    (
        "a new beginning",
        "DELETE FROM audit_tile; UPDATE audit_tree SET size = 0, last_tx = -1, last_seq = -1, checkpoint = ''",
        "entries, and had",
    ),
];

pub(crate) async fn nothing_is_signed_on_top_of_a_tree_that_was_changed(world: &World) {
    let key = SigningKey::generate().unwrap();
    worked(world, 25).await;
    world.store.grow_tree(&key).await.unwrap();
    let other = world.store.grow_tree(&SigningKey::generate().unwrap()).await;
    assert!(matches!(other, Err(TreeFault::Checkpoint(_))), "{other:?}");
    world.raw("CREATE TABLE kept_tile AS SELECT * FROM audit_tile").await;
    world.raw("CREATE TABLE kept_tree AS SELECT * FROM audit_tree").await;
    for (what, change, says) in UPROOTING {
        world.raw(change).await;
        worked(world, 1).await;
        let told = world.store.grow_tree(&key).await.unwrap_err().to_string();
        assert!(told.contains(says), "{what}: {told}");
        world.raw("DELETE FROM audit_tile; DELETE FROM audit_tree").await;
        world.raw("INSERT INTO audit_tile SELECT * FROM kept_tile; INSERT INTO audit_tree SELECT * FROM kept_tree").await;
    }
    assert!(world.store.grow_tree(&key).await.unwrap() > 0);
    checked(&world.store, &key).await.unwrap();
}

/// The whole store as it was, put back by somebody who has it: nothing in it contradicts itself, and a process that starts
/// anew signs on. Whoever kept a checkpoint sees that the log is shorter, and later that it is another one.
pub(crate) async fn a_log_that_was_cut_and_went_on_is_not_the_one_that_was_signed(world: &World) {
    let key = SigningKey::generate().unwrap();
    worked(world, 25).await;
    world.store.grow_tree(&key).await.unwrap();
    let early = checked(&world.store, &key).await.unwrap();
    world.raw("CREATE TABLE kept_audit AS SELECT * FROM audit").await;
    world.raw("CREATE TABLE kept_tile AS SELECT * FROM audit_tile").await;
    world.raw("CREATE TABLE kept_tree AS SELECT * FROM audit_tree").await;
    worked(world, 2).await;
    world.store.grow_tree(&key).await.unwrap();
    let kept = checked(&world.store, &key).await.unwrap();

    world.raw("DELETE FROM audit WHERE seq > (SELECT max(seq) FROM kept_audit)").await;
    world.raw("DELETE FROM audit_tile; DELETE FROM audit_tree").await;
    world
        .raw("INSERT INTO audit_tile SELECT * FROM kept_tile; INSERT INTO audit_tree SELECT * FROM kept_tree")
        .await;
    let anew = world.beside().await;
    let cut = checked(&anew, &key).await.unwrap();
    assert_eq!(cut, early, "by itself it holds");
    assert!(cut.size < kept.size, "who kept a checkpoint sees that it shrank");
    worked(world, 9).await;
    anew.grow_tree(&key).await.unwrap();
    let forked = checked(&anew, &key).await.unwrap();
    assert!(forked.size > kept.size, "{forked:?} {kept:?}");
    let since = async |old: Checkpoint| {
        let hashes = anew.tree_consistency(old.size, forked.size).await.unwrap();
        check_consistency((old.size, &old.root), (forked.size, &forked.root), &hashes)
            .map_err(|fault| fault.code())
    };
    assert_eq!(since(early).await, Ok(()));
    assert_eq!(since(kept).await, Err("not_consistent"));
    anew.close().await;
}
