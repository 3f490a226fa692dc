//! The schema is made once, a store of an older one is brought along with what is in it, and a store that this pond does not
//! understand is left alone.

use pond_control::store::{Action, Event, MigrateFault, Outcome, Place, Rules, Store};
use pond_seal::Digest;
use pond_seal::key::SigningKey;
use pond_seal::vault::KeyRing;

use super::audited::checked;
use super::world::{START, World, at, document};

async fn open(world: &World) -> Result<Store, MigrateFault> {
    let ring = KeyRing::parse(&world.ring).unwrap();
    Store::open(&world.address, ring, Rules::default(), START).await
}

pub(crate) async fn a_store_opens_again(world: &World) {
    let run = world.submit(&document(&["a"])).await;
    let both = tokio::join!(open(world), open(world));
    for store in [both.0.unwrap(), both.1.unwrap()] {
        assert_eq!(store.run(&run).await.unwrap().unwrap(), world.run(&run).await);
        store.close().await;
    }
}

pub(crate) async fn a_newer_or_edited_store_is_left_alone(world: &World) {
    world
        .raw("INSERT INTO schema_version (version, digest, at) SELECT 99, digest, 0 FROM schema_version WHERE version = 1")
        .await;
    assert!(matches!(open(world).await, Err(MigrateFault::Newer { found: 99, .. })));
    world.raw("DELETE FROM schema_version WHERE version = 99").await;
    open(world).await.unwrap().close().await;
    let edited = if world.address.starts_with("sqlite:") {
        "UPDATE schema_version SET digest = zeroblob(32)"
    } else {
        "UPDATE schema_version SET digest = decode(repeat('00', 32), 'hex')"
    };
    world.raw(edited).await;
    assert!(matches!(open(world).await, Err(MigrateFault::Edited(1))));
}

/// What the fourth schema was made by.
const FOURTH: [[&str; 4]; 2] = [
    [
        include_str!("../../migrations/sqlite/0001_first.sql"),
        include_str!("../../migrations/sqlite/0002_proof.sql"),
        include_str!("../../migrations/sqlite/0003_budgets.sql"),
        include_str!("../../migrations/sqlite/0004_egress.sql"),
    ],
    [
        include_str!("../../migrations/postgres/0001_first.sql"),
        include_str!("../../migrations/postgres/0002_proof.sql"),
        include_str!("../../migrations/postgres/0003_budgets.sql"),
        include_str!("../../migrations/postgres/0004_egress.sql"),
    ],
];

/// Everything of `now` as the fourth schema has it: an event of its own beside each entry about a run.
const COPIED: &str = "
    INSERT INTO project SELECT * FROM now.project;
    INSERT INTO worker (id, name, sign_key, seal_key, generation, tags, capabilities, state, reason, enrolled_at, seen_at)
        SELECT id, name, sign_key, seal_key, generation, tags, capabilities, state, reason, enrolled_at, seen_at FROM now.worker;
    INSERT INTO run (id, project, state, open_stages, cancel, source, created_at, ended_at)
        SELECT id, project, state, open_stages, cancel, source, created_at, ended_at FROM now.run;
    INSERT INTO document SELECT * FROM now.document;
    INSERT INTO stage (id, run_id, position, name, state, class_id, unmet, tries, timeout_ms, reason, ended_at)
        SELECT id, run_id, position, name, state, class_id, unmet, tries, timeout_ms, reason, ended_at FROM now.stage;
    INSERT INTO stage_need SELECT * FROM now.stage_need;
    INSERT INTO job SELECT * FROM now.job;
    INSERT INTO result SELECT * FROM now.result;
    INSERT INTO audit_tile SELECT * FROM now.audit_tile;
    DELETE FROM audit_tree;
    INSERT INTO audit_tree SELECT * FROM now.audit_tree;
";

