//! A directory of the host that jobs are shown, and what goes on in it: a service listens, a lock is held, a file is opened again
//! and again.
//!
//! Zone: host. It is offered as a tool is, in place of the system's own directories, which an attack leaves alone.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use pond_sandbox::native::{Provided, Tool};
use rustix::fs::{FlockOperation, flock};

pub(crate) const SOCKET: &str = "socket";
pub(crate) const LOCKED: &str = "locked";
const RHYTHM: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) directory: PathBuf,
    pub(crate) tools: Vec<Provided>,
    _service: UnixListener,
    _lock: File,
    /// Ends the visits when it goes.
    _visits: SyncSender<()>,
}

impl Shown {
    /// Where jobs find it.
    pub(crate) const INSIDE: &str = "/opt/pond/nvm/version";

    /// Makes what looks like a home directory with one tool.
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let directory = home.join(".nvm/versions/node/v1");
        std::fs::create_dir_all(&directory)?;
        std::fs::create_dir_all(home.join(".nvm/alias"))?;
        std::fs::write(home.join(".nvm/alias/default"), "v1\n")?;
        let lock = File::create_new(directory.join(LOCKED))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let service = UnixListener::bind(directory.join(SOCKET))?;
        // Nothing but the sandbox may stand in a job's way.
        std::fs::set_permissions(directory.join(SOCKET), Permissions::from_mode(0o777))?;
        Ok(Self {
            tools: vec![Tool::Nvm.provide(home).map_err(io::Error::other)?],
            _service: service,
            _lock: lock,
            _visits: visit(directory.join(LOCKED)),
            directory,
        })
    }
}

fn visit(path: PathBuf) -> SyncSender<()> {
    let (end, ended) = sync_channel(0);
    std::thread::spawn(move || {
        while ended.recv_timeout(RHYTHM) == Err(RecvTimeoutError::Timeout) && File::open(&path).is_ok() {}
    });
    end
}
