//! The walk of a dead job's upper layer: an explicit stack of directories, each streamed once, nothing recursive.
//!
//! Cost follows what the job changed: the base is looked at only where the upper layer names it, or where a directory
//! the job removed has to be spelled out as deleted files.
//! Invariants: nothing is opened before it was looked at; whole-result caps end the walk; git metadata is counted, and
//! never read or kept.

mod leaf;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::caps::{Budget, Caps, PATH_BYTES};
use super::change::{Change, Reason, Rejected};
use super::ignored::{LeftOut, Reader, RuleFile, Scope};
use super::meanwhile::moved_above;
use super::overlay::{DirectoryMark, Upper};
use super::pace::Watch;
use super::tracked::Tracked;
use super::{CollectFault, Sources, Wanted};
use crate::object::Store;
use crate::path::{RelPath, is_git_name, quoted};
use crate::{apply, beneath};

/// Everything the walk learned, sorted by path.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) changes: Vec<Change>,
    pub(super) rejected: Vec<Rejected>,
    pub(super) git_metadata: u64,
    /// Declared artifacts that the ignore rules leave out of the changes.
    pub(super) artifacts: Vec<Change>,
    /// Those among them that are no files.
    pub(super) artifacts_refused: Vec<Rejected>,
    pub(super) left_out: Vec<LeftOut>,
    /// Paths of the base that are not surely what the job began with.
    pub(super) changed_meanwhile: Vec<RelPath>,
}

pub(super) fn walk(
    sources: &Sources,
    wanted: &Wanted<'_>,
    caps: &Caps,
    store: &Store,
    watch: Watch<'_>,
) -> Result<Findings, CollectFault> {
    let mut rules = Reader::new(sources.lower.as_fd(), wanted.ignored);
    let scope = rules.repository(sources.above.as_ref());
    let mut walk = Walk {
        sources,
        wanted,
        store,
        rules,
        index: OnceCell::new(),
        budget: Budget::new(caps, watch),
        tasks: vec![Task::Merge(Place { path: Vec::new(), depth: 0 }, Cover::Merged, scope)],
        left_out: BTreeMap::new(),
        found: Findings::default(),
    };
    while let Some(task) = walk.tasks.pop() {
        match task {
            Task::Merge(dir, cover, outer) => walk.merge(&dir, cover, outer)?,
            Task::Gone(dir) => walk.gone(&dir)?,
            Task::GitMetadata(dir) => walk.git_metadata(&dir)?,
        }
    }
    walk.finish()
}

#[derive(Debug)]
enum Task {
    /// A directory of the upper layer, compared with the base, in the scope of the rules above it.
    Merge(Place, Cover, Scope),
    /// A directory of the base that is gone from the job's view.
    Gone(Place),
    /// A directory of git metadata in the upper layer.
    GitMetadata(Place),
}

/// Whether base entries the upper directory does not name are still visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cover {
    Merged,
    Hidden,
}

/// A place in both trees; a leaf until it is known to be a directory.
#[derive(Debug)]
struct Place {
    path: Vec<u8>,
    depth: usize,
}

struct Walk<'a> {
    sources: &'a Sources,
    wanted: &'a Wanted<'a>,
    store: &'a Store,
    rules: Reader<'a>,
    /// Read when a rule first matches something of the base.
    index: OnceCell<Tracked>,
    budget: Budget<'a>,
    tasks: Vec<Task>,
    left_out: BTreeMap<RuleFile, u64>,
    found: Findings,
}

