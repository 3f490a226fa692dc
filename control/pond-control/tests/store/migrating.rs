//! The schema is made once, and a store that this pond does not understand is left alone.

use pond_control::store::{MigrateFault, Rules, Store};
use pond_seal::vault::KeyRing;

use super::world::{START, World, document};

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
    assert!(matches!(open(world).await, Err(MigrateFault::Newer { found: 99, known: 3 })));
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
