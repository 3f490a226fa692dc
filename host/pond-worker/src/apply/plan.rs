//! Looks before anything is touched: is every path still the base the job worked on, and what has to be made or
//! emptied on the way. All conflicts are reported together.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat};

use super::{ApplyRefused, Conflict, ConflictKind};
use crate::beneath;
use crate::collect::base::{Base, look};
use crate::collect::caps::Budget;
use crate::collect::{Change, CollectFault, Delta, Leaf, Record};
use crate::path::RelPath;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) moves: Vec<Move>,
    pub(super) made: Vec<RelPath>,
    pub(super) gone: Vec<RelPath>,
}

/// One change with what was seen of its base.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) path: RelPath,
    pub(super) kind: MoveKind,
}

#[derive(Debug)]
pub(super) enum MoveKind {
    Remove { seen: Stat },
    Replace { seen: Stat, new: Leaf },
    Create { new: Leaf },
}

pub(super) fn survey(record: &Record, root: BorrowedFd<'_>) -> Result<Plan, ApplyRefused> {
    let changes = record.changes.as_slice();
    check_order(changes)?;
    let meanwhile = |path: &RelPath| Conflict { path: path.clone(), kind: ConflictKind::ChangedMeanwhile };
    let conflicts = record.changed_meanwhile.iter().map(meanwhile).collect();
    let mut survey =
        Survey { root, kinds: BTreeMap::new(), conflicts, made: BTreeSet::new(), emptied: BTreeSet::new() };
    let leaving: BTreeSet<&RelPath> = paths(changes, |delta| delta.result().is_none());
    survey.emptied = leaving.iter().flat_map(|path| path.ancestors()).collect();
    let mut moves = Vec::new();
    for change in changes {
        if let Some(kind) = survey.examine(change, &leaving)? {
            moves.push(Move { path: change.path.clone(), kind });
        }
    }
    if !survey.conflicts.is_empty() {
        survey.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        survey.conflicts.dedup_by(|one, other| one.path == other.path);
        return Err(ApplyRefused::Conflicts(survey.conflicts));
    }
    let staying = paths(changes, |delta| delta.result().is_some());
    let needed: BTreeSet<RelPath> = staying.iter().flat_map(|path| path.ancestors()).collect();
    let gone = survey.emptied.into_iter().filter(|dir| !needed.contains(dir)).rev().collect();
    Ok(Plan { moves, made: survey.made.into_iter().collect(), gone })
}

fn paths(changes: &[Change], wanted: impl Fn(&Delta) -> bool) -> BTreeSet<&RelPath> {
    changes.iter().filter(|change| wanted(&change.delta)).map(|change| &change.path).collect()
}

/// Sorted, no path twice, and nothing new below something new that is not a directory.
fn check_order(changes: &[Change]) -> Result<(), ApplyRefused> {
    for (one, next) in changes.iter().zip(changes.iter().skip(1)) {
        if one.path >= next.path {
            return Err(ApplyRefused::Malformed { path: next.path.clone() });
        }
    }
    let new = paths(changes, |delta| delta.result().is_some());
    match new.iter().find(|path| path.ancestors().any(|above| new.contains(&above))) {
        Some(path) => Err(ApplyRefused::Malformed { path: (*path).clone() }),
        None => Ok(()),
    }
}

struct Survey<'a> {
    root: BorrowedFd<'a>,
    /// What stands at each parent already asked about.
    kinds: BTreeMap<RelPath, Parent>,
    conflicts: Vec<Conflict>,
    made: BTreeSet<RelPath>,
    /// Directories that everything leaves.
    emptied: BTreeSet<RelPath>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    Directory,
    Absent,
    Occupied,
}

impl Survey<'_> {
    fn examine(
        &mut self,
        change: &Change,
        leaving: &BTreeSet<&RelPath>,
    ) -> Result<Option<MoveKind>, ApplyRefused> {
        let found = self.look(&change.path)?;
        let kind = match (change.delta.base(), change.delta.result(), found) {
            (None, Some(new), Base::Absent) => {
                return Ok(self.parents(&change.path, leaving)?.then_some(MoveKind::Create { new }));
            }
            (None, Some(new), Base::Directory(_)) => {
                return Ok(self.makes_room(&change.path, leaving)?.then_some(MoveKind::Create { new }));
            }
            (None, _, _) => ConflictKind::Exists,
            (Some(base), new, Base::Leaf(leaf, seen)) if leaf == base => {
                return Ok(Some(match new {
                    Some(new) => MoveKind::Replace { seen, new },
                    None => MoveKind::Remove { seen },
                }));
            }
            (Some(_), _, Base::Absent) => ConflictKind::Missing,
            (Some(_), _, Base::Leaf(..) | Base::Directory(_) | Base::Unusable) => ConflictKind::Differs,
        };
        self.conflicts.push(Conflict { path: change.path.clone(), kind });
        Ok(None)
    }

    /// A directory makes room for a file when all files in it leave: those below it that are empty leave as well, for a result
    /// knows nothing of directories. False after noting a conflict.
    fn makes_room(&mut self, dir: &RelPath, leaving: &BTreeSet<&RelPath>) -> Result<bool, ApplyRefused> {
        let examining = |source| ApplyRefused::Examine { source };
        let mut pending = vec![dir.clone()];
        while let Some(dir) = pending.pop() {
            let fault = |errno| examining(CollectFault::read(dir.as_bytes(), errno));
            let fd = beneath::open_dir(self.root, dir.as_bytes()).map_err(fault)?;
            let mut staying = None;
            beneath::each_name(fd.as_fd(), fault, |name| {
                let is_directory =
                    beneath::kind(&beneath::stat(&fd, name).map_err(fault)?) == FileType::Directory;
                match RelPath::from_bytes(&[dir.as_bytes(), b"/", name.to_bytes()].concat()) {
                    Ok(path) if is_directory => pending.push(path),
                    Ok(path) if leaving.contains(&path) => {}
                    Ok(_) | Err(_) => staying = Some(dir.clone()),
                }
                Ok(())
            })?;
            if let Some(path) = staying {
                self.conflicts.push(Conflict { path, kind: ConflictKind::Exists });
                return Ok(false);
            }
            self.emptied.insert(dir);
        }
        Ok(true)
    }

    fn look(&self, path: &RelPath) -> Result<Base, ApplyRefused> {
        look(self.root, path.as_bytes(), &mut Budget::unlimited())
            .map_err(|source| ApplyRefused::Examine { source })
    }

    /// Every parent is a directory, or can be made one; false after noting a conflict.
    fn parents(&mut self, path: &RelPath, leaving: &BTreeSet<&RelPath>) -> Result<bool, ApplyRefused> {
        for above in path.ancestors() {
            match self.parent(&above)? {
                Parent::Directory => {}
                Parent::Absent => drop(self.made.insert(above)),
                Parent::Occupied if leaving.contains(&above) => drop(self.made.insert(above)),
                Parent::Occupied => {
                    let kind = ConflictKind::ParentNotADirectory;
                    self.conflicts.push(Conflict { path: path.clone(), kind });
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn parent(&mut self, path: &RelPath) -> Result<Parent, ApplyRefused> {
        if let Some(known) = self.kinds.get(path) {
            return Ok(*known);
        }
        let kind = match self.look(path)? {
            Base::Directory(_) => Parent::Directory,
            Base::Absent => Parent::Absent,
            Base::Leaf(..) | Base::Unusable => Parent::Occupied,
        };
        self.kinds.insert(path.clone(), kind);
        Ok(kind)
    }
}
