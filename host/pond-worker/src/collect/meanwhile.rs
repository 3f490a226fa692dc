//! Whether the base moved under a job's feet, as far as a few looks can tell.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use rustix::time::Timespec;

use super::{CollectFault, Record};
use crate::beneath;

/// True when the root, a changed path or a directory above one was modified after `since`. Edits elsewhere go unseen: finding
/// them would cost a walk of the whole tree, and `apply` compares what matters.
pub fn changed_since(lower: BorrowedFd<'_>, record: &Record, since: Timespec) -> Result<bool, CollectFault> {
    let mut paths: BTreeSet<Vec<u8>> = BTreeSet::from([Vec::new()]);
    for change in &record.changes {
        paths.insert(change.path.as_bytes().to_vec());
        paths.extend(change.path.ancestors().map(|above| above.as_bytes().to_vec()));
    }
    for path in paths {
        let handle = match beneath::open_handle(lower, &path) {
            Ok(handle) => handle,
            Err(errno) if beneath::is_absent(errno) => continue,
            Err(errno) => return Err(CollectFault::read(&path, errno)),
        };
        let stat = rustix::fs::fstat(&handle).map_err(|errno| CollectFault::read(&path, errno))?;
        let nanos = i64::try_from(stat.st_ctime_nsec).unwrap_or_default();
        if (stat.st_ctime, nanos) > (since.tv_sec, since.tv_nsec) {
            return Ok(true);
        }
    }
    Ok(false)
}
