//! Starts pond's own executable in one of its smaller roles, and gives it what it is to do as a file nobody can change.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

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
    // Keys that interrupt reach a whole process group: pond hears them, and ends its roles when it is done with them.
    let child = Command::new(executable)
        .arg0(name)
        .env_clear()
        .process_group(0)
        .stdin(theirs)
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Role { socket: ours, process: pidfd_open(Pid::from_child(&child), PidfdFlags::empty())? })
}

/// Becomes two: this process, and a copy of it that is about to be the role `name`. The copy gets what [`start`] would give it
/// and has forgotten what this process was started with; it is told by getting nothing.
///
/// Cheaper than starting anew, and only as good while there is nothing else to forget: before anything was read.
pub fn fork(name: &str) -> io::Result<Option<Role>> {
    let (ours, theirs) = pond_sys::socket::pair()?;
    match fork_into(Namespaces::Inherit, None)? {
        Fork::Parent(child) => {
            make_way();
            Ok(Some(Role { socket: ours, process: child.pidfd }))
        }
        Fork::Child => match begin(name, &theirs) {
            Ok(()) => Ok(None),
            Err(fault) => {
                let said = format!("{name}: becoming a process of its own: {fault}\n");
                exit_now(rustix::io::write(rustix::stdio::stderr(), said.as_bytes()).map_or(71, |_| 70))
            }
        },
    }
}

/// Goes to another processor, and may be on any again from then on. A new process begins where it was made; where the kernel
/// takes a sleeping processor for one that is not there, as in many a virtual machine, it waits there until this one sleeps, and the
/// two would work one after the other. The copy was made before, and never hears of it.
fn make_way() {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(sched_getcpu());
    if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
        return;
    }
    // What was allowed a moment ago; if it is not now, then somebody else has just said what is.
    if let Err(_changed_meanwhile) = sched_setaffinity(None, &all) {}
}

fn begin(name: &str, socket: &OwnedFd) -> io::Result<()> {
    pond_sys::origin::forget(name)?;
    rustix::process::setpgid(None, None)?;
    rustix::thread::set_name(&CString::new(name)?)?;
    rustix::stdio::dup2_stdin(socket)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdout(&nothing)?)
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
