//! Thin safe functions over kernel calls: the only crate of pond with `unsafe`.
//!
//! Each function makes one system call (or one call and its retry), takes borrowed descriptors, returns owned ones, and
//! yields `io::Result`. No policy, no logging, no allocation beyond what the call needs. `rustix` is used wherever it has the
//! call; what stands here is what it lacks.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod attempt;
pub mod charged;
pub mod counted;
pub mod fd;
pub mod landlock;
pub mod loopdev;
pub mod mount;
pub mod net;
pub mod origin;
pub mod precedence;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod socket;
#[cfg(feature = "trace")]
pub mod trace;

use std::io;

/// Turns the `-1`-and-errno convention into a `Result`.
fn check(ret: libc::c_long) -> io::Result<libc::c_long> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// A raw system call whose result does not fit a descriptor means the kernel broke its own contract.
fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel returned a value out of range")
}
