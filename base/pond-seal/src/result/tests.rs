//! The predicate says what its schema says, refuses what it does not know at every level, and comes back as it went.

use serde_json::{Value, json};

use super::*;

const COMMITTED: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/run-result.v1.schema.json"));

/// A run with something in every field.
pub(crate) fn sample() -> RunResult {
    let file = |text: &[u8]| FileDigest { sha256: Digest::of(text), bytes: 7 };
    let time = |text: &str| UtcTime::try_from(text.to_owned()).unwrap();
    let log = |stream, truncated| Log { stream, sha256: Digest::of(b"log"), bytes: 3, truncated };
    RunResult {
        job: Job {
            id: "20261116-051600-00001abcd".to_owned(),
            attempt: 1,
            lease: Some(Lease { worker: "w-1".to_owned(), epoch: 4 }),
        },
        command_sha256: Digest::of(b"[\"true\"]"),
        input: Input {
            kind: InputKind::Bundle,
            tree_sha256: Some(Digest::of(b"tree")),
            changed_paths_sha256: Some(Digest::of(b"before")),
            head_commit: Some("a".repeat(40)),
        },
        output: Output::Collected { changed: 2, rejected: 1, changes: file(b"c"), patch: file(b"p") },
        outcome: Outcome::Exited { code: 3 },
        exit_code: 3,
        logs: vec![log(Stream::Stdout, false), log(Stream::Stderr, true)],
        policy: Policy {
            profile: "untrusted-code-write".to_owned(),
            sha256: Digest::of(b"policy"),
            bytes: 6,
            offered_sha256: Some(Digest::of(b"sandbox")),
        },
        backend: Backend {
            name: "native".to_owned(),
            evidence: Evidence {
                kernel_release: "6.13.0".to_owned(),
                machine: "x86_64".to_owned(),
                identity: Identity::OwnRange,
                control_groups: ControlGroups::V2,
                forbidden_acts: ForbiddenActs::AllRefused,
            },
            runtime: Some(Runtime {
                name: "runsc".to_owned(),
                kernel_version: "Linux version 4.4.0".to_owned(),
                boot_id: "b".to_owned(),
            }),
        },
        image: Some(Digest::of(b"image")),
        limits: Limits {
            memory_bytes: 1,
            cpus: "2".to_owned(),
            pids: 3,
            tmpfs_bytes: 4,
            disk_bytes: 5,
            disk_inodes: 6,
            timeout_seconds: 7,
            disk_rate: Some(DiskRate::Limited { bytes_per_second: 8 }),
        },
        usage: Usage { elapsed_ms: 8, memory_peak_bytes: Some(9), pids_peak: Some(10), cpu_usec: Some(11) },
        egress: Egress::Gateway {
            record: file(b"e"),
            unwritten: 1,
            ended_early: false,
            allowed: 2,
            refused: 3,
            bytes_up: 4,
            bytes_down: 5,
            model_calls: 6,
            model_refusals: 7,
        },
        cost_microcents: 12,
        started_on: time("2026-11-16T05:16:00.000Z"),
        finished_on: time("2026-11-16T05:16:01.250Z"),
        residue: Residue { control_groups_checked: 3, control_groups_left: 0 },
        pond_version: "0.1.0".to_owned(),
    }
}

/// The same with every variant that says less.
fn sparse() -> Vec<RunResult> {
    let outcomes = [
        Outcome::Signaled { signal: 11 },
        Outcome::TimedOut {},
        Outcome::Killed { limit: Limit::Memory },
        Outcome::Interrupted {},
    ];
    let of = |outcome: Outcome, output: Output| RunResult {
        outcome,
        output,
        egress: Egress::Closed {},
        image: None,
        job: Job { lease: None, ..sample().job },
        ..sample()
    };
    let outputs = [Output::Nothing {}, Output::NotCollected {}, sample().output, Output::Nothing {}];
    outcomes.into_iter().zip(outputs).map(|(outcome, output)| of(outcome, output)).collect()
}

/// The place of every object in a document.
pub(crate) fn objects(value: &Value, place: String, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, inner)| objects(inner, format!("{place}/{key}"), found));
            found.push(place);
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, inner)| objects(inner, format!("{place}/{index}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    let committed: Value = serde_json::from_str(COMMITTED).unwrap();
    assert_eq!(committed, schema(), "run: cargo xtask gen");
}

#[test]
fn a_result_comes_back_as_it_went_and_fits_its_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for result in sparse().into_iter().chain([sample()]) {
        let value = serde_json::to_value(&result).unwrap();
        assert!(validator.is_valid(&value), "{value:#}");
        assert_eq!(serde_json::from_value::<RunResult>(value).unwrap(), result);
    }
}

#[test]
fn unknown_fields_are_refused_at_every_level_by_parser_and_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for result in sparse().into_iter().chain([sample()]) {
        let good = serde_json::to_value(&result).unwrap();
        let mut places = Vec::new();
        objects(&good, String::new(), &mut places);
        assert!(places.len() > 10, "{places:?}");
        for place in places {
            let mut changed = good.clone();
            changed.pointer_mut(&place).unwrap()["surprise"] = json!(1);
            assert!(
                serde_json::from_value::<RunResult>(changed.clone()).is_err_and(|fault| fault.is_data()),
                "{place}"
            );
            assert!(!validator.is_valid(&changed), "{place}");
        }
    }
}

#[test]
fn a_time_has_one_spelling() {
    for text in [
        "",
        "2026-11-16T05:16:00Z",
        "2026-11-16 05:16:00.000Z",
        "2026-11-16T05:16:00.000+0",
        "x026-11-16T05:16:00.000Z",
    ] {
        assert_eq!(UtcTime::try_from(text.to_owned()), Err(NotATime), "{text}");
    }
}
