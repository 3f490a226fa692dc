//! The boundary between a host process that asks for a sandbox and the privileged launcher that makes one.
//!
//! A `JailPlan` is data: everything the launcher will do is written in it, and what it does not say is not done. It carries no
//! secret. The launcher refuses a plan it does not wholly understand or that breaks one of its own
//! invariants. Answers are `Report`s of a fixed size; only the launcher and init hold the socket they travel on.

mod bytes;
mod ground;
mod report;
mod serving;

pub use bytes::{BytesFault, decode, encode};
pub use ground::Ground;
pub use report::{Report, ReportFault, Step, Usage};
pub use serving::{Answer, Ask, AskFault, ExecOrder};

use serde::{Deserialize, Serialize};

/// A plan larger than this is refused before it is decoded.
pub const MAX_PLAN_BYTES: u64 = 4 << 20;

/// The first byte of a packet to the launcher. A launch takes both, in this order.
pub mod word {
    /// Make a child in namespaces of its own, and a disk. Descriptors: the job's v2 control group if `GROUP` is added, an
    /// image and its template if `DISK` is.
    pub const PREPARE: u8 = 0x10;
    pub const GROUP: u8 = 0x01;
    pub const DISK: u8 = 0x02;
    /// Added where the child is to stand on the ground that was laid before.
    pub const STANDING: u8 = 0x04;
    /// Besides `DISK`, and besides `STAGE`: the image has a filesystem already and comes without a template.
    pub const KEPT: u8 = 0x08;
    /// Let that child carry out a plan. Descriptors: the plan, the report socket, the checkout, the job's streams if the
    /// plan gives it any, and the lifeline.
    pub const LAUNCH: u8 = 0x20;
    /// Said over the report socket to that child, which does nothing of the plan before: the limits of its control groups stand.
    /// Descriptors: the entries of the v1 ones.
    pub const ENTER: u8 = 0x60;
    /// Build a plan's storage and hang it up in a directory, for a container to bind. Descriptors: the plan, the report
    /// socket, the checkout, the directory, an image and its template.
    pub const STAGE: u8 = 0x30;
    /// Open a plan's doors in the network namespace of a process. Descriptors: the plan, the report socket, the process.
    pub const VISIT: u8 = 0x40;
    /// Lay the ground of the next sandbox, whatever its job will be. Descriptors: the ground, an image and its template if `DISK`
    /// is added. With `STANDING` the child is made at once, which a launch then needs no `PREPARE` for; its v2 control group, if
    /// `GROUP` is added as well, comes after the ground.
    pub const GROUND: u8 = 0x50;
}

/// Where staged storage hangs, below the directory that travels with the request.
pub mod staged {
    pub const WORKSPACE: &str = "workspace";
    pub const HOME: &str = "home";
    /// Where a plan gives the job a terminal: the instance in which it is made.
    pub const TERMINALS: &str = "terminals";

    /// What of the host comes at this place among what the plan shows: its directories, then its files.
    pub fn shown(index: usize) -> String {
        format!("shown-{index}")
    }
}

/// The most directories and files of the host that one plan shows: their mounts travel in one packet, with three of the storage.
pub const MOST_SHOWN: usize = 29;

/// Where the checkout stands inside.
pub const WORKSPACE: &str = "/workspace";
/// The job's home directory inside.
pub const HOME: &str = "/home/pond";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailPlan {
    pub identity: Identity,
    pub hostname: String,
    /// What stands in the root, parents before children. The root itself is a small read-only tmpfs.
    pub root: Vec<RootEntry>,
    pub checkout: CheckoutView,
    /// Files the job sees in place of the checkout's own, such as a git configuration without its credentials.
    pub replaced: Vec<ReplacedFile>,
    /// Files the job finds in its home directory, its own to change.
    pub home: Vec<HomeFile>,
    pub scratch: Scratch,
    pub tmp: TmpfsCap,
    pub shm: TmpfsCap,
    pub rlimits: Rlimits,
    pub program: Program,
    pub console: Console,
    /// Listeners made inside for the job's gateway, which travel out with `Report::Doors`.
    pub doors: Vec<Door>,
    pub start: Start,
    pub duty: Duty,
}

/// What pid 1 is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// Run the plan's program, and end with it.
    Once,
    /// Run whatever it is asked to, until nobody asks any more. The plan's program has no arguments of its own.
    Serve,
}

/// Which host ids the ids inside stand for. The job runs as `JOB_ID` inside, never as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Identity {
    /// Privileged launcher: ids 0..65536 inside are `base`.. on the host, a range no other job holds; the owner of the
    /// checkout appears as the job's own id.
    Range { base: u32, owner_uid: u32, owner_gid: u32 },
    /// Ordinary user: one id inside stands for the caller's own.
    Single { uid: u32, gid: u32 },
}