/// The store of `world` as it was before events were entries of the audit log: on SQLite in a file beside it, on Postgres in its
/// place.
async fn as_the_fourth(world: &World) -> String {
    let is_sqlite = world.address.starts_with("sqlite:");
    let mut sql = String::new();
    let (address, numbered) = if is_sqlite {
        (format!("{}.old", world.address), "")
    } else {
        sql += "ALTER SCHEMA public RENAME TO now; CREATE SCHEMA public;";
        (world.address.clone(), "OVERRIDING SYSTEM VALUE")
    };
    let steps = FOURTH[usize::from(!is_sqlite)];
    sql += &steps.join("\n");
    let (integer, blob) = if is_sqlite { ("integer", "blob") } else { ("bigint", "bytea") };
    sql += &format!(
        "CREATE TABLE schema_version (version {integer} PRIMARY KEY, digest {blob} NOT NULL, at {integer} NOT NULL);"
    );
    for (version, step) in (1..).zip(steps) {
        let digest = Digest::of(step.as_bytes());
        let digest = if is_sqlite { format!("x'{digest}'") } else { format!("'\\x{digest}'") };
        sql += &format!("INSERT INTO schema_version VALUES ({version}, {digest}, 0);");
    }
    if is_sqlite {
        let now = world.address.strip_prefix("sqlite:").unwrap();
        sql += &format!("ATTACH '{now}' AS now;");
    }
    sql += &format!(
        "INSERT INTO class (id, need) {numbered} SELECT id, need FROM now.class; {COPIED}
         INSERT INTO audit (seq, tx, at, actor, action, project, subject, detail) {numbered}
            SELECT seq, tx, at, actor, action, project, subject, detail FROM now.audit;
         INSERT INTO event (tx, at, project, run_id, stage_id, action, detail)
            SELECT tx, at, project, run_id, stage_id, action, detail FROM now.audit WHERE run_id IS NOT NULL ORDER BY seq;"
    );
    if !is_sqlite {
        sql += "ALTER TABLE audit ALTER seq RESTART WITH 1000; ALTER TABLE class ALTER id RESTART WITH 1000";
    }
    super::world::raw(&address, &sql).await;
    address
}

pub(crate) async fn a_store_with_events_beside_its_audit_log_is_brought_along(world: &World) {
    let key = SigningKey::generate().unwrap();
    let worker = world.worker("w").await;
    let (ended, going) =
        (world.submit(&document(&["a", "b a"])).await, world.submit(&document(&["c"])).await);
    for _ in 0..2 {
        let offer = world.started(&worker, at(1)).await;
        world.complete(&offer.lease, Outcome::Failed, at(2)).await;
    }
    world.store.grow_tree(&key).await.unwrap();
    let last = world.submit(&document(&["d"])).await;
    let lease = world.started(&worker, at(3)).await.lease;
    let mut before = Vec::new();
    for run in [&ended, &going, &last] {
        let events: Vec<Event> = world.store.events(run, Place::default(), 100).await.unwrap();
        before.push((world.run(run).await, events));
    }
    let entries = world.store.audit(None, Place::default(), 1000).await.unwrap();
    let address = as_the_fourth(world).await;
    let ring = KeyRing::parse(&world.ring).unwrap();
    let store = Store::open(&address, ring, Rules::default(), START).await.unwrap();
    for (run, (view, events)) in [&ended, &going, &last].into_iter().zip(&before) {
        assert_eq!(store.run(run).await.unwrap().as_ref(), Some(view));
        assert_eq!(&store.events(run, Place::default(), 100).await.unwrap(), events);
    }
    assert_eq!(store.audit(None, Place::default(), 1000).await.unwrap(), entries);
    assert_eq!(store.worker(&worker).await.unwrap().unwrap().former_keys, Vec::<String>::new());
    // The tree that was signed goes on, and the job that was out comes to its end.
    checked(&store, &key).await.unwrap();
    let done = pond_control::store::Completion {
        lease: &lease,
        outcome: Outcome::Succeeded,
        reason: "",
        spent: pond_control::store::Spent::default(),
        envelope: b"envelope",
    };
    store.complete(done, at(4)).await.unwrap();
    store.grow_tree(&key).await.unwrap();
    checked(&store, &key).await.unwrap();
    let told = store.events(&last, Place::default(), 100).await.unwrap();
    assert_eq!(told.last().map(|event| event.action), Some(Action::RunEnded));
    store.close().await;
}
