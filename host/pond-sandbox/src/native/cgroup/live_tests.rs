//! Real groups on this host, with real processes in them; each limit is also shown not to bite when it is wide.
//!
//! Needs the right to make groups: root, or a delegated group.

use std::collections::BTreeSet;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pond_policy::limits::{Cpus, Memory, Pids};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::process::Pid;

use super::host::own_layout;
use super::layout::Layout;
use super::{
    CgroupFault, CgroupHost, CgroupLimits, Entry, Foreign, JobCgroup, Mode, NoDiskRate, Usage, delegate,
    reclaim,
};

fn unique(label: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{label}-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn limits(memory: &str, cpus: &str, pids: &str) -> CgroupLimits {
    CgroupLimits {
        memory: Memory::parse(memory).unwrap(),
        cpus: Cpus::parse(cpus).unwrap(),
        pids: Pids::parse(pids).unwrap(),
        disk_rate: None,
    }
}

fn wide() -> CgroupLimits {
    limits("2g", "64", "4096")
}

/// The host as found, and the same host as if it had no v2 hierarchy to kill through.
fn hosts() -> Vec<CgroupHost> {
    let found = CgroupHost::detect().unwrap();
    match found.mode() {
        Mode::Hybrid => {
            let without = Layout { unified: None, ..own_layout().unwrap() };
            let v1 = CgroupHost::within(&without, 0).unwrap();
            assert_eq!(v1.mode(), Mode::V1);
            vec![found, v1]
        }
        Mode::V1 | Mode::V2 => vec![found],
    }
}

/// Runs a script inside the job, through its entries and nothing else.
fn start(job: &JobCgroup, script: &str) -> Child {
    enter(&job.entry(), script)
}

#[expect(clippy::disallowed_methods, reason = "a test's own child")]
fn enter(Entry { v2, v1 }: &Entry<'_>, script: &str) -> Child {
    let descriptor = |number: i32| format!("/proc/{}/fd/{number}", process::id());
    let entries = v1.iter().map(|file| descriptor(file.as_raw_fd()));
    let entries = entries.chain(v2.map(|group| format!("{}/cgroup.procs", descriptor(group.as_raw_fd()))));
    let enter = "for entry in \"$@\"; do echo 0 > \"$entry\" || exit 90; done; exec sh -c \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", enter, script]).args(entries).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn run(job: &JobCgroup, script: &str) -> String {
    let mut child = start(job, script);
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_ne!(child.wait().unwrap().code(), Some(90), "the child could not enter");
    output.trim().to_owned()
}

/// Starts a script that prints a line once it has done what matters and goes on.
fn start_and_wait_for_line(job: &JobCgroup, script: &str) -> Child {
    let mut child = start(job, script);
    wait_for_line(&mut child);
    child
}