impl Walk<'_> {
    fn tracked(&self) -> &Tracked {
        self.index.get_or_init(|| Tracked::read(self.sources.lower.as_fd(), self.sources.above.as_ref()))
    }

    fn merge(&mut self, dir: &Place, inherited: Cover, outer: Scope) -> Result<(), CollectFault> {
        let Some(fd) = self.open_upper(dir)? else { return Ok(()) };
        let mark = self
            .sources
            .xattrs
            .directory(fd.as_fd())
            .map_err(|errno| CollectFault::read(&dir.path, errno))?;
        let cover = match mark {
            DirectoryMark::Merged => inherited,
            DirectoryMark::Opaque => Cover::Hidden,
            DirectoryMark::Redirected => return self.reject(&dir.path, Reason::Redirect),
        };
        let scope = self.rules.enter(&dir.path, outer);
        let fault = |errno| CollectFault::read(&dir.path, errno);
        beneath::each_name(fd.as_fd(), fault, |name| {
            self.upper_entry((dir, fd.as_fd()), name, cover, &scope)
        })?;
        match cover {
            Cover::Merged => Ok(()),
            Cover::Hidden => self.hidden(dir, fd.as_fd()),
        }
    }

    fn upper_entry(
        &mut self,
        (dir, fd): (&Place, BorrowedFd<'_>),
        name: &CStr,
        cover: Cover,
        scope: &Scope,
    ) -> Result<(), CollectFault> {
        let child = match self.admit(dir, name)? {
            Admission::Admitted(child) => child,
            Admission::GitMetadata(child) => return self.git_entry(child, fd, name),
            Admission::Refused => return Ok(()),
        };
        let entry = self.sources.xattrs.entry(fd, name);
        match entry.map_err(|errno| CollectFault::read(&child.path, errno))? {
            Upper::File(file, stat, origin) => match self.part(&child, scope)? {
                Part::Result => self.file(child, file, &stat, origin),
                Part::Ignored(_) if self.wanted.has(&child.path) => self.artifact(&child, file, &stat),
                Part::Ignored(rules) => self.leave_out(rules),
            },
            Upper::Link(target) => match self.part(&child, scope)? {
                Part::Result => self.link(child, &target),
                Part::Ignored(rules) => self.refuse_artifact(&child.path, Reason::Link, rules),
            },
            Upper::Refused(reason) => match self.part(&child, scope)? {
                Part::Result => self.reject(&child.path, reason),
                Part::Ignored(rules) => self.refuse_artifact(&child.path, reason, rules),
            },
            Upper::Directory => self.directory(child, cover, scope),
            Upper::Whiteout => self.removed(child, scope),
            Upper::Unsteady => Err(CollectFault::Changed { path: quoted("", &child.path) }),
        }
    }

    /// Base entries of a hidden directory that the upper layer does not name are deletions.
    fn hidden(&mut self, dir: &Place, upper: BorrowedFd<'_>) -> Result<(), CollectFault> {
        self.each_base_name(dir, |walk, name| match beneath::stat(upper, name) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => walk.base_entry(dir, name),
            Err(Errno::ACCESS) => walk.reject(&dir.child(name).path, Reason::Unreadable),
            Err(errno) => Err(CollectFault::read(&dir.path, errno)),
        })
    }

    fn gone(&mut self, dir: &Place) -> Result<(), CollectFault> {
        self.each_base_name(dir, |walk, name| walk.base_entry(dir, name))
    }

    fn each_base_name(
        &mut self,
        dir: &Place,
        mut visit: impl FnMut(&mut Self, &CStr) -> Result<(), CollectFault>,
    ) -> Result<(), CollectFault> {
        let lower = match beneath::open_dir(&self.sources.lower, &dir.path) {
            Ok(lower) => lower,
            Err(errno) if beneath::is_absent(errno) => return Ok(()),
            Err(Errno::ACCESS | Errno::XDEV) => return self.reject(&dir.path, Reason::BaseUnusable),
            Err(errno) => return Err(CollectFault::read(&dir.path, errno)),
        };
        let fault = |errno| CollectFault::read(&dir.path, errno);
        beneath::each_name(lower.as_fd(), fault, |name| visit(self, name))
    }

    fn base_entry(&mut self, dir: &Place, name: &CStr) -> Result<(), CollectFault> {
        match self.admit(dir, name)? {
            Admission::Admitted(child) => self.deleted(child),
            // Removed metadata is one fact, however many files it held.
            Admission::GitMetadata(_) => self.count_git_metadata(),
            Admission::Refused => Ok(()),
        }
    }

    fn git_metadata(&mut self, dir: &Place) -> Result<(), CollectFault> {
        let Some(fd) = self.open_upper(dir)? else { return Ok(()) };
        let fault = |errno| CollectFault::read(&dir.path, errno);
        beneath::each_name(fd.as_fd(), fault, |name| {
            self.budget.spend_entry()?;
            self.git_entry(dir.child(name), fd.as_fd(), name)
        })
    }

    fn git_entry(&mut self, child: Place, fd: BorrowedFd<'_>, name: &CStr) -> Result<(), CollectFault> {
        let is_directory = match beneath::stat(fd, name) {
            Ok(stat) => beneath::kind(&stat) == FileType::Directory,
            Err(Errno::ACCESS) => false,
            Err(errno) => return Err(CollectFault::read(&child.path, errno)),
        };
        if is_directory && self.limit(&child, name).is_none() {
            return self.push(child, Task::GitMetadata);
        }
        self.count_git_metadata()
    }

    fn count_git_metadata(&mut self) -> Result<(), CollectFault> {
        self.found.git_metadata = self.found.git_metadata.saturating_add(1);
        Ok(())
    }

    /// Decides by name alone whether an entry is looked at.
    fn admit(&mut self, dir: &Place, name: &CStr) -> Result<Admission, CollectFault> {
        self.budget.spend_entry()?;
        let child = dir.child(name);
        if is_git_name(name.to_bytes()) {
            return Ok(Admission::GitMetadata(child));
        }
        match self.limit(&child, name) {
            None => Ok(Admission::Admitted(child)),
            Some(reason) => self.reject(&child.path, reason).map(|()| Admission::Refused),
        }
    }

    fn limit(&self, child: &Place, name: &CStr) -> Option<Reason> {
        let caps = self.budget.caps();
        if name.count_bytes() > caps.name {
            Some(Reason::NameTooLong)
        } else if child.path.len() > PATH_BYTES {
            Some(Reason::PathTooLong)
        } else if child.depth > caps.depth {
            Some(Reason::TooDeep)
        } else if child.depth == 1 && apply::is_staging_name(name.to_bytes()) {
            Some(Reason::Reserved)
        } else {
            None
        }
    }

    fn open_upper(&mut self, dir: &Place) -> Result<Option<OwnedFd>, CollectFault> {
        match beneath::open_dir(&self.sources.upper, &dir.path) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::ACCESS) => self.reject(&dir.path, Reason::Unreadable).map(|()| None),
            Err(errno) => Err(CollectFault::read(&dir.path, errno)),
        }
    }

    fn push(&mut self, dir: Place, task: impl FnOnce(Place) -> Task) -> Result<(), CollectFault> {
        self.budget.spend_path(&dir.path)?;
        self.tasks.push(task(dir));
        Ok(())
    }

    fn leave_out(&mut self, rules: RuleFile) -> Result<(), CollectFault> {
        let paths = self.left_out.entry(rules).or_default();
        *paths = paths.saturating_add(1);
        Ok(())
    }

    /// Whoever declared exactly this waits for it; what else lies below a declared directory is left out with its like.
    fn refuse_artifact(&mut self, path: &[u8], reason: Reason, rules: RuleFile) -> Result<(), CollectFault> {
        if self.wanted.artifacts.iter().any(|wanted| wanted.as_bytes() == path) {
            self.found.artifacts_refused.push(Rejected { path: quoted("", path), reason });
        }
        self.leave_out(rules)
    }

    fn finish(self) -> Result<Findings, CollectFault> {
        let mut found = self.found;
        found.changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        found.artifacts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        if let Some(start) = self.sources.start {
            let lower = self.sources.lower.as_fd();
            found.changed_meanwhile.extend(moved_above(lower, &found.changes, start)?);
            found.changed_meanwhile.sort_unstable();
            found.changed_meanwhile.dedup();
        }
        found.rejected.sort_unstable();
        let left_out = self.left_out.into_iter();
        found.left_out = left_out.map(|(rules, paths)| LeftOut { rules: rules.to_string(), paths }).collect();
        Ok(found)
    }

    fn reject(&mut self, path: &[u8], reason: Reason) -> Result<(), CollectFault> {
        let path = quoted("", path);
        self.budget.spend_path(path.as_bytes())?;
        self.found.rejected.push(Rejected { path, reason });
        Ok(())
    }
}

/// What an entry's name alone decides.
enum Admission {
    Admitted(Place),
    GitMetadata(Place),
    Refused,
}

/// Where a leaf of the upper layer belongs.
enum Part {
    Result,
    Ignored(RuleFile),
}

impl Place {
    fn child(&self, name: &CStr) -> Self {
        let mut path = Vec::with_capacity(self.path.len() + 1 + name.count_bytes());
        path.extend_from_slice(&self.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        Self { path, depth: self.depth + 1 }
    }
}
