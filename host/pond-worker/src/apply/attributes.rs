//! Extended attributes that a replaced file hands on: its owner's own, its access list and its label.
//!
//! Capabilities and signatures are left behind: they were given to the old content, and the new one is a job's.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

const ACCESS_LIST: &str = "system.posix_acl_access";
const LABEL: &str = "security.selinux";
const OWN: &[u8] = b"user.";

/// The kernel lists and holds no more of either.
const MOST_BYTES: usize = 64 << 10;

/// Gives `new` the attributes of `old`, before the mode is set: the group's bits of a mode are the access list's mask.
pub(super) fn hand_on(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
    // The staging directory may have given it a list that the old file did not have.
    match rustix::fs::fremovexattr(new, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
        Err(errno) => return Err(errno.into()),
    }
    for name in names(old)? {
        let mut value = vec![0; MOST_BYTES];
        let length = rustix::fs::fgetxattr(old, name.as_slice(), value.as_mut_slice())?;
        value.truncate(length);
        match rustix::fs::fsetxattr(new, name.as_slice(), &value, XattrFlags::empty()) {
            Ok(()) => {}
            // A label is the system's to give, and the new file has the one for its place.
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) if name == LABEL.as_bytes() => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn names(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; MOST_BYTES];
    let length = match rustix::fs::flistxattr(file, list.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    list.truncate(length);
    let is_handed_on =
        |name: &&[u8]| name.starts_with(OWN) || *name == ACCESS_LIST.as_bytes() || *name == LABEL.as_bytes();
    Ok(list.split(|&byte| byte == 0).filter(is_handed_on).map(<[u8]>::to_vec).collect())
}
