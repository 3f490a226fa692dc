//! Pure: the plan of a job becomes the exact request for its container.
//!
//! The plan is the native backend's own, so that both show a job the same root, storage and limits. Every part of the posture
//! is spelled out here, also where it is an engine's default today, and nothing an image says about how it wants to be run
//! is left standing.

use std::collections::BTreeMap;

use pond_policy::limits::Limits;
use pond_wire::contained::{Kernel, PROGRAM, Transfer, UNPACK};
use pond_wire::jail::{
    BindKind, CheckoutView, Console, HOME, JOB_ID, JailPlan, Rlimits, RootEntry, TmpfsCap, WORKSPACE, staged,
};

use super::request::{
    BindOptions, Create, Exec, Healthcheck, HostConfig, LogConfig, Mount, RestartPolicy, Throttle, Ulimit,
};
use super::seccomp;
use super::transfer::rooms;

/// Which job a container is for, and whose state directory knows that job. Pond touches no container without both.
pub(super) const JOB_LABEL: &str = "io.pond.job";
pub(super) const STATE_LABEL: &str = "io.pond.state";

/// Files of /etc that are bound one by one: an engine puts its own over the image's, or they name the job's id.
pub(super) const STAGED: [&str; 5] =
    ["/etc/group", "/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf"];

/// What an engine mounts by itself and a native job does not have: devices and modules, control groups, message queues,
/// terminals. An empty directory takes its place. A mask would lie over it, and gVisor knows no masks.
const COVERED: [&str; 3] = ["/dev/mqueue", "/sys", "/sys/fs/cgroup"];
/// Covered as well, unless the job has a terminal.
const TERMINALS: &str = "/dev/pts";
const EMPTY: &str = "ro,nosuid,nodev,noexec,size=4096,nr_inodes=16,mode=555";

/// Parts of /proc that tell of the host or act on it.
const MASKED: [&str; 14] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
];
const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// At one byte the kernel writes no core file and starts no crash handler of the host.
const NO_CRASH_HANDLER: u64 = 1;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// What the request is made from.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) plan: &'a JailPlan,
    pub(super) limits: Limits,
    pub(super) kernel: Kernel,
    pub(super) transfer: Transfer,
    /// The job's user and group on the host.
    pub(super) id: u32,
    pub(super) runtime: &'a str,
    pub(super) image: &'a str,
    /// Variables that the image would set, and must not.
    pub(super) unset: &'a [String],
    /// What only pid 1 of this container is called with.
    pub(super) nonce: &'a str,
    /// The directory with the job's staged storage and files.
    pub(super) stage: &'a str,
    pub(super) job: &'a str,
    pub(super) state: &'a str,
    /// The container whose network this one shares; without it, one that has nothing but a loopback.
    pub(super) beside: Option<&'a str>,
    /// How fast it may use which disks, where this host can hold it to that.
    pub(super) throttles: &'a [Throttle],
}

pub(super) fn is_staged(path: &str) -> bool {
    STAGED.contains(&path)
}

