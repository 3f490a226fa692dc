//! What the next job gets besides its ground, made while nobody waits: a record, and the control groups it names.
//!
//! Zone: host. Invariants: the record is on disk before a group is made, and is the job's own from the moment that has a name; who
//! dies in between leaves what a sweep removes. What no job took is removed when it is let go of, the groups before their record.

use std::os::fd::BorrowedFd;
use std::{io, mem};

use super::cgroup::{Birthplace, CgroupFault, CgroupHost, CgroupLimits, DiskRate, JobCgroup, reclaim};
use super::launch::LaunchFault;
use crate::record::{JobName, Live, Made, Record, nonce};
use crate::state::StateDir;

/// Groups that are whole, and whose they are by now.
#[derive(Debug, Default)]
pub(super) struct Spare(Standing);

#[derive(Debug, Default)]
enum Standing {
    #[default]
    Nothing,
    Nobodys(Live, Groups),
    /// Of a job that has a name and was not begun yet.
    Of(JobName, Groups),
}

/// Where a job's groups come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// They are those that were ready, with whatever waits in them.
    Spare,
    /// They were made for the job.
    Own,
}

#[derive(Debug)]
struct Groups {
    /// They are called after.
    name: String,
    made: JobCgroup,
    /// What a disk gives is added to, and not replaced.
    disk_rate: Option<DiskRate>,
}

impl Spare {
    pub(super) fn make(
        state: &StateDir,
        host: &CgroupHost,
        limits: CgroupLimits,
    ) -> Result<Self, LaunchFault> {
        let name = format!("spare-{}", nonce().map_err(LaunchFault::Name)?);
        let job =
            JobName::try_from(name.clone()).map_err(|fault| LaunchFault::Name(io::Error::other(fault)))?;
        let cgroups = host.directories(&name);
        let record = Live::spare(state, Record { job, made: Made::Native { cgroups: cgroups.clone() } })?;
        match host.create(&name, &limits) {
            Ok(made) => {
                let groups = Groups { name, made, disk_rate: limits.disk_rate };
                Ok(Self(Standing::Nobodys(record, groups)))
            }
            Err(fault) => {
                close(record, reclaim(&cgroups));
                Err(fault.into())
            }
        }
    }

    /// The record, as this job's. Nothing where there is none, or where the job cannot have it: then it needs one of its own.
    pub(super) fn give(&mut self, state: &StateDir, job: &JobName) -> Option<Live> {
        match mem::take(&mut self.0) {
            Standing::Nobodys(mut record, groups) => {
                if record.rename(state, job.clone()).is_err() {
                    self.0 = Standing::Nobodys(record, groups);
                    return None;
                }
                self.0 = Standing::Of(job.clone(), groups);
                Some(record)
            }
            other @ (Standing::Nothing | Standing::Of(..)) => {
                self.0 = other;
                None
            }
        }
    }

    /// The one group that a process can be born in which waits for whatever job comes.
    pub(super) fn directory(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Standing::Nobodys(_, groups) | Standing::Of(_, groups) => groups.made.entry().v2,
            Standing::Nothing => None,
        }
    }

    /// Where the first process of this job is born: the groups that were ready, with its limits, or others in their place.
    pub(super) fn birthplace(
        &mut self,
        host: &CgroupHost,
        job: &JobName,
        limits: &CgroupLimits,
    ) -> Result<(Birthplace, Origin), CgroupFault> {
        match mem::take(&mut self.0) {
            Standing::Of(of, mut groups) if of == *job => {
                let fits = groups.disk_rate == limits.disk_rate && groups.made.is_untouched();
                if fits && groups.made.limit_again(limits).is_ok() {
                    return Ok((Birthplace::of(groups.made), Origin::Spare));
                }
                // Whatever waits in them goes first; that they can be removed is the proof that it went.
                if let Err(_gone_by_now) = groups.made.kill() {}
                groups.made.remove()?;
                Ok((host.begin(&groups.name, limits)?, Origin::Own))
            }
            others @ (Standing::Nothing | Standing::Nobodys(..) | Standing::Of(..)) => {
                self.0 = others;
                Ok((host.begin(job.as_str(), limits)?, Origin::Own))
            }
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Standing::Nobodys(record, groups) = mem::take(&mut self.0) {
            close(record, groups.made.end());
        }
    }
}

