//! What an honest worker packs and says of a job that did well: for the tests of the protocol, and for the benchmark that only
//! wants to know how fast it is taken.

use pond_seal::Digest;
use pond_seal::offer::Offer;
use pond_seal::result::{FileDigest, InputKind, Log, Output, RunResult};
use pond_wire::tree::{Entry, Moment};

const CHANGES: &[u8] = b"[]";
pub(crate) const MANIFEST: &[u8] = b"{}";

/// The packed result of a job: its three files.
pub(crate) fn packed(patch: &[u8], manifest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in [("changes.json", CHANGES), ("changes.patch", patch), ("manifest.json", manifest)]
    {
        let (name, modified) = (name.as_bytes().to_vec(), Moment { seconds: 0, nanos: 0 });
        let size = u64::try_from(content.len()).unwrap();
        bytes.extend(Entry::File { name, mode: 0o644, modified, size }.encode().unwrap());
        bytes.extend(content);
    }
    bytes.extend(Entry::Leave { mode: 0o755 }.encode().unwrap());
    bytes
}

pub(crate) fn digest(bytes: &[u8]) -> FileDigest {
    FileDigest { sha256: Digest::of(bytes), bytes: u64::try_from(bytes.len()).unwrap() }
}

/// Of a job that made this patch.
pub(crate) fn said(offer: &Offer, patch: &[u8], logs: Vec<Log>) -> RunResult {
    let sample = include_str!("said.json")
        .replace("$JOB", &offer.job)
        .replace("$WORKER", &offer.worker)
        .replace("$TREE", &offer.input.to_string())
        .replace("$POLICY", &offer.policy.to_string());
    let mut said: RunResult = serde_json::from_str(&sample).unwrap();
    said.job.attempt = offer.attempt;
    said.job.lease.as_mut().unwrap().epoch = offer.lease_epoch;
    assert_eq!(said.input.kind, InputKind::Bundle);
    let changed = u64::from(!patch.is_empty());
    said.output = Output::Collected { changed, rejected: 0, changes: digest(CHANGES), patch: digest(patch) };
    said.logs = logs;
    let executor: serde_json::Value = serde_json::from_str(&offer.executor).unwrap();
    said.command_sha256 = Digest::of(executor["command"].to_string().as_bytes());
    said
}
