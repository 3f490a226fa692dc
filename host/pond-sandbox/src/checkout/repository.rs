//! Where a repository keeps configurations (its own, its worktrees' and its submodules', however deep), and where it lies itself
//! when the checkout holds only the way to it.
//!
//! The tree may be anybody's: everything is opened by descriptor, beneath the checkout and through no link, and bounded. Over a bound
//! is a fault, because what was not looked at could hold a credential.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

pub(super) const METADATA: &str = ".git";
const CONFIGURATIONS: [&str; 2] = ["config", "config.worktree"];
/// Of all directories that are listed.
const MOST_ENTRIES: usize = 10_000;
pub(super) const WITHIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

#[derive(Debug, thiserror::Error)]
pub enum RepositoryFault {
    #[error(
        "more than {MOST_ENTRIES} entries lie where git keeps its submodules and worktrees, too many to keep the credentials in them \
         from the job; remove what is not used (git worktree prune), or name another directory with --checkout"
    )]
    TooMany,
    #[error("{0:?} holds a name that is not UTF-8, so its credentials cannot be kept from the job")]
    Name(String),
    #[error("{path} cannot be read, so its credentials cannot be kept from the job")]
    Read { path: String, source: io::Error },
}

/// What a place below the metadata is.
enum Place {
    Repository(String),
    /// Holds repositories: the name of a submodule may have slashes.
    Group(String),
}

/// Paths below the checkout at which a configuration may stand.
pub(super) fn configurations(checkout: BorrowedFd<'_>) -> Result<Vec<String>, RepositoryFault> {
    let mut search = Search { checkout, entries: 0 };
    let mut found = Vec::new();
    let mut pending = vec![Place::Repository(METADATA.to_owned())];
    while let Some(place) = pending.pop() {
        match place {
            Place::Repository(path) => {
                let worktrees = search.directories(&format!("{path}/worktrees"))?;
                let own = std::iter::once(path.clone());
                for home in own.chain(worktrees) {
                    found.extend(CONFIGURATIONS.map(|name| format!("{home}/{name}")));
                }
                pending.push(Place::Group(format!("{path}/modules")));
            }
            Place::Group(path) => {
                for below in search.directories(&path)? {
                    let is_repository = search.is_there(&format!("{below}/HEAD"));
                    pending.push(if is_repository { Place::Repository(below) } else { Place::Group(below) });
                }
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

struct Search<'a> {
    checkout: BorrowedFd<'a>,
    entries: usize,
}

impl Search<'_> {
    fn is_there(&self, path: &str) -> bool {
        openat2(self.checkout, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), WITHIN).is_ok()
    }

    /// The paths of the directories in one, if it is there.
    fn directories(&mut self, path: &str) -> Result<Vec<String>, RepositoryFault> {
        let unreadable = |errno: Errno| RepositoryFault::Read { path: path.to_owned(), source: errno.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat2(self.checkout, path, flags, Mode::empty(), WITHIN) {
            Ok(directory) => directory,
            // What its owner may not read, no job of theirs may.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => {
                return Ok(Vec::new());
            }
            Err(errno) => return Err(unreadable(errno)),
        };
        let mut found = Vec::new();
        for entry in Dir::read_from(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(RepositoryFault::TooMany);
            }
            if is_directory(&directory, name) {
                let name = name.to_str().map_err(|_| RepositoryFault::Name(path.to_owned()))?;
                found.push(format!("{path}/{name}"));
            }
        }
        Ok(found)
    }
}

fn is_directory(parent: &OwnedFd, name: &CStr) -> bool {
    let stat = statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}

#[cfg(test)]
mod tests {
    //! Where git puts things, and what somebody may have put in their place.
    use std::fs::File;

    use super::*;

    fn found(checkout: &tempfile::TempDir) -> Result<Vec<String>, RepositoryFault> {
        configurations(File::open(checkout.path()).unwrap().as_fd())
    }

    fn is_git(checkout: &tempfile::TempDir, places: &[&str]) {
        for place in places {
            std::fs::create_dir_all(checkout.path().join(place).join("objects/ab")).unwrap();
            std::fs::write(checkout.path().join(place).join("HEAD"), "ref: refs/heads/main\n").unwrap();
        }
    }

    #[test]
    fn submodules_and_worktrees_are_found_however_they_are_called() {
        let checkout = tempfile::tempdir().unwrap();
        assert_eq!(found(&checkout).unwrap(), [".git/config", ".git/config.worktree"]);
        let submodules = [".git/modules/a", ".git/modules/lib/with/slashes", ".git/modules/a/modules/below"];
        is_git(&checkout, &submodules);
        is_git(&checkout, &[".git", ".git/worktrees/other", ".git/modules/a/worktrees/its"]);
        let repositories =
            submodules.iter().chain(&[".git", ".git/worktrees/other", ".git/modules/a/worktrees/its"]);
        let mut wanted: Vec<String> =
            repositories.flat_map(|home| CONFIGURATIONS.map(|name| format!("{home}/{name}"))).collect();
        wanted.sort();
        assert_eq!(found(&checkout).unwrap(), wanted);
    }

    #[test]
    fn no_link_is_followed_and_nothing_is_looked_at_without_end() {
        let (checkout, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        is_git(&outside, &["a"]);
        std::fs::create_dir_all(checkout.path().join(".git")).unwrap();
        std::os::unix::fs::symlink(outside.path(), checkout.path().join(".git/modules")).unwrap();
        assert_eq!(found(&checkout).unwrap().len(), 2);
        std::fs::remove_file(checkout.path().join(".git/modules")).unwrap();
        std::fs::create_dir(checkout.path().join(".git/modules")).unwrap();
        let make =
            |number: usize| std::fs::create_dir(checkout.path().join(format!(".git/modules/{number}")));
        (0..MOST_ENTRIES).for_each(|number| make(number).unwrap());
        assert_eq!(found(&checkout).unwrap().len(), 2);
        make(MOST_ENTRIES).unwrap();
        assert!(matches!(found(&checkout), Err(RepositoryFault::TooMany)));
    }
}
