//! Sends a directory to pond as a tree, once everything that could change it is dead.
//!
//! Zone: hostile, and no control: whoever reads the tree judges it. By descriptor, never through a link; a directory too deep
//! for a tree is sent empty, a file too large for one by its name. The job may have taken its own rights to its files away,
//! so they are taken back first.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::tree::{Entry, MAX_DEPTH, MAX_FILE, Moment};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;

const PIECE: usize = 64 << 10;

/// A directory that is being sent: the names that are left, the next one last.
struct Level {
    directory: OwnedFd,
    names: Vec<CString>,
}

pub(crate) fn pack(root: &OwnedFd, send: impl FnMut(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    let stat = fstat(root)?;
    if stat.st_mode & 0o700 != 0o700 {
        fchmod(root, Mode::from_raw_mode(stat.st_mode | 0o700))?;
    }
    let mut pack = Pack { levels: vec![level(openat(root, c".", DIRECTORY, Mode::empty())?)?], send };
    while let Some(Level { directory, names }) = pack.levels.last_mut() {
        match names.pop() {
            Some(name) => pack.entry(&name)?,
            None => {
                let mode = permissions(&fstat(directory)?);
                pack.levels.pop();
                pack.say(&Entry::Leave { mode })?;
            }
        }
    }
    Ok(())
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn level(directory: OwnedFd) -> Result<Level, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(Level { directory, names })
}

struct Pack<S> {
    levels: Vec<Level>,
    send: S,
}

impl<S: FnMut(&[u8]) -> Result<(), Errno>> Pack<S> {
    fn say(&mut self, entry: &Entry) -> Result<(), Errno> {
        (self.send)(&entry.encode().ok_or(Errno::NAMETOOLONG)?)
    }

    fn entry(&mut self, name: &CStr) -> Result<(), Errno> {
        let Some(Level { directory, .. }) = self.levels.last() else { return Ok(()) };
        let directory = directory.as_fd();
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let named = name.to_bytes().to_vec();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let below = own(directory, name, &stat, 0o700, DIRECTORY)?;
                self.say(&Entry::Enter { name: named })?;
                if self.levels.len() == MAX_DEPTH {
                    return self.say(&Entry::Leave { mode: permissions(&stat) });
                }
                self.levels.push(level(below)?);
                Ok(())
            }
            FileType::RegularFile => match u64::try_from(stat.st_size) {
                Ok(size @ ..=MAX_FILE) => {
                    let file = own(directory, name, &stat, 0o400, OFlags::RDONLY | OFlags::CLOEXEC)?;
                    self.file(named, &file, &stat, size)
                }
                Ok(_) | Err(_) => self.say(&Entry::Large { name: named }),
            },
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new())?.into_bytes();
                self.say(&Entry::Link { name: named, target })
            }
            FileType::Fifo => self.say(&Entry::Fifo { name: named }),
            FileType::Socket => self.say(&Entry::Socket { name: named }),
            // Nobody without capabilities can make one that means anything.
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Ok(()),
        }
    }

    fn file(&mut self, name: Vec<u8>, file: &OwnedFd, stat: &Stat, size: u64) -> Result<(), Errno> {
        let nanos = u32::try_from(stat.st_mtime_nsec).map_err(|_| Errno::OVERFLOW)?;
        let modified = Moment { seconds: stat.st_mtime, nanos };
        self.say(&Entry::File { name, mode: permissions(stat), modified, size })?;
        let mut left = size;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let length = match rustix::io::read(file, piece.get_mut(..wanted).ok_or(Errno::IO)?) {
                Ok(0) => return Err(Errno::IO),
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            (self.send)(piece.get(..length).ok_or(Errno::IO)?)?;
            left -= u64::try_from(length).map_err(|_| Errno::IO)?;
        }
        Ok(())
    }
}

/// Opens what belongs to this user, with these of its owner's rights.
fn own(
    directory: BorrowedFd<'_>,
    name: &CStr,
    stat: &Stat,
    rights: u32,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    if stat.st_mode & rights != rights {
        chmodat(directory, name, Mode::from_raw_mode(stat.st_mode | rights), AtFlags::empty())?;
    }
    openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn permissions(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & 0o777).unwrap_or_default()
}
