//! The one door to child processes: what is run, how it is shown, where its output goes.
//! A child gets no standard input, and a failure always carries the command that repeats it.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const POLL: Duration = Duration::from_millis(50);
const HEARTBEAT: Duration = Duration::from_secs(20);
const TAIL_LINES: usize = 60;

/// A command not yet run; `Display` is the line a shell would take, from the repository root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    cwd: PathBuf,
    env: Vec<(String, String)>,
    words: Vec<String>,
}

impl Invocation {
    pub(crate) fn new(cwd: &Path, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { cwd: cwd.to_owned(), env: Vec::new(), words }
    }

    pub(crate) fn arg(mut self, word: &str) -> Self {
        self.words.push(word.to_owned());
        self
    }

    /// The same command from another directory.
    pub(crate) fn within(mut self, directory: &Path) -> Self {
        self.cwd = directory.to_owned();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same command with root's rights: itself for root, through sudo for anyone else.
    pub(crate) fn with_root(mut self) -> Result<Self> {
        if is_root(&self.cwd)? {
            return Ok(self);
        }
        ensure!(
            Self::new(&self.cwd, &["sudo", "--version"]).capture().is_ok(),
            "`{self}` needs root: run as root, or install sudo"
        );
        let env = self.env.drain(..).map(|(name, value)| format!("{name}={value}"));
        self.words = ["sudo".to_owned()].into_iter().chain(env).chain(self.words).collect();
        Ok(self)
    }

    /// Standard output, once the command has succeeded.
    pub(crate) fn capture(&self) -> Result<String> {
        let output = self.command()?.output().with_context(|| format!("cannot start `{self}`"))?;
        if !output.status.success() {
            bail!(
                "`{self}` failed ({})\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` printed bytes that are not UTF-8"))
    }

    /// Starts it with all output appended to `log`; whoever asked waits for it.
    pub(crate) fn start(&self, log: &Path) -> Result<Child> {
        let file = File::options().create(true).append(true).open(log)?;
        let mut command = self.command()?;
        command.stdout(file.try_clone()?).stderr(file);
        command.spawn().with_context(|| format!("cannot start `{self}`"))
    }

    /// Starts it to be talked to: its input and output are pipes, its complaints are appended to `log`.
    pub(crate) fn converse(&self, log: &Path) -> Result<Child> {
        let complaints = File::options().create(true).append(true).open(log)?;
        let mut command = self.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        command.spawn().with_context(|| format!("cannot start `{self}`"))
    }

    /// Runs with all output appended to `log`, and a sign of life on the terminal while it lasts.
    pub(crate) fn logged(&self, log: &Path) -> Result<()> {
        println!("    {self}");
        let started_at = fs::metadata(log).map_or(0, |file| file.len());
        let mut child = self.start(log)?;
        let mut next_sign = Instant::now() + HEARTBEAT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() >= next_sign {
                println!("      … {}", tail(log, started_at, 1)?.trim());
                next_sign += HEARTBEAT;
            }
            std::thread::sleep(POLL);
        };
        ensure!(status.success(), "`{self}` failed ({status})\n{}", tail(log, started_at, TAIL_LINES)?);
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place xtask starts a process")]
    fn command(&self) -> Result<Command> {
        let (program, args) = self.words.split_first().context("an empty command")?;
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.cwd).stdin(Stdio::null());
        // `cargo run` tells this program of its own package; build scripts of others would take that for news and build again.
        let of_package =
            |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        let told = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(of_package);
        for name in told {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words.iter().map(|word| quoted(word));
        f.write_str(&env.chain(words).collect::<Vec<_>>().join(" "))
    }
}

pub(crate) fn is_root(cwd: &Path) -> Result<bool> {
    Ok(Invocation::new(cwd, &["id", "-u"]).capture()?.trim() == "0")
}

/// The name rustc gives to this machine.
pub(crate) fn host_triple(cwd: &Path) -> Result<String> {
    let version = Invocation::new(cwd, &["rustc", "--version", "--verbose"]).capture()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(host.to_owned())
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn tail(log: &Path, from: u64, lines: usize) -> Result<String> {
    let bytes = fs::read(log)?;
    let fresh = bytes.get(usize::try_from(from)?..).unwrap_or_default();
    let text = String::from_utf8_lossy(fresh);
    let all: Vec<&str> = text.trim_end().lines().collect();
    let kept = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
    Ok(kept.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(words: &[&str]) -> Invocation {
        Invocation::new(Path::new("."), words)
    }

    #[test]
    fn a_command_is_shown_as_a_shell_would_take_it() {
        let shown = here(&["echo", "two words", "it's", ""]).env("A", "b c").to_string();
        assert_eq!(shown, r"A='b c' echo 'two words' 'it'\''s' ''");
    }

    #[test]
    fn a_failure_carries_the_command_and_the_end_of_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "from an earlier command\n").unwrap();
        let failing = here(&["sh", "-c", "echo seen; echo also >&2; exit 3"]);
        let error = failing.logged(&log).unwrap_err().to_string();
        assert_eq!(error, format!("`{failing}` failed (exit status: 3)\nseen\nalso"));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = here(&["no-such-program-here"]).capture().unwrap_err().to_string();
        assert_eq!(error, "cannot start `no-such-program-here`");
    }

    #[test]
    fn capture_returns_standard_output_alone() {
        assert_eq!(here(&["sh", "-c", "echo out; echo err >&2"]).capture().unwrap(), "out\n");
    }
}
