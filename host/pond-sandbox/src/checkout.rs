//! The directory a job works on, opened once: everything later refers to the descriptor, not the name.

mod git;
mod repository;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use pond_wire::jail::{CheckoutPath, ReplacedFile};
pub use repository::RepositoryFault;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::native::Owner;
use crate::state::StateDir;

/// A configuration larger than this is none.
const MAX_CONFIGURATION_BYTES: u64 = 1 << 20;
const LONGEST_PATH: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum CheckoutFault {
    #[error("{0} is a symbolic link; name the directory itself")]
    Link(PathBuf),
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    #[error("{0} was removed; run pond in a directory that is there")]
    Removed(PathBuf),
    #[error("{path} cannot be opened")]
    Open { path: PathBuf, source: io::Error },
    #[error("the name of the checkout {0:?} is not UTF-8; rename the directory")]
    Name(PathBuf),
    #[error(
        "{0} cannot be read as text, so its credentials cannot be kept from the job; repair or remove it"
    )]
    Configuration(String),
    #[error(transparent)]
    Repository(#[from] RepositoryFault),
    #[error("{0} is the root directory; run pond in the directory of a project")]
    Root(PathBuf),
    #[error(
        "pond's state directory {state} lies below the checkout {checkout}, and a job could read the key in it; run pond in the \
         directory of a project, or set POND_STATE_DIR to a directory elsewhere"
    )]
    HoldsState { checkout: String, state: PathBuf },
}

#[derive(Debug)]
pub struct Checkout {
    directory: OwnedFd,
    pub named: CheckoutPath,
    pub owner_uid: u32,
    pub owner_gid: u32,
}

impl Checkout {
    pub fn owner(&self) -> Owner {
        Owner { uid: self.owner_uid, gid: self.owner_gid }
    }

    /// Opens `path`, which must itself be a directory; links in the directories above it are resolved.
    pub fn open(path: &Path) -> Result<Self, CheckoutFault> {
        let failed = |source| CheckoutFault::Open { path: path.to_owned(), source };
        let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
        if metadata.is_symlink() {
            return Err(CheckoutFault::Link(path.to_owned()));
        }
        if !metadata.is_dir() {
            return Err(CheckoutFault::NotADirectory(path.to_owned()));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        // The kernel's own name for what was opened, free of links and of any race with whoever moves directories.
        let resolved =
            std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).map_err(failed)?;
        if resolved == Path::new("/") {
            return Err(CheckoutFault::Root(resolved));
        }
        let stat = rustix::fs::fstat(&directory).map_err(|errno| failed(errno.into()))?;
        if stat.st_nlink == 0 {
            return Err(CheckoutFault::Removed(path.to_owned()));
        }
        let text =
            resolved.into_os_string().into_string().map_err(|name| CheckoutFault::Name(name.into()))?;
        Ok(Self {
            directory,
            named: CheckoutPath { path: text, device: stat.st_dev, inode: stat.st_ino },
            owner_uid: stat.st_uid,
            owner_gid: stat.st_gid,
        })
    }
}

impl Checkout {
    /// Refuses a checkout that would show the job pond's own state. Directories are compared, not names: a link or a second
    /// mount leads to the same one.
    pub fn keep_apart(&self, state: &StateDir) -> Result<(), CheckoutFault> {
        let runs = state.runs();
        let failed = |errno: Errno| CheckoutFault::Open { path: runs.clone(), source: errno.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut above = rustix::fs::open(&runs, flags, Mode::empty()).map_err(failed)?;
        let mut below = None;
        loop {
            let stat = rustix::fs::fstat(&above).map_err(failed)?;
            let place = (stat.st_dev, stat.st_ino);
            if place == (self.named.device, self.named.inode) {
                let (checkout, state) = (self.named.path.clone(), state.root().to_owned());
                return Err(CheckoutFault::HoldsState { checkout, state });
            }
            // Above the root is the root again.
            if below.replace(place) == Some(place) {
                return Ok(());
            }
            above = rustix::fs::openat(&above, "..", flags, Mode::empty()).map_err(failed)?;
        }
    }

    /// What goes in place of git's own files, so that tokens in them stay outside.
    pub fn without_credentials(&self) -> Result<Vec<ReplacedFile>, CheckoutFault> {
        let (mut replaced, mut read, mut kept) = (Vec::new(), 0, 0);
        for path in repository::configurations(self.as_fd())? {
            let Some(bytes) = self.small_file(&path)? else { continue };
            read += bytes.len();
            let text = String::from_utf8_lossy(&bytes);
            if let Some(content) = git::scrub(&text) {
                // What is put in its place is text; an old spelling of a name is no reason to refuse a file that holds no credential.
                if let Cow::Owned(_) = text {
                    return Err(CheckoutFault::Configuration(path));
                }
                kept += content.len();
                replaced.push(ReplacedFile { path, content });
            }
            if read > repository::MOST_READ || kept > repository::MOST_KEPT {
                return Err(RepositoryFault::TooMuch.into());
            }
        }
        Ok(replaced)
    }

    /// The same for a job on the checkout itself. What it cannot get at anyway is not put where it can.
    pub(crate) fn replaced_for_job(&self) -> Result<Vec<ReplacedFile>, CheckoutFault> {
        let mut replaced = self.without_credentials()?;
        if rustix::process::geteuid().is_root() {
            let job = (self.owner_uid, self.owner_gid);
            let reached =
                replaced.iter().map(|file| repository::is_within_reach(self.as_fd(), &file.path, job));
            let mut reached = reached.collect::<Result<Vec<bool>, _>>()?.into_iter();
            replaced.retain(|_| reached.next() == Some(true));
        }
        Ok(replaced)
    }

    /// The repository's place, where the checkout is a worktree or a submodule and holds only the way to it: no job sees that.
    pub fn repository_elsewhere(&self) -> Option<String> {
        let way = String::from_utf8(self.small_file(repository::METADATA).ok()??).ok()?;
        let place = way.lines().next()?.strip_prefix("gitdir: ")?.trim_end();
        let leaves = place.starts_with('/') || place.split('/').any(|part| part == "..");
        (leaves && place.len() <= LONGEST_PATH).then(|| place.to_owned())
    }

    /// What the regular file at this place holds if there is one. A link or a special file leads nowhere from inside the sandbox.
    fn small_file(&self, path: &str) -> Result<Option<Vec<u8>>, CheckoutFault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), repository::WITHIN)
        {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(CheckoutFault::Open { path: path.into(), source: errno.into() }),
        };
        let mut bytes = Vec::new();
        let unreadable = |_| CheckoutFault::Configuration(path.to_owned());
        file.take(MAX_CONFIGURATION_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_CONFIGURATION_BYTES {
            return Err(CheckoutFault::Configuration(path.to_owned()));
        }
        Ok(Some(bytes))
    }
}

impl AsFd for Checkout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    //! What is put in place of a file is text, and only then is it needed.
    use super::*;

    #[test]
    fn a_configuration_in_an_old_spelling_is_refused_only_if_it_holds_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(".git")).unwrap();
        let replaced = |text: &[u8]| {
            std::fs::write(directory.path().join(".git/config"), text).unwrap();
            Checkout::open(directory.path()).unwrap().without_credentials()
        };
        assert_eq!(replaced(b"[user]\n\tname = J\xfcrgen\n").unwrap(), []);
        let fault = replaced(b"[user]\n\tname = J\xfcrgen\n[http]\n\textraheader = x\n").unwrap_err();
        assert!(matches!(fault, CheckoutFault::Configuration(_)), "{fault}");
    }
}
