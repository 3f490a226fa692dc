//! What a result is compared by when others run the same stage, and in which paths two of them differ.
//!
//! HOSTILE: only what was verified is read: the statement, and the manifest whose digest it signs. A manifest that cannot be read
//! rejects the result where paths must be compared; where digests are enough it only leaves the differences unnamed.

use std::collections::BTreeMap;

use pond_policy::operator::Percent;
use pond_policy::route::Need;
use pond_policy::run::{Compare, Verify};
use pond_seal::Digest;
use pond_seal::fresh;
use pond_seal::result::Output;
use pond_seal::statement::Statement;
use pond_wire::tree::{Decoder, Entry, Event, TreeCaps};
use serde::Deserialize;

use super::intake::{IntakeFault, MANIFEST, MOST_ENTRIES, PIECES, Rejected};
use crate::plane::Plane;
use crate::store::{self, Held, Lease, MOST_RESULT, Outcome, ResultView, Stream};

/// A larger manifest is compared by its digest alone.
const MOST_MANIFEST: usize = 16 << 20;
/// Paths that are named.
const NAMED: usize = 20;

/// How many must agree when an operator's dice ask for a second opinion.
const SPOT: u64 = 2;

/// A result among others.
pub(super) struct Compared {
    pub(super) digest: Digest,
    pub(super) quorum: u64,
    pub(super) differs: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    entries: Vec<Path>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    pub(super) path: String,
    #[serde(default)]
    pub(super) mode: String,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default)]
    pub(super) sha256: String,
    #[serde(default)]
    pub(super) deleted: bool,
}

/// Whether it is certain, before anything of a result is known, that nobody else is asked about it.
pub(super) fn stands_alone(plane: &Plane, held: &Held, verify: Option<Verify>) -> bool {
    let spot = plane.operator.spot_check_percent.map_or(0, Percent::get);
    verify.is_none() && held.attempt == 1 && spot == 0
}

/// Nothing for a result that stands alone.
pub(super) async fn compared(
    plane: &Plane,
    (lease, held): (&Lease, &Held),
    (verify, need): (Option<Verify>, &Need),
    statement: &Statement,
) -> Result<Option<Compared>, IntakeFault> {
    let asked = verify.map_or(1, |verify| verify.quorum.get());
    let earlier = if held.attempt > 1 { ballots(plane, held).await? } else { Vec::new() };
    let quorum = match (asked, earlier.is_empty()) {
        (0 | 1, true) if spot(plane, need, lease).await? => SPOT,
        (0 | 1, true) => return Ok(None),
        (0 | 1, false) => SPOT,
        (more, _) => more,
    };
    let compare = verify.map_or(Compare::Manifest, |verify| verify.compare);
    let own = paths(plane, lease, statement).await?;
    let digest = ballot(compare, statement, own.as_deref())?;
    let other = earlier.iter().find(|result| result.ballot != Some(digest));
    let agrees = earlier.iter().any(|result| result.ballot == Some(digest));
    let differs = match other.filter(|_| !agrees) {
        None => String::new(),
        Some(other) => difference(plane, statement, own.as_deref(), other).await?,
    };
    Ok(Some(Compared { digest, quorum, differs }))
}

async fn ballots(plane: &Plane, held: &Held) -> Result<Vec<ResultView>, store::Fault> {
    let mut results = plane.store.results(&held.stage).await?;
    results.retain(|result| result.ballot.is_some());
    Ok(results)
}

/// Whether the operator's dice fall on this result, and there is somebody to ask.
async fn spot(plane: &Plane, need: &Need, lease: &Lease) -> Result<bool, store::Fault> {
    let percent = plane.operator.spot_check_percent.map_or(0, Percent::get);
    if percent == 0 {
        return Ok(false);
    }
    let dice = u64::from_be_bytes(*fresh::bytes::<8>().map_err(store::Fault::from)?) % 100;
    Ok(dice < percent && plane.store.has_another(need, &lease.worker).await?)
}

/// The digest over everything that must agree; how the job ended always does.
fn ballot(compare: Compare, statement: &Statement, paths: Option<&[Path]>) -> Result<Digest, Rejected> {
    let result = &statement.result;
    let ended = serde_json::to_string(&(&result.outcome, result.exit_code)).unwrap_or_default();
    let rest = match compare {
        Compare::Exit => String::new(),
        Compare::Manifest => statement.subject.to_string(),
        Compare::Paths => {
            let paths = paths.ok_or(Rejected::File("manifest.json"))?;
            let shape = |path: &Path| (path.path.clone(), path.mode.clone(), path.deleted);
            let mut shapes: Vec<_> = paths.iter().map(shape).collect();
            shapes.sort();
            serde_json::to_string(&shapes).unwrap_or_default()
        }
    };
    Ok(Digest::of(format!("pond-ballot-1\n{}\n{ended}\n{rest}", compare.name()).as_bytes()))
}

