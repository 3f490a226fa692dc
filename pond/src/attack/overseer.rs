//! E28, E29, L01, L03: what becomes of jobs when something happens to pond itself. Here the host acts and the sandbox only has to end.
//!
//! Zone: host. Each act uses a pond and a state directory of its own and looks for what is left of its job alone.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pond_sandbox::container::Contained;
use pond_sandbox::record::JobName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use super::canary;
use super::case::{Case, Probe, Room, Stage, capped};
use super::sandbox::Range;
use super::scene::{Scene, found};

const PATIENCE: Duration = Duration::from_secs(60);
const LAUNCHES: usize = 30;
const BOMB_BYTES: usize = 64 << 20;
const TOGETHER: usize = 8;
/// What a killed pond says of itself, and what pond says of a killed init.
const KILLED: i32 = 137;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "E28",
        what: "eight jobs at once, each with more memory or processes than it may have",
        probes: &[by_host("verdicts", |_| pond_sys::attempt::touch_memory(BOMB_BYTES), bomb_together)],
    },
    Case {
        id: "E29",
        what: "thirty launches in a row, after which nothing has grown",
        probes: &[by_host("descriptors and children", |_| kept_descriptor(), launch_often)],
    },
    Case {
        id: "L01",
        what: "pond is killed while a job runs",
        probes: &[by_host("SIGKILL", |_| orphan(), kill_pond)],
    },
    Case {
        id: "L03",
        what: "init is killed while a job runs",
        probes: &[by_host("SIGKILL", |_| orphan(), kill_init)],
    },
];

