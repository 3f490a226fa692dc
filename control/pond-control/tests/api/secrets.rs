//! Credentials are written and named, and never read back.

use std::os::unix::fs::PermissionsExt as _;

use pond_control::api::{VaultFileFault, renew_vault};
use pond_control::store::{Actor, Misfit};
use pond_policy::name::Name;
use pond_seal::key::SigningKey;
use pond_seal::vault::KeyRing;
use serde_json::json;

use super::world::{Set, World, project};

const PLANTED: &str = "planted-secret-4711";

pub(crate) fn a_value_goes_in_and_never_comes_out(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let body = json!({"value": PLANTED});
    assert_eq!(world.ask("PUT", "/v1/credentials/KEY?project=acme", Some(&body)).status, 204);
    assert_eq!(world.ask("PUT", "/v1/credentials/SHARED", Some(&body)).status, 204);
    assert_eq!(
        world.ask("PUT", "/v1/credentials/KEY?project=nobodys", Some(&body)).problem(),
        "project_unknown"
    );
    assert_eq!(world.ask("PUT", "/v1/credentials/KEY", Some(&json!({"value": ""}))).status, 400);
    let listed = world.ask("GET", "/v1/credentials?project=acme", None);
    let names: Vec<_> =
        listed.json()["credentials"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, [json!("SHARED"), json!("KEY")]);
    let all = world.ask("GET", "/v1/credentials", None).json();
    let of: Vec<_> =
        all["credentials"].as_array().unwrap().iter().map(|one| one["project"].clone()).collect();
    assert_eq!(of, [json!(null), json!("acme")], "without a project all there are");
    for path in ["/v1/credentials?project=acme", "/v1/audit", "/v1/projects", "/metrics"] {
        assert!(!world.ask("GET", path, None).text().contains(PLANTED), "{path}");
    }
    assert_eq!(world.ask("GET", "/v1/credentials/KEY", None).problem(), "method_not_allowed");
    assert_eq!(world.ask("DELETE", "/v1/credentials/KEY?project=acme", None).status, 204);
    assert_eq!(world.ask("DELETE", "/v1/credentials/KEY?project=acme", None).status, 404);
}

pub(crate) fn the_vault_gets_a_new_key(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    world.ask("PUT", "/v1/credentials/KEY?project=acme", Some(&json!({"value": PLANTED})));
    let before = KeyRing::parse(&std::fs::read_to_string(&world.plane.vault).unwrap()).unwrap().active();
    let rotated = world.ask("POST", "/v1/credentials/rotate", None).json();
    let ring = KeyRing::parse(&std::fs::read_to_string(&world.plane.vault).unwrap()).unwrap();
    assert_eq!(
        ring.kids().collect::<Vec<_>>(),
        [ring.active(), before],
        "somebody may be writing under the old one"
    );
    assert_ne!(ring.active(), before);
    let kid = ring.active().to_string();
    assert_eq!(rotated, json!({"kid": kid, "rewrapped": 1, "records": {(kid.clone()): 1}}));
    assert_eq!(std::fs::metadata(&world.plane.vault).unwrap().permissions().mode() & 0o7777, 0o600);
    let (acme, name) = (project("acme"), Name::parse("KEY").unwrap());
    let released =
        world.plane.store.release_credential(&acme, &name, (&Actor::System, None), world.plane.now());
    let value = world.block_on(released).unwrap().unwrap();
    assert_eq!(value.as_slice(), PLANTED.as_bytes());
    world.ask("POST", "/v1/credentials/rotate", None);
    let again = KeyRing::parse(&std::fs::read_to_string(&world.plane.vault).unwrap()).unwrap();
    assert_eq!(again.kids().collect::<Vec<_>>(), [again.active(), ring.active()], "the first one is gone");
}

