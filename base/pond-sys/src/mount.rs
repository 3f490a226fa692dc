//! The part of the descriptor-based mount API that rustix lacks: `mount_setattr`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What to change on a mount. `clear` is applied before `set`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a> {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
    /// Cuts the mount off from the peer group it was cloned from.
    pub private: bool,
    /// The user namespace whose maps translate the owners of the mounted files.
    pub idmap: Option<BorrowedFd<'a>>,
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// Applies `attributes` to the mount `mount` refers to, and to everything below it when `recursive`.
pub fn set_attributes(mount: impl AsFd, attributes: Attributes<'_>, recursive: bool) -> io::Result<()> {
    const EMPTY: &CStr = c"";
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let userns = attributes.idmap.map_or(Ok(0), |fd| u64::try_from(fd.as_raw_fd()));
    let attr = MountAttr {
        attr_set: flag(attributes.read_only, MOUNT_ATTR_RDONLY)
            | flag(attributes.no_suid, MOUNT_ATTR_NOSUID)
            | flag(attributes.no_dev, MOUNT_ATTR_NODEV)
            | flag(attributes.no_exec, MOUNT_ATTR_NOEXEC)
            | flag(attributes.idmap.is_some(), MOUNT_ATTR_IDMAP),
        attr_clr: 0,
        propagation: flag(attributes.private, libc::MS_PRIVATE),
        userns_fd: userns.map_err(|_| crate::out_of_range())?,
    };
    let at_flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `EMPTY` is NUL-terminated, `attr` is a live `struct mount_attr` of exactly the size passed, and both outlive
    // the call; the kernel only reads them.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            EMPTY.as_ptr(),
            at_flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    crate::check(ret).map(|_| ())
}
