//! What this host sees of a container's first process, beside what that process says of itself.

use std::io;

use pond_wire::contained::PROGRAM;
use rustix::process::Pid;

use super::super::canary::{Nonce, Outside, Program};

/// Which file it is, as the kernel tells files apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::container) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(in crate::container) fn of(path: &str) -> io::Result<Self> {
        let stat = rustix::fs::stat(path)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// What this host sees, now that pid 1 has spoken and hence runs.
pub(in crate::container) fn outside(
    pid: Pid,
    program: FileId,
    nonce: &str,
    first_user: u32,
) -> io::Result<Outside> {
    let line = |path| Ok::<_, io::Error>(std::fs::read_to_string(path)?.trim().to_owned());
    let theirs = FileId::of(&format!("/proc/{}/exe", pid.as_raw_nonzero()))?;
    let program = if theirs == program { Program::PidOne } else { Program::Another };
    let (boot_id, version) = (line("/proc/sys/kernel/random/boot_id")?, line("/proc/version")?);
    Ok(Outside { boot_id, version, program, nonce: seen(nonce, first_user)? })
}

/// Whether a process of this host was called as pid 1 of the container was. Only those of its own user are asked: what a process
/// was called with lies in its memory, and whoever owns that can make a reader wait.
fn seen(nonce: &str, user: u32) -> io::Result<Nonce> {
    let called = [PROGRAM, nonce].map(|word| format!("{word}\0")).concat();
    let owner = format!("\nUid:\t{user}\t");
    for entry in std::fs::read_dir("/proc")? {
        let process = entry?.path();
        // A process may end while it is looked at.
        let is_ours =
            std::fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains(&owner));
        if is_ours && std::fs::read(process.join("cmdline")).is_ok_and(|words| words == called.as_bytes()) {
            return Ok(Nonce::Visible);
        }
    }
    Ok(Nonce::Hidden)
}
