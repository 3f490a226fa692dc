//! How fast a run may use the disk: what the operator asked for, and what is said of it when this host cannot hold it.

use pond_sandbox::provider::Provider;
use pond_seal::result::DiskRate;

/// For the statement.
pub(super) fn said(asked: Option<u64>, provider: &Provider) -> DiskRate {
    match (asked, provider.disk_rate()) {
        (None, _) => DiskRate::Unlimited {},
        (Some(_), Some(Ok(held))) => DiskRate::Limited { bytes_per_second: held.bytes_per_second() },
        (Some(bytes_per_second), Some(Err(_)) | None) => DiskRate::NotEnforceable { bytes_per_second },
    }
}

/// For a person, before the job starts.
pub(super) fn warning(asked: Option<u64>, provider: &Provider) -> Option<String> {
    let why = match (asked?, provider.disk_rate()) {
        (_, Some(Ok(_))) => return None,
        (_, Some(Err(fault))) => fault.to_string(),
        (_, None) => "this backend was not told of it".to_owned(),
    };
    Some(format!("POND_DISK_BYTES_PER_SECOND is not enforceable here: {why}"))
}
