//! A private copy of a checkout, made before a job starts, so that later edits of the live tree do not reach the job.
//!
//! HOSTILE INPUT: the checkout may come from anyone, and its owner may be at work in it. Everything is opened by descriptor
//! beneath its root, links are copied as links, special files and other mounts are skipped and named, caps come first. Owners (as
//! root), permissions and times are kept, because builds look at them. Contents are shared with the original where the file
//! system can.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::Gitignore;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::beneath;
use crate::collect::same_file;
use crate::object::{self, Sparse};
use crate::path::{join, quoted};

const MOST_ENTRIES: u64 = 1_000_000;
const MOST_BYTES: u64 = 16 << 30;
/// Of the paths of directories, which are held until all is copied.
const MOST_TEXT: usize = if cfg!(test) { 256 << 10 } else { 64 << 20 };
const DEEPEST: usize = 128;
/// How often a file that is being written is tried.
const TRIES: usize = 3;
const NAMED: usize = 20;

/// What was copied.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Copied {
    pub entries: u64,
    /// Bytes written; what the file system could share is not among them.
    pub bytes: u64,
    /// How many entries are not in the copy: special files, other mounts, unreadable ones.
    pub skipped: u64,
    /// The first of them, printable.
    pub skipped_names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    #[error("the checkout has more than {MOST_ENTRIES} entries; name a smaller directory with --checkout")]
    TooManyEntries,
    #[error("the paths of the checkout's directories are more than {} MiB together; name a smaller one with --checkout", MOST_TEXT >> 20)]
    TooMuchText,
    #[error("the checkout holds more than {} GiB; run without --snapshot", MOST_BYTES >> 30)]
    TooManyBytes,
    #[error("{path} lies more than {DEEPEST} directories deep")]
    TooDeep { path: String },
    #[error("read {path} of the checkout")]
    Read { path: String, source: io::Error },
    #[error("copy {path} of the checkout")]
    Write { path: String, source: io::Error },
    #[error("{path} keeps changing while it is copied")]
    Unsteady { path: String },
    #[error("{path} is a symbolic link that leads out of the tree; exclude it, or name what it leads to")]
    Outward { path: String },
}

/// How a tree is copied, where it is no checkout of a job that runs once.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    /// To whom the copy belongs; without it, to whom the original does.
    pub(crate) owner: Option<(Uid, Gid)>,
    pub(crate) left_out: Option<Gitignore>,
    pub(crate) outward: Outward,
}

/// What becomes of a symbolic link that leads out of the tree.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outward {
    /// It is copied: where the tree goes, it leads nowhere.
    #[default]
    Keep,
    Skip,
    Refuse,
}

