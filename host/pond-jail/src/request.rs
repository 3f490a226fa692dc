//! Receiving requests: packets of one byte, the descriptors that belong to them, and among those a sealed plan.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_wire::jail::{Console, JailPlan, MAX_PLAN_BYTES, Step, word};
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
    /// Entries of the job's v1 control groups, where its first process writes `0`.
    pub(crate) groups: Vec<OwnedFd>,
}

/// The next request, or nothing when the asking side is gone. A packet that is not wholly understood ends the launcher.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Request>, Fault> {
    let mut word = [0; 8];
    let (length, descriptors) = pond_sys::socket::receive(socket, &mut word).map_err(Fault::Receive)?;
    let mut descriptors = descriptors.into_iter();
    let refused = || Fault::Receive(std::io::ErrorKind::InvalidInput.into());
    let mut next = || descriptors.next().ok_or_else(refused);
    let request = match (length, word.first()) {
        (0, _) => return Ok(None),
        (1, Some(&word::LAUNCH)) => {
            let launch = Launch::from_descriptors(descriptors.collect()).ok_or_else(refused)?;
            return Ok(Some(Request::Launch(launch)));
        }
        (1, Some(&stage)) if stage & !word::KEPT == word::STAGE => {
            let (plan, report, checkout, directory) = (next()?, next()?, next()?, next()?);
            let image = next()?;
            let template = if stage & word::KEPT == 0 { Some(next()?) } else { None };
            let disk = Disk { image, template };
            Request::Stage(Stage { plan, report, checkout, directory, disk })
        }
        (1, Some(&word::VISIT)) => Request::Visit(Visit { plan: next()?, report: next()?, process: next()? }),
        (1, Some(&prepare)) if prepare & !(word::GROUP | word::DISK | word::KEPT) == word::PREPARE => {
            let group = if prepare & word::GROUP == 0 { None } else { Some(next()?) };
            let disk = match (prepare & word::DISK != 0, prepare & word::KEPT != 0) {
                (false, false) => None,
                (true, false) => Some(Disk { image: next()?, template: Some(next()?) }),
                (true, true) => Some(Disk { image: next()?, template: None }),
                (false, true) => return Err(refused()),
            };
            Request::Prepare(Groundwork { group, disk })
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
    Ok(Order { plan, stdio, lifeline: next()?, checkout, groups: rest.collect() })
}

/// The plan, checked. It arrives in a sealed memory file, so what was checked here is what the child reads again.
pub(crate) fn plan_of(file: &OwnedFd) -> Result<JailPlan, Failure> {
    let refused = Failure { step: Step::ReadPlan, errno: Errno::INVAL };
    let plan: JailPlan = serde_json::from_slice(&sealed(file)?).map_err(|_| refused)?;
    check::check(&plan)?;
    Ok(plan)
}

/// What a memory file says that nobody can change any more.
pub(crate) fn sealed(file: &OwnedFd) -> Result<Vec<u8>, Failure> {
    let sealed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let refused = Failure { step: Step::ReadPlan, errno: Errno::INVAL };
    if !rustix::fs::fcntl_get_seals(file).at(Step::ReadPlan)?.contains(sealed) {
        return Err(refused);
    }
    let size = u64::try_from(rustix::fs::fstat(file).at(Step::ReadPlan)?.st_size).map_err(|_| refused)?;
    if size > MAX_PLAN_BYTES {
        return Err(Failure { step: Step::ReadPlan, errno: Errno::TOOBIG });
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| refused)?];
    let read = rustix::io::pread(file.as_fd(), &mut *bytes, 0).at(Step::ReadPlan)?;
    if read != bytes.len() {
        return Err(refused);
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
            Request::Prepare(Groundwork { group, disk }) => (group.is_some(), disk.is_some(), 0),
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
        for bytes in [[0].as_slice(), &[word::PREPARE | 0x08], &[word::LAUNCH | word::PREPARE], &[1, 1]] {
            assert!(received(bytes, 3).is_err(), "{bytes:x?}");
        }
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        drop(ours);
        assert!(receive(theirs.as_fd()).unwrap().is_none());
    }
}