/// The files to put into the stage, by their name there.
pub(super) fn staged_files(plan: &JailPlan) -> impl Iterator<Item = (&str, &str)> {
    plan.root.iter().filter_map(|entry| match entry {
        RootEntry::File { path, content } if is_staged(path) => Some((base_name(path), content.as_str())),
        RootEntry::File { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::Bind { .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Mount { .. }
        | RootEntry::Device { .. } => None,
    })
}

pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

pub(super) fn create(facts: &Facts<'_>) -> Result<Create, serde_json::Error> {
    let labels = [(JOB_LABEL, facts.job), (STATE_LABEL, facts.state)];
    Ok(Create {
        // An engine has no other name for whoever shares a network.
        hostname: facts.beside.map_or_else(|| facts.plan.hostname.clone(), |_| String::new()),
        user: user(first_user(facts)),
        image: facts.image.to_owned(),
        entrypoint: vec![PROGRAM.to_owned()],
        cmd: vec![facts.nonce.to_owned()],
        // A name without a value takes the image's away.
        env: facts.unset.to_vec(),
        working_dir: "/".to_owned(),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        healthcheck: Healthcheck { test: vec!["NONE".to_owned()] },
        open_stdin: true,
        // When pond is gone the stream ends, and with it pid 1.
        stdin_once: true,
        attach_stdin: true,
        attach_stdout: true,
        attach_stderr: true,
        tty: false,
        network_disabled: facts.beside.is_none(),
        host_config: host_config(facts)?,
    })
}

fn host_config(facts: &Facts<'_>) -> Result<HostConfig, serde_json::Error> {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let memory = facts.limits.memory.bytes();
    Ok(HostConfig {
        runtime: facts.runtime.to_owned(),
        network_mode: facts.beside.map_or_else(|| "none".to_owned(), |id| format!("container:{id}")),
        ipc_mode: "none".to_owned(),
        cgroupns_mode: "private".to_owned(),
        userns_mode: "host".to_owned(),
        privileged: false,
        cap_drop: texts(&["ALL"]),
        cap_add: texts(capabilities(facts.kernel)),
        security_opt: vec!["no-new-privileges".to_owned(), format!("seccomp={}", seccomp::profile()?)],
        readonly_rootfs: true,
        masked_paths: texts(&MASKED),
        readonly_paths: texts(&READ_ONLY),
        mounts: mounts(facts),
        tmpfs: tmpfs_mounts(facts),
        ulimits: ulimits(&facts.plan.rlimits),
        memory,
        // Memory and swap together: no swap.
        memory_swap: memory,
        nano_cpus: u64::from(facts.limits.cpus.millis()) * NANOS_PER_MILLI,
        pids_limit: facts.limits.pids.get() + own_threads(facts.kernel),
        // Each way. The engine's own groups have them on v2 as `io.max`.
        blkio_device_read_bps: facts.throttles.to_vec(),
        blkio_device_write_bps: facts.throttles.to_vec(),
        init: false,
        auto_remove: false,
        log_config: LogConfig { r#type: "none".to_owned() },
        restart_policy: RestartPolicy { name: "no".to_owned() },
    })
}

/// Whose the container's streams are. On gVisor a job opens what belongs to its own user, wherever it is open, so pid 1
/// starts there as somebody else and becomes the job's user before there is a job.
pub(super) fn first_user(facts: &Facts<'_>) -> u32 {
    match facts.kernel {
        Kernel::Host | Kernel::Machine => facts.id,
        Kernel::Gvisor => 0,
    }
}

fn user(id: u32) -> String {
    format!("{id}:{id}")
}

/// What pid 1 needs to become the job's user and to leave nothing to be had; in gVisor's own kernel, not the host's.
fn capabilities(kernel: Kernel) -> &'static [&'static str] {
    match kernel {
        Kernel::Host | Kernel::Machine => &[],
        Kernel::Gvisor => &["SETGID", "SETPCAP", "SETUID"],
    }
}

/// gVisor is a process of the host whose threads count as well.
const GVISOR_THREADS: u64 = 256;

pub(super) fn own_threads(kernel: Kernel) -> u64 {
    match kernel {
        // A machine's own threads are not in the job's group.
        Kernel::Host | Kernel::Machine => 0,
        Kernel::Gvisor => GVISOR_THREADS,
    }
}

/// Every place of the container that is mounted on, by pond's request or by the engine itself.
pub(super) fn places(facts: &Facts<'_>) -> BTreeMap<String, BindKind> {
    let is_file = |path: &str| {
        let bound = |entry: &RootEntry| {
            matches!(
                entry,
                RootEntry::Bind { kind: BindKind::File, .. } | RootEntry::Mount { kind: BindKind::File, .. }
            )
        };
        is_staged(path) || facts.plan.root.iter().any(|entry| entry.path() == path && bound(entry))
    };
    let kind = |path: &str| if is_file(path) { BindKind::File } else { BindKind::Directory };
    let mounted = mounts(facts).into_iter().map(|mount| mount.target).chain(tmpfs_mounts(facts).into_keys());
    let mounted = mounted.chain(["/dev", "/proc"].map(str::to_owned));
    mounted.map(|path| (path.clone(), kind(&path))).collect()
}

/// The same container with nothing mounted in it, to look at its image.
pub(super) fn bare(mut request: Create) -> Create {
    request.host_config.mounts = Vec::new();
    request.host_config.tmpfs = BTreeMap::new();
    request
}

fn tmpfs_mounts(facts: &Facts<'_>) -> BTreeMap<String, String> {
    let mut mounts = vec![
        ("/dev/shm", tmpfs(facts.plan.shm, "1777", facts.id)),
        ("/tmp", tmpfs(facts.plan.tmp, "1777", facts.id)),
    ];
    match facts.transfer {
        Transfer::Bind => {}
        Transfer::Stream => {
            let [workspace, home] = rooms(facts.limits);
            mounts.push((WORKSPACE, tmpfs(workspace, "0755", owner(facts.plan, facts.id))));
            mounts.push((HOME, tmpfs(home, "0755", facts.id)));
        }
    }
    let terminals = match facts.plan.console {
        Console::Pipes => Some(TERMINALS),
        Console::Terminal { .. } => None,
    };
    mounts.extend(COVERED.into_iter().chain(terminals).map(|path| (path, EMPTY.to_owned())));
    mounts.into_iter().map(|(path, options)| (path.to_owned(), options)).collect()
}

/// Somebody's own: an engine gives a mount the rights that the directory has in the image, whatever mode it is asked for.
fn tmpfs(cap: TmpfsCap, mode: &str, owner: u32) -> String {
    let TmpfsCap { bytes, inodes } = cap;
    format!("rw,exec,nosuid,nodev,size={bytes},nr_inodes={inodes},mode={mode},uid={owner},gid={owner}")
}

/// Whose a copy is that travels as a stream. One that the job must not change is somebody else's, of the same job's range.
pub(super) fn owner(plan: &JailPlan, job: u32) -> u32 {
    match plan.checkout {
        CheckoutView::ReadOnly(_) => job + 1,
        CheckoutView::Copy(_) | CheckoutView::Empty => job,
    }
}

/// What fills a directory of the container from its input.
pub(super) fn unpacker(target: &str, owner: u32) -> Exec {
    Exec {
        user: user(owner),
        cmd: [PROGRAM, UNPACK, target].map(str::to_owned).to_vec(),
        env: Vec::new(),
        working_dir: "/".to_owned(),
        privileged: false,
        attach_stdin: true,
        attach_stdout: true,
        attach_stderr: true,
        tty: false,
    }
}

fn mounts(facts: &Facts<'_>) -> Vec<Mount> {
    let stage = facts.stage;
    let shared: &[_] = match facts.transfer {
        Transfer::Bind => &[(staged::WORKSPACE, WORKSPACE), (staged::HOME, HOME)],
        Transfer::Stream => &[],
    };
    let storage = shared.iter().map(|(name, target)| bind(&format!("{stage}/{name}"), target, false));
    // Never the host's directory or file itself, whose sockets, locks and watches the job would share. Files hang after directories.
    let hung = |index| format!("{stage}/{}", staged::shown(index));
    let mut directories = (0..).map(hung);
    let mut files = (facts.plan.root.iter().filter(|entry| is_directory(entry)).count()..).map(hung);
    let files = facts.plan.root.iter().filter_map(move |entry| match entry {
        RootEntry::Bind { path, kind: BindKind::Directory, .. } => {
            Some(bind(&directories.next()?, path, true))
        }
        RootEntry::Throwaway { path, .. } => Some(bind(&directories.next()?, path, false)),
        RootEntry::Mount { path, writable, .. } => Some(bind(&directories.next()?, path, !writable)),
        RootEntry::Bind { path, kind: BindKind::File, .. } => Some(bind(&files.next()?, path, true)),
        RootEntry::File { path, .. } if is_staged(path) => {
            Some(bind(&format!("{stage}/{}", base_name(path)), path, true))
        }
        RootEntry::File { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::Device { .. } => None,
    });
    files.chain(storage).chain(terminals(facts)).collect()
}

fn is_directory(entry: &RootEntry) -> bool {
    match entry {
        RootEntry::Bind { kind, .. } => *kind == BindKind::Directory,
        RootEntry::Throwaway { .. } | RootEntry::Mount { .. } => true,
        RootEntry::File { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::Device { .. } => false,
    }
}

/// Pond's own file, which is pid 1, as every container has it.
pub(super) fn program(executable: &str) -> RootEntry {
    RootEntry::Bind { path: PROGRAM.to_owned(), source: executable.to_owned(), kind: BindKind::File }
}

/// Where it hangs until the container holds it.
pub(super) fn staged_program(request: &Create) -> Option<&str> {
    let mut mounts = request.host_config.mounts.iter();
    mounts.find(|mount| mount.target == PROGRAM).map(|mount| mount.source.as_str())
}

/// On the host's kernel an engine's own instance has no bound but the one that all of the host shares. The other kernels have
/// theirs to themselves.
fn terminals(facts: &Facts<'_>) -> Option<Mount> {
    let hung = format!("{}/{}", facts.stage, staged::TERMINALS);
    match (facts.plan.console, facts.kernel) {
        (Console::Terminal { .. }, Kernel::Host) => Some(bind(&hung, TERMINALS, false)),
        (Console::Terminal { .. }, Kernel::Gvisor | Kernel::Machine) | (Console::Pipes, _) => None,
    }
}

/// Without what is mounted below: an engine of this age makes only the mount itself read-only.
fn bind(source: &str, target: &str, read_only: bool) -> Mount {
    Mount {
        r#type: "bind".to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
        bind_options: BindOptions { propagation: "rprivate".to_owned(), non_recursive: true },
    }
}

fn ulimits(limits: &Rlimits) -> Vec<Ulimit> {
    [
        ("core", NO_CRASH_HANDLER),
        ("fsize", limits.file_bytes),
        ("memlock", limits.locked_bytes),
        ("msgqueue", limits.queue_bytes),
        ("nice", 0),
        ("nofile", limits.open_files),
        ("nproc", limits.processes),
        ("rtprio", 0),
        ("sigpending", limits.pending_signals),
        ("stack", limits.stack_bytes),
    ]
    .map(|(name, value)| Ulimit { name: name.to_owned(), soft: value, hard: value })
    .to_vec()
}

/// The job's id in a container, which has no user namespace of its own: its range's, so that no person and no other job has it.
pub(super) fn id_of(base: u32) -> u32 {
    base + JOB_ID
}

#[cfg(test)]
pub(super) mod tests;
