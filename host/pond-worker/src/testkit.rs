//! Test fixtures: a real overlay mount in its own mount namespace, and trees as values.
//!
//! The overlay lives on a tmpfs of its own inside the namespace of a waiting shell and is reached through
//! `/proc/<pid>/root`; when the shell ends, nothing is left. Needs root, as the mounts do.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::collect::{
    Caps, CollectFault, Collected, Ignored, OverlayXattrs, PATIENT, Sources, Wanted, collect,
};

/// What a checkout holds, as far as a result can express it: no directories, no git metadata, no special files.
pub(crate) type Tree = BTreeMap<Vec<u8>, Entry>;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File { bytes: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { bytes, executable } => {
                let shown = bytes.get(..bytes.len().min(40)).unwrap_or_default();
                write!(f, "File({} bytes, x={executable}, {})", bytes.len(), shown.escape_ascii())
            }
            Self::Link(target) => write!(f, "Link({})", target.escape_ascii()),
        }
    }
}

pub(crate) fn file(bytes: impl AsRef<[u8]>) -> Entry {
    Entry::File { bytes: bytes.as_ref().to_vec(), executable: false }
}

pub(crate) fn script(bytes: impl AsRef<[u8]>) -> Entry {
    Entry::File { bytes: bytes.as_ref().to_vec(), executable: true }
}

pub(crate) fn tree(entries: &[(&str, Entry)]) -> Tree {
    entries.iter().map(|(path, entry)| (path.as_bytes().to_vec(), entry.clone())).collect()
}