fn wait_for_line(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

fn exist(directories: &[PathBuf]) -> Vec<bool> {
    directories.iter().map(|directory| directory.exists()).collect()
}

const HOLD_40_MB: &str = "head -c 40000000 /dev/zero | tail -c 40000000 | wc -c";

#[test]
fn memory_is_capped_and_the_kill_is_counted() {
    for host in hosts() {
        let tight = host.create(&unique("memory"), &limits("16m", "64", "64")).unwrap();
        assert_ne!(run(&tight, HOLD_40_MB), "40000000");
        let usage = tight.usage().unwrap();
        assert!(usage.oom_kills >= Some(1), "{usage:?}");
        assert!(usage.memory_peak_bytes <= Some(16 << 20), "{usage:?}");
        assert_eq!(tight.is_untouched(), host.mode() != Mode::V2);
        tight.remove().unwrap();

        let roomy = host.create(&unique("memory"), &limits("256m", "64", "64")).unwrap();
        assert_eq!(run(&roomy, HOLD_40_MB), "40000000");
        let usage = roomy.usage().unwrap();
        assert_eq!(usage.oom_kills, Some(0));
        assert!(roomy.is_untouched());
        roomy.remove().unwrap();
    }
}

/// Writes until it is on the disk, and says how many milliseconds that took.
const WRITE_3_MB: &str = "import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
begun = time.monotonic()
os.write(file, bytes(3 << 20))
os.fsync(file)
print(int((time.monotonic() - begun) * 1000))";

/// Only v2 holds what goes through the page cache, so only there it is promised.
#[test]
fn the_disk_is_shared_out_where_it_can_be_and_elsewhere_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    for host in hosts() {
        let rate = host.disk_rate(directory.path(), 1 << 20);
        if host.mode() != Mode::V2 {
            assert_eq!(rate, Err(NoDiskRate::Legacy));
            continue;
        }
        let slow = CgroupLimits { disk_rate: Some(rate.unwrap()), ..wide() };
        // A file of its own each: the kernel goes on charging what is written to one to the group that wrote it first.
        let milliseconds = |limits: &CgroupLimits, name: &str| {
            let script = format!("python3 -c '{WRITE_3_MB}' {}", directory.path().join(name).display());
            let job = host.create(&unique("disk"), limits).unwrap();
            let said = run(&job, &script);
            job.remove().unwrap();
            said.parse::<u64>().unwrap_or_else(|fault| panic!("{fault}: {said:?}"))
        };
        let (held, free) = (milliseconds(&slow, "slow"), milliseconds(&wide(), "free"));
        assert!(held >= 1500 && free < held / 2, "{held} ms at 1 MiB/s, {free} ms without a limit");
        // A place that is no disk is no reason to say that it is held.
        let nowhere = host.disk_rate(Path::new("/proc"), 1);
        assert!(matches!(nowhere, Err(NoDiskRate::NoDisk(_))), "{nowhere:?}");
    }
}

const FORTY_CHILDREN: &str =
    "i=0; while [ $i -lt 40 ]; do sleep 1000 >/dev/null & i=$((i+1)); done; echo all";

#[test]
fn processes_are_capped_and_the_refusal_is_counted() {
    for host in hosts() {
        let tight = host.create(&unique("pids"), &limits("256m", "64", "16")).unwrap();
        assert_eq!(run(&tight, FORTY_CHILDREN), "");
        assert!(tight.usage().unwrap().pids_denied >= Some(1));
        assert_eq!(tight.is_untouched(), host.mode() != Mode::V2);
        tight.end().unwrap();

        let roomy = host.create(&unique("pids"), &limits("256m", "64", "64")).unwrap();
        assert_eq!(run(&roomy, FORTY_CHILDREN), "all");
        let usage = roomy.usage().unwrap();
        assert_eq!(usage.pids_denied, Some(0));
        assert!(usage.pids_peak.is_none_or(|peak| peak >= 40), "{usage:?}");
        roomy.end().unwrap();
    }
}

const SPIN: &str = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; echo spun";

#[test]
fn processor_time_is_shared_out() {
    for host in hosts() {
        let tight = host.create(&unique("cpu"), &limits("64m", "0.1", "64")).unwrap();
        let mut child = start_and_wait_for_line(&tight, "echo on; while :; do :; done");
        let usage = wait_for(&tight, |usage| usage.cpu_throttled_periods >= Some(1));
        assert!(usage.cpu_usec > Some(0), "{usage:?}");
        tight.end().unwrap();
        assert_eq!(child.wait().unwrap().code(), None);

        let roomy = host.create(&unique("cpu"), &wide()).unwrap();
        assert_eq!(run(&roomy, SPIN), "spun");
        assert_eq!(roomy.usage().unwrap().cpu_throttled_periods, Some(0));
        roomy.remove().unwrap();
    }
}

