//! Where measuring happens: a private directory with the release build, an empty checkout and a state directory, gone at
//! the end; and the packages of the peers, which no test needs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use tempfile::TempDir;

use crate::debian;
use crate::run::{self, Invocation};

/// Package, and what it is for.
type Package = (&'static str, &'static str);

pub(super) const FOR_NATIVE: [Package; 7] = [
    ("bubblewrap", "peer"),
    ("crun", "peer"),
    ("docker.io", "peer"),
    ("e2fsprogs", "mkfs.ext4, for the disk of a job"),
    ("runc", "peer"),
    ("runsc", "peer"),
    ("util-linux", "setpriv and unshare, to measure as somebody else and from elsewhere"),
];

pub(super) const FOR_BACKENDS: [Package; 2] =
    [("docker.io", "the engine, and a peer"), ("e2fsprogs", "mkfs.ext4, for the disk of a job")];

pub(super) const FOR_DISPATCH: [Package; 4] = [
    ("e2fsprogs", "mkfs.ext4, for the disk of a job"),
    ("nodejs", "what peers run on"),
    ("npm", "brings the peers"),
    ("postgresql", "the second engine, and that of the peers"),
];

pub(super) const FOR_GATEWAY: [Package; 11] = [
    ("bubblewrap", "the sandbox below a peer"),
    ("curl", "the client everybody runs"),
    ("e2fsprogs", "mkfs.ext4, for the disk of a job"),
    ("iproute2", "ip, to furnish the namespaces"),
    ("nodejs", "what a peer runs on"),
    ("openssl", "a certificate, and a server that shows it"),
    ("ripgrep", "a peer looks for it"),
    ("socat", "a peer's bridge out of its sandbox"),
    ("squid", "peer"),
    ("tinyproxy-bin", "peer"),
    ("util-linux", "unshare and nsenter"),
];

#[derive(Debug)]
pub(super) struct Stand {
    pub(super) root: PathBuf,
    pub(super) log: PathBuf,
    directory: TempDir,
}

impl Stand {
    /// `name` is the bench's; its packages are installed where they are missing.
    pub(super) fn set_up(root: &Path, name: &str, packages: &[Package]) -> Result<Self> {
        ensure!(run::is_root(root)?, "the bench makes sandboxes and containers: run it as root");
        let logs = root.join("target/xtask");
        fs::create_dir_all(&logs)?;
        let log = logs.join(format!("bench-{name}.log"));
        fs::write(&log, "")?;
        debian::install(root, &log, packages)?;
        let directory = TempDir::with_prefix("pond-bench-")?;
        let stand = Self { root: root.to_owned(), log, directory };
        // Ordinary users run what lies in it.
        stand.step(&["chmod", "755", &stand.path("")])?;
        stand.step(&["mkdir", &stand.path("checkout")])?;
        stand.build()?;
        Ok(stand)
    }

    /// The measured program is the release, copied to where every user can read it.
    fn build(&self) -> Result<()> {
        let what = ["--package", "pond", "--bin", "pond", "--example", "launch"];
        self.step(&[&["cargo", "build", "--release"], &what[..]].concat())?;
        self.install(&["pond", "examples/launch"])
    }

    /// A further instrument, built like the rest.
    pub(super) fn add(&self, package: &str, example: &str) -> Result<()> {
        self.step(&["cargo", "build", "--release", "--package", package, "--example", example])?;
        self.install(&[&format!("examples/{example}")])
    }

    fn install(&self, programs: &[&str]) -> Result<()> {
        let metadata = MetadataCommand::new().current_dir(&self.root).no_deps().exec()?;
        let built = metadata.target_directory.join(run::host_triple(&self.root)?).join("release");
        let programs: Vec<_> = programs.iter().map(|name| built.join(name)).collect();
        let from: Vec<&str> = programs.iter().map(|path| path.as_str()).collect();
        self.step(&[&["install", "--mode=755"], from.as_slice(), &[&self.path("")]].concat())
    }

    /// A place in the private directory.
    pub(super) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    pub(super) fn command(&self, words: &[&str]) -> Invocation {
        Invocation::new(&self.root, words)
    }

    /// A command that runs pond, here or further down.
    pub(super) fn with_state(&self, words: &[&str]) -> Invocation {
        self.command(words).env("POND_STATE_DIR", &self.path("state"))
    }

    pub(super) fn step(&self, words: &[&str]) -> Result<()> {
        self.command(words).logged(&self.log)
    }

    pub(super) fn capture(&self, words: &[&str]) -> Result<String> {
        self.command(words).capture()
    }

    /// The instrument, spawning this command.
    pub(super) fn spawning(&self, words: &[&str]) -> Invocation {
        let instrument = [self.path("launch"), "spawn".to_owned()];
        words
            .iter()
            .fold(self.with_state(&instrument.each_ref().map(String::as_str)), |all, word| all.arg(word))
    }

    /// `pond run` on a checkout without a network, like its peers. The profile has a list of commands, and `echo` is on it;
    /// in a locale of its own, because unlike `true` it would look for one.
    pub(super) fn pond_run(&self, checkout: &str) -> Vec<String> {
        let sealed = ["--profile", "untrusted-code-test", "--env", "LC_ALL=C", "--", "echo"];
        self.pond(checkout, &sealed)
    }

    /// `pond run` of `true` as it is without a flag: a gateway guards the way out.
    pub(super) fn pond_run_with_gateway(&self, checkout: &str) -> Vec<String> {
        self.pond(checkout, &["--", "true"])
    }

    pub(super) fn pond(&self, checkout: &str, rest: &[&str]) -> Vec<String> {
        let pond = self.path("pond");
        let words = [&[pond.as_str(), "run", "--quiet", "--checkout", checkout], rest].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// The instrument with a launcher of its own, in one of its modes.
    pub(super) fn resident(&self, mode: &[&str], command: &[&str]) -> Invocation {
        let own = [self.path("pond"), self.path("state"), self.path("checkout")];
        let own = own.each_ref().map(String::as_str);
        self.command(&[&[self.path("launch").as_str()], mode, &own, command].concat())
    }
}

/// A file of the kernel's, as text.
pub(super) fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}
