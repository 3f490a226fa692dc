//! Receiving requests: packets of one byte, the descriptors that belong to them, and among those a sealed plan.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::jail::{self, Console, Ground, JailPlan, MAX_PLAN_BYTES, Step, word};
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::check;
use crate::disk::Disk;
use crate::fault::{At, Failure, Fault};

/// What one packet asks for.
pub(crate) enum Request {
    Prepare(Groundwork),
    Launch(Launch),
    Stage(Stage),
    Visit(Visit),
    Lay(Lay),
}

/// A ground to lay for the next sandbox.
pub(crate) struct Lay {
    pub(crate) ground: OwnedFd,
    pub(crate) child: Child,
    pub(crate) disk: Option<Disk>,
}

/// When the child of a ground is made.
pub(crate) enum Child {
    /// With its job.
    Later,
    /// With the ground, in this control group where there is one to be born in.
    AtOnce(Option<OwnedFd>),
}

/// Storage to build and to hang up where a container will find it.
pub(crate) struct Stage {
    pub(crate) plan: OwnedFd,
    pub(crate) report: OwnedFd,
    pub(crate) checkout: OwnedFd,
    pub(crate) directory: OwnedFd,
    pub(crate) disk: Disk,
}

/// Doors to open in the network namespace of a container.
pub(crate) struct Visit {
    pub(crate) plan: OwnedFd,
    pub(crate) report: OwnedFd,
    pub(crate) process: OwnedFd,
}

/// What a launch can begin with before there is a plan.
pub(crate) struct Groundwork {
    /// The v2 control group the child is born in.
    pub(crate) group: Option<OwnedFd>,
    pub(crate) disk: Option<Disk>,
    pub(crate) on: Footing,
}

/// What a child is to stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footing {
    /// Nothing yet.
    Bare,
    /// The ground that was laid before.
    Ground,
}

/// A plan not yet read, and descriptors not yet named; so that the child can be given the same.
pub(crate) struct Launch {
    pub(crate) plan: OwnedFd,
    pub(crate) report: OwnedFd,
    pub(crate) checkout: OwnedFd,
    pub(crate) rest: Vec<OwnedFd>,
}

/// A launch whose plan was read and whose descriptors have names.
pub(crate) struct Order {
    pub(crate) plan: JailPlan,
    /// Absent when the job gets a terminal, which is made inside.
    pub(crate) stdio: Option<[OwnedFd; 3]>,
    pub(crate) lifeline: OwnedFd,
    pub(crate) checkout: OwnedFd,
}

/// What can be added to `PREPARE`.
const PREPARED: u8 = word::GROUP | word::DISK | word::STANDING | word::KEPT;
/// What can be added to `GROUND`.
const LAID: u8 = word::GROUP | word::DISK | word::STANDING;

/// The next request, or nothing when the asking side is gone. A packet that is not wholly understood ends the launcher.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Request>, Fault> {
    let mut word = [0; 8];
    let (length, descriptors) = pond_sys::socket::receive(socket, &mut word).map_err(Fault::Receive)?;
    let mut descriptors = descriptors.into_iter();
    let refused = || Fault::Receive(std::io::ErrorKind::InvalidInput.into());
    let mut next = || descriptors.next().ok_or_else(refused);
    let has = |word: u8, bit: u8| word & bit != 0;
    let request = match (length, word.first()) {
        (0, _) => return Ok(None),
        (1, Some(&word::LAUNCH)) => {
            let launch = Launch::from_descriptors(descriptors.collect()).ok_or_else(refused)?;
            return Ok(Some(Request::Launch(launch)));
        }
        (1, Some(&stage)) if stage & !word::KEPT == word::STAGE => {
            let (plan, report, checkout, directory) = (next()?, next()?, next()?, next()?);
            let disk = Disk::from(has(stage, word::KEPT), &mut next)?;
            Request::Stage(Stage { plan, report, checkout, directory, disk })
        }
        (1, Some(&word::VISIT)) => Request::Visit(Visit { plan: next()?, report: next()?, process: next()? }),
        (1, Some(&lay)) if lay & !LAID == word::GROUND => {
            let ground = next()?;
            let child = match (has(lay, word::STANDING), has(lay, word::GROUP)) {
                (true, group) => Child::AtOnce(group.then(&mut next).transpose()?),
                (false, false) => Child::Later,
                (false, true) => return Err(refused()),
            };
            let disk = has(lay, word::DISK).then(|| Disk::from(false, &mut next)).transpose()?;
            Request::Lay(Lay { ground, child, disk })
        }
        (1, Some(&prepare)) if prepare & !PREPARED == word::PREPARE => {
            let group = has(prepare, word::GROUP).then(&mut next).transpose()?;
            let kept = has(prepare, word::KEPT);
            if kept && !has(prepare, word::DISK) {
                return Err(refused());
            }
            let disk = has(prepare, word::DISK).then(|| Disk::from(kept, &mut next)).transpose()?;
            let on = if has(prepare, word::STANDING) { Footing::Ground } else { Footing::Bare };
            Request::Prepare(Groundwork { group, disk, on })
        }
        _ => return Err(refused()),
    };
    if descriptors.next().is_some() { Err(refused()) } else { Ok(Some(request)) }
}

impl Launch {
    /// Everything that travels with it, in the order it came in.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [&self.plan, &self.report, &self.checkout].into_iter().chain(&self.rest).map(AsFd::as_fd).collect()
    }

    /// As it arrives at the launcher, and again at the child.
    pub(crate) fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let (plan, report, checkout) = (descriptors.next()?, descriptors.next()?, descriptors.next()?);
        Some(Self { plan, report, checkout, rest: descriptors.collect() })
    }
}

