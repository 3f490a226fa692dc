//! Any change to an envelope is refused, and each kind of change with its own code.

use serde_json::{Value, json};

use super::*;

const PAYLOAD: &[u8] = b"{\"some\":\"payload\"}";

fn sealed(key: &SigningKey) -> Value {
    serde_json::from_slice(&seal(PAYLOAD, key).unwrap()).unwrap()
}

fn code(envelope: &Value, key: &PublicKey) -> Result<Vec<u8>, &'static str> {
    let envelope = Envelope::parse(&serde_json::to_vec(envelope).unwrap()).map_err(|fault| fault.code())?;
    envelope.verify(key).map(|verified| verified.payload().to_vec()).map_err(|fault| fault.code())
}

#[test]
fn what_is_signed_is_what_is_stored() {
    let key = SigningKey::generate().unwrap();
    assert_eq!(code(&sealed(&key), &key.public()), Ok(PAYLOAD.to_vec()));
    let pae = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world");
    assert_eq!(pae, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
}

#[test]
fn every_byte_of_payload_and_signature_counts() {
    let key = SigningKey::generate().unwrap();
    let good = sealed(&key);
    for at in 0..PAYLOAD.len() {
        let mut payload = PAYLOAD.to_vec();
        payload[at] ^= 1;
        let mut changed = good.clone();
        changed["payload"] = to_base64(&payload).into();
        assert_eq!(code(&changed, &key.public()), Err("signature_invalid"), "payload byte {at}");
    }
    let signature = from_base64(good["signatures"][0]["sig"].as_str().unwrap()).unwrap();
    for at in 0..signature.len() {
        let mut other = signature.clone();
        other[at] ^= 1;
        let mut changed = good.clone();
        changed["signatures"][0]["sig"] = to_base64(&other).into();
        assert_eq!(code(&changed, &key.public()), Err("signature_invalid"), "signature byte {at}");
    }
}

#[test]
fn every_field_has_its_code() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let mine = sealed(&key);
    let stranger_named_as_me = {
        let mut forged = sealed(&other);
        forged["signatures"][0]["keyid"] = key.public().id().to_string().into();
        forged
    };
    let with = |pointer: &str, value: Value| {
        let mut changed = mine.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let cases = [
        (with("/payloadType", json!("application/json")), "payload_type"),
        (with("/payloadType", json!("APPLICATION/vnd.in-toto+json")), "payload_type"),
        (with("/payloadType", json!(1)), "envelope_malformed"),
        (with("/payload", json!("%%%")), "payload_encoding"),
        (with("/payload", json!("eyJ")), "payload_encoding"),
        (with("/payload", json!("")), "signature_invalid"),
        (with("/signatures", json!([])), "signature_count"),
        (with("/signatures", json!(vec![mine["signatures"][0].clone(); 17])), "signature_count"),
        (with("/signatures/0/sig", json!("AA==")), "signature_invalid"),
        (with("/signatures/0/sig", json!("")), "signature_invalid"),
        (with("/signatures/0/sig", json!("!")), "signature_encoding"),
        (with("/signatures/0/keyid", json!("0".repeat(64))), "key_unknown"),
        (with("/signatures/0", json!({"keyid": key.public().id().to_string()})), "envelope_malformed"),
        (stranger_named_as_me, "signature_invalid"),
        (sealed(&other), "key_unknown"),
    ];
    for (envelope, expected) in cases {
        assert_eq!(code(&envelope, &key.public()), Err(expected), "{envelope:#}");
    }
    for place in ["", "/signatures/0"] {
        let mut changed = mine.clone();
        changed.pointer_mut(place).unwrap()["surprise"] = json!(1);
        assert_eq!(code(&changed, &key.public()), Err("envelope_malformed"), "{place}");
    }
}

#[test]
fn signatures_of_others_neither_help_nor_harm() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let (mine, theirs) = (sealed(&key), sealed(&other));
    let mut both = mine.clone();
    both["signatures"] = json!([theirs["signatures"][0], mine["signatures"][0]]);
    for reader in [&key, &other] {
        assert_eq!(code(&both, &reader.public()), Ok(PAYLOAD.to_vec()));
    }
    let mut nameless = mine.clone();
    nameless["signatures"][0]["keyid"] = json!(null);
    assert_eq!(code(&nameless, &key.public()), Ok(PAYLOAD.to_vec()));
    assert_eq!(code(&nameless, &other.public()), Err("signature_invalid"));
}

#[test]
fn cut_grown_repeated_and_oversized_envelopes_are_refused() {
    let key = SigningKey::generate().unwrap();
    let bytes = seal(PAYLOAD, &key).unwrap();
    let parse = |bytes: &[u8]| Envelope::parse(bytes).map(drop).map_err(|fault| fault.code());
    assert_eq!(parse(&bytes), Ok(()));
    for length in 0..bytes.len() - 1 {
        assert_eq!(parse(&bytes[..length]), Err("envelope_malformed"), "{length}");
    }
    assert_eq!(parse(&[&bytes[..], b"{}"].concat()), Err("envelope_malformed"));
    let text = String::from_utf8(bytes).unwrap();
    for name in ["payload", "payloadType", "sig", "keyid"] {
        let twice = text.replacen(&format!("\"{name}\":"), &format!("\"{name}\":\"\",\"{name}\":"), 1);
        assert_eq!(parse(twice.as_bytes()), Err("envelope_malformed"), "{twice}");
    }
    let padded = format!("{text}{}", " ".repeat(MOST_BYTES));
    assert_eq!(parse(padded.as_bytes()), Err("envelope_too_large"));
}

#[test]
fn either_alphabet_of_base64_is_read() {
    let key = SigningKey::generate().unwrap();
    let mut envelope = sealed(&key);
    for pointer in ["/payload", "/signatures/0/sig"] {
        let text = envelope.pointer(pointer).unwrap().as_str().unwrap();
        let web = text.replace('+', "-").replace('/', "_");
        *envelope.pointer_mut(pointer).unwrap() = web.into();
    }
    assert_eq!(code(&envelope, &key.public()), Ok(PAYLOAD.to_vec()));
}
