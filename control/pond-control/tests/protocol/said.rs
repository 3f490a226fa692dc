//! What an honest worker packs and says of a job that did well: for the tests of the protocol, and for the benchmark that only
//! wants to know how fast it is taken.

use std::sync::LazyLock;

use pond_seal::Digest;
use pond_seal::offer::Offer;
use pond_seal::result::{FileDigest, InputKind, Job, Lease, Log, Output, RunResult};
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

/// Read once: a worker knows what its host is like, and so does who stands in for a thousand of them.
static SAMPLE: LazyLock<RunResult> =
    LazyLock::new(|| serde_json::from_str(include_str!("said.json")).unwrap());

/// Of a job that made this patch.
pub(crate) fn said(offer: &Offer, patch: &[u8], logs: Vec<Log>) -> RunResult {
    let mut said = SAMPLE.clone();
    let lease = Lease { worker: offer.worker.clone(), epoch: offer.lease_epoch };
    said.job = Job { id: offer.job.clone(), attempt: offer.attempt, lease: Some(lease) };
    assert_eq!(said.input.kind, InputKind::Bundle);
    said.input.tree_sha256 = Some(offer.input);
    said.policy.offered_sha256 = Some(offer.policy);
    let changed = u64::from(!patch.is_empty());
    said.output = Output::Collected { changed, rejected: 0, changes: digest(CHANGES), patch: digest(patch) };
    said.logs = logs;
    let executor: serde_json::Value = serde_json::from_str(&offer.executor).unwrap();
    said.command_sha256 = Digest::of(executor["command"].to_string().as_bytes());
    said
}
