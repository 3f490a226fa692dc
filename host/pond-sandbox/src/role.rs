//! Starts pond's own executable in one of its smaller roles, and gives it what it is to do as a file nobody can change.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A started role. It sees the end of its socket when this goes; whoever holds this waits for the process.
#[derive(Debug)]
pub struct Role {
    pub socket: OwnedFd,
    pub process: OwnedFd,
}

/// Starts `executable` under `name`, which is all its `main` looks at to know what it is: no environment, no descriptor but
/// its socket, as standard input, and the error stream.
#[expect(clippy::disallowed_methods, reason = "the roles are the processes of its own that pond starts")]
pub fn start(executable: &Path, name: &str) -> io::Result<Role> {
    let (ours, theirs) = pond_sys::socket::pair()?;
    let child =
        Command::new(executable).arg0(name).env_clear().stdin(theirs).stdout(Stdio::null()).spawn()?;
    Ok(Role { socket: ours, process: pidfd_open(Pid::from_child(&child), PidfdFlags::empty())? })
}

/// These bytes as a memory file nobody can change any more.
pub fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    if rustix::io::write(&file, bytes)? != bytes.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}
