//! Host canaries: what no attack may change, looked at after every sandbox.
//!
//! Other jobs may run on the same host, so nothing is merely counted: what is looked for belongs to the sandbox that ended, to
//! pond itself, or to a job's id that nobody has any more.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pond_worker::Digest;
use rustix::time::{ClockId, clock_gettime};

const GROUPS: &str = "/sys/fs/cgroup";
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// The ids the native backend hands out.
const JOB_IDS: std::ops::Range<u32> = 0x7000_0000..0x8000_0000;
/// The kernel takes namespaces and loop devices down after the last process is gone, not with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of the host before any attack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Canaries {
    executable: PathBuf,
    program: Digest,
    core_pattern: String,
    host_name: Vec<u8>,
    clock: Clock,
}

/// How far the time of day is from the time since the machine started.
#[derive(Debug, PartialEq, Eq)]
struct Clock(i64);

impl Clock {
    /// More than a clock is put right by in the minutes of an attack.
    const SLACK_SECONDS: i64 = 2;

    fn now() -> Self {
        let seconds = |clock| clock_gettime(clock).tv_sec;
        Self(seconds(ClockId::Realtime) - seconds(ClockId::Boottime))
    }

    fn was_set(&self, now: &Self) -> bool {
        (self.0 - now.0).abs() > Self::SLACK_SECONDS
    }
}

impl Canaries {
    pub(crate) fn take(executable: &Path) -> io::Result<Self> {
        Ok(Self {
            executable: executable.to_owned(),
            program: Digest::of(&std::fs::read(executable)?),
            core_pattern: std::fs::read_to_string(CORE_PATTERN)?,
            host_name: rustix::system::uname().nodename().to_bytes().to_vec(),
            clock: Clock::now(),
        })
    }

    /// What changed since, in words.
    pub(crate) fn changed(&self) -> io::Result<Vec<String>> {
        let now = Self::take(&self.executable)?;
        let differences = [
            (self.program != now.program, "the pond executable changed"),
            (self.core_pattern != now.core_pattern, "the kernel's core_pattern changed"),
            (self.host_name != now.host_name, "the host's name changed"),
            (self.clock.was_set(&now.clock), "the host's clock was set"),
        ];
        Ok(differences.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what.to_owned()).collect())
    }
}

/// The loop device a job's disk is on, and the file behind it.
#[derive(Debug)]
pub(crate) struct Disk {
    number: u32,
    backing: String,
}

impl Disk {
    const LOOP_MAJOR: u32 = 7;

    pub(crate) fn of(upper: impl AsFd) -> Option<Self> {
        let device = rustix::fs::fstat(upper).ok()?.st_dev;
        let number = (rustix::fs::major(device) == Self::LOOP_MAJOR).then(|| rustix::fs::minor(device))?;
        Some(Self { number, backing: backing(number)? })
    }
}

fn backing(number: u32) -> Option<String> {
    std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).ok()
}

/// What is left of a job that is over. Waits a little, because some of it may be on its way out.
pub(crate) fn residue(job: &str, disk: Option<&Disk>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = look(job, disk);
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn look(job: &str, disk: Option<&Disk>) -> Vec<String> {
    let mut left: Vec<String> =
        groups(job).into_iter().map(|path| format!("control group {} is left", path.display())).collect();
    left.extend(
        strays().into_iter().map(|pid| format!("process {pid} runs as a job outside every job's group")),
    );
    left.extend(orphaned_keys().into_iter().map(|id| format!("keys of job id {id} are left")));
    left.extend(own_namespaces().into_iter().map(|name| format!("pond still holds namespace {name}")));
    if let Some(disk) = disk {
        if backing(disk.number).is_some_and(|now| now == disk.backing) {
            left.push(format!("loop device {} is left", disk.number));
        }
        let mounted = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let device = format!(" {}:{} ", Disk::LOOP_MAJOR, disk.number);
        left.extend(
            mounted.lines().filter(|line| line.contains(&device)).map(|line| format!("mount {line} is left")),
        );
    }
    left
}

pub(super) fn groups(job: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from(GROUPS)];
    while let Some(directory) = pending.pop() {
        for entry in entries(&directory) {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && entry.file_name().to_string_lossy().contains(job) {
                found.push(entry.path());
            } else if is_directory {
                pending.push(entry.path());
            }
        }
    }
    found
}

/// Ids of jobs that have keys and no process any more. Only root sees those of others.
fn orphaned_keys() -> Vec<u32> {
    let users = std::fs::read_to_string("/proc/key-users").unwrap_or_default();
    let id = |line: &str| line.split(':').next().and_then(|id| id.trim().parse().ok());
    let owned = |id: u32| {
        let owner = |pid: String| std::fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
        processes().any(|pid| owner(pid).is_ok_and(|owner| owner == id))
    };
    users.lines().filter_map(id).filter(|id| JOB_IDS.contains(id) && !owned(*id)).collect()
}

/// Namespaces that pond holds open: each keeps a network, a mount table or a pid table of a job alive.
fn own_namespaces() -> Vec<String> {
    const KINDS: [&str; 7] = ["net:[", "mnt:[", "pid:[", "user:[", "ipc:[", "uts:[", "cgroup:["];
    let targets =
        entries(Path::new("/proc/self/fd")).filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names.filter(|name| KINDS.iter().any(|kind| name.starts_with(kind))).collect()
}

/// Living processes with a job's id that stand in no job's control group.
fn strays() -> Vec<String> {
    let is_stray = |pid: &String| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let status = read("status");
        let value = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        let user = value("Uid:").split_whitespace().next().and_then(|id| id.parse().ok());
        let is_alive = !value("State:").starts_with(['Z', 'X']);
        let groups = read("cgroup");
        user.is_some_and(|id| JOB_IDS.contains(&id))
            && is_alive
            && !groups.is_empty()
            && !is_of_a_job(&groups)
    };
    processes().filter(is_stray).collect()
}

/// A group that pond made, or one of a container engine, which bears the container's id.
fn is_of_a_job(groups: &str) -> bool {
    let is_id = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.contains("pond-job-") || groups.split(|c: char| !c.is_ascii_alphanumeric()).any(is_id)
}

fn processes() -> impl Iterator<Item = String> {
    let names = entries(Path::new("/proc")).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

fn entries(directory: &Path) -> impl Iterator<Item = std::fs::DirEntry> {
    std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stands_in_a_jobs_group_or_in_a_containers() {
        let id = "4f".repeat(32);
        let groups = [
            "8:pids:/pond-job-20261116-044351-cc2ef08c0".to_owned(),
            format!("8:pids:/docker/{id}"),
            format!("0::/system.slice/docker-{id}.scope"),
        ];
        assert!(groups.iter().all(|groups| is_of_a_job(groups)));
        for other in ["0::/", "0::/user.slice/session-1.scope", "8:pids:/docker/4f4f"] {
            assert!(!is_of_a_job(other), "{other}");
        }
    }
}