/// The job's user and group inside.
pub const JOB_ID: u32 = 1000;
/// How many ids a privileged job's range holds.
pub const RANGE_IDS: u32 = 65_536;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum RootEntry {
    Directory {
        path: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    File {
        path: String,
        content: String,
    },
    /// A host file, or a directory behind an overlay: read-only, without setuid or device files, without what is mounted below.
    Bind {
        path: String,
        source: String,
        kind: BindKind,
    },
    /// A directory that the job changes for itself, over one of the host's or over nothing: what it writes is on its disk and goes
    /// with it. Its files appear as the job's own.
    Throwaway {
        path: String,
        source: Option<String>,
    },
    /// A device node of the host, bound by itself.
    Device {
        path: String,
        source: String,
    },
    /// A file or directory of the host itself, as it is and as it changes, its owner appearing as the job; without what is
    /// mounted below.
    Mount {
        path: String,
        source: CheckoutPath,
        kind: BindKind,
        writable: bool,
    },
}

impl RootEntry {
    pub fn path(&self) -> &str {
        match self {
            Self::Directory { path }
            | Self::Symlink { path, .. }
            | Self::File { path, .. }
            | Self::Bind { path, .. }
            | Self::Throwaway { path, .. }
            | Self::Device { path, .. }
            | Self::Mount { path, .. } => path,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindKind {
    Directory,
    File,
}

/// How the job sees the checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum CheckoutView {
    /// The tree itself, read-only.
    ReadOnly(CheckoutPath),
    /// A throwaway writable view: the tree as lower layer, the scratch as upper.
    Copy(CheckoutPath),
    /// Nothing of the host: an empty writable directory on the scratch.
    Empty,
}

/// A file of the checkout, by its path relative to the root of it, and what the job gets to read instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedFile {
    pub path: String,
    pub content: String,
}

/// A file by its path below the job's home directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeFile {
    pub path: String,
    pub content: String,
}

/// A directory named for the launcher that must open it in another mount namespace, and checked there to be the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckoutPath {
    pub path: String,
    pub device: u64,
    pub inode: u64,
}

/// Where everything the job writes to disk goes: bounded in bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Scratch {
    /// A formatted ext4 image, passed as a descriptor; its size is the quota.
    Ext4Image,
    /// The same, but what is on it outlives the sandbox.
    KeptImage,
    /// Memory, charged to the job.
    Tmpfs(TmpfsCap),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmpfsCap {
    pub bytes: u64,
    pub inodes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rlimits {
    pub open_files: u64,
    pub processes: u64,
    pub stack_bytes: u64,
    pub file_bytes: u64,
    pub locked_bytes: u64,
    pub queue_bytes: u64,
    pub pending_signals: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Absolute directories inside, searched in order for a bare command name.
    pub search: Vec<String>,
    pub cwd: String,
}

/// What the job's three streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Console {
    /// Descriptors that travel with the plan.
    Pipes,
    /// A terminal made inside the sandbox, of this size at first; its master travels out with `Report::Prepared`.
    Terminal { rows: u16, columns: u16 },
}

/// A listener of the gateway inside the job's network namespace; where each stands is fixed in [`crate::gateway::doors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Door {
    /// For clients that speak to a proxy.
    Proxy,
    /// Two listeners: datagrams, then streams.
    Dns,
    /// For clients that connect to the address a listed name resolves to.
    Front { port: u16 },
    /// For every connection to an address outside loopback, on whichever port.
    Any,
    /// For clients of a model.
    Broker,
    /// For git, where it is lent a credential.
    Git,
}

/// Whether the job waits for a word from the asking side before its first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    AtOnce,
    OnGo,
}

#[cfg(test)]
mod tests {
    //! What crosses the launcher's boundary is understood wholly or refused.
    use super::*;

    #[test]
    fn an_unknown_field_is_refused() {
        let text = r#"{"bytes": 1, "inodes": 2, "huge": true}"#;
        let fault = serde_json::from_str::<TmpfsCap>(text).map_err(|fault| fault.to_string());
        assert!(fault.as_ref().is_err_and(|text| text.contains("unknown field `huge`")), "{fault:?}");
    }
    #[test]
    fn a_terminal_is_its_size_and_nothing_more() {
        let read = |text: &str| serde_json::from_str::<Console>(text).ok();
        let terminal = Console::Terminal { rows: 24, columns: 80 };
        assert_eq!(read(r#"{"terminal": {"rows": 24, "columns": 80}}"#), Some(terminal));
        assert_eq!(read(r#"{"terminal": {"rows": 24, "columns": 80, "path": "/dev/pts/0"}}"#), None);
        assert_eq!(read(r#"{"terminal": {"rows": 65536, "columns": 80}}"#), None);
        assert_eq!(read(r#""terminal""#), None);
    }
}
