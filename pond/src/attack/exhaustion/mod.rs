//! E: using things up. Every attempt wants a little more than its sandbox's limit, so that unconfined it does no harm.

mod memory;
mod storage;
mod streams;

use std::io;
use std::time::Duration;

use pond_sys::attempt;
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::ClockId;

use super::accomplice::{self, Accomplice};
use super::case::{Case, Evidence, Expect, Probe, Room, Stage, absent, capped, denied};
use super::scene::Scene;

pub(super) const CASES: [&[Case]; 4] = [PROCESSES, memory::CASES, storage::CASES, streams::CASES];

const FEW_PROCESSES: Stage =
    Stage { limits: &[("pids_limit", "24")], evidence: Evidence::ForksRefused, ..Stage::PLAIN };
const MANY: usize = 48;

const PROCESSES: &[Case] = &[
    Case {
        id: "E01",
        what: "a fork bomb",
        probes: &[
            capped("processes", processes, FEW_PROCESSES),
            capped("threads", |_| threads(), FEW_PROCESSES),
        ],
    },
    Case {
        id: "E16",
        what: "shared memory that others see, or that stays",
        probes: &[absent("segment of the host", |scene| attempt::find_segment(scene.host.segment))],
    },
    Case {
        id: "E17",
        what: "spinning on every processor",
        probes: &[capped(
            "spin",
            |_| spin(),
            Stage { limits: &[("cpus", "0.2")], evidence: Evidence::Throttled, ..Stage::PLAIN },
        )],
    },
    Case { id: "E18", what: "signals to init", probes: &[denied("SIGKILL", kill_init)] },
    Case {
        id: "E26",
        what: "pinning memory",
        probes: &[Probe {
            expect: Expect::Capped,
            room: Room::Shared,
            ..denied("mlock", |_| attempt::lock_memory(16 << 20))
        }
        .excused(&[(Errno::NOMEM, "the caller's own limit on pinned memory is lower")])],
    },
    Case {
        id: "E30",
        what: "namespaces inside namespaces",
        probes: &[denied("nested users", |_| nest_users())],
    },
];

fn processes(scene: &Scene) -> io::Result<()> {
    let mut children = Vec::new();
    let mut result = Ok(());
    while children.len() < MANY && result.is_ok() {
        result = accomplice::start(Accomplice::Wait, &scene.temporary).map(|child| children.push(child));
    }
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    result
}

fn threads() -> io::Result<()> {
    for _ in 0..MANY {
        // They end with the process of this attempt.
        std::thread::Builder::new().stack_size(1 << 16).spawn(|| std::thread::sleep(Stage::PATIENCE))?;
    }
    Ok(())
}

/// Uses a third of a second of processor time, on two threads.
fn spin() -> io::Result<()> {
    const ENOUGH: Duration = Duration::from_millis(300);
    let used = || {
        let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    std::thread::Builder::new().spawn(move || while used() < ENOUGH {})?;
    while used() < ENOUGH {}
    Ok(())
}

/// Eight user namespaces, each inside the one before; the next is only to be had by somebody who is mapped.
fn nest_users() -> io::Result<()> {
    let (mut user, mut group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for _ in 0..8 {
        attempt::unshare_user_as_root(user, group)?;
        (user, group) = (0, 0);
    }
    Ok(())
}

/// Inside it is pid 1; outside a process of the attempt's own stands for it.
fn kill_init(scene: &Scene) -> io::Result<()> {
    if scene.is_inside() {
        return Ok(rustix::process::kill_process(rustix::process::Pid::INIT, Signal::KILL)?);
    }
    let mut child = accomplice::start(Accomplice::Wait, &scene.temporary)?;
    child.kill()?;
    child.wait().map(drop)
}
