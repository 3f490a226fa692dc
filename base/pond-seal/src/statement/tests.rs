//! A statement comes back as it went; one of another kind, version or shape does not come back at all, well signed or not.

use serde_json::{Value, json};

use super::*;
use crate::envelope::Envelope;
use crate::result::tests::{objects, sample};

fn statement() -> Statement {
    Statement { subject: Digest::of(b"manifest"), result: sample() }
}

/// Decodes a payload that its own signer vouches for.
fn decode(payload: &[u8]) -> Result<Statement, &'static str> {
    let key = SigningKey::generate().unwrap();
    let envelope = Envelope::parse(&seal(payload, &key).unwrap()).unwrap();
    Statement::decode(&envelope.verify(&key.public()).unwrap()).map_err(|fault| fault.code())
}

fn payload() -> Value {
    let key = SigningKey::generate().unwrap();
    let envelope = Envelope::parse(&statement().sign(&key).unwrap()).unwrap();
    serde_json::from_slice(envelope.verify(&key.public()).unwrap().payload()).unwrap()
}

fn decode_value(value: &Value) -> Result<Statement, &'static str> {
    decode(&serde_json::to_vec(value).unwrap())
}

#[test]
fn a_statement_comes_back_as_it_went() {
    assert_eq!(decode_value(&payload()), Ok(statement()));
}

/// Every place in a document that is not an object or a list.
fn leaves(value: &Value, place: String, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, inner)| leaves(inner, format!("{place}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, inner)| leaves(inner, format!("{place}/{at}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => found.push(place),
    }
}

#[test]
fn every_field_of_a_signed_statement_counts() {
    let key = SigningKey::generate().unwrap();
    let sealed: Value = serde_json::from_slice(&statement().sign(&key).unwrap()).unwrap();
    let (good, mut places) = (payload(), Vec::new());
    leaves(&good, String::new(), &mut places);
    assert!(places.len() > 55, "{places:?}");
    for place in places {
        let mut changed = good.clone();
        let field = changed.pointer_mut(&place).unwrap();
        *field = if *field == json!(1) { json!(2) } else { json!(1) };
        let mut forged = sealed.clone();
        forged["payload"] = crate::pem::to_base64(&serde_json::to_vec(&changed).unwrap()).into();
        let envelope = Envelope::parse(&serde_json::to_vec(&forged).unwrap()).unwrap();
        let refused = envelope.verify(&key.public()).map(drop).map_err(|fault| fault.code());
        assert_eq!(refused, Err("signature_invalid"), "{place}");
    }
}

#[test]
fn what_is_signed_and_of_another_kind_is_refused() {
    let digest = json!({"sha256": Digest::of(b"manifest")});
    let subject = json!({"name": "manifest.json", "digest": digest});
    let cases = [
        ("/_type", json!("https://in-toto.io/Statement/v0.1"), "statement_type"),
        ("/_type", json!(1), "statement_malformed"),
        ("/predicateType", json!("https://slsa.dev/provenance/v1"), "predicate_type"),
        ("/predicateType", json!("urn:pond:attestation:run-result:v2"), "predicate_version"),
        ("/predicateType", json!("urn:pond:attestation:run-result:v1 "), "predicate_version"),
        ("/subject", json!([]), "subject_malformed"),
        ("/subject", json!([subject, subject]), "subject_malformed"),
        ("/subject/0/name", json!("other"), "subject_malformed"),
        ("/subject/0/digest", json!({"sha1": "00"}), "statement_malformed"),
        ("/subject/0/digest/sha256", json!("00"), "statement_malformed"),
        ("/predicate", json!({}), "predicate_malformed"),
        ("/predicate", json!(null), "predicate_malformed"),
        ("/predicate/exitCode", json!(256), "predicate_malformed"),
        ("/predicate/exitCode", json!(3.0), "predicate_malformed"),
        ("/predicate/outcome/kind", json!("won"), "predicate_malformed"),
        ("/predicate/startedOn", json!("yesterday"), "predicate_malformed"),
    ];
    for (pointer, value, expected) in cases {
        let mut changed = payload();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_eq!(decode_value(&changed), Err(expected), "{pointer}");
    }
}

#[test]
fn unknown_fields_are_refused_at_every_level() {
    let good = payload();
    let mut places = Vec::new();
    objects(&good, String::new(), &mut places);
    for place in places {
        let mut changed = good.clone();
        changed.pointer_mut(&place).unwrap()["surprise"] = json!(1);
        let expected =
            if place.starts_with("/predicate") { "predicate_malformed" } else { "statement_malformed" };
        assert_eq!(decode_value(&changed), Err(expected), "{place}");
    }
}

/// JSON with one key of one object written twice: the `wanted`-th key in writing order.
fn repeated(value: &Value, wanted: usize, seen: &mut usize) -> String {
    match value {
        Value::Object(entries) => {
            let mut parts = Vec::new();
            for (key, inner) in entries {
                let is_wanted = *seen == wanted;
                *seen += 1;
                let part = format!("{}:{}", json!(key), repeated(inner, wanted, seen));
                parts.extend(std::iter::repeat_n(part, if is_wanted { 2 } else { 1 }));
            }
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| repeated(item, wanted, seen)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[test]
fn a_repeated_key_is_refused_wherever_it_stands() {
    let good = payload();
    let mut keys = 0;
    assert_eq!(decode(repeated(&good, usize::MAX, &mut keys).as_bytes()), Ok(statement()));
    assert!(keys > 60, "{keys}");
    for wanted in 0..keys {
        let text = repeated(&good, wanted, &mut 0);
        let fault = decode(text.as_bytes()).unwrap_err();
        assert!(["statement_malformed", "predicate_malformed"].contains(&fault), "{wanted}: {fault}: {text}");
    }
}

#[test]
fn a_required_field_that_is_missing_is_refused() {
    let good = payload();
    for (key, value) in good["predicate"].as_object().unwrap() {
        let mut changed = good.clone();
        changed["predicate"].as_object_mut().unwrap().remove(key);
        let expected = if key == "image" { None } else { Some("predicate_malformed") };
        assert_eq!(decode_value(&changed).err(), expected, "{key}: {value}");
    }
}
