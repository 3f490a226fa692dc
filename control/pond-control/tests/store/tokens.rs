//! Bearer tokens: good for who holds the secret, until they expire or are revoked.

use pond_control::store::{Actor, ApiToken, NewToken, TokenFault, TokenView};
use pond_policy::scope::Scope;
use pond_seal::bearer::{Bearer, Kind};

use super::world::{START, World, at, project};

pub(crate) async fn a_token_is_good_until_it_is_not(world: &World) {
    let (acme, system) = (project("acme"), Actor::System);
    let (shown, lasting) = (Bearer::generate(Kind::Api).unwrap(), Bearer::generate(Kind::Api).unwrap());
    let scopes = [Scope::RunsRead, Scope::RunsWrite];
    let new = NewToken { bearer: &shown, scopes: &scopes, project: Some(&acme), expires_at: Some(at(60)) };
    let id = world.store.issue_token(new, &system, START).await.unwrap();
    let good = ApiToken { id: id.clone(), scopes: scopes.to_vec(), project: Some(acme.clone()) };
    assert_eq!(world.store.authenticate(&shown, at(59)).await.unwrap(), good);
    let forever = NewToken { bearer: &lasting, project: None, expires_at: None, ..new };
    let other = world.store.issue_token(forever, &system, at(1)).await.unwrap();
    assert_eq!(world.store.authenticate(&lasting, at(1_000_000)).await.unwrap().project, None);
    let refused = async |bearer: &Bearer, second| {
        matches!(world.store.authenticate(bearer, at(second)).await, Err(TokenFault::Refused))
    };
    let swapped =
        |from: &Bearer, id: &Bearer| Bearer::parse(&from.to_text().replace(from.id(), id.id())).unwrap();
    assert!(refused(&swapped(&shown, &lasting), 1).await, "the secret of another");
    assert!(refused(&Bearer::generate(Kind::Api).unwrap(), 1).await, "unknown");
    let renamed = Bearer::parse(&shown.to_text().replace("_api_", "_relay_")).unwrap();
    assert!(refused(&renamed, 1).await, "of another kind");
    assert!(refused(&shown, 60).await, "expired");
    assert!(world.store.revoke_token(&other, &system, at(2)).await.unwrap());
    assert!(!world.store.revoke_token(&other, &system, at(2)).await.unwrap());
    assert!(refused(&lasting, 3).await, "revoked");
    let all = world.store.tokens(None).await.unwrap();
    let view = |token: &ApiToken, created_at, expires_at, revoked_at| TokenView {
        token: token.clone(),
        kind: Kind::Api,
        created_at,
        expires_at,
        revoked_at,
    };
    let second = ApiToken { id: other.clone(), project: None, ..good.clone() };
    let views = [view(&good, START, Some(at(60)), None), view(&second, at(1), None, Some(at(2)))];
    assert_eq!(all, views);
    assert_eq!(world.store.tokens(Some(&acme)).await.unwrap(), views[..1]);
    assert_eq!(world.store.token(&other).await.unwrap(), Some(views[1].clone()));
}
