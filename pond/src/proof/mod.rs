//! Proof of a run: this machine's signing key, and the names of the files a statement is about.

pub(crate) mod key_cmd;
pub(crate) mod store;

/// The signed envelope of a run, beside its other results.
pub(crate) const STATEMENT: &str = "statement.dsse.json";
/// What the job was held to.
pub(crate) const POLICY: &str = "policy.json";
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const CHANGES: &str = "changes.json";
pub(crate) const PATCH: &str = "changes.patch";
pub(crate) const EGRESS: &str = "egress.jsonl";
/// What shows that the audit log of a control plane has the result.
pub(crate) const AUDIT_PROOF: &str = "audit.tlog-proof";

use std::fs::File;
use std::io;
use std::path::Path;

use pond_seal::Digest;
use pond_seal::result::FileDigest;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

/// The digest of a regular file; anything else under the name is an error, and a link is not followed.
pub(crate) fn digest_of(path: &Path) -> io::Result<FileDigest> {
    let (sha256, bytes) = Digest::of_reader(&mut regular(path)?)?;
    Ok(FileDigest { sha256, bytes })
}

/// Opens a regular file, without waiting and without following a link in its place.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(File::from(opened))
}

/// The digest of a command's words, in the one spelling a statement means.
pub(crate) fn command_digest(argv: &[String]) -> serde_json::Result<Digest> {
    Ok(Digest::of(&serde_json::to_vec(argv)?))
}
