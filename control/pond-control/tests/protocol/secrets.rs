//! Secrets reach the holder of a lease and nobody else; and what anybody in between sees of all answers does not show them.

use base64ct::{Base64, Base64Unpadded, Base64Url, Encoding};
use pond_control::store::Actor;
use pond_seal::bundle::DataKey;
use pond_seal::offer::Source;
use proptest::prelude::*;
use serde_json::Value;

use super::whole::{bundle, finished};
use super::world::{World, clock, document, name, on_sqlite, project};

fn with_secrets() -> String {
    let files = "      model: claude\n      harness_files: {\".npmrc\": \"token={{SECRET:NPM}}\\nother={{SECRET:npm.token-2}}\"}\n";
    document("acme", files, "profile: untrusted-code-write")
}

async fn keep(world: &World, of: Option<&str>, what: &str, value: &[u8]) {
    let (of, what) = (of.map(project), name(what));
    world.plane.store.set_credential(of.as_ref(), &what, value, &Actor::System, clock()).await.unwrap();
}

pub(crate) async fn secrets_are_released_to_the_holder_only(world: &mut World) {
    world.plane.store.create_project(&project("other"), &Actor::System, clock()).await.unwrap();
    keep(world, None, "claude", b"everybody's").await;
    keep(world, Some("other"), "claude", b"another project's").await;
    keep(world, Some("other"), "NPM", b"another project's").await;
    keep(world, None, "npm.token-2", b"in lower case").await;
    world.submit(&with_secrets()).await;
    let mut worker = world.worker().await;
    let mut other = world.worker().await;
    let offer = worker.poll().await.unwrap().unwrap();
    assert_eq!(offer.credentials, ["NPM", "claude", "npm.token-2"]);
    assert_eq!(worker.seal(&offer, "claude").await, Err("lease_unacknowledged".to_owned()));
    worker.acknowledge(&offer).await.unwrap();
    assert_eq!(worker.seal(&offer, "claude").await, Ok(Ok(b"everybody's".to_vec())));
    assert_eq!(worker.seal(&offer, "npm.token-2").await, Ok(Ok(b"in lower case".to_vec())));
    keep(world, Some("acme"), "claude", b"its own").await;
    assert_eq!(worker.seal(&offer, "claude").await, Ok(Ok(b"its own".to_vec())));
    assert_eq!(worker.seal(&offer, "NPM").await, Ok(Err("credential_unknown".to_owned())));
    assert_eq!(worker.seal(&offer, "signing").await, Ok(Err("credential_not_offered".to_owned())));
    assert_eq!(other.seal(&offer, "claude").await, Err("lease_stale".to_owned()));
    let audit = world.audit().await;
    let count = |action: &str| audit.iter().filter(|(written, _)| written == action).count();
    assert_eq!((count("credential.released"), count("credential.refused")), (3, 2));
}

pub(crate) async fn without_a_pinned_key_nothing_is_released(world: &mut World) {
    keep(world, None, "claude", b"everybody's").await;
    world.submit(&with_secrets()).await;
    let mut worker = world.worker().await;
    let offer = worker.begun().await;
    world.raw("UPDATE worker SET seal_key = ''").await;
    assert_eq!(worker.seal(&offer, "claude").await, Ok(Err("no_pinned_key".to_owned())));
    assert_eq!(worker.poll().await.map(drop), Err("no_pinned_key".to_owned()));
    let audit = world.audit().await;
    assert!(!audit.iter().any(|(action, _)| action == "credential.released"), "it was not even read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Everything a worker is answered in its whole life, in every spelling.
    #[test]
    fn no_answer_shows_a_planted_secret(credential in "[ -~]{16,80}") {
        on_sqlite(async |world: &mut World| {
            keep(world, Some("acme"), "claude", credential.as_bytes()).await;
            let key = DataKey::generate().unwrap();
            let source = bundle(world, credential.as_bytes(), &key).await;
            world.submit_with(&with_secrets(), Some(&source)).await;
            let mut worker = world.worker().await;
            let offer = worker.begun().await;
            assert_eq!(worker.seal(&offer, "claude").await, Ok(Ok(credential.clone().into_bytes())));
            let Source::Bundle { token } = offer.source.clone() else { panic!("no bundle") };
            let (opened, _) = worker.redeem(&offer, &token).await.unwrap();
            worker.heartbeat(&offer, 1).await.unwrap();
            let envelope = finished(&mut worker, &offer).await;
            worker.complete(&offer, envelope).await.unwrap();
            assert!(worker.seen.len() >= 9, "{} answers", worker.seen.len());
            let seed = world.plane.key.to_pem();
            let seed = Base64::decode_vec(seed.lines().nth(1).unwrap()).unwrap();
            for secret in [credential.as_bytes(), &opened, &seed[seed.len() - 32..]] {
                for answer in &worker.seen {
                    assert!(!layer(answer, secret), "{}", String::from_utf8_lossy(answer));
                }
            }
        });
    }
}

/// The search itself finds what is there.
#[test]
fn the_search_finds_what_is_there() {
    let secret = b"sk-planted-0123456789";
    let once = serde_json::json!({"payload": Base64::encode_string(b"xxsk-planted-0123456789y")}).to_string();
    let twice = serde_json::json!({"release": Base64::encode_string(once.as_bytes())}).to_string();
    for text in [once, twice] {
        assert!(
            layer(text.as_bytes(), secret) && layer(format!("{text}\nciphertext").as_bytes(), secret),
            "{text}"
        );
    }
    assert!(!layer(b"sk-planted-012345678", secret));
}

/// As bytes, and as JSON (also where other bytes follow its line).
fn layer(bytes: &[u8], secret: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    shown_in(bytes, secret) || serde_json::from_slice(line).is_ok_and(|value| shows(&value, secret))
}

fn shows(value: &Value, secret: &[u8]) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => {
            let decoded = Base64::decode_vec(text).or_else(|_| Base64Url::decode_vec(text));
            shown_in(text.as_bytes(), secret)
                || decoded.is_ok_and(|bytes| !bytes.is_empty() && layer(&bytes, secret))
        }
        Value::Array(items) => items.iter().any(|item| shows(item, secret)),
        Value::Object(entries) => entries.values().any(|value| shows(value, secret)),
    }
}

/// As it is, in hexadecimal, and in base64 whatever stands before it.
fn shown_in(bytes: &[u8], secret: &[u8]) -> bool {
    let contains = |part: &[u8]| !part.is_empty() && bytes.windows(part.len()).any(|window| window == part);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let shifted = (0..3).map(|shift| {
        let text = Base64Unpadded::encode_string(&[&vec![0; shift], secret].concat());
        text[(shift * 8_usize).div_ceil(6)..text.len() - 1].to_owned()
    });
    contains(secret) || contains(hex.as_bytes()) || shifted.into_iter().any(|text| contains(text.as_bytes()))
}
