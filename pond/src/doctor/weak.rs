//! What pond cannot hold on some hosts although jobs run there: said beforehand, with what would change it.

use pond_sandbox::native::cgroup::CgroupHost;
use pond_sandbox::state::StateDir;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};

use super::{Row, State};
use crate::settings;

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

pub(super) fn examine() -> Vec<Row> {
    let pattern = std::fs::read_to_string(CORE_PATTERN).unwrap_or_default();
    let most = getrlimit(Resource::Core).maximum.unwrap_or(u64::MAX);
    vec![
        Row { layer: "crash handlers", state: crashes(&pattern, most) },
        Row { layer: "disk bandwidth", state: bandwidth() },
        Row { layer: "further groups", state: groups(geteuid().is_root(), further_groups()) },
    ]
}

/// Whether a crash in a job reaches a program outside. A limit of one byte keeps the kernel from starting one; it must be there
/// to be taken, and a handler that listens on a socket is told whatever the limit.
fn crashes(pattern: &str, most_core_bytes: u64) -> State {
    let weak =
        |detail: &str, remedy: &str| State::Weak { detail: detail.to_owned(), remedy: remedy.to_owned() };
    match (pattern.chars().next(), most_core_bytes) {
        (Some('|'), 0) => weak(
            "a crash in a job starts the host's crash handler, outside and as root",
            "raise the hard limit of core files (ulimit -Hc) above 0 for whoever starts pond",
        ),
        (Some('|'), _) => State::Ok { detail: "the host has one, and it is not started for jobs".to_owned() },
        (Some('@'), _) => weak(
            "a crash in a job is told to the host's crash handler, which reads the job's memory",
            "let kernel.core_pattern name a pipe or a file instead of a socket",
        ),
        (Some(_) | None, _) => State::Ok { detail: "the host has none".to_owned() },
    }
}

/// Whether this host can hold a job to a rate, and whether somebody asks for one.
fn bandwidth() -> State {
    let asked = settings::disk_rate();
    let held = state_dir().and_then(|state| {
        let host = CgroupHost::detect()?;
        Ok(host.disk_rate(&state.scratch(), asked.as_ref().ok().copied().flatten().unwrap_or(1))?)
    });
    let weak = |detail: String, remedy: &str| State::Weak { detail, remedy: remedy.to_owned() };
    let set = "set POND_DISK_BYTES_PER_SECOND";
    match (asked, held) {
        (Err(_), _) => weak("the rate that was asked for is not understood".to_owned(), set),
        (Ok(_), Err(fault)) => weak(format!("not enforceable: {fault:#}"), ""),
        (Ok(None), Ok(_)) => weak("not limited: a job can slow the disk down".to_owned(), set),
        (Ok(Some(_)), Ok(rate)) => {
            State::Ok { detail: format!("{} bytes a second each way", rate.bytes_per_second()) }
        }
    }
}

fn state_dir() -> anyhow::Result<StateDir> {
    Ok(StateDir::open(&settings::state_dir()?)?)
}

/// How many groups the caller has besides the first.
fn further_groups() -> usize {
    let first = getegid();
    getgroups().map_or(0, |groups| groups.into_iter().filter(|group| *group != first).count())
}

/// The kernel lets nobody drop groups who could not do so before entering a user namespace: a group may also be what keeps
/// somebody out. They stay with the job, without a name and without effect on anything but files it sees.
fn groups(is_root: bool, further: usize) -> State {
    match (is_root, further) {
        (true, _) => State::Ok { detail: "a job has none of the caller's".to_owned() },
        (false, 0) => State::Ok { detail: "the caller has none".to_owned() },
        (false, further) => State::Weak {
            detail: format!(
                "a job keeps the caller's {further}, nameless: it reads what they may of what it sees, and cannot change their files \
                 in its copy"
            ),
            remedy: "run pond as root, or from an account without further groups; to change their files, with --snapshot"
                .to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    //! The patterns of common systems.
    use super::*;

    #[test]
    fn groups_that_stay_are_said() {
        let told = [(true, 3), (false, 0), (false, 3)].map(|(is_root, further)| groups(is_root, further));
        let [State::Ok { .. }, State::Ok { .. }, State::Weak { detail, remedy }] = told else {
            panic!("{told:?}")
        };
        assert!(detail.contains("cannot change their files") && remedy.contains("--snapshot"), "{remedy}");
    }

    #[test]
    fn a_handler_that_would_start_is_said() {
        let told = |pattern, most| matches!(crashes(pattern, most), State::Weak { .. });
        for (pattern, most, expected) in [
            ("core\n", 0, false),
            ("|/usr/share/apport/apport -p%p\n", u64::MAX, false),
            ("|/usr/lib/systemd/systemd-coredump %P\n", 1, false),
            ("|/usr/lib/systemd/systemd-coredump %P\n", 0, true),
            ("@/run/coredump.socket\n", u64::MAX, true),
            ("@@/run/coredump.socket\n", 0, true),
        ] {
            assert_eq!(told(pattern, most), expected, "{pattern} {most}");
        }
    }
}
