//! What of the host's a person declared to be inside a sandbox itself: opened once and by descriptor, so that what was looked at is
//! what is shown, and refused if it is a link, a socket, a device or pond's own state.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use pond_wire::jail::{BindKind, CheckoutPath, RootEntry, WORKSPACE};
use rustix::fs::{FileType, Mode, OFlags};

use crate::state::StateDir;

#[derive(Debug, thiserror::Error)]
pub enum MountFault {
    #[error("{0} is a symbolic link, which could lead anywhere; name what it leads to")]
    Link(PathBuf),
    #[error("{0} is neither a directory nor a file")]
    Special(PathBuf),
    #[error("{0} is the root directory")]
    Root(PathBuf),
    #[error("{path} cannot be opened")]
    Open { path: PathBuf, source: io::Error },
    #[error("the path {0:?} is not UTF-8")]
    Name(PathBuf),
    #[error("{0} would show pond's own state directory")]
    HoldsState(PathBuf),
}

/// What stands at a place inside because a person declared it.
#[derive(Debug)]
pub struct Mount {
    target: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A file or directory of the host.
    Live {
        source: CheckoutPath,
        kind: BindKind,
        writable: bool,
        /// Held so that nothing else gets its inode's number before it is mounted.
        _open: OwnedFd,
    },
    /// A directory of the sandbox's own, on its disk.
    Own,
}

impl Mount {
    /// Opens `source`, which must itself be a file or directory; links in the directories above it are resolved once, here.
    pub fn open(source: &Path, target: &str, writable: bool, state: &StateDir) -> Result<Self, MountFault> {
        let failed =
            |source_fault: io::Error| MountFault::Open { path: source.to_owned(), source: source_fault };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::open(source, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let stat = rustix::fs::fstat(&open).map_err(|errno| failed(errno.into()))?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => BindKind::Directory,
            FileType::RegularFile => BindKind::File,
            FileType::Symlink => return Err(MountFault::Link(source.to_owned())),
            FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket
            | FileType::Unknown => return Err(MountFault::Special(source.to_owned())),
        };
        let resolved = kernel_name(&open).map_err(failed)?;
        if resolved == Path::new("/") {
            return Err(MountFault::Root(source.to_owned()));
        }
        let own = kernel_name(&std::fs::File::open(state.root()).map_err(failed)?).map_err(failed)?;
        if own.starts_with(&resolved) || resolved.starts_with(&own) {
            return Err(MountFault::HoldsState(source.to_owned()));
        }
        let path = resolved.into_os_string().into_string().map_err(|name| MountFault::Name(name.into()))?;
        let source = CheckoutPath { path, device: stat.st_dev, inode: stat.st_ino };
        Ok(Self { target: target.to_owned(), what: What::Live { source, kind, writable, _open: open } })
    }

    /// A directory on the sandbox's disk besides its workspace and home, empty at first.
    pub fn own(target: &str) -> Self {
        Self { target: target.to_owned(), what: What::Own }
    }

    /// Where it stands inside, and the directories above.
    pub(crate) fn entries(&self) -> Vec<RootEntry> {
        let above = self.target.match_indices('/').skip(1).filter_map(|(at, _)| self.target.get(..at));
        let in_workspace = |path: &&str| *path == WORKSPACE || path.starts_with(&format!("{WORKSPACE}/"));
        let above = above.filter(|path| !in_workspace(path));
        let above = above.map(|path| RootEntry::Directory { path: path.to_owned() });
        let path = self.target.clone();
        let entry = match &self.what {
            What::Live { source, kind, writable, .. } => {
                RootEntry::Mount { path, source: source.clone(), kind: *kind, writable: *writable }
            }
            What::Own => RootEntry::Throwaway { path, source: None },
        };
        above.chain([entry]).collect()
    }
}

/// The kernel's own name for what was opened, free of links and of any race with whoever moves directories.
pub(super) fn kernel_name(opened: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    //! Only what was named itself, and nothing special, comes in.
    use super::*;

    #[test]
    fn links_sockets_devices_and_our_own_state_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(&place.path().join("state")).unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("directory"), at("link")).unwrap();
        let _listening = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let open = |path: &Path| Mount::open(path, "/srv/a/b", false, &state);
        for (name, kind) in [("directory", BindKind::Directory), ("file", BindKind::File)] {
            let entries = open(&at(name)).unwrap().entries();
            let paths: Vec<&str> = entries.iter().map(RootEntry::path).collect();
            assert_eq!(paths, ["/srv", "/srv/a", "/srv/a/b"]);
            assert!(matches!(entries.last(), Some(RootEntry::Mount { kind: found, .. }) if *found == kind));
        }
        assert!(matches!(open(&at("link")), Err(MountFault::Link(_))));
        assert!(matches!(open(&at("socket")), Err(MountFault::Special(_))));
        assert!(matches!(open(Path::new("/dev/null")), Err(MountFault::Special(_))));
        assert!(matches!(open(Path::new("/")), Err(MountFault::Root(_))));
        assert!(matches!(open(&at("absent")), Err(MountFault::Open { .. })));
        for holds in [place.path().to_owned(), at("state"), at("state/runs")] {
            assert!(matches!(open(&holds), Err(MountFault::HoldsState(_))), "{holds:?}");
        }
    }
}
