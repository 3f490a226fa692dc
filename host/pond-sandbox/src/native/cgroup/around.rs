//! What the groups around a job's own leave it: a limit of theirs holds as well, and the smaller one is the one that ends a job.
//!
//! Zone: host. Groups above what is mounted here, as a container's own host has them, cannot be seen and are not reported.

use std::os::fd::{AsFd, BorrowedFd};

use super::fault::Controller;
use super::files;
use super::host::{CgroupHost, Duty, Hierarchy};

/// Deeper than any hierarchy the kernel lets anybody make by default.
const LEVELS: usize = 64;
/// v1 spells "no limit" as a number close to the largest; nobody has this much.
const BOUNDLESS: u64 = 1 << 62;

/// The least that any group around the jobs' own allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Around {
    pub memory_bytes: Option<u64>,
    pub pids: Option<u64>,
}

impl CgroupHost {
    pub fn around(&self) -> Around {
        Around {
            memory_bytes: self.least(Controller::Memory, "memory.max", "memory.limit_in_bytes"),
            pids: self.least(Controller::Pids, "pids.max", "pids.max"),
        }
    }

    fn least(&self, controller: Controller, unified: &str, legacy: &str) -> Option<u64> {
        let of = |hierarchy: &Hierarchy| match &hierarchy.duty {
            Duty::Everything => least_upwards(hierarchy.directory.as_fd(), unified),
            Duty::Limits(controllers) if controllers.contains(&controller) => {
                least_upwards(hierarchy.directory.as_fd(), legacy)
            }
            Duty::Limits(_) | Duty::Killing | Duty::Clearing => None,
        };
        self.hierarchies().iter().filter_map(|hierarchy| of(hierarchy)).min()
    }
}

/// The smallest number that a file of this name holds, here and upwards to the last directory that has one.
fn least_upwards(directory: BorrowedFd<'_>, file: &str) -> Option<u64> {
    let mut least = None;
    for level in 0..LEVELS {
        match files::get(directory, &format!("{}{file}", "../".repeat(level))) {
            Ok(text) => {
                let limit = text.parse().ok().filter(|limit| *limit < BOUNDLESS);
                least = least.into_iter().chain(limit).min();
            }
            // The root of a hierarchy has none, and what is above is no group.
            Err(_) => break,
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(groups: &[&str], file: &str) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        let mut directory = root.path().to_owned();
        for text in groups {
            directory.push("group");
            std::fs::create_dir(&directory).unwrap();
            if !text.is_empty() {
                std::fs::write(directory.join(file), text).unwrap();
            }
        }
        least_upwards(std::fs::File::open(directory).unwrap().as_fd(), file)
    }

    #[test]
    fn the_smallest_limit_above_counts() {
        let cases: [(&[&str], Option<u64>); 7] = [
            (&["max\n", "max\n"], None),
            (&["max\n", "4096\n"], Some(4096)),
            (&["4096\n", "max\n"], Some(4096)),
            (&["8192\n", "4096\n", "16384\n"], Some(4096)),
            (&["9223372036854771712\n", "9223372036854771712\n"], None),
            // What lies above the mount says nothing, though it may be called the same.
            (&["1\n", "", "4096\n"], Some(4096)),
            (&[""], None),
        ];
        for (groups, expected) in cases {
            assert_eq!(least(groups, "memory.max"), expected, "{groups:?}");
        }
    }
}