/// Another control plane gave the vault a new key; this one goes on with it, and with no file that lacks its own.
pub(crate) fn a_new_key_of_another_control_plane_is_taken_over(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let under = |name: &str| {
        world.ask("PUT", &format!("/v1/credentials/{name}"), Some(&json!({"value": PLANTED})));
        let listed = world.ask("GET", "/v1/credentials", None).json();
        let all = listed["credentials"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["name"] == name).unwrap()["kid"].as_str().unwrap().to_owned()
    };
    let first = under("A");
    let mut ring = KeyRing::parse(&std::fs::read_to_string(&world.plane.vault).unwrap()).unwrap();
    let next = ring.rotate().unwrap().to_string();
    std::fs::write(&world.plane.vault, ring.to_text().as_bytes()).unwrap();
    assert_eq!(under("B"), first, "not before it looked");
    assert!(renew_vault(&world.plane).unwrap() && !renew_vault(&world.plane).unwrap());
    assert_eq!(under("C"), next);
    let stranger = KeyRing::generate().unwrap();
    std::fs::write(&world.plane.vault, stranger.to_text().as_bytes()).unwrap();
    assert!(matches!(renew_vault(&world.plane), Err(VaultFileFault::Foreign)));
    assert_eq!(under("D"), next);
}

/// A control plane with a vault of its own wrote into the same database.
pub(crate) fn what_another_vault_sealed_is_named(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let ready = || crate::client::ask(world.address, "GET", "/readyz", &[], b"");
    world.ask("PUT", "/v1/credentials/OURS?project=acme", Some(&json!({"value": PLANTED})));
    let ours = std::fs::read(&world.plane.vault).unwrap();
    let (stranger, acme) = (KeyRing::generate().unwrap(), project("acme"));
    let kid = stranger.active();
    let text = stranger.to_text();
    let name = Name::parse("THEIRS").unwrap();
    world.block_on(async {
        let theirs = world.beside(stranger).await;
        let value = PLANTED.as_bytes();
        theirs.set_credential(Some(&acme), &name, value, &Actor::System, world.plane.now()).await.unwrap();
        theirs.close().await;
    });
    let refused = world.ask("POST", "/v1/credentials/rotate", None);
    let told = refused.json();
    assert_eq!((refused.status, told["code"].as_str()), (409, Some("vault_key_missing")));
    let detail = told["detail"].as_str().unwrap();
    let named =
        format!("the secret THEIRS of project acme is under the key {kid}, which is not in the vault's ring");
    assert!(detail.starts_with(&named) && !refused.text().contains(PLANTED), "{detail}");
    assert_eq!(std::fs::read(&world.plane.vault).unwrap(), ours, "no key is made for nothing");
    assert_eq!(ready().text(), "ready\n", "most of it can be read");
    // With the key of the other as well, both are moved to a new one.
    let both = [ours.as_slice(), text.as_bytes()].concat();
    std::fs::write(&world.plane.vault, both).unwrap();
    assert_eq!(world.ask("POST", "/v1/credentials/rotate", None).json()["rewrapped"], 2);
}

pub(crate) fn a_control_plane_without_the_vault_of_its_store_is_not_ready(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let (stranger, name) = (KeyRing::generate().unwrap(), Name::parse("K").unwrap());
    let kid = stranger.active();
    world.block_on(async {
        let theirs = world.beside(stranger).await;
        theirs.set_credential(None, &name, b"value", &Actor::System, world.plane.now()).await.unwrap();
        theirs.close().await;
    });
    let ready = crate::client::ask(world.address, "GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "unavailable"));
    assert!(ready.text().contains(&kid.to_string()), "{}", ready.text());
}

pub(crate) fn a_control_plane_with_another_signing_key_is_not_ready(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let ready = || crate::client::ask(world.address, "GET", "/readyz", &[], b"");
    assert_eq!(ready().text(), "ready\n");
    let other = SigningKey::generate().unwrap();
    world.block_on(world.plane.store.grow_tree(&other)).unwrap();
    assert_eq!((ready().status, ready().problem().as_str()), (503, "unavailable"));
    let expected = Misfit::Signing {
        theirs: format!("pond.audit/{}", other.public().id()),
        ours: format!("pond.audit/{}", world.plane.key.public().id()),
    };
    assert_eq!(ready().json()["detail"], expected.to_string());
}
