//! Credentials at rest: released to their project, never moved, rotated whole.

use pond_control::store::{Actor, CredentialFault};
use pond_seal::vault::{KeyRing, RingFault, VaultFault};

use super::world::{START, World, at, name, project};

pub(crate) async fn a_value_goes_in_and_comes_out_for_its_project_only(world: &World) {
    let (acme, other, key) = (project("acme"), project("other"), name("MODEL_KEY"));
    let system = Actor::System;
    let store = &world.store;
    let released = async |project| {
        let value = store.release_credential(project, &key, (&system, None), at(1)).await.unwrap();
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    assert_eq!(released(&acme).await, None);
    store.set_credential(None, &key, b"everybody's", &system, START).await.unwrap();
    store.set_credential(Some(&acme), &key, b"old", &system, START).await.unwrap();
    store.set_credential(Some(&acme), &key, b"acme's", &system, at(1)).await.unwrap();
    assert_eq!(released(&acme).await.as_deref(), Some("acme's"));
    assert_eq!(released(&other).await.as_deref(), Some("everybody's"));
    let listed = store.credentials(Some(&acme)).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.project.as_ref(), one.name.as_str())).collect();
    assert_eq!(listed, [(None, "MODEL_KEY"), (Some(&acme), "MODEL_KEY")]);
    assert_eq!(store.credentials(Some(&other)).await.unwrap().len(), 1);
    assert!(store.remove_credential(Some(&acme), &key, &system, at(2)).await.unwrap());
    assert!(!store.remove_credential(Some(&acme), &key, &system, at(2)).await.unwrap());
    assert_eq!(released(&acme).await.as_deref(), Some("everybody's"));
}

pub(crate) async fn a_record_that_was_moved_does_not_open(world: &World) {
    let (acme, other, key) = (project("acme"), project("other"), name("K"));
    let system = Actor::System;
    world.store.set_credential(Some(&acme), &key, b"acme's", &system, START).await.unwrap();
    world.store.set_credential(Some(&other), &key, b"other's", &system, START).await.unwrap();
    // Somebody who can write to the database gives one tenant the other's value.
    let swap = "UPDATE credential SET value = (SELECT value FROM credential WHERE project = 'acme') WHERE project = 'other'";
    world.raw(swap).await;
    let opened = world.store.release_credential(&other, &key, (&system, None), at(1)).await;
    assert!(matches!(opened, Err(CredentialFault::Vault(VaultFault::Sealed))));
    world.raw("UPDATE credential SET project = 'third' WHERE project = 'acme'").await;
    let opened = world.store.release_credential(&project("third"), &key, (&system, None), at(1)).await;
    assert!(matches!(opened, Err(CredentialFault::Vault(VaultFault::Sealed))));
}

pub(crate) async fn rotation_reaches_every_record(world: &World) {
    let (acme, key) = (project("acme"), name("K"));
    let system = Actor::System;
    for number in 0..3 {
        let name = name(&format!("K{number}"));
        world.store.set_credential(Some(&acme), &name, b"value", &system, START).await.unwrap();
    }
    let mut ring = KeyRing::parse(&world.ring).unwrap();
    let old = ring.active();
    let new = ring.rotate().unwrap();
    let before = world.store.records_by_key().await.unwrap();
    assert_eq!(before.into_iter().collect::<Vec<_>>(), [(old, 3)]);
    assert_eq!(ring.forget(old, 3), Err(RingFault::InUse { kid: old, records: 3 }));
    let text = ring.to_text();
    let done = world.store.rotate(ring, &system, at(1)).await.unwrap();
    assert_eq!((done.rewrapped, done.records.into_iter().collect::<Vec<_>>()), (3, vec![(new, 3)]));
    world.store.set_credential(Some(&acme), &key, b"value", &system, at(2)).await.unwrap();
    let records = world.store.records_by_key().await.unwrap();
    let mut ring = KeyRing::parse(&text).unwrap();
    ring.forget(old, records.get(&old).copied().unwrap_or(0)).unwrap();
    assert_eq!(world.store.rotate(ring, &system, at(3)).await.unwrap().rewrapped, 0);
    let value =
        world.store.release_credential(&acme, &name("K1"), (&system, None), at(4)).await.unwrap().unwrap();
    assert_eq!(value.as_slice(), b"value");
}
