//! What the walk does with one entry of the upper layer: copy its content once, compare it with the base, record it.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat};

use super::{Cover, Part, Place, Task, Walk};
use crate::collect::CollectFault;
use crate::collect::artifact::EDIT_RESULT;
use crate::collect::base::{self, Base};
use crate::collect::change::{Change, Delta, Leaf, Mode, Reason};
use crate::collect::ignored::{Scope, Shape};
use crate::collect::meanwhile::taken_away_since;
use crate::collect::overlay::{Origin, same_file};
use crate::collect::pace::or_stopped;
use crate::object::Incoming;
use crate::path::{RelPath, quoted};
use crate::{beneath, fault};

impl Walk<'_> {
    /// Only what git does not know can be left out: it goes on showing changes to a file it knows, whatever the rules say.
    pub(super) fn part(&mut self, place: &Place, scope: &Scope) -> Result<Part, CollectFault> {
        let Some(rules) = scope.ignores(&place.path, Shape::Leaf) else { return Ok(Part::Result) };
        let is_there = !base::is_absent(self.sources.lower.as_fd(), &place.path)?;
        if (is_there && self.tracked().has(&place.path)) || place.path == EDIT_RESULT {
            return Ok(Part::Result);
        }
        // In the place of a directory: what git knows below that is gone, whatever becomes of this.
        if is_there
            && self.tracked().has_below(&place.path)
            && let Base::Directory(seen) = self.base(place)?
        {
            self.gone_below(place, &seen)?;
        }
        Ok(Part::Ignored(rules))
    }

    /// The same for a path of the base that the job removed.
    pub(super) fn removed(&mut self, place: Place, scope: &Scope) -> Result<(), CollectFault> {
        let handle = beneath::open_handle(self.sources.lower.as_fd(), &place.path);
        let is_directory =
            handle.and_then(rustix::fs::fstat).is_ok_and(|stat| beneath::kind(&stat) == FileType::Directory);
        let shape = if is_directory { Shape::Directory } else { Shape::Leaf };
        let Some(rules) = scope.ignores(&place.path, shape) else { return self.deleted(place) };
        let known = match shape {
            Shape::Directory => self.tracked().has_below(&place.path),
            Shape::Leaf => self.tracked().has(&place.path),
        };
        if known { self.deleted(place) } else { self.leave_out(rules) }
    }

    pub(super) fn file(
        &mut self,
        place: Place,
        file: File,
        stat: &Stat,
        origin: Origin,
    ) -> Result<(), CollectFault> {
        match self.take(&place, file, stat)? {
            Some((leaf, incoming)) => self.compare(place, leaf, &incoming, origin),
            None => Ok(()),
        }
    }

    /// A new file that the rules ignore and the caller asked for.
    pub(super) fn artifact(&mut self, place: &Place, file: File, stat: &Stat) -> Result<(), CollectFault> {
        let Some((new, incoming)) = self.take(place, file, stat)? else { return Ok(()) };
        self.store.keep(&incoming).map_err(|source| CollectFault::Store { source })?;
        let change = self.change(place, Delta::Added { new })?;
        self.found.artifacts.push(change);
        Ok(())
    }

    /// Copies a file into the store; nothing when it is too large.
    fn take(
        &mut self,
        place: &Place,
        file: File,
        stat: &Stat,
    ) -> Result<Option<(Leaf, Incoming)>, CollectFault> {
        let size = beneath::size(stat);
        if size > self.budget.caps().file_bytes {
            return self.reject(&place.path, Reason::FileTooLarge).map(|()| None);
        }
        self.budget.spend_bytes(size)?;
        fault::point();
        let incoming = self
            .store
            .take_in(&mut self.budget.paced(&file), size)
            .map_err(|source| or_stopped(source, |source| CollectFault::Store { source }))?;
        fault::point();
        let after = rustix::fs::fstat(&file).map_err(|errno| CollectFault::read(&place.path, errno))?;
        if incoming.size != size || !same_file(stat, &after) {
            return Err(CollectFault::Changed { path: quoted("", &place.path) });
        }
        let leaf = Leaf { mode: Mode::of_file(stat.st_mode), size, sha256: incoming.digest };
        Ok(Some((leaf, incoming)))
    }

    pub(super) fn link(&mut self, place: Place, target: &[u8]) -> Result<(), CollectFault> {
        if is_gitmodules(&place.path) {
            return self.reject(&place.path, Reason::Reserved);
        }
        let leaf = base::link_leaf(target);
        self.budget.spend_bytes(leaf.size)?;
        let incoming =
            self.store.take_in(&mut &*target, leaf.size).map_err(|source| CollectFault::Store { source })?;
        self.compare(place, leaf, &incoming, Origin::Job)
    }

    fn compare(
        &mut self,
        place: Place,
        new: Leaf,
        incoming: &Incoming,
        origin: Origin,
    ) -> Result<(), CollectFault> {
        let delta = match self.base(&place)? {
            Base::Absent => {
                self.note_if_removed(&place, origin)?;
                Some(Delta::Added { new })
            }
            Base::Leaf(base, seen) => {
                let delta = Delta::between(base, new);
                if delta.is_some() {
                    self.note_if_changed(&place, &seen)?;
                }
                delta
            }
            Base::Directory(seen) => {
                self.gone_below(&place, &seen)?;
                Some(Delta::Added { new })
            }
            Base::Unusable => {
                self.store.discard().map_err(|source| CollectFault::Store { source })?;
                return self.reject(&place.path, Reason::BaseUnusable);
            }
        };
        match delta {
            Some(delta) => {
                self.store.keep(incoming).map_err(|source| CollectFault::Store { source })?;
                self.record(&place, delta)
            }
            None => self.store.discard().map_err(|source| CollectFault::Store { source }),
        }
    }

    /// An upper directory; a base leaf it replaced is gone. One that is ignored and holds nothing git knows is not even opened.
    pub(super) fn directory(
        &mut self,
        place: Place,
        cover: Cover,
        outer: &Scope,
    ) -> Result<(), CollectFault> {
        let base = self.base(&place)?;
        let is_new = !matches!(base, Base::Directory(_));
        match base {
            Base::Leaf(base, seen) => {
                self.note_if_changed(&place, &seen)?;
                self.record(&place, Delta::Deleted { base })?;
            }
            Base::Unusable => self.reject(&place.path, Reason::BaseUnusable)?,
            Base::Absent | Base::Directory(_) => {}
        }
        let scope = match outer.ignores(&place.path, Shape::Directory) {
            None => outer.clone(),
            Some(rules) => {
                let unknown = is_new || !self.tracked().has_below(&place.path);
                if unknown && !self.wanted.leads_through(&place.path) {
                    return self.leave_out(rules);
                }
                Scope::Ignored(rules)
            }
        };
        self.push(place, |dir| Task::Merge(dir, cover, scope))
    }

    /// A path of the base that the job no longer sees.
    pub(super) fn deleted(&mut self, place: Place) -> Result<(), CollectFault> {
        match self.base(&place)? {
            Base::Absent => Ok(()),
            Base::Leaf(base, seen) => {
                self.note_if_changed(&place, &seen)?;
                self.record(&place, Delta::Deleted { base })
            }
            Base::Directory(seen) => self.gone_below(&place, &seen),
            Base::Unusable => self.reject(&place.path, Reason::BaseUnusable),
        }
    }

    /// A directory of the base that the job no longer sees as one.
    fn gone_below(&mut self, place: &Place, seen: &Stat) -> Result<(), CollectFault> {
        self.note_if_changed(place, seen)?;
        self.push(Place { path: place.path.clone(), depth: place.depth }, Task::Gone)
    }

    fn base(&mut self, place: &Place) -> Result<Base, CollectFault> {
        base::look(self.sources.lower.as_fd(), &place.path, &mut self.budget)
    }

    /// What the base holds here need not be what the job began with.
    fn note_if_changed(&mut self, place: &Place, seen: &Stat) -> Result<(), CollectFault> {
        if self.sources.start.is_some_and(|start| start.precedes(seen)) {
            self.budget.spend_path(&place.path)?;
            let path = named(&place.path)?;
            self.found.changed_meanwhile.push(path);
        }
        Ok(())
    }

    /// What the base does not hold need not be new: somebody else may have removed what the job changed.
    fn note_if_removed(&mut self, place: &Place, origin: Origin) -> Result<(), CollectFault> {
        let Some(start) = self.sources.start else { return Ok(()) };
        if !taken_away_since(self.sources.lower.as_fd(), &place.path, start)? {
            return Ok(());
        }
        match origin {
            Origin::Base => {}
            Origin::Job if self.tracked().surely_has(&place.path) => {}
            Origin::Job => return Ok(()),
        }
        self.budget.spend_path(&place.path)?;
        let path = named(&place.path)?;
        self.found.changed_meanwhile.push(path);
        Ok(())
    }

    fn record(&mut self, place: &Place, delta: Delta) -> Result<(), CollectFault> {
        let change = self.change(place, delta)?;
        self.found.changes.push(change);
        Ok(())
    }

    fn change(&mut self, place: &Place, delta: Delta) -> Result<Change, CollectFault> {
        self.budget.spend_path(&place.path)?;
        Ok(Change { path: named(&place.path)?, delta })
    }
}

fn named(path: &[u8]) -> Result<RelPath, CollectFault> {
    RelPath::from_bytes(path).map_err(|source| CollectFault::Name { path: quoted("", path), source })
}

/// Git refuses a `.gitmodules` that is a link, under each name a file system may give it.
fn is_gitmodules(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_ascii_lowercase();
    let short_name = [b"gitmod~1", b"gitmod~2", b"gitmod~3", b"gitmod~4"].iter().any(|short| name == **short);
    short_name || name.strip_prefix(b".gitmodules").is_some_and(|rest| rest.iter().all(|b| b". ".contains(b)))
}
