//! Which Landlock this kernel enforces.

use std::io;

const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// The version of the interface; an error when Landlock is not built in or not switched on.
pub fn version() -> io::Result<u32> {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: asked for the version, the call reads no memory and makes no ruleset.
    let ret =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, CREATE_RULESET_VERSION) };
    u32::try_from(crate::check(ret)?).map_err(|_| crate::out_of_range())
}