/// What is different between a result and an earlier one, a line each.
async fn difference(
    plane: &Plane,
    statement: &Statement,
    own: Option<&[Path]>,
    other: &ResultView,
) -> Result<String, store::Fault> {
    let lease = Lease { job: other.job.clone(), worker: other.worker.clone(), epoch: other.epoch };
    let theirs = manifest(plane, &lease).await?;
    let mut lines = Vec::new();
    match (own, theirs) {
        (Some(own), Some(theirs)) => lines.extend(differing(own, &theirs)),
        (None, _) | (_, None) => lines.push("(a manifest that is too large or cannot be read)".to_owned()),
    }
    if lines.is_empty() || (other.outcome == Outcome::Succeeded) != (statement.result.exit_code == 0) {
        lines.insert(0, "(how it ended)".to_owned());
    }
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("(and {more} more)"));
    }
    Ok(lines.join("\n"))
}

fn differing(own: &[Path], theirs: &[Path]) -> Vec<String> {
    let map = |paths: &[Path]| -> BTreeMap<String, Path> {
        paths.iter().map(|path| (path.path.clone(), path.clone())).collect()
    };
    let (own, theirs) = (map(own), map(theirs));
    let names = own.keys().chain(theirs.keys().filter(|path| !own.contains_key(*path)));
    let mut names: Vec<String> = names.filter(|path| own.get(*path) != theirs.get(*path)).cloned().collect();
    names.sort();
    names
}

/// Every path of the output; nothing where its manifest cannot be read.
async fn paths(
    plane: &Plane,
    lease: &Lease,
    statement: &Statement,
) -> Result<Option<Vec<Path>>, store::Fault> {
    match &statement.result.output {
        Output::Nothing {} | Output::NotCollected {} => Ok(Some(Vec::new())),
        Output::Collected { .. } => manifest(plane, lease).await,
    }
}

/// What a stored result says it changed; nothing where that cannot be read, an empty list where there is no result.
pub(super) async fn manifest(plane: &Plane, lease: &Lease) -> Result<Option<Vec<Path>>, store::Fault> {
    let caps = TreeCaps { entries: MOST_ENTRIES, bytes: MOST_RESULT };
    let (mut decoder, mut found, mut depth) = (Decoder::new(caps), Found::No, 0_usize);
    let (mut from, mut more) = (0, true);
    while more {
        let pieces = plane.store.lease_log(lease, Stream::Result, from, PIECES).await?;
        more = !pieces.is_empty();
        for piece in pieces {
            decoder.push(&piece.bytes);
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) => found = found.after(event, &mut depth),
                    Ok(None) => break,
                    Err(_) => return Ok(None),
                }
            }
            from = piece.sequence + 1;
        }
    }
    Ok(match found {
        Found::No => Some(Vec::new()),
        Found::TooLarge => None,
        Found::Now(bytes) | Found::Whole(bytes) => read(&bytes),
    })
}

fn read(bytes: &[u8]) -> Option<Vec<Path>> {
    let manifest: Manifest = serde_json::from_slice(bytes).ok()?;
    (manifest.format == "pond-manifest-1").then_some(manifest.entries)
}

/// The manifest on its way out of the packed tree.
enum Found {
    No,
    Now(Vec<u8>),
    Whole(Vec<u8>),
    TooLarge,
}

impl Found {
    fn after(self, event: Event, depth: &mut usize) -> Self {
        match (self, event) {
            (Self::Now(mut bytes), Event::Content(content)) => {
                if bytes.len() + content.len() > MOST_MANIFEST {
                    return Self::TooLarge;
                }
                bytes.extend_from_slice(&content);
                Self::Now(bytes)
            }
            (found, Event::Entry(entry)) => found.entered(&entry, depth),
            (found, Event::Content(_) | Event::End) => found,
        }
    }

    fn entered(self, entry: &Entry, depth: &mut usize) -> Self {
        let at_top = *depth == 0;
        match entry {
            Entry::Enter { .. } => *depth += 1,
            Entry::Leave { .. } => *depth = depth.saturating_sub(1),
            Entry::File { name, .. } if at_top && name == MANIFEST => return Self::Now(Vec::new()),
            Entry::File { .. }
            | Entry::Link { .. }
            | Entry::Fifo { .. }
            | Entry::Socket { .. }
            | Entry::Large { .. } => {}
        }
        match self {
            Self::Now(bytes) => Self::Whole(bytes),
            Self::No | Self::Whole(_) | Self::TooLarge => self,
        }
    }
}