/// What shows that it held, in words; nothing when it did not.
pub(super) type Act = fn(&Range<'_>) -> anyhow::Result<Option<String>>;

const fn by_host(name: &'static str, control: fn(&Scene) -> io::Result<()>, act: Act) -> Probe {
    Probe { room: Room::Host(act), ..capped(name, control, Stage::PLAIN) }
}

fn launch_often(range: &Range<'_>) -> anyhow::Result<Option<String>> {
    let launch = || range.confined(&Stage { command: &["/bin/true"], ..Stage::PLAIN }, &[]);
    let mut residue = launch()?.residue;
    let before = held()?;
    for _ in 0..LAUNCHES {
        residue.extend(launch()?.residue);
    }
    let is_level = residue.is_empty() && held()? == before;
    Ok(is_level.then(|| format!("{LAUNCHES} came and went")))
}

/// Half of them swallow memory, half of them fork; each must be told its own fault.
fn bomb_together(range: &Range<'_>) -> anyhow::Result<Option<String>> {
    let state = range.props.result(&format!("state-{}", super::props::random_word()?))?;
    let start = |number: usize| {
        let (script, told) = match number % 2 {
            0 => ("exec tail /dev/zero", "/verdict/limit"),
            // A shell that cannot fork gives up.
            _ => ("for i in $(seq 99); do sleep 1 & done 2>/dev/null", "/exit_code"),
        };
        let flags = ["--json", "--memory", "48m", "--pids", "24"];
        let mut command = command(range, &state, &flags, &["/bin/sh", "-c", script]);
        command.stdout(Stdio::piped()).spawn().map(|child| (child, told))
    };
    let bombs: Vec<_> = (0..TOGETHER).map(start).collect::<Result<_, _>>()?;
    let mut right = 0;
    for (child, told) in bombs {
        let summary: serde_json::Value = serde_json::from_slice(&child.wait_with_output()?.stdout)?;
        let is_right = match summary.pointer(told) {
            Some(serde_json::Value::String(limit)) => limit == "memory",
            Some(count) => count.as_u64().is_some_and(|count| count > 0),
            None => false,
        };
        right += usize::from(is_right);
    }
    Ok((right == TOGETHER).then(|| format!("{TOGETHER} verdicts, all right")))
}

/// Open descriptors and children of this process.
fn held() -> io::Result<(usize, String)> {
    let children = std::fs::read_to_string("/proc/thread-self/children")?;
    Ok((std::fs::read_dir("/proc/self/fd")?.count(), children))
}

/// A descriptor that stays open is counted.
fn kept_descriptor() -> io::Result<()> {
    let before = held()?;
    let _kept = std::fs::File::open("/dev/null")?;
    found(held()? != before)
}

fn kill_pond(range: &Range<'_>) -> anyhow::Result<Option<String>> {
    let mut pond = Pond::start(range)?;
    let job = pond.wait_for_job(range)?;
    pond.child.kill()?;
    pond.child.wait()?;
    let is_dead = wait_until(|| members(&job.group).is_empty());
    // The next start sweeps what only a living process could have removed.
    let swept = pond.command(range, &["/bin/true"]).status()?;
    let is_gone = is_dead && swept.success() && job.is_gone(range)? && pond.live().is_empty();
    Ok(is_gone.then(|| "the job went with it, the next start swept".to_owned()))
}

fn kill_init(range: &Range<'_>) -> anyhow::Result<Option<String>> {
    let mut pond = Pond::start(range)?;
    let job = pond.wait_for_job(range)?;
    // By descriptor, and looked at again, so that a number that was given away meanwhile is not taken for it.
    let init_by_descriptor = pidfd_open(job.init, PidfdFlags::empty())?;
    if !members(&job.group).contains(&job.init) {
        bail!("init ended by itself");
    }
    pidfd_send_signal(init_by_descriptor, Signal::KILL)?;
    let ended = wait_until(|| pond.child.try_wait().is_ok_and(|status| status.is_some()));
    let code = if ended { pond.child.wait()?.code() } else { None };
    let is_gone = code == Some(KILLED) && job.is_gone(range)? && pond.live().is_empty();
    Ok(is_gone.then(|| "the job went with it, and pond said so".to_owned()))
}

/// A job of another pond, as the host sees it.
struct Sighted {
    name: JobName,
    /// What its control groups have in their names.
    group: String,
    /// Pid 1, or the process that stands for it.
    init: Pid,
}

impl Sighted {
    fn find(range: &Range<'_>, name: JobName) -> anyhow::Result<Self> {
        if let Some(Contained { id, first }) = range.provider.contained(&name)? {
            return Ok(Self { name, group: id, init: first });
        }
        let group = name.as_str().to_owned();
        let init = members(&group).into_iter().find(|pid| is_first(*pid)).context("the job has no init")?;
        Ok(Self { name, group, init })
    }

    fn is_gone(&self, range: &Range<'_>) -> anyhow::Result<bool> {
        Ok(canary::residue(&self.group, None).is_empty() && range.provider.contained(&self.name)?.is_none())
    }
}

/// A pond with a job that waits. Both are gone when the value is.
struct Pond {
    child: Child,
    state: PathBuf,
}

impl Pond {
    fn start(range: &Range<'_>) -> anyhow::Result<Self> {
        let state = range.props.result(&format!("state-{}", super::props::random_word()?))?;
        let mut command = command(range, &state, &[], &["/bin/sh", "-c", "echo ready; exec sleep 600"]);
        let child = command.stdout(Stdio::piped()).spawn().context("starting another pond")?;
        Ok(Self { child, state })
    }

    fn command(&self, range: &Range<'_>, argv: &[&str]) -> Command {
        command(range, &self.state, &[], argv)
    }

    /// The names of jobs that have not been closed.
    fn live(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.state.join("live")).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// The job, once its command runs.
    fn wait_for_job(&mut self, range: &Range<'_>) -> anyhow::Result<Sighted> {
        let mut line = String::new();
        let stdout = self.child.stdout.take().context("another pond has no output")?;
        let limit = Timespec { tv_sec: PATIENCE.as_secs().try_into()?, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&limit))? > 0 {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line != "ready\n" {
            bail!("another pond did not start its job");
        }
        let name = self.live().into_iter().next().context("the job ended by itself")?;
        Sighted::find(range, JobName::try_from(name).map_err(anyhow::Error::msg)?)
    }
}

impl Drop for Pond {
    fn drop(&mut self) {
        // One that has ended cannot be killed, which is what this is for.
        if let (Err(_ended), _) | (_, Err(_ended)) = (self.child.kill(), self.child.wait()) {}
    }
}

#[expect(clippy::disallowed_methods, reason = "what is killed here must not be the pond that attacks")]
fn command(range: &Range<'_>, state: &std::path::Path, flags: &[&str], argv: &[&str]) -> Command {
    let mut command = Command::new(range.executable);
    command.args(["run", "--backend", range.backend.name(), "--checkout"]).arg(range.props.checkout());
    command.args(flags).arg("--").args(argv);
    command.env("POND_STATE_DIR", state).env_remove("POND_MIN_BACKEND");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Every process in the control groups of a job.
fn members(job: &str) -> Vec<Pid> {
    let listed = canary::groups(job).into_iter().map(|group| group.join("cgroup.procs"));
    let texts = listed.filter_map(|list| std::fs::read_to_string(list).ok());
    let mut pids: Vec<i32> = texts
        .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// The first process of its own namespace, and not of ours.
fn is_first(pid: Pid) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    ids.split_whitespace().count() > 1 && ids.split_whitespace().last() == Some("1")
}

fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Without a sandbox, what a killed process has started stays.
#[expect(clippy::disallowed_methods, reason = "the control is a process whose parent is killed")]
fn orphan() -> io::Result<()> {
    let mut parent = Command::new("/bin/sh")
        .args(["-c", "sleep 600 >/dev/null & echo $!; wait"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = parent.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    parent.kill()?;
    parent.wait()?;
    let child = line.trim().parse().ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    test_kill_process(child)?;
    Ok(rustix::process::kill_process(child, Signal::KILL)?)
}
