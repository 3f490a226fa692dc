//! Starts pond's own executable in one of its smaller roles, and gives it what it is to do as a file nobody can change.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pond_sys::process::{Fork, Namespaces, Program, exit_now, fork_into};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

/// A started role. It sees the end of its socket when this goes; whoever holds this waits for the process.
#[derive(Debug)]
pub struct Role {
    pub socket: OwnedFd,
    pub process: OwnedFd,
}

/// Starts `executable` under `name`, which is all its `main` looks at to know what it is: no environment, no descriptor but
/// its socket, as standard input, and the error stream.
///
/// Forks, so that the caller goes on while the role gets ready. The caller must have one thread and little memory, which a
/// command has, and a daemon has before it starts its runtime.
pub fn start(executable: &Path, name: &CStr) -> io::Result<Role> {
    let (ours, theirs) = pond_sys::socket::pair()?;
    let path = CString::new(executable.as_os_str().as_bytes())?;
    let program = Program::new(vec![name.to_owned()], Vec::new());
    match fork_into(Namespaces::Inherit, None)? {
        Fork::Child => become_role(&theirs, &program, &path),
        Fork::Parent(child) => Ok(Role { socket: ours, process: child.pidfd }),
    }
}

/// The forked child's whole life before it is what it was started as.
fn become_role(socket: &OwnedFd, program: &Program, path: &CString) -> ! {
    let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let ready = null
        .and_then(|null| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stdin(socket));
    if ready.is_ok() {
        // Returns only on failure, which the other end of the socket sees as its end.
        drop(program.exec(path));
    }
    exit_now(127)
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
