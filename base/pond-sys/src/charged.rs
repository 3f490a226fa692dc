//! On whose account a user namespace is.
//!
//! What processes in a user namespace hold of stores that the kernel keeps per user (inotify instances and watches, namespaces, queued
//! signals) is counted for their user there, and once more outside, for whoever made the namespace. Made by root, that is root's own
//! account: one job could take away from root, and from every other job, all that root may have. So root makes it as somebody else,
//! of which there is no other.

use std::io;

use rustix::process::{DumpableBehavior, Uid, set_dumpable_behavior};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_thread_res_uid};

use crate::process::{Fork, Namespaces, fork_into};

/// Above the ids of people, of containers and of jobs, and below the one that means none.
const FIRST: u32 = 0x8000_0000;
const MANY: u32 = 0x3fff_ffff;

/// Forks into new user namespaces, on an account of their own where this process is root; another has only its own.
/// Files are still found with root's identity, by this process and by the child, and neither is dumpable.
pub fn fork_on_own_account(namespaces: Namespaces) -> io::Result<Fork> {
    if !rustix::process::geteuid().is_root() {
        return fork_into(namespaces, None);
    }
    become_user(Uid::from_raw(FIRST | (number()? & MANY)))?;
    let forked = find_files_as_root().and_then(|()| fork_into(namespaces, None));
    if let Ok(Fork::Child) = forked {
        return forked;
    }
    become_user(Uid::ROOT)?;
    forked
}

/// The effective identity alone: the real one stays root's, and so does every capability this process may have.
fn become_user(user: Uid) -> io::Result<()> {
    set_thread_res_uid(None, user, None)?;
    // Both went with the identity.
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn number() -> io::Result<u32> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

/// The call tells no failure, only what was; asked for something impossible, it tells what is.
fn find_files_as_root() -> io::Result<()> {
    // SAFETY: the calls take a number and change this thread's credentials only.
    let is = unsafe {
        libc::setfsuid(Uid::ROOT.as_raw());
        libc::setfsuid(libc::uid_t::MAX)
    };
    if is == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
