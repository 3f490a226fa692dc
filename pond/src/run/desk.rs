//! The socket in a run's directory at which people ask for other rules while its job runs.
//!
//! Zone: host. Only the owner of the run and root are heard: the directory lets nobody else in, the socket has mode 0600 from the
//! moment it has a name, and the kernel says who calls. It has its name as long as this value lives.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pond_wire::change::{Answer, Change, MAX_CHANGE_BYTES};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

const NAME: &str = "rules";
/// People who wait; the next one is told to try again.
const BACKLOG: i32 = 16;
/// Whoever calls says what he wants at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Desk {
    socket: OwnedFd,
    path: PathBuf,
}

/// Somebody who asked and waits for an answer.
#[derive(Debug)]
pub(super) struct Visitor {
    socket: OwnedFd,
    pub(super) uid: u32,
}

impl Desk {
    pub(super) fn open(run: &Path) -> anyhow::Result<Self> {
        let open = || {
            let socket = socket()?;
            // A socket's file takes its mode from the socket.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            at(run, |address| rustix::net::bind(&socket, address))?;
            rustix::net::listen(&socket, BACKLOG)?;
            io::Result::Ok(socket)
        };
        let socket = open().context("making the socket for changes of the rules")?;
        Ok(Self { socket, path: run.join(NAME) })
    }

    /// Who has come, and what for; nobody, where it is not for him to ask or he says nothing that can be understood.
    pub(super) fn visitor(&self) -> Option<(Visitor, Change)> {
        let socket = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).ok()?;
        let uid = sockopt::socket_peercred(&socket).ok()?.uid;
        if !uid.is_root() && uid != rustix::process::geteuid() {
            return None;
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).ok()?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE)).ok()?;
        let mut packet = vec![0; MAX_CHANGE_BYTES];
        let (length, _none) = pond_sys::socket::receive(&socket, &mut packet).ok()?;
        let change = serde_json::from_slice(packet.get(..length)?).ok()?;
        Some((Visitor { socket, uid: uid.as_raw() }, change))
    }
}

impl AsFd for Desk {
    /// Readable when somebody has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Err(_swept_with_its_directory) = std::fs::remove_file(&self.path) {}
    }
}

impl Visitor {
    /// Who does not wait for the answer does not get it.
    pub(super) fn tell(self, answer: &Answer) {
        if let Ok(text) = serde_json::to_vec(answer)
            && let Err(_gone) = pond_sys::socket::send(&self.socket, &text, &[])
        {}
    }
}

/// Asks at the desk of the run in this directory, and waits.
pub(crate) fn ask(run: &Path, change: &Change) -> io::Result<Answer> {
    let socket = socket()?;
    at(run, |address| rustix::net::connect(&socket, address))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIME))?;
    pond_sys::socket::send(&socket, &serde_json::to_vec(change)?, &[])?;
    let mut packet = vec![0; MAX_CHANGE_BYTES];
    let (length, _none) = pond_sys::socket::receive(&socket, &mut packet)?;
    match packet.get(..length) {
        None | Some([]) => Err(io::ErrorKind::ConnectionReset.into()),
        Some(text) => Ok(serde_json::from_slice(text)?),
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The address of the desk, which is short wherever the run's directory is.
fn at(run: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>) -> io::Result<()> {
    let directory = File::open(run)?;
    let path = format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd());
    Ok(act(&SocketAddrUnix::new(path)?)?)
}

#[cfg(test)]
mod tests {
    //! A desk far down answers its owner, and is gone with its value.
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    #[test]
    fn whoever_asks_is_heard_and_answered() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("far/".repeat(60));
        std::fs::create_dir_all(&run).unwrap();
        let desk = Desk::open(&run).unwrap();
        let found = std::fs::symlink_metadata(run.join(NAME)).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        let change = Change { allow: vec!["a.com".to_owned()], deny: Vec::new() };
        let answer = Answer::Changed { notes: Vec::new() };
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&run, &change).unwrap());
            let (visitor, heard) = desk.visitor().unwrap();
            assert_eq!((&heard, visitor.uid), (&change, rustix::process::geteuid().as_raw()));
            visitor.tell(&answer);
            assert_eq!(asking.join().unwrap(), answer);
            let rude = scope.spawn(|| {
                let socket = socket().unwrap();
                at(&run, |address| rustix::net::connect(&socket, address)).unwrap();
                pond_sys::socket::send(&socket, b"{\"allow\":\"everything\"}", &[]).unwrap();
            });
            assert!(desk.visitor().is_none(), "nonsense is not heard");
            rude.join().unwrap();
        });
        drop(desk);
        assert!(!run.join(NAME).exists());
        assert_eq!(ask(&run, &change).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
