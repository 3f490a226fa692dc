//! Files handed over beside a statement under names of their own, compared with the manifest that was signed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pond_seal::digest::Digest;
use pond_seal::result::FileDigest;
use pond_worker::path::RelPath;
use serde::Deserialize;

use super::check::Failure;
use super::files::{Beside, none};
use crate::proof::{MANIFEST, digest_of};

const ARTIFACTS: &str = "artifacts";
const EDIT_RESULT: &str = "edit_result.json";
/// Deeper than any result goes: collection has a lower cap.
const MOST_LEVELS: usize = 256;

#[derive(Deserialize)]
struct Manifest {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    path: RelPath,
    #[serde(flatten)]
    file: Option<Stated>,
}

#[derive(Deserialize)]
struct Stated {
    size: u64,
    sha256: Digest,
}

/// Every file in `artifacts/`, and the edit result, is one that the job left under that path. The manifest is known to be the
/// signed one.
pub(super) fn check(beside: &Beside<'_>) -> Result<(), Failure> {
    let stated = stated(beside)?;
    let unreadable = |fault: io::Error| Failure::of("file_unreadable", &fault);
    let mut there = Vec::new();
    list(&beside.directory.join(ARTIFACTS), &mut Vec::new(), &mut there).map_err(unreadable)?;
    let mut foreign = Vec::new();
    for path in there {
        let file = beside.directory.join(ARTIFACTS).join(OsStr::from_bytes(path.as_bytes()));
        if !is_stated(&file, &path, &stated).map_err(unreadable)? {
            foreign.push(path);
        }
    }
    let edit_result = beside.directory.join(EDIT_RESULT);
    if edit_result.symlink_metadata().is_ok() {
        let path = RelPath::from_bytes(EDIT_RESULT.as_bytes());
        let path = path.map_err(|fault| Failure::of("file_unreadable", &fault))?;
        if !is_stated(&edit_result, &path, &stated).map_err(unreadable)? {
            foreign.push(path);
        }
    }
    none(&foreign, "artifact_mismatch", "not what the job left")
}

fn stated(beside: &Beside<'_>) -> Result<BTreeMap<RelPath, FileDigest>, Failure> {
    let text = std::fs::read(beside.directory.join(MANIFEST));
    let text = text.map_err(|fault| Failure::of("file_unreadable", &fault))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|fault| Failure::of("manifest_malformed", &fault))?;
    let files = manifest.entries.into_iter().filter_map(|entry| {
        let Stated { size, sha256 } = entry.file?;
        Some((entry.path, FileDigest { sha256, bytes: size }))
    });
    Ok(files.collect())
}

fn is_stated(file: &Path, path: &RelPath, stated: &BTreeMap<RelPath, FileDigest>) -> io::Result<bool> {
    if !file.symlink_metadata()?.is_file() {
        return Ok(false);
    }
    Ok(stated.get(path) == Some(&digest_of(file)?))
}

/// Everything below a directory that is none itself; a link is not followed.
fn list(directory: &Path, above: &mut Vec<u8>, found: &mut Vec<RelPath>) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    if above.iter().filter(|byte| **byte == b'/').count() > MOST_LEVELS {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    for entry in entries {
        let entry = entry?;
        let length = above.len();
        above.extend(entry.file_name().as_bytes());
        if entry.file_type()?.is_dir() {
            above.push(b'/');
            list(&entry.path(), above, found)?;
        } else {
            found.push(RelPath::from_bytes(above).map_err(io::Error::other)?);
        }
        above.truncate(length);
    }
    Ok(())
}
