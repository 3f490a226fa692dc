//! Whether the audit log of a control plane has the result: the proof that lies beside the statement, against the log's key.

use std::path::Path;

use pond_seal::Digest;
use pond_seal::audit::entry;
use pond_seal::audit::evidence::{Evidence, MOST_BYTES};
use pond_seal::key::PublicKey;
use pond_seal::statement::Statement;

use super::check::Failure;
use super::files::MISSING;
use super::read;
use crate::proof::AUDIT_PROOF;

pub(super) const CHECK: &str = "the audit log has this result";

pub(super) fn is_beside(directory: &Path) -> bool {
    directory.join(AUDIT_PROOF).symlink_metadata().is_ok()
}

/// The entry is in the log, and it is the one that tells of this very envelope.
pub(super) fn check(
    directory: &Path,
    (envelope, statement): (&[u8], &Statement),
    key: &PublicKey,
) -> Result<(), Failure> {
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX);
    let bytes = read(&directory.join(AUDIT_PROOF), most);
    let bytes = bytes.map_err(|fault| Failure::new(MISSING, format!("{fault:#}")))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let evidence = Evidence::parse(&text).map_err(|fault| Failure::of(fault.code(), &fault))?;
    evidence.verify(key).map_err(|fault| Failure::of(fault.code(), &fault))?;
    let told = entry::Read::parse(&evidence.entry);
    if told.is_some_and(|told| told.accepts(&statement.result.job.id, &Digest::of(envelope))) {
        return Ok(());
    }
    Err(Failure::new("entry_mismatch", "the entry is about another result"))
}