/// Gives each descriptor its name.
pub(crate) fn order(plan: JailPlan, checkout: OwnedFd, rest: Vec<OwnedFd>) -> Result<Order, Failure> {
    let mut rest = rest.into_iter();
    let mut next = || rest.next().ok_or(Failure { step: Step::ReadPlan, errno: Errno::BADF });
    let stdio = match plan.console {
        Console::Pipes => Some([next()?, next()?, next()?]),
        Console::Terminal { .. } => None,
    };
    let lifeline = next()?;
    match rest.next() {
        None => Ok(Order { plan, stdio, lifeline, checkout }),
        Some(_unnamed) => Err(REFUSED),
    }
}

const REFUSED: Failure = Failure { step: Step::ReadPlan, errno: Errno::INVAL };

/// The plan, checked. It arrives in a sealed memory file, so what was checked here is what the child reads again.
pub(crate) fn plan_of(file: &OwnedFd) -> Result<JailPlan, Failure> {
    let plan = jail::decode(&sealed(file)?).map_err(|_| REFUSED)?;
    check::check(&plan)?;
    Ok(plan)
}

/// The ground, checked as a plan is.
pub(crate) fn ground_of(file: &OwnedFd) -> Result<Ground, Failure> {
    let ground = jail::decode(&sealed(file)?).map_err(|_| REFUSED)?;
    check::check_ground(&ground)?;
    Ok(ground)
}

/// What a memory file says that nobody can change any more.
pub(crate) fn sealed(file: &OwnedFd) -> Result<Vec<u8>, Failure> {
    let sealed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    if !rustix::fs::fcntl_get_seals(file).at(Step::ReadPlan)?.contains(sealed) {
        return Err(REFUSED);
    }
    let size = u64::try_from(rustix::fs::fstat(file).at(Step::ReadPlan)?.st_size).map_err(|_| REFUSED)?;
    if size > MAX_PLAN_BYTES {
        return Err(Failure { step: Step::ReadPlan, errno: Errno::TOOBIG });
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| REFUSED)?];
    let read = rustix::io::pread(file.as_fd(), &mut *bytes, 0).at(Step::ReadPlan)?;
    if read != bytes.len() {
        return Err(REFUSED);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    //! A packet is understood as a whole or not at all.
    use super::*;

    fn received(bytes: &[u8], descriptors: usize) -> Result<Option<Request>, Fault> {
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        let attached = vec![ours.as_fd(); descriptors];
        pond_sys::socket::send(&ours, bytes, &attached).unwrap();
        receive(theirs.as_fd())
    }

    fn shape(request: Option<Request>) -> (bool, bool, usize) {
        match request.unwrap() {
            Request::Prepare(Groundwork { group, disk, on }) => {
                (group.is_some(), disk.is_some(), usize::from(on == Footing::Ground))
            }
            Request::Lay(Lay { child: Child::Later, disk, .. }) => (false, disk.is_some(), 1),
            Request::Lay(Lay { child: Child::AtOnce(group), disk, .. }) => {
                (group.is_some(), disk.is_some(), 2)
            }
            Request::Launch(launch) => (false, false, launch.descriptors().len()),
            Request::Stage(_) => (false, true, 4),
            Request::Visit(_) => (false, false, 3),
        }
    }

    #[test]
    fn every_descriptor_has_a_use() {
        let prepare = word::PREPARE;
        let both = prepare | word::GROUP | word::DISK;
        for (word, descriptors, expected) in [
            (prepare, 0, (false, false, 0)),
            (prepare | word::GROUP, 1, (true, false, 0)),
            (prepare | word::DISK, 2, (false, true, 0)),
            (both, 3, (true, true, 0)),
            (prepare | word::STANDING, 0, (false, false, 1)),
            (both | word::STANDING, 3, (true, true, 1)),
            (word::GROUND, 1, (false, false, 1)),
            (word::GROUND | word::DISK, 3, (false, true, 1)),
            (word::GROUND | word::STANDING, 1, (false, false, 2)),
            (word::GROUND | word::STANDING | word::GROUP | word::DISK, 4, (true, true, 2)),
            (both | word::KEPT, 2, (true, true, 0)),
            (word::LAUNCH, 7, (false, false, 7)),
            (word::STAGE, 6, (false, true, 4)),
            (word::STAGE | word::KEPT, 5, (false, true, 4)),
            (word::VISIT, 3, (false, false, 3)),
        ] {
            assert_eq!(shape(received(&[word], descriptors).unwrap()), expected);
        }
        for (word, descriptors) in [
            (prepare, 1),
            (both, 2),
            (both, 4),
            (word::GROUND, 2),
            (word::GROUND | word::DISK, 2),
            (word::GROUND | word::STANDING | word::GROUP, 1),
            (both | word::KEPT, 3),
            (prepare | word::KEPT, 0),
            (word::LAUNCH, 2),
            (word::STAGE, 5),
            (word::VISIT, 4),
        ] {
            assert!(received(&[word], descriptors).is_err(), "{word:#x} with {descriptors}");
        }
    }

    #[test]
    fn an_unknown_word_is_refused_and_a_closed_end_is_the_end() {
        for bytes in [
            [0].as_slice(),
            &[word::LAUNCH | word::KEPT],
            &[word::GROUND | word::KEPT],
            &[word::GROUND | word::GROUP],
            &[word::LAUNCH | word::PREPARE],
            &[1, 1],
        ] {
            assert!(received(bytes, 3).is_err(), "{bytes:x?}");
        }
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        drop(ours);
        assert!(receive(theirs.as_fd()).unwrap().is_none());
    }
}