pub(crate) fn at(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

pub(crate) fn write_tree(root: &Path, tree: &Tree) {
    for (path, entry) in tree {
        write_entry(root, path, entry);
    }
}

pub(crate) fn write_entry(root: &Path, path: &[u8], entry: &Entry) {
    let path = at(root, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match entry {
        Entry::Link(target) => symlink(OsStr::from_bytes(target), path).unwrap(),
        Entry::File { bytes, executable } => {
            fs::write(&path, bytes).unwrap();
            let mode = if *executable { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

pub(crate) fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if crate::path::is_git_name(path.file_name().unwrap().as_bytes()) {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            if meta.is_dir() {
                pending.push(path);
            } else if meta.is_symlink() {
                tree.insert(name, Entry::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()));
            } else if meta.is_file() {
                let executable = meta.permissions().mode() & 0o100 != 0;
                tree.insert(name, Entry::File { bytes: fs::read(&path).unwrap(), executable });
            }
        }
    }
    tree
}

pub(crate) fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

pub(crate) const WITHOUT_IGNORED: Wanted<'static> = Wanted { ignored: Ignored::LeaveOut, artifacts: &[] };

/// A mounted overlay over a base tree.
pub(crate) struct Overlay {
    shell: Child,
    root: PathBuf,
    xattrs: OverlayXattrs,
    _anchor: tempfile::TempDir,
}

const SCRIPT: &str = r#"
set -e
mount -t tmpfs -o size=2g,nr_inodes=0 pond "$1"
cd "$1"
mkdir lower upper work merged
echo mounted
read -r go
mount -t overlay pond -o "lowerdir=lower,upperdir=upper,workdir=work$2" merged
echo ready
read -r go || true
"#;

impl Overlay {
    /// `fill` makes the base; the overlay is mounted afterwards.
    pub(crate) fn new(xattrs: OverlayXattrs, fill: impl FnOnce(&Path)) -> Self {
        let anchor = tempfile::tempdir().unwrap();
        let options = match xattrs {
            OverlayXattrs::Trusted => "",
            OverlayXattrs::User => ",userxattr",
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "only a process of its own can hold the mount namespace"
        )]
        let mut shell = Command::new("unshare")
            .args(["--mount", "sh", "-c", SCRIPT, "sh"])
            .args([anchor.path().as_os_str(), OsStr::new(options)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        let root = PathBuf::from(format!("/proc/{}/root{}", shell.id(), anchor.path().display()));
        fill(&root.join("lower"));
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        line.clear();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { shell, root, xattrs, _anchor: anchor }
    }

    pub(crate) fn of(base: &Tree) -> Self {
        Self::new(OverlayXattrs::Trusted, |lower| write_tree(lower, base))
    }

    /// Where the job writes.
    pub(crate) fn merged(&self) -> PathBuf {
        self.root.join("merged")
    }

    /// What somebody else may change meanwhile.
    pub(crate) fn lower(&self) -> PathBuf {
        self.root.join("lower")
    }

    /// The layer itself, for marks a job could only forge.
    pub(crate) fn upper(&self) -> PathBuf {
        self.root.join("upper")
    }

    pub(crate) fn sources(&self) -> Sources {
        let (upper, lower) = (open(&self.upper()), open(&self.lower()));
        Sources { upper, lower, xattrs: self.xattrs, above: None, start: None }
    }

    pub(crate) fn collect(&self) -> Run {
        self.collect_within(&Caps::default()).unwrap()
    }

    pub(crate) fn collect_within(&self, caps: &Caps) -> Result<Run, CollectFault> {
        self.collect_wanted(&WITHOUT_IGNORED, caps)
    }

    pub(crate) fn collect_wanted(&self, wanted: &Wanted<'_>, caps: &Caps) -> Result<Run, CollectFault> {
        collect_into_run(&self.sources(), wanted, caps)
    }

    /// With sources of this overlay that a test has changed.
    pub(crate) fn collect_from(&self, sources: &Sources) -> Run {
        collect_into_run(sources, &WITHOUT_IGNORED, &Caps::default()).unwrap()
    }
}

fn collect_into_run(sources: &Sources, wanted: &Wanted<'_>, caps: &Caps) -> Result<Run, CollectFault> {
    let dir = tempfile::tempdir().unwrap();
    let fd = open(dir.path());
    let collected = collect(sources, wanted, caps, fd.as_fd(), PATIENT)?;
    Ok(Run { collected, dir, fd })
}

impl Drop for Overlay {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
    }
}

/// A run directory with a result in it.
pub(crate) struct Run {
    pub(crate) collected: Collected,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) fd: OwnedFd,
}

impl Run {
    /// Changes as `path: kind` lines.
    pub(crate) fn summary(&self) -> Vec<String> {
        use crate::collect::Delta;
        let kind = |delta: &Delta| match delta {
            Delta::Added { .. } => "added",
            Delta::Deleted { .. } => "deleted",
            Delta::Modified { .. } => "modified",
            Delta::ModeChanged { .. } => "mode",
            Delta::TypeChanged { .. } => "type",
        };
        self.collected
            .record
            .changes
            .iter()
            .map(|change| format!("{} {}", change.path, kind(&change.delta)))
            .collect()
    }

    /// Refused entries as `path: reason` lines.
    pub(crate) fn rejections(&self) -> Vec<String> {
        self.collected
            .record
            .rejected
            .iter()
            .map(|entry| format!("{} {:?}", entry.path, entry.reason))
            .collect()
    }

    pub(crate) fn patch(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("changes.patch")).unwrap()
    }

    /// The base with the patch on it, put there by git itself.
    pub(crate) fn git_applied(&self, base: &Tree) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        write_tree(dir.path(), base);
        let patch = self.dir.path().join("changes.patch");
        if self.patch().is_empty() {
            return read_tree(dir.path());
        }
        #[expect(clippy::disallowed_methods, reason = "git is the judge of the patch")]
        let output = Command::new("git")
            .args(["-c", "core.protectHFS=true", "apply", "--whitespace=nowarn"])
            .arg(&patch)
            .current_dir(dir.path())
            .env("GIT_CEILING_DIRECTORIES", dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        read_tree(dir.path())
    }
}
