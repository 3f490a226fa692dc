//! The API's values: documents stay as they were written, secrets do not print, problems have one shape.

use pond_policy::settings::Settings;
use serde_json::json;

use super::*;
use crate::decode::decode;

#[test]
fn a_document_keeps_what_a_json_value_would_lose() {
    let body = br#"{"document": {"project": "a", "project": "b", "n": 1e400}, "retries": 2}"#;
    let submit: Submit = serde_json::from_slice(body).unwrap();
    assert_eq!(submit.document.bytes(), br#"{"project": "a", "project": "b", "n": 1e400}"#);
    assert_eq!((submit.source, submit.retries), (None, 2));
    let yaml = "project: a\nstages: []\n";
    let submit: Submit = serde_json::from_value(json!({"document": yaml})).unwrap();
    assert_eq!(submit.document.bytes(), yaml.as_bytes());
    assert_eq!(submit.document, Document::from_text(yaml).unwrap());
}

#[test]
fn unknown_fields_are_refused() {
    assert_eq!(
        serde_json::from_value::<Submit>(json!({"document": {}, "force": true})).unwrap_err().to_string(),
        "unknown field `force`, expected one of `document`, `source`, `retries`"
    );
}

#[test]
fn a_secret_does_not_print_itself() {
    let body: SetCredential = serde_json::from_value(json!({"value": "s3cr3t-value"})).unwrap();
    assert_eq!(format!("{body:?}"), "SetCredential { value: Hidden(12 bytes) }");
    assert_eq!(body.value.expose(), "s3cr3t-value");
}

#[test]
fn a_refused_document_is_a_problem_with_every_fault() {
    let document = decode(b"project: a b\nstages: 1").unwrap();
    let refusals = pond_policy::run::preflight(&document, &Settings::default()).unwrap_err();
    let problem = serde_json::to_value(Problem::refused(refusals)).unwrap();
    assert_eq!(problem["type"], "urn:pond:problem:document_refused");
    assert_eq!((&problem["status"], &problem["detail"]), (&json!(422), &json!("2 faults")));
    assert_eq!(
        (&problem["faults"][0]["code"], &problem["faults"][0]["path"]),
        (&json!("project_invalid"), &json!("project"))
    );
    let plain = serde_json::to_value(Problem::new(ProblemCode::NotFound, "no run")).unwrap();
    assert_eq!(
        plain,
        json!({"type": "urn:pond:problem:not_found", "title": "There is nothing here", "status": 404,
               "code": "not_found", "detail": "no run"})
    );
}

#[test]
fn every_problem_has_a_name_of_its_own_and_a_status_of_a_failure() {
    let names: std::collections::BTreeSet<_> = ProblemCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), ProblemCode::ALL.len());
    assert!(ProblemCode::ALL.iter().all(|code| (400..600).contains(&code.status())));
}
