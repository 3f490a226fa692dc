//! Where a repository keeps configurations: its own, its worktrees' and its submodules', however deep.
//!
//! The tree may be anybody's: everything is opened by descriptor, beneath the checkout and through no link, and bounded. Over a bound
//! is a fault, because what was not looked at could hold a credential.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use rustix::io::Errno;

pub(super) const METADATA: &str = ".git";
const CONFIGURATIONS: [&str; 2] = ["config", "config.worktree"];
/// Of all directories that are listed.
const MOST_ENTRIES: usize = 10_000;
/// Of all configurations together: what is read, and what of it goes to the job without its credentials.
pub(super) const MOST_READ: usize = 16 << 20;
pub(super) const MOST_KEPT: usize = 1 << 20;
pub(super) const WITHIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

#[derive(Debug, thiserror::Error)]
pub enum RepositoryFault {
    #[error(
        "more than {MOST_ENTRIES} entries lie where git keeps its submodules and worktrees, too many to keep the credentials in them \
         from the job; remove what is not used (git worktree prune), or name another directory with --checkout"
    )]
    TooMany,
    #[error(
        "git's configurations below .git are more than pond looks through for credentials, {} MiB in all and {} MiB with credentials; \
         remove what is not used, or name another directory with --checkout",
        MOST_READ >> 20,
        MOST_KEPT >> 20
    )]
    TooMuch,
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
                for home in worktrees.into_iter().chain([path]) {
                    found.extend(CONFIGURATIONS.map(|name| format!("{home}/{name}")));
                    // A worktree has submodules of its own.
                    pending.push(Place::Group(format!("{home}/modules")));
                }
            }
            Place::Group(path) => {
                for below in search.directories(&path)? {
                    if search.is_repository(&below)? {
                        pending.push(Place::Repository(below));
                    } else {
                        // One that lost its head keeps its configuration.
                        found.extend(CONFIGURATIONS.map(|name| format!("{below}/{name}")));
                        pending.push(Place::Group(below));
                    }
                }
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether a root's job gets as far as this file by itself: as the owner of the checkout, in its group, or as anybody.
pub(super) fn is_within_reach(
    checkout: BorrowedFd<'_>,
    path: &str,
    (owner, group): (u32, u32),
) -> Result<bool, RepositoryFault> {
    let unreadable = |errno: Errno| RepositoryFault::Read { path: path.to_owned(), source: errno.into() };
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    for part in ends.filter_map(|end| path.get(..end)) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat2(checkout, part, flags, Mode::empty(), WITHIN).map_err(unreadable)?;
        let stat = fstat(&opened).map_err(unreadable)?;
        let needed = if part == path { Mode::ROTH } else { Mode::XOTH };
        let by_group = if stat.st_gid == group { needed.bits() << 3 } else { 0 };
        let is_open = stat.st_uid == owner || stat.st_mode & (needed.bits() | by_group) != 0;
        if !is_open {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Search<'a> {
    checkout: BorrowedFd<'a>,
    entries: usize,
}

impl Search<'_> {
    /// By its head, of whatever kind that is: git makes it a link where it is told to.
    fn is_repository(&self, path: &str) -> Result<bool, RepositoryFault> {
        let head = format!("{path}/HEAD");
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(self.checkout, &head, flags, Mode::empty(), WITHIN) {
            Ok(_) => Ok(true),
            Err(errno) if leads_nowhere(errno) => Ok(false),
            Err(errno) => Err(RepositoryFault::Read { path: head, source: errno.into() }),
        }
    }

    /// The paths of the directories in one, if it is there.
    fn directories(&mut self, path: &str) -> Result<Vec<String>, RepositoryFault> {
        let unreadable = |errno: Errno| RepositoryFault::Read { path: path.to_owned(), source: errno.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat2(self.checkout, path, flags, Mode::empty(), WITHIN) {
            Ok(directory) => directory,
            Err(errno) if leads_nowhere(errno) => return Ok(Vec::new()),
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
            if is_directory(&directory, name).map_err(unreadable)? {
                let name = name.to_str().map_err(|_| RepositoryFault::Name(path.to_owned()))?;
                found.push(format!("{path}/{name}"));
            }
        }
        Ok(found)
    }
}

/// Nothing is there, or a link or a mount is, behind which nothing of the checkout's is looked for.
fn leads_nowhere(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
}

fn is_directory(parent: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    match statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode).is_dir()),
        // Gone since it was listed.
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
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
        wanted.extend(CONFIGURATIONS.map(|name| format!(".git/modules/lib/{name}")));
        wanted.extend(CONFIGURATIONS.map(|name| format!(".git/modules/lib/with/{name}")));
        wanted.sort();
        assert_eq!(found(&checkout).unwrap(), wanted);
    }

    #[test]
    fn a_submodule_with_an_odd_head_or_of_a_worktree_is_found() {
        let checkout = tempfile::tempdir().unwrap();
        let homes = [".git/modules/linked", ".git/modules/headless", ".git/worktrees/w/modules/its"];
        is_git(&checkout, &homes);
        let head = |home: &str| checkout.path().join(home).join("HEAD");
        std::fs::remove_file(head(homes[0])).unwrap();
        std::os::unix::fs::symlink("refs/heads/main", head(homes[0])).unwrap();
        std::fs::remove_file(head(homes[1])).unwrap();
        let found = found(&checkout).unwrap();
        for home in homes {
            assert!(found.contains(&format!("{home}/config")), "{home}: {found:?}");
        }
        assert!(!found.contains(&".git/modules/linked/objects/config".to_owned()), "{found:?}");
    }

    #[test]
    fn what_permissions_keep_from_the_job_is_out_of_reach() {
        use std::os::unix::fs::PermissionsExt;
        let checkout = tempfile::tempdir().unwrap();
        is_git(&checkout, &[".git"]);
        let set = |path: &str, mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(checkout.path().join(path), mode).unwrap();
        };
        let directory = File::open(checkout.path()).unwrap();
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let reach = |owner, group| is_within_reach(directory.as_fd(), ".git/HEAD", (owner, group)).unwrap();
        let (other, others) = (user + 1, group + 1);
        for (above, file, by_owner, by_group, by_others) in [
            (0o755, 0o644, true, true, true),
            (0o750, 0o640, true, true, false),
            (0o700, 0o644, true, false, false),
            (0o755, 0o600, true, false, false),
        ] {
            set(".git", above);
            set(".git/HEAD", file);
            let found = (reach(user, others), reach(other, group), reach(other, others));
            assert_eq!(found, (by_owner, by_group, by_others), "{above:o} {file:o}");
        }
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
        assert_eq!(found(&checkout).unwrap().len(), 2 + 2 * MOST_ENTRIES);
        make(MOST_ENTRIES).unwrap();
        assert!(matches!(found(&checkout), Err(RepositoryFault::TooMany)));
    }
}
