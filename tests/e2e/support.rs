//! A throwaway project and state directory, and the pond under test.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::done::Done;

/// A project directory and a state directory of their own; both vanish with the value.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("project")).unwrap();
        Self { directory }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.project().join(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.project().join(name)).unwrap()
    }

    /// pond, started in the project.
    pub(crate) fn pond(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_pond"));
        command.args(arguments);
        command
    }

    #[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.project())
            .env("POND_STATE_DIR", self.state())
            .env_remove("POND_REQUIRE_SANDBOX")
            .env_remove("POND_MIN_BACKEND")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.pond(arguments).output().unwrap())
    }

    /// A line for the host's own shell, in the project; `$0` is pond.
    pub(crate) fn host_shell(&self, line: &str) -> Done {
        let pond = env!("CARGO_BIN_EXE_pond");
        Done::of(self.command("sh").args(["-c", line, pond]).output().unwrap())
    }

    /// `pond run` of a shell line in the default profile.
    pub(crate) fn shell(&self, line: &str) -> Done {
        self.run(&["run", "--", "sh", "-c", line])
    }

    /// The JSON summary of `pond run` with these flags before the command.
    pub(crate) fn summary(&self, flags: &[&str], argv: &[&str]) -> Value {
        let arguments = [&["run", "--json"], flags, &["--"], argv].concat();
        let done = self.run(&arguments);
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
    }
}

impl Drop for World {
    /// A killed pond leaves its record, and what that names goes with the next start: there is none once the directory is gone.
    fn drop(&mut self) {
        if !names(&self.state().join("live")).is_empty() {
            let done = self.run(&["gc"]);
            assert!(done.code == 0 || std::thread::panicking(), "{done:?}");
        }
    }
}

/// A directory that `--tool nvm` shows, where a service listens and a lock is held.
pub(crate) struct Busy {
    pub(crate) directory: PathBuf,
    _service: UnixListener,
    _lock: File,
}

/// A job sees what a directory holds and reaches nobody behind it; the same program without a sandbox does.
pub(crate) fn meets_nothing_of_the_host(world: &World, pond: impl Fn(&[&str]) -> Command) {
    let home = world.project().parent().unwrap().join("home");
    let shown = busy_directory(&home);
    let run = |flags: &[&str], at: &str| {
        let arguments = [&["run", "-q"], flags, &["--", "python3", "-c", MEETING, at]].concat();
        Done::of(pond(&arguments).env("HOME", &home).output().unwrap())
    };
    let inside = run(&["--tool", "nvm"], "/opt/pond/nvm/version");
    assert_eq!(inside.stdout, "connect: Connection refused, lock: yes, read: held\n", "{inside:?}");
    let outside = run(&["--profile", "none"], shown.directory.to_str().unwrap());
    let reached = "connect: yes, lock: Resource temporarily unavailable, read: held\n";
    assert_eq!(outside.stdout, reached, "{outside:?}");
}

pub(crate) fn busy_directory(home: &Path) -> Busy {
    let directory = home.join(".nvm/versions/node/v1");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::create_dir_all(home.join(".nvm/alias")).unwrap();
    std::fs::write(home.join(".nvm/alias/default"), "v1\n").unwrap();
    std::fs::write(directory.join("lock"), "held").unwrap();
    let lock = File::open(directory.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let service = UnixListener::bind(directory.join("socket")).unwrap();
    std::fs::set_permissions(directory.join("socket"), Permissions::from_mode(0o777)).unwrap();
    Busy { directory, _service: service, _lock: lock }
}

/// Says what comes of meeting somebody in a [`busy_directory`].
pub(crate) const MEETING: &str = r#"
import fcntl, os, socket, sys
def tried(act):
    try:
        act()
        return "yes"
    except OSError as fault:
        return fault.strerror
at = sys.argv[1]
service, file = socket.socket(socket.AF_UNIX), os.open(at + "/lock", os.O_RDONLY)
connected = tried(lambda: service.connect(at + "/socket"))
locked = tried(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
print(f"connect: {connected}, lock: {locked}, read: {os.read(file, 9).decode()}")
"#;

/// Everything of a job that could be left on a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    pub(crate) processes: BTreeSet<String>,
    pub(crate) mounts: usize,
    pub(crate) loops: BTreeSet<String>,
    pub(crate) cgroups: BTreeSet<PathBuf>,
    pub(crate) live: BTreeSet<String>,
}

impl Traces {
    /// Looks at the whole host, and counts what belongs to this world: jobs it ran, and jobs named in `also`.
    pub(crate) fn of(world: &World, also: &BTreeSet<String>) -> Self {
        let marker = world.state().display().to_string();
        let live = names(&world.state().join("live"));
        let jobs: BTreeSet<String> =
            names(&world.state().join("runs")).union(&live).chain(also).cloned().collect();
        Self {
            processes: launchers(&marker),
            mounts: mounts(world.directory.path()),
            loops: loops(&marker),
            cgroups: cgroups(&jobs),
            live,
        }
    }
}

/// How many mounts this namespace has, without those that other tests, which run beside this one, make below their own
/// temporary directories.
fn mounts(own: &Path) -> usize {
    let others = format!(" {}/", own.parent().unwrap().display());
    let own = own.display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(&own) || !line.contains(&others)).count()
}

/// Launchers, inits and jobs started from this world: they hold a descriptor below its state directory or run as its job.
fn launchers(marker: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for pid in
        names(Path::new("/proc")).into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let ours = String::from_utf8_lossy(&environ).contains(marker);
        if ours && pid != std::process::id().to_string() {
            found.insert(pid);
        }
    }
    found
}

pub(crate) fn loops(marker: &str) -> BTreeSet<String> {
    names(Path::new("/sys/block"))
        .into_iter()
        .filter(|name| name.starts_with("loop"))
        .filter(|name| {
            std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"))
                .is_ok_and(|file| file.contains(marker))
        })
        .collect()
}

/// Control groups of these jobs in any hierarchy.
pub(crate) fn cgroups(jobs: &BTreeSet<String>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        // Groups come and go while this looks.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let job = name.to_str().and_then(|name| name.strip_prefix("pond-job-"));
            if job.is_some_and(|job| jobs.contains(job)) {
                found.insert(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            }
        }
    }
    found
}

pub(crate) fn names(directory: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return BTreeSet::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// What a job says first, which it can only do once it runs.
pub(crate) fn first_line(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    line
}
