//! Pure: a policy and the facts of a host become the exact plan the launcher will carry out.

use pond_policy::limits::Limits;
use pond_policy::profile::Filesystem;
use pond_wire::jail::{
    BindKind, CheckoutPath, CheckoutView, Console, Door, Duty, Ground, HOME, HomeFile, Identity, JOB_ID,
    JailPlan, Program, ReplacedFile, Rlimits, RootEntry, Scratch, Start, TmpfsCap, WORKSPACE,
};
use rustix::fs::Uid;

use super::toolchain::{self, Place};
use super::tools::Provided;

const HOSTNAME: &str = "pond";
/// An inode for every so many bytes of a tmpfs: generous for real trees, small against the memory an inode costs.
const BYTES_PER_INODE: u64 = 4096;
/// Shared memory is for locks and rings, not for storage.
const SHM_BYTES: u64 = 64 << 20;
/// Pinned memory, message queues and queued signals a build or a test suite may want; hostile amounts they are not.
const LOCKED_BYTES: u64 = 8 << 20;
const QUEUE_BYTES: u64 = 800 << 10;
const PENDING_SIGNALS: u64 = 4096;
/// An ordinary user's pid 1 counts as that user's too. With room for it the control group is what refuses a process too many,
/// and a control group can be asked whether it did.
const BESIDE_THE_JOB: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    #[error("the profile shows the job the host's own files, which is not a sandbox")]
    HostFiles,
}

/// One file of the host, shown read-only to one job under another name. The launcher refuses a name in a place of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhibit {
    pub source: String,
    pub path: String,
}

/// What the plan is made from.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) places: &'a [Place],
    pub(crate) identity: Identity,
    pub(crate) scratch: Scratch,
    /// The job's id as it sees itself.
    pub(crate) user: u32,
    pub(crate) checkout: &'a CheckoutPath,
    pub(crate) replaced: &'a [ReplacedFile],
    pub(crate) filesystem: Filesystem,
    pub(crate) limits: Limits,
    pub(crate) argv: &'a [String],
    pub(crate) env: &'a [(String, String)],
    pub(crate) exhibits: &'a [Exhibit],
    pub(crate) tools: &'a [Provided],
    pub(crate) console: Console,
    pub(crate) doors: &'a [Door],
    pub(crate) home: &'a [HomeFile],
    pub(crate) mounts: &'a [RootEntry],
    pub(crate) duty: Duty,
}

pub(crate) fn plan(facts: &Facts<'_>) -> Result<JailPlan, PlanFault> {
    let checkout = match facts.filesystem {
        Filesystem::ReadOnlyCheckout => CheckoutView::ReadOnly(facts.checkout.clone()),
        Filesystem::ThrowawayCopy => CheckoutView::Copy(facts.checkout.clone()),
        Filesystem::DeclaredOnly => CheckoutView::Empty,
        Filesystem::Host => return Err(PlanFault::HostFiles),
    };
    let limits = facts.limits;
    Ok(JailPlan {
        identity: facts.identity,
        hostname: HOSTNAME.to_owned(),
        root: toolchain::entries(facts.places, HOSTNAME, facts.user)
            .into_iter()
            .chain(facts.exhibits.iter().map(exhibited))
            .chain(facts.tools.iter().flat_map(|tool| tool.root.iter().cloned()))
            .chain(facts.mounts.iter().cloned())
            .chain(toolchain::terminal_entries(facts.console))
            .collect(),
        checkout,
        replaced: facts.replaced.to_vec(),
        home: facts.home.to_vec(),
        scratch: facts.scratch,
        tmp: tmpfs(limits.tmpfs.bytes()),
        shm: tmpfs(SHM_BYTES),
        rlimits: rlimits(limits),
        program: Program {
            argv: facts.argv.to_vec(),
            env: environment(facts),
            search: search(facts.tools),
            cwd: WORKSPACE.to_owned(),
        },
        console: facts.console,
        doors: facts.doors.to_vec(),
        // Nothing of the job runs before its way out is guarded.
        start: if facts.doors.is_empty() { Start::AtOnce } else { Start::OnGo },
        duty: facts.duty,
    })
}

/// What every plan for these places begins with.
pub(super) fn ground(places: &[Place], identity: Identity) -> Ground {
    Ground {
        identity,
        hostname: HOSTNAME.to_owned(),
        root: toolchain::entries(places, HOSTNAME, JOB_ID),
        shm: tmpfs(SHM_BYTES),
    }
}

fn exhibited(exhibit: &Exhibit) -> RootEntry {
    let (path, source) = (exhibit.path.clone(), exhibit.source.clone());
    RootEntry::Bind { path, source, kind: BindKind::File }
}

/// Only root can mount an image; an ordinary user's scratch is memory, charged to the job.
pub(super) fn scratch_of(owner: Uid, limits: Limits) -> Scratch {
    if owner.is_root() {
        Scratch::Ext4Image
    } else {
        Scratch::Tmpfs(TmpfsCap { bytes: limits.disk.bytes, inodes: limits.disk.inodes })
    }
}

fn tmpfs(bytes: u64) -> TmpfsCap {
    TmpfsCap { bytes, inodes: bytes / BYTES_PER_INODE }
}

fn rlimits(limits: Limits) -> Rlimits {
    Rlimits {
        open_files: limits.ulimits.nofile,
        processes: limits.pids.get() + BESIDE_THE_JOB,
        stack_bytes: limits.ulimits.stack,
        file_bytes: limits.disk.bytes,
        locked_bytes: LOCKED_BYTES,
        queue_bytes: QUEUE_BYTES,
        pending_signals: PENDING_SIGNALS,
    }
}

/// Tools first: whoever asks for one by name means that one.
fn search(tools: &[Provided]) -> Vec<String> {
    let offered = tools.iter().flat_map(|tool| tool.search.iter().cloned());
    offered.chain(toolchain::SEARCH.map(str::to_owned)).collect()
}

/// Ours first, then the tools', then the caller's, each replacing what came before it: nothing is inherited from the host.
fn environment(facts: &Facts<'_>) -> Vec<(String, String)> {
    let search = search(facts.tools).join(":");
    let ours = [
        ("HOME", HOME),
        // Of the locale its characters are all that differs from the plainest; with the other categories named too, every program
        // would open a dozen files first.
        ("LC_CTYPE", "C.UTF-8"),
        ("LOGNAME", "pond"),
        ("PATH", &search),
        ("PWD", WORKSPACE),
        ("SHELL", "/bin/sh"),
        ("TMPDIR", "/tmp"),
        ("USER", "pond"),
    ];
    let mut env: Vec<(String, String)> =
        ours.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    for (name, value) in facts.tools.iter().flat_map(|tool| &tool.env).chain(facts.env) {
        env.retain(|(other, _)| other != name);
        env.push((name.clone(), value.clone()));
    }
    env
}
