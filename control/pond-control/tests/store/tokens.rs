//! Bearer tokens: good for who holds the secret, until they expire or are revoked.

use pond_control::store::{Actor, ApiToken, NewToken, Scope, TokenFault, TokenId};
use pond_seal::Digest;

use super::world::{START, World, at, project};

pub(crate) async fn a_token_is_good_until_it_is_not(world: &World) {
    let (acme, digest) = (project("acme"), Digest::of(b"secret"));
    let scopes = [Scope::RunsRead, Scope::RunsWrite];
    let new = NewToken { digest: &digest, scopes: &scopes, project: Some(&acme), expires_at: Some(at(60)) };
    let system = Actor::System;
    let id = world.store.issue_token(new, &system, START).await.unwrap();
    let good = ApiToken { id: id.clone(), scopes: scopes.to_vec(), project: Some(acme.clone()) };
    assert_eq!(world.store.authenticate(&id, b"secret", at(59)).await.unwrap(), good);
    let forever = NewToken { project: None, expires_at: None, ..new };
    let other = world.store.issue_token(forever, &system, START).await.unwrap();
    assert_eq!(world.store.authenticate(&other, b"secret", at(1_000_000)).await.unwrap().project, None);
    let refused = async |id: &TokenId, secret: &[u8], second| {
        matches!(world.store.authenticate(id, secret, at(second)).await, Err(TokenFault::Refused))
    };
    assert!(refused(&id, b"Secret", 1).await && refused(&id, b"", 1).await);
    assert!(refused(&id, digest.as_bytes(), 1).await);
    assert!(refused(&id, b"secret", 60).await);
    assert!(
        refused(
            &TokenId::parse(&id.as_str().replace(|c: char| c.is_ascii_digit(), "0")).unwrap(),
            b"secret",
            1
        )
        .await
    );
    assert!(world.store.revoke_token(&other, &system, at(2)).await.unwrap());
    assert!(!world.store.revoke_token(&other, &system, at(2)).await.unwrap());
    assert!(refused(&other, b"secret", 3).await);
}