fn wait_for(job: &JobCgroup, condition: impl Fn(&Usage) -> bool) -> Usage {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let usage = job.usage().unwrap();
        if condition(&usage) {
            return usage;
        }
        assert!(Instant::now() < deadline, "still not so after 30 s: {usage:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Detached, deaf to every signal it may be deaf to, and replacing its dead.
const STUBBORN: &str = "trap '' TERM INT HUP QUIT; \
    setsid sh -c 'while :; do sleep 1000 & sleep 0.01; done' >/dev/null & \
    while :; do sleep 1000 >/dev/null & echo on; sleep 0.01; done";

#[test]
fn a_kill_leaves_nobody() {
    for host in hosts() {
        let job = host.create(&unique("kill"), &limits("256m", "64", "200")).unwrap();
        assert!(job.is_empty().unwrap());
        let mut child = start_and_wait_for_line(&job, STUBBORN);
        assert!(!job.is_empty().unwrap());
        job.kill().unwrap();
        let directories = job.directories();
        assert_eq!(child.wait().unwrap().code(), None);
        job.remove().unwrap();
        assert_eq!(exist(&directories), vec![false; directories.len()]);
    }
}

/// With init alone a result may be read; with anybody beside it, never.
#[test]
fn one_left_is_told_from_two() {
    for host in hosts() {
        let job = host.create(&unique("left"), &wide()).unwrap();
        assert!(job.is_down_to_one(), "nobody is there");
        let mut first = start_and_wait_for_line(&job, "echo; exec sleep 1000");
        assert!(job.is_down_to_one(), "one is there");
        let mut second = start_and_wait_for_line(&job, "echo; exec sleep 1000");
        assert!(!job.is_down_to_one(), "two are there");
        job.kill().unwrap();
        first.wait().unwrap();
        assert!(job.is_down_to_one(), "one is dead, and nobody has waited for the other");
        second.wait().unwrap();
        job.remove().unwrap();
    }
}

#[test]
fn removal_of_a_living_group_is_a_fault_and_touches_nobody() {
    for host in hosts() {
        let name = unique("alive");
        let job = host.create(&name, &wide()).unwrap();
        let mut child = start_and_wait_for_line(&job, "echo on; exec sleep 1000");
        assert!(matches!(job.remove(), Err(CgroupFault::StillPopulated { .. })));
        assert_eq!(child.try_wait().unwrap(), None);
        let recorded = host.directories(&name);
        reclaim(&recorded).unwrap();
        assert_eq!(exist(&recorded), vec![false; recorded.len()]);
        assert_eq!(child.wait().unwrap().code(), None);
    }
}

#[test]
fn a_dropped_handle_ends_its_job() {
    for host in hosts() {
        let job = host.create(&unique("drop"), &wide()).unwrap();
        let directories = job.directories();
        let mut child = start_and_wait_for_line(&job, "echo on; exec sleep 1000");
        drop(job);
        assert_eq!(child.wait().unwrap().code(), None);
        assert_eq!(exist(&directories), vec![false; directories.len()]);
    }
}

#[test]
fn reclaiming_takes_the_dead_and_spares_the_living() {
    for host in hosts() {
        let (dead, living) = (unique("dead"), unique("living"));
        let orphan = host.create(&dead, &wide()).unwrap();
        let orphaned = orphan.directories();
        let kept = host.create(&living, &wide()).unwrap();
        let mut lost = start_and_wait_for_line(&orphan, STUBBORN);
        let mut busy = start_and_wait_for_line(&kept, "echo on; exec sleep 1000");
        let _abandoned = ManuallyDrop::new(orphan);

        reclaim(&host.directories(&dead)).unwrap();
        assert_eq!(exist(&orphaned), vec![false; orphaned.len()]);
        assert_eq!(lost.wait().unwrap().code(), None);
        assert_eq!(busy.try_wait().unwrap(), None);
        kept.end().unwrap();
        assert_eq!(busy.wait().unwrap().code(), None);
    }
}

#[test]
fn recorded_paths_suffice_to_reclaim_a_job() {
    for host in hosts() {
        let name = unique("reclaim");
        let recorded = host.directories(&name);
        reclaim(&recorded).unwrap();
        let orphan = host.create(&name, &wide()).unwrap();
        assert_eq!(orphan.directories(), recorded);
        let mut lost = start_and_wait_for_line(&orphan, STUBBORN);
        let _abandoned = ManuallyDrop::new(orphan);
        reclaim(&recorded).unwrap();
        assert_eq!(lost.wait().unwrap().code(), None);
        assert_eq!(exist(&recorded), vec![false; recorded.len()]);
        reclaim(&recorded).unwrap();
    }
}

/// A launch that stopped half way: the process is in the last group only, and the others look empty.
#[test]
fn a_half_entered_job_is_reclaimed_too() {
    for host in hosts() {
        let name = unique("half");
        let orphan = ManuallyDrop::new(host.create(&name, &wide()).unwrap());
        let Entry { v2, v1 } = orphan.entry();
        let only =
            Entry { v2: if v1.is_empty() { v2 } else { None }, v1: v1.last().copied().into_iter().collect() };
        let mut lost = enter(&only, "echo on; exec sleep 1000");
        wait_for_line(&mut lost);
        let recorded = host.directories(&name);
        reclaim(&recorded).unwrap();
        assert_eq!(exist(&recorded), vec![false; recorded.len()]);
        assert_eq!(lost.wait().unwrap().code(), None);
    }
}

#[test]
fn a_record_cannot_name_groups_of_others() {
    let job = CgroupHost::detect().unwrap().create(&unique("foreign"), &wide()).unwrap();
    let parent = job.directories().first().unwrap().parent().unwrap().to_owned();
    let foreign = parent.join(unique("not-a-job"));
    std::fs::create_dir(&foreign).unwrap();
    let refusal = reclaim(std::slice::from_ref(&foreign));
    let survived = foreign.exists();
    std::fs::remove_dir(&foreign).unwrap();
    assert!(matches!(refusal, Err(CgroupFault::Read { source: Errno::INVAL, .. })));
    assert!(survived);
    job.remove().unwrap();
}

#[test]
fn a_name_taken_is_a_fault_that_leaves_everything_as_it_was() {
    for host in hosts() {
        let name = unique("twice");
        let first = host.create(&name, &wide()).unwrap();
        let directories = first.directories();
        assert!(matches!(host.create(&name, &wide()), Err(CgroupFault::Create { source: Errno::EXIST, .. })));
        assert_eq!(exist(&directories), vec![true; directories.len()]);
        first.remove().unwrap();

        // Taken in the last hierarchy only: what was made in the others goes again.
        let last = directories.last().unwrap();
        std::fs::create_dir(last).unwrap();
        assert!(matches!(host.create(&name, &wide()), Err(CgroupFault::Create { source: Errno::EXIST, .. })));
        let left: Vec<&Path> =
            directories.iter().filter(|made| made.exists()).map(PathBuf::as_path).collect();
        std::fs::remove_dir(last).unwrap();
        assert_eq!(left, [last.as_path()]);
    }
}

/// A user id no process of this host runs under.
const STRANGER: u32 = 3_999_999_991;

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own child")]
fn a_user_can_limit_jobs_in_what_root_handed_over() {
    if CgroupHost::detect().unwrap().mode() == Mode::V2 {
        assert!(matches!(delegate(STRANGER, STRANGER), Err(CgroupFault::NothingToDelegate)));
        return;
    }
    let given = delegate(STRANGER, STRANGER).unwrap();
    assert_eq!(delegate(STRANGER, STRANGER).unwrap(), given);

    let mut own = own_layout().unwrap();
    own.unified = None;
    own.legacy.iter_mut().for_each(|legacy| legacy.place.group = PathBuf::from("/nowhere"));
    let host = CgroupHost::within(&own, STRANGER).unwrap();
    let job = host.create(&unique("delegated"), &wide()).unwrap();
    let parents: Vec<PathBuf> =
        job.directories().iter().map(|path| path.parent().unwrap().to_owned()).collect();
    assert_eq!(BTreeSet::from_iter(&parents), BTreeSet::from_iter(&given));
    job.remove().unwrap();

    let uses = "cd \"$0\" && mkdir inner && echo 0 > inner/tasks && ! echo 1 2>/dev/null > notify_on_release";
    for directory in &given {
        let status =
            Command::new("sh").args(["-c", uses]).arg(directory).uid(STRANGER).gid(STRANGER).status();
        let (status, inner) = (status.unwrap(), directory.join("inner"));
        std::fs::remove_dir(inner).and_then(|()| std::fs::remove_dir(directory)).unwrap();
        assert_eq!(status.code(), Some(0), "{}", directory.display());
    }
}

#[test]
fn names_are_plain() {
    let host = CgroupHost::detect().unwrap();
    let long = "a".repeat(81);
    for name in ["", "a/b", "..", "a.b", "A", "a b", "a\n", "ü", long.as_str()] {
        assert!(matches!(host.create(name, &wide()), Err(CgroupFault::BadName)), "{name:?}");
    }
}

/// A group of its own around the jobs' in every hierarchy; removed with the value.
struct Enclosure {
    directories: Vec<PathBuf>,
    layout: Layout,
}

impl Enclosure {
    fn new() -> Self {
        let found = CgroupHost::detect().unwrap();
        let mut layout = own_layout().unwrap();
        if let (Mode::V2, Some(place)) = (found.mode(), layout.unified.as_mut()) {
            // Where controllers are handed down, which need not be where this process stands.
            place.group = found.directories("any").first().unwrap().parent().unwrap().to_owned();
        }
        let name = unique("around");
        let mut directories = Vec::new();
        let places = layout.legacy.iter_mut().map(|legacy| &mut legacy.place).chain(layout.unified.as_mut());
        for place in places {
            place.group.push(&name);
            if std::fs::create_dir(&place.group).is_ok() {
                directories.push(place.group.clone());
            }
        }
        Self { directories, layout }
    }

    fn set(&self, file: &str, value: &str) {
        let written = self.directories.iter().filter(|group| std::fs::write(group.join(file), value).is_ok());
        assert_eq!(written.count(), 1, "{file}");
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        for directory in &self.directories {
            std::fs::remove_dir(directory).unwrap();
        }
    }
}

#[test]
fn a_smaller_limit_around_is_noticed_and_is_the_one_that_kills() {
    let enclosure = Enclosure::new();
    let host = CgroupHost::within(&enclosure.layout, 0).unwrap();
    let outside = CgroupHost::detect().unwrap().around();
    assert_eq!(host.around(), outside, "a group without limits changes nothing");
    let (memory, pids) = match host.mode() {
        Mode::V2 => ("memory.max", "pids.max"),
        Mode::V1 | Mode::Hybrid => ("memory.limit_in_bytes", "pids.max"),
    };
    enclosure.set(memory, "16777216");
    enclosure.set(pids, "40");
    let around = host.around();
    assert_eq!((around.memory_bytes, around.pids), (Some(16 << 20), Some(40)));
    let job = host.create(&unique("around"), &limits("256m", "64", "64")).unwrap();
    assert_ne!(run(&job, HOLD_40_MB), "40000000");
    let usage = job.usage().unwrap();
    assert!(usage.oom_kills >= Some(1), "{usage:?}");
    job.remove().unwrap();
}

/// The groups of a container are read as this host has them, v1 or v2: the kernel's own files, by a process inside.
#[test]
fn what_holds_a_strangers_process_is_the_kernels_word() {
    let (name, held) = (unique("foreign"), limits("64m", "1.5", "100"));
    let group = CgroupHost::detect().unwrap().create(&name, &held).unwrap();
    let mut child = start_and_wait_for_line(&group, "echo in; exec sleep 1000");
    let pid = Pid::from_child(&child);
    assert!(Foreign::of(pid, "another-container").unwrap().is_none());
    let foreign = Foreign::of(pid, &name).unwrap().unwrap();
    foreign.hold(&held, 0).unwrap();
    for other in [limits("32m", "1.5", "100"), limits("64m", "1", "100"), limits("64m", "1.5", "99"), wide()]
    {
        let fault = foreign.hold(&other, 0).unwrap_err();
        assert!(matches!(fault, CgroupFault::NotTaken { .. }), "{other:?}: {fault}");
    }
    assert!(matches!(foreign.hold(&held, 1), Err(CgroupFault::NotTaken { .. })));
    assert!(foreign.usage().unwrap().memory_peak_bytes > Some(0));
    child.kill().unwrap();
    child.wait().unwrap();
    group.remove().unwrap();
}
