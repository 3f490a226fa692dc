//! What the gateway gives up before it reads the first byte of a job. Zone: host, no untrusted input yet.
//!
//! Read `lock_down` and then `give_up` from top to bottom: they are the whole of it. Invariant: a layer that does not take ends the process; there
//! is no lesser mode.

use std::io;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope};
use pond_sys::seccomp::{self, Profile};
use pond_wire::gateway::Identity;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::second;

/// The layer that is missing.
#[derive(Debug, Error)]
pub(crate) enum LockdownFault {
    #[error("giving up the right to gain privilege")]
    NoNewPrivileges(#[source] io::Error),
    #[error("setting resource limits")]
    Limits(#[source] io::Error),
    #[error("closing the file system with Landlock")]
    Landlock(#[source] landlock::RulesetError),
    #[error("this kernel enforces only part of the Landlock rules")]
    LandlockPartial,
    #[error("started as root without an identity to become")]
    NoIdentity,
    #[error("becoming an unprivileged user")]
    Identity(#[source] io::Error),
    #[error("dropping capabilities")]
    Capabilities(#[source] io::Error),
    #[error("hiding this process's memory")]
    Dumpable(#[source] io::Error),
    #[error("starting the second thread")]
    SecondThread(#[source] io::Error),
    #[error("installing the system-call filter")]
    Filter(#[source] io::Error),
}

/// Locks this process down, for good; gives back its second thread.
pub(crate) fn lock_down(identity: Option<Identity>) -> Result<Handle, LockdownFault> {
    give_up(identity)?;
    // A thread is born with what its parent has given up, and has not: hence after it. No thread can be made later.
    let second = second::start().map_err(LockdownFault::SecondThread)?;
    // Sockets, memory and time. Last, because it forbids all of the above.
    let filter = seccomp::compile(Profile::Gateway);
    seccomp::install_on_every_thread(&filter).map_err(LockdownFault::Filter)?;
    Ok(second)
}

fn give_up(identity: Option<Identity>) -> Result<(), LockdownFault> {
    // Nothing executed from here on could gain what is given up below; the filter and Landlock both require it.
    rustix::thread::set_no_new_privs(true).map_err(|e| LockdownFault::NoNewPrivileges(e.into()))?;
    // Keys must not reach a core file; every tunnel takes two descriptors, and six while it splices.
    limit(Resource::Core, Some(0))?;
    let files = rustix::process::getrlimit(Resource::Nofile).maximum;
    limit(Resource::Nofile, files)?;
    // No file may be opened, made, changed or executed: there is no rule that allows one. Network access stays.
    close_file_system()?;
    // Root becomes nobody in particular; after this the kernel has no reason to trust this process.
    drop_identity(identity)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(|e| LockdownFault::Capabilities(e.into()))?;
    // Not even a process of the same user may read the key out of this one. After the identity: changing it resets this.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| LockdownFault::Dumpable(e.into()))
}

fn limit(resource: Resource, value: Option<u64>) -> Result<(), LockdownFault> {
    rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })
        .map_err(|e| LockdownFault::Limits(e.into()))
}

fn close_file_system() -> Result<(), LockdownFault> {
    const VERSION: ABI = ABI::V6;
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|rules| rules.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(LockdownFault::Landlock)?;
    match restricted.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(LockdownFault::LandlockPartial),
    }
}

fn drop_identity(identity: Option<Identity>) -> Result<(), LockdownFault> {
    let root = rustix::process::geteuid().is_root() || rustix::process::getuid().is_root();
    let Some(identity) = identity else {
        return if root { Err(LockdownFault::NoIdentity) } else { Ok(()) };
    };
    if !root {
        return Ok(());
    }
    if identity.uid == 0 || identity.gid == 0 {
        return Err(LockdownFault::NoIdentity);
    }
    let failed = |e: rustix::io::Errno| LockdownFault::Identity(e.into());
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&[]).map_err(failed)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed)
}

#[cfg(test)]
mod tests;
