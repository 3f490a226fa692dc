//! An offer is believed by the worker it names, for the poll it answers, with the control plane's signature.

use serde_json::{Value, json};

use super::*;
use crate::enroll::Identity;

fn offer(worker_key: KeyId, answers: RequestNonce) -> Offer {
    Offer {
        answers,
        worker: "w1".to_owned(),
        worker_key,
        tenant: "acme".to_owned(),
        run: "r1".to_owned(),
        stage: "build".to_owned(),
        job: "j1".to_owned(),
        attempt: 1,
        lease_epoch: 4,
        lease_seconds: 60,
        acknowledge_seconds: 15,
        deadline_seconds: 600,
        not_after: 1_800_000_000,
        input: Digest::of(b"input"),
        policy: Digest::of(b"policy"),
        executor: "{}".to_owned(),
        credentials: vec!["model".to_owned()],
        source: Source::Bundle { token: "t".to_owned() },
        allotted: Allotted { cost_microcents: 0, output_bytes: 1, artifact_bytes: 1, egress_bytes: 1 },
    }
}

#[test]
fn an_offer_is_for_one_worker_one_key_and_one_poll() {
    let (control, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let (key, polled) = (Identity::generate().unwrap().keys().seal.id(), RequestNonce::generate().unwrap());
    let offer = offer(key, polled);
    let signed = SignedOffer::sign(&offer, &control).unwrap();
    let me = Addressee { worker: "w1", worker_key: key, polled };
    let read = |signed: &SignedOffer, me| signed.verify(&control.public(), me).map_err(|fault| fault.code());
    assert_eq!(read(&signed, me), Ok(offer.clone()));
    let newer = Identity::generate().unwrap().keys().seal.id();
    let later = RequestNonce::generate().unwrap();
    assert_eq!(read(&signed, Addressee { worker: "w2", ..me }), Err("offer_worker"));
    assert_eq!(read(&signed, Addressee { worker_key: newer, ..me }), Err("offer_key"));
    assert_eq!(read(&signed, Addressee { polled: later, ..me }), Err("offer_replayed"));
    let forged = SignedOffer::sign(&offer, &other).unwrap();
    assert_eq!(read(&forged, me), Err("key_unknown"));
    let release = seal_as(Purpose::Release, &serde_json::to_vec(&offer).unwrap(), &control).unwrap();
    assert_eq!(read(&SignedOffer::from_bytes(release), me), Err("payload_type"));
}

#[test]
fn nothing_of_an_offer_is_read_before_its_signature_held() {
    let (control, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let (worker_key, polled) =
        (Identity::generate().unwrap().keys().seal.id(), RequestNonce::generate().unwrap());
    let me = Addressee { worker: "w1", worker_key, polled };
    let garbage = b"{ not json";
    let code = |key: &SigningKey| {
        let signed = SignedOffer::from_bytes(seal_as(Purpose::Offer, garbage, key).unwrap());
        signed.verify(&control.public(), me).map_err(|fault| fault.code())
    };
    assert_eq!(code(&other), Err("key_unknown"));
    assert_eq!(code(&control), Err("offer_malformed"));
}

#[test]
fn an_offer_with_anything_unknown_or_missing_is_none() {
    let control = SigningKey::generate().unwrap();
    let (worker_key, polled) =
        (Identity::generate().unwrap().keys().seal.id(), RequestNonce::generate().unwrap());
    let good = serde_json::to_value(offer(worker_key, polled)).unwrap();
    let code = |value: &Value| {
        let bytes = seal_as(Purpose::Offer, &serde_json::to_vec(value).unwrap(), &control).unwrap();
        let me = Addressee { worker: "w1", worker_key, polled };
        SignedOffer::from_bytes(bytes).verify(&control.public(), me).map(drop).map_err(|fault| fault.code())
    };
    assert_eq!(code(&good), Ok(()));
    for name in good.as_object().unwrap().keys() {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(name);
        assert_eq!(code(&without), Err("offer_malformed"), "{name}");
    }
    for (pointer, name) in [("", "secret"), ("/source", "key")] {
        let mut with = good.clone();
        with.pointer_mut(pointer).unwrap()[name] = json!("x");
        assert_eq!(code(&with), Err("offer_malformed"), "{pointer}/{name}");
    }
}