/// A record goes when all that it names is gone. What stays is swept, as if its owner had died.
fn close(record: Live, groups: Result<(), CgroupFault>) {
    if groups.is_ok()
        && let Err(_swept) = record.close()
    {}
}

#[cfg(test)]
mod tests {
    //! What is ready is one job's or nobody's, and goes with whoever it is. Needs the right to make groups.
    use std::mem::ManuallyDrop;
    use std::path::PathBuf;

    use pond_policy::limits::{Cpus, Memory, Pids};

    use super::super::cgroup::Mode;
    use super::*;
    use crate::record::{dead, recorded};

    fn limits(memory: &str) -> CgroupLimits {
        let (cpus, pids) = (Cpus::parse("1").unwrap(), Pids::parse("64").unwrap());
        CgroupLimits { memory: Memory::parse(memory).unwrap(), cpus, pids, disk_rate: None }
    }

    fn named(name: &str) -> JobName {
        JobName::try_from(format!("{name}-{}", nonce().unwrap())).unwrap()
    }

    fn groups(made: &Made) -> Vec<PathBuf> {
        match made {
            Made::Native { cgroups } => cgroups.clone(),
            Made::Container { .. } | Made::Remainder { .. } => panic!("{made:?}"),
        }
    }

    fn exist(groups: &[PathBuf]) -> usize {
        groups.iter().filter(|group| group.is_dir()).count()
    }