/// Copies the tree at `source` into the empty directory `target`.
pub fn snapshot(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<Copied, SnapshotFault> {
    copy(source, target, &Manner::default())
}

pub(crate) fn copy(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    manner: &Manner,
) -> Result<Copied, SnapshotFault> {
    let mut copy = Copy {
        source,
        target,
        manner,
        is_root: rustix::process::geteuid().is_root(),
        done: Copied::default(),
        made: Vec::new(),
        text: 0,
    };
    let mut pending = vec![(Vec::new(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        copy.directory(&dir, depth, &mut pending)?;
    }
    copy.settle()?;
    Ok(copy.done)
}

struct Copy<'a> {
    source: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
    manner: &'a Manner,
    is_root: bool,
    done: Copied,
    /// Directories, parents first. They get their permissions and times when nothing is added to them any more.
    made: Vec<(Vec<u8>, Stat)>,
    /// Bytes of the paths of all directories found so far.
    text: usize,
}

impl Copy<'_> {
    fn directory(
        &mut self,
        dir: &[u8],
        depth: usize,
        pending: &mut Vec<(Vec<u8>, usize)>,
    ) -> Result<(), SnapshotFault> {
        let from = match beneath::open_dir(self.source, dir) {
            Err(Errno::ACCESS | Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if depth > 0 => {
                return self.skip(dir);
            }
            opened => opened.map_err(|errno| reading(dir, errno))?,
        };
        let stat = rustix::fs::fstat(&from).map_err(|errno| reading(dir, errno))?;
        if depth > 0 {
            beneath::make_dir(self.target, dir).map_err(|errno| writing(dir, errno.into()))?;
        }
        self.made.push((dir.to_vec(), stat));
        let into = beneath::open_dir(self.target, dir).map_err(|errno| writing(dir, errno.into()))?;
        beneath::each_name(
            from.as_fd(),
            |errno| reading(dir, errno),
            |name| {
                let path = join(dir, name.to_bytes());
                self.spend_entry()?;
                let stat = match beneath::stat(&from, name) {
                    // Gone since it was listed.
                    Err(Errno::NOENT) => return Ok(()),
                    looked => looked.map_err(|errno| reading(&path, errno))?,
                };
                if self.is_left_out(&path, beneath::kind(&stat)) {
                    return Ok(());
                }
                match beneath::kind(&stat) {
                    FileType::Directory if depth >= DEEPEST => {
                        Err(SnapshotFault::TooDeep { path: quoted("", &path) })
                    }
                    FileType::Directory => {
                        self.text += path.len();
                        if self.text > MOST_TEXT {
                            return Err(SnapshotFault::TooMuchText);
                        }
                        pending.push((path, depth + 1));
                        Ok(())
                    }
                    FileType::RegularFile => self.file((&from, &into), name.to_bytes(), &path),
                    FileType::Symlink => self.link((&from, &into), name, &path, &stat),
                    FileType::CharacterDevice
                    | FileType::BlockDevice
                    | FileType::Fifo
                    | FileType::Socket
                    | FileType::Unknown => self.skip(&path),
                }
            },
        )
    }

    fn file(
        &mut self,
        (from, into): (&OwnedFd, &OwnedFd),
        name: &[u8],
        path: &[u8],
    ) -> Result<(), SnapshotFault> {
        let source = match beneath::open_file(from, name) {
            Err(Errno::ACCESS | Errno::PERM | Errno::XDEV) => return self.skip(path),
            Err(errno) if beneath::is_absent(errno) => return Ok(()),
            opened => File::from(opened.map_err(|errno| reading(path, errno))?),
        };
        let failed = |source| writing(path, source);
        let created = beneath::create_file(into, name, Mode::RUSR | Mode::WUSR);
        let target = File::from(created.map_err(|errno| failed(errno.into()))?);
        for attempt in 0..TRIES {
            if attempt > 0 {
                // Neither way of copying shortens what an attempt before it wrote.
                target.set_len(0).map_err(failed)?;
            }
            let before = rustix::fs::fstat(&source).map_err(|errno| reading(path, errno))?;
            if beneath::kind(&before) != FileType::RegularFile {
                break;
            }
            self.contents(&source, &target, &before, path)?;
            let after = rustix::fs::fstat(&source).map_err(|errno| reading(path, errno))?;
            if same_file(&before, &after) {
                return self.dress(&target, &after, Kind::File).map_err(failed);
            }
        }
        Err(SnapshotFault::Unsteady { path: quoted("", path) })
    }

    fn contents(
        &mut self,
        mut source: &File,
        target: &File,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), SnapshotFault> {
        if rustix::fs::ioctl_ficlone(target, source).is_ok() {
            return Ok(());
        }
        let size = beneath::size(stat);
        if self.done.bytes.saturating_add(size) > MOST_BYTES {
            return Err(SnapshotFault::TooManyBytes);
        }
        let copied = io::Seek::rewind(&mut &*target).and_then(|()| {
            io::Seek::rewind(&mut source)?;
            let mut sparse = Sparse { file: target.try_clone()?, end: 0 };
            // One byte more than was promised, so that growth is seen and its cost is bounded.
            let read = object::copy(&mut io::Read::take(source, size.saturating_add(1)), &mut sparse)?;
            io::Write::flush(&mut sparse)?;
            Ok(read)
        });
        self.done.bytes += copied.map_err(|source| writing(path, source))?;
        Ok(())
    }

    fn link(
        &mut self,
        (from, into): (&OwnedFd, &OwnedFd),
        name: &std::ffi::CStr,
        path: &[u8],
        stat: &Stat,
    ) -> Result<(), SnapshotFault> {
        let target = match rustix::fs::readlinkat(from, name, Vec::new()) {
            Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
            read => read.map_err(|errno| reading(path, errno))?,
        };
        match self.manner.outward {
            Outward::Skip if leads_out(path, target.to_bytes()) => return self.skip(path),
            Outward::Refuse if leads_out(path, target.to_bytes()) => {
                return Err(SnapshotFault::Outward { path: quoted("", path) });
            }
            Outward::Keep | Outward::Skip | Outward::Refuse => {}
        }
        let made = rustix::fs::symlinkat(target.as_c_str(), into, name).and_then(|()| {
            let times = times(stat);
            rustix::fs::utimensat(into, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            let (uid, gid) = self.owner(stat);
            if self.is_root {
                rustix::fs::chownat(into, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            } else {
                Ok(())
            }
        });
        made.map_err(|errno| writing(path, errno.into()))
    }

    /// Directories last, children first: until then they were open to us alone.
    fn settle(&self) -> Result<(), SnapshotFault> {
        for (path, stat) in self.made.iter().rev() {
            let opened = beneath::open_dir(self.target, path).map_err(io::Error::from);
            let dressed = opened.and_then(|dir| self.dress(&dir, stat, Kind::Directory));
            dressed.map_err(|source| writing(path, source))?;
        }
        Ok(())
    }

    /// Owner, permissions and times of the original, without setuid and setgid.
    fn dress(&self, fd: impl AsFd, stat: &Stat, kind: Kind) -> io::Result<()> {
        let (uid, gid) = self.owner(stat);
        if self.is_root {
            rustix::fs::fchown(&fd, Some(uid), Some(gid))?;
        }
        let bits = match kind {
            Kind::File => stat.st_mode & 0o777,
            // Whoever cannot write to a directory cannot remove it later either.
            Kind::Directory if !self.is_root => stat.st_mode & 0o1777 | 0o700,
            Kind::Directory => stat.st_mode & 0o1777,
        };
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(bits))?;
        Ok(rustix::fs::futimens(&fd, &times(stat))?)
    }

    fn owner(&self, stat: &Stat) -> (Uid, Gid) {
        self.manner.owner.unwrap_or((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))
    }

    fn is_left_out(&self, path: &[u8], kind: FileType) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        self.manner.left_out.as_ref().is_some_and(|rules| rules.matched(path, kind.is_dir()).is_ignore())
    }

    fn spend_entry(&mut self) -> Result<(), SnapshotFault> {
        self.done.entries += 1;
        if self.done.entries > MOST_ENTRIES { Err(SnapshotFault::TooManyEntries) } else { Ok(()) }
    }

    fn skip(&mut self, path: &[u8]) -> Result<(), SnapshotFault> {
        self.done.skipped += 1;
        if self.done.skipped_names.len() < NAMED {
            self.done.skipped_names.push(quoted("", path));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    File,
    Directory,
}

/// Whether a link at this path of the tree leads out of it, by its words alone. One that leads through other links is judged as if
/// those were directories: where they lead is judged by itself.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    let mut depth = path.split(|byte| *byte == b'/').count() - 1;
    if target.starts_with(b"/") {
        return true;
    }
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

fn times(stat: &Stat) -> Timestamps {
    let time = |tv_sec, nanos| Timespec { tv_sec, tv_nsec: i64::try_from(nanos).unwrap_or_default() };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn reading(path: &[u8], errno: Errno) -> SnapshotFault {
    SnapshotFault::Read { path: quoted("", path), source: errno.into() }
}

fn writing(path: &[u8], source: io::Error) -> SnapshotFault {
    SnapshotFault::Write { path: quoted("", path), source }
}

#[cfg(test)]
mod tests;
