//! Source bundles go to the holder of one lease.

use pond_control::store::{Actor, BundleFault, BundleId, Lease, NewBundle, Offer, Submission, WorkerId};
use pond_seal::Digest;

use super::world::{START, World, at, document, parse, project};

/// A run with a source, the worker's offer of it, and the bundle.
async fn offered(world: &World, worker: &WorkerId) -> (Offer, BundleId) {
    let new = NewBundle {
        project: &project("acme"),
        place: "blobs/1",
        digest: Digest::of(b"ciphertext"),
        input: Digest::of(b"tree"),
        size: 10,
        key: b"the key",
    };
    let bundle = world.store.store_bundle(new, &Actor::System, START).await.unwrap();
    let text = document(&["a"]);
    let run = parse(&text);
    let submission = Submission {
        run: &run,
        document: text.as_bytes(),
        source: Some(&bundle),
        retries: 0,
        idempotency: None,
    };
    world.store.submit(submission, &Actor::System, START).await.unwrap();
    (world.claim(worker, START).await, bundle)
}

async fn refused(world: &World, token: &Digest, lease: &Lease, second: u64) -> bool {
    matches!(world.store.redeem_bundle(token, lease, at(second)).await, Err(BundleFault::Token))
}

pub(crate) async fn a_token_is_for_one_lease(world: &World) {
    let (worker, thief) = (world.worker("w").await, world.worker("thief").await);
    let ((offer, bundle), token) = (offered(world, &worker).await, Digest::of(b"token"));
    let stolen = Lease { worker: thief.clone(), ..offer.lease.clone() };
    let issued = world.store.issue_bundle_token(&bundle, &stolen, &token, at(600)).await;
    assert!(matches!(issued, Err(BundleFault::Stale)));
    world.store.issue_bundle_token(&bundle, &offer.lease, &token, at(600)).await.unwrap();
    for other in [stolen, Lease { epoch: 2, ..offer.lease.clone() }] {
        assert!(refused(world, &token, &other, 1).await);
    }
    assert!(refused(world, &Digest::of(b"guess"), &offer.lease, 1).await);
    for sent in 1..=2 {
        let got = world.store.redeem_bundle(&token, &offer.lease, at(2)).await.unwrap();
        assert_eq!((&got.bundle, got.place.as_str(), got.size, got.sent), (&bundle, "blobs/1", 10, sent));
        assert_eq!((got.digest, got.key.as_slice()), (Digest::of(b"ciphertext"), &b"the key"[..]));
    }
    world.store.expire(at(61)).await.unwrap();
    assert!(refused(world, &token, &offer.lease, 62).await);
    world.claim(&thief, at(62)).await;
    assert!(refused(world, &token, &offer.lease, 62).await);
}

pub(crate) async fn a_token_expires(world: &World) {
    let worker = world.worker("w").await;
    let ((offer, bundle), token) = (offered(world, &worker).await, Digest::of(b"token"));
    world.store.issue_bundle_token(&bundle, &offer.lease, &token, at(5)).await.unwrap();
    assert!(refused(world, &token, &offer.lease, 5).await);
}
