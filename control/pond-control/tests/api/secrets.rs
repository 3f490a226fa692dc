//! Credentials are written and named, and never read back.

use std::os::unix::fs::PermissionsExt as _;

use pond_control::store::Actor;
use pond_policy::name::Name;
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
    assert_eq!(ring.kids().collect::<Vec<_>>(), [ring.active()], "the old key had no records and is gone");
    assert_ne!(ring.active(), before);
    let kid = ring.active().to_string();
    assert_eq!(rotated, json!({"kid": kid, "rewrapped": 1, "records": {(kid.clone()): 1}}));
    assert_eq!(std::fs::metadata(&world.plane.vault).unwrap().permissions().mode() & 0o7777, 0o600);
    let (acme, name) = (project("acme"), Name::parse("KEY").unwrap());
    let released =
        world.plane.store.release_credential(&acme, &name, (&Actor::System, None), world.plane.now());
    let value = world.block_on(released).unwrap().unwrap();
    assert_eq!(value.as_slice(), PLANTED.as_bytes());
}
