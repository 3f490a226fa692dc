//! What the next job gets besides its ground, made while nobody waits: a record, and the control groups it names.
//!
//! Zone: host. Invariants: the record is on disk before a group is made, and is the job's own from the moment that has a name; who
//! dies in between leaves what a sweep removes. What no job took is removed when it is let go of, the groups before their record.

use std::{io, mem};

use super::cgroup::{Birthplace, CgroupFault, CgroupHost, CgroupLimits, JobCgroup};
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

#[derive(Debug)]
struct Groups {
    /// They are called after.
    name: String,
    made: JobCgroup,
    limits: CgroupLimits,
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
        let made = Made::Native { cgroups: host.directories(&name) };
        let record = Live::spare(state, Record { job, made })?;
        match host.create(&name, &limits) {
            Ok(made) => Ok(Self(Standing::Nobodys(record, Groups { name, made, limits }))),
            Err(fault) => {
                record.close()?;
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

    /// Where the first process of this job is born: its groups if they are as it needs them, or others in their place.
    pub(super) fn birthplace(
        &mut self,
        host: &CgroupHost,
        job: &JobName,
        limits: &CgroupLimits,
    ) -> Result<Birthplace, CgroupFault> {
        match mem::take(&mut self.0) {
            Standing::Of(of, groups) if of == *job && groups.limits == *limits => {
                Ok(Birthplace::of(groups.made))
            }
            Standing::Of(of, groups) if of == *job => {
                groups.made.remove()?;
                host.begin(&groups.name, limits)
            }
            others @ (Standing::Nothing | Standing::Nobodys(..) | Standing::Of(..)) => {
                self.0 = others;
                host.begin(job.as_str(), limits)
            }
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Standing::Nobodys(record, groups) = mem::take(&mut self.0) {
            drop(groups);
            // One that stays is swept, as if its owner had died.
            if let Err(_swept) = record.close() {}
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is ready is one job's or nobody's, and goes with whoever it is. Needs the right to make groups.
    use std::mem::ManuallyDrop;
    use std::path::PathBuf;

    use pond_policy::limits::{Cpus, Memory, Pids};

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
        for (wanted, is_same) in [("64m", true), ("32m", false)] {
            let mut spare = Spare::make(&state, &host, limits("64m")).unwrap();
            assert_eq!(recorded(&state).unwrap(), []);
            let (first, second) = (named("first"), named("second"));
            let record = spare.give(&state, &first).unwrap();
            assert!(spare.give(&state, &second).is_none());
            let paths = groups(record.made());
            assert_eq!(exist(&paths), paths.len());
            let other = spare.birthplace(&host, &second, &limits("64m")).unwrap();
            let ours = spare.birthplace(&host, &first, &limits(wanted)).unwrap();
            assert_eq!(exist(&paths) == paths.len(), is_same, "those of other limits are made anew");
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