    #[test]
    fn a_job_gets_it_once_whole_and_with_its_own_limits() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let host = CgroupHost::detect().unwrap();
        for wanted in ["64m", "32m", "128m"] {
            let mut spare = Spare::make(&state, &host, limits("64m")).unwrap();
            assert_eq!(recorded(&state).unwrap(), []);
            let (first, second) = (named("first"), named("second"));
            let record = spare.give(&state, &first).unwrap();
            assert!(spare.give(&state, &second).is_none());
            let paths = groups(record.made());
            assert_eq!(exist(&paths), paths.len());
            let (other, its) = spare.birthplace(&host, &second, &limits("64m")).unwrap();
            let (ours, origin) = spare.birthplace(&host, &first, &limits(wanted)).unwrap();
            assert_eq!((its, origin), (Origin::Own, Origin::Spare));
            assert_eq!(exist(&paths), paths.len());
            let ours = host.complete(ours, &limits(wanted)).unwrap();
            assert_eq!(exist(&paths), paths.len());
            let memory = ["memory.limit_in_bytes", "memory.max"]
                .map(|file| paths.iter().find_map(|path| std::fs::read_to_string(path.join(file)).ok()));
            let memory = memory.into_iter().flatten().next().unwrap();
            assert_eq!(memory.trim().parse(), Ok(limits(wanted).memory.bytes()));
            ours.remove().unwrap();
            host.complete(other, &limits("64m")).unwrap().remove().unwrap();
            record.close().unwrap();
            assert_eq!(exist(&paths), 0);
        }
    }

    /// Somebody may have had weeks for it.
    #[test]
    fn whatever_was_done_to_them_meanwhile_the_job_s_groups_are_whole_and_limited() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let host = CgroupHost::detect().unwrap();
        let meddle: [fn(&PathBuf); 2] = [
            |group| {
                for file in ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"] {
                    std::fs::write(group.join(file), "-1").unwrap_or_default();
                }
                for file in ["memory.max", "pids.max"] {
                    std::fs::write(group.join(file), "max").unwrap_or_default();
                }
            },
            |group| std::fs::remove_dir(group).unwrap(),
        ];
        for meddle in meddle {
            let mut spare = Spare::make(&state, &host, limits("64m")).unwrap();
            let job = named("job");
            let record = spare.give(&state, &job).unwrap();
            let paths = groups(record.made());
            paths.iter().for_each(meddle);
            let (ours, _) = spare.birthplace(&host, &job, &limits("64m")).unwrap();
            let ours = host.complete(ours, &limits("64m")).unwrap();
            let said = |files: &[&str]| {
                let mut said = paths.iter().flat_map(|path| files.iter().map(|file| path.join(file)));
                said.find_map(|file| std::fs::read_to_string(file).ok()).unwrap()
            };
            assert_eq!(said(&["pids.max"]).trim(), "64");
            let memory = said(&["memory.limit_in_bytes", "memory.max"]);
            assert_eq!(memory.trim().parse(), Ok(limits("64m").memory.bytes()));
            ours.remove().unwrap();
            record.close().unwrap();
        }
    }

    /// The kernel goes on counting: a job would end with what met whatever waited for it. With v1 groups nothing waits in them.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own child")]
    fn groups_in_which_something_met_its_limit_are_no_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let host = CgroupHost::detect().unwrap();
        let mut spare = Spare::make(&state, &host, limits("64m")).unwrap();
        let job = named("job");
        let record = spare.give(&state, &job).unwrap();
        let pids = groups(record.made()).into_iter().find(|group| group.join("pids.max").exists()).unwrap();
        let line = "echo $$ > $0/cgroup.procs; echo 1 > $0/pids.max; (true); exit 0";
        let forked = std::process::Command::new("sh").args(["-c", line]).arg(&pids).output().unwrap();
        assert!(!forked.status.success(), "{forked:?}");
        let (ours, origin) = spare.birthplace(&host, &job, &limits("64m")).unwrap();
        assert_eq!(origin, if host.mode() == Mode::V2 { Origin::Own } else { Origin::Spare });
        let ours = host.complete(ours, &limits("64m")).unwrap();
        let denied = ours.usage().unwrap().pids_denied;
        assert_eq!(denied == Some(0), host.mode() == Mode::V2, "{denied:?}");
        ours.remove().unwrap();
        record.close().unwrap();
    }

    #[test]
    fn a_group_that_does_not_go_keeps_its_record() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let host = CgroupHost::detect().unwrap();
        let spare = Spare::make(&state, &host, limits("64m")).unwrap();
        let Standing::Nobodys(record, _) = &spare.0 else { panic!("{spare:?}") };
        let paths = groups(record.made());
        let inside = paths[0].join("sub");
        std::fs::create_dir(&inside).unwrap();
        drop(spare);
        assert_eq!((exist(&paths), dead(&state).unwrap().len()), (1, 1));
        std::fs::remove_dir(&inside).unwrap();
        let swept = crate::native::sweep(&state).unwrap();
        assert_eq!((swept.jobs.len(), swept.stuck.len(), exist(&paths)), (0, 0, 0));
        assert_eq!(dead(&state).unwrap().len(), 0);
    }

    #[test]
    fn what_no_job_took_goes_with_who_made_it_or_is_swept() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let host = CgroupHost::detect().unwrap();
        let made = |spare: &Spare| match &spare.0 {
            Standing::Nobodys(record, _) => groups(record.made()),
            other @ (Standing::Nothing | Standing::Of(..)) => panic!("{other:?}"),
        };
        let spare = Spare::make(&state, &host, limits("64m")).unwrap();
        let paths = made(&spare);
        drop(spare);
        assert_eq!((exist(&paths), dead(&state).unwrap().len()), (0, 0));
        // As if it had been killed: its record is there, and nobody holds it.
        let mut spare = Spare::make(&state, &host, limits("64m")).unwrap();
        let paths = made(&spare);
        match mem::take(&mut spare.0) {
            Standing::Nobodys(record, groups) => {
                drop(record);
                let _abandoned = ManuallyDrop::new(groups);
            }
            other @ (Standing::Nothing | Standing::Of(..)) => panic!("{other:?}"),
        }
        assert_eq!(exist(&paths), paths.len());
        let swept = crate::native::sweep(&state).unwrap();
        assert_eq!((swept.jobs.len(), swept.stuck.len(), exist(&paths)), (0, 0, 0));
    }
}
