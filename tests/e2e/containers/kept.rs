//! Containers that last: many programs in one, each with its own streams and end, on both runtimes, and nothing left when it is over.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use pond_policy::backend::Backend;
use pond_policy::node::Node;
use pond_policy::sandbox::SandboxPolicy;
use pond_policy::settings::Settings;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::container::{Company, Container, EngineSettings, Kept, Process};
use pond_sandbox::native::{Ending, Job, KeptImage, Serving};
use pond_sandbox::record::{JobName, Live};
use pond_sandbox::state::StateDir;
use pond_wire::contained::WindowSize;
use pond_wire::jail::{Console, Duty, ExecOrder, Report};
use rustix::process::Signal;
use rustix::termios::Winsize;
use tempfile::TempDir;

use super::{Daemon, POND};

pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const PLACE: Console = Console::Terminal { rows: 24, columns: 80 };

/// A state directory, an engine and a backend on it.
pub(super) struct Ground {
    pub(super) engine: Daemon,
    pub(super) directory: TempDir,
    pub(super) container: Container,
    pub(super) checkout: Checkout,
}

impl Ground {
    pub(super) fn new(backend: Backend) -> Self {
        let engine = Daemon::start();
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let settings = EngineSettings { docker_host: Some(engine.address()), ..EngineSettings::default() };
        let container = Container::open(state, Path::new(POND), backend, &settings).unwrap();
        std::fs::create_dir(directory.path().join("project")).unwrap();
        let checkout = Checkout::open(&directory.path().join("project")).unwrap();
        Self { engine, directory, container, checkout }
    }

    pub(super) fn reserve(&self, name: &str) -> Live {
        self.container.reserve(job(name)).unwrap()
    }

    /// A sandbox without a way out.
    pub(super) fn keep(&self, record: &Live, aliases: &[String]) -> Kept {
        self.keep_as(&policy(&[]), record, aliases)
    }

    /// The same by this policy.
    pub(super) fn keep_as(&self, policy: &SandboxPolicy, record: &Live, aliases: &[String]) -> Kept {
        let job = self.at_rest(policy, record);
        let kept = self.container.keep(&job, &Company { beside: None, aliases, disk: None }).unwrap();
        kept.begin().unwrap();
        kept
    }

    /// Nothing runs of itself, and nothing leads out.
    fn at_rest<'a>(&'a self, policy: &'a SandboxPolicy, record: &'a Live) -> Job<'a> {
        Job {
            record,
            policy,
            checkout: &self.checkout,
            argv: &[],
            env: &[],
            exhibits: &[],
            tools: &[],
            console: PLACE,
            doors: &[],
            home: &[],
            mounts: &[],
            filesystem: None,
            duty: Duty::Serve,
        }
    }

    pub(super) fn nothing_is_left(&self) {
        assert_eq!((self.engine.containers(), self.engine.processes()), (Vec::new(), Vec::new()));
        let marker = self.directory.path().display().to_string();
        assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&marker));
    }
}

pub(super) fn job(name: &str) -> JobName {
    JobName::try_from(name.to_owned()).unwrap()
}

pub(super) fn policy(overrides: &[(&str, &str)]) -> SandboxPolicy {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), Node::text(*value));
    let mut block = vec![("profile".to_owned(), Node::text("untrusted-code-internet"))];
    if !overrides.is_empty() {
        block.push(("overrides".to_owned(), Node::Map(overrides.iter().map(text).collect())));
    }
    pond_policy::sandbox::resolve(Some(&Node::Map(block)), &Settings::default()).unwrap()
}

pub(super) fn start(kept: &Kept, argv: &[&str]) -> Process {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    kept.start(ExecOrder { argv, env: Vec::new(), cwd: None, console: Console::Pipes }).unwrap()
}

fn read(from: OwnedFd) -> String {
    let mut text = Vec::new();
    File::from(from).read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn code(process: &Process) -> Option<u8> {
    match process.wait(PATIENCE) {
        Some(Ending::Exited { code, .. }) => Some(code),
        _ => None,
    }
}

/// What a program of a line of shell prints, and how it ends.
pub(super) fn shell(kept: &Kept, line: &str) -> (Option<u8>, String, String) {
    let mut process = start(kept, &["sh", "-c", line]);
    let streams = process.streams.take().unwrap();
    drop(streams.stdin);
    let (out, error) = (read(streams.stdout), read(streams.stderr));
    (code(&process), out, error)
}

fn said(code: u8, out: &str, error: &str) -> (Option<u8>, String, String) {
    (Some(code), out.to_owned(), error.to_owned())
}

fn many_programs(backend: Backend) {
    let ground = Ground::new(backend);
    let record = ground.reserve("kept");
    let kept = ground.keep(&record, &["db".to_owned()]);
    assert_eq!(shell(&kept, "echo out; echo error >&2; exit 3"), said(3, "out\n", "error\n"));
    // What one leaves behind, another finds: files, processes, names.
    assert_eq!(shell(&kept, "echo kept > file; sleep 1000 & echo $! > pid"), said(0, "", ""));
    assert_eq!(shell(&kept, "cat file; [ -d /proc/$(cat pid) ] && echo lives"), said(0, "kept\nlives\n", ""));
    assert_eq!(
        shell(&kept, "getent hosts db; id -un; pwd"),
        said(0, "127.0.0.1       db\npond\n/workspace\n", "")
    );
    // One that nobody reads keeps nobody else waiting.
    let unread = start(&kept, &["sh", "-c", "yes unread"]);
    side_by_side(&kept);
    unread.signal(Signal::KILL).unwrap();
    assert!(matches!(unread.wait(PATIENCE), Some(Ending::Signaled { signal: 9, .. })));
    let missing = start(&kept, &["no-such-program"]);
    assert!(matches!(missing.wait(PATIENCE), Some(Ending::NotLaunched { .. })));
    in_a_terminal(&kept);
    // It is confined as a job is: nothing of its root is writable, and pid 1 is out of reach.
    let probe = "touch /etc/x 2>/dev/null && echo root; kill -9 1 2>/dev/null && echo killed; grep -E '^(NoNewPrivs|CapEff|Seccomp):' /proc/self/status";
    let (_, out, _) = shell(&kept, probe);
    assert!(!out.contains("root") && !out.contains("killed"), "{out}");
    // gVisor's kernel does not say all of it.
    let promises = ["CapEff:\t0000000000000000\n", "Seccomp:\t2\n", "NoNewPrivs:\t1\n"];
    let told = if backend == Backend::Gvisor { 2 } else { 3 };
    assert!(promises.iter().take(told).all(|promise| out.contains(promise)), "{out}");
    assert!(kept.usage().unwrap().memory_peak_bytes > Some(0));
    kept.stop().unwrap();
    record.close().unwrap();
    ground.nothing_is_left();
}

/// Each gets its own input back, whole, whoever else writes and reads.
fn side_by_side(kept: &Kept) {
    std::thread::scope(|scope| {
        for number in 0..8_u8 {
            scope.spawn(move || {
                let mut process = start(kept, &["cat"]);
                let streams = process.streams.take().unwrap();
                let text: Vec<u8> = (0..700_000_u32).map(|at| (at % 251).to_le_bytes()[0] ^ number).collect();
                let input = text.clone();
                let writer = std::thread::spawn(move || File::from(streams.stdin).write_all(&input));
                let mut back = Vec::new();
                File::from(streams.stdout).read_to_end(&mut back).unwrap();
                writer.join().unwrap().unwrap();
                assert!(back == text, "{number}: {} of {} bytes", back.len(), text.len());
                assert_eq!(code(&process), Some(0));
            });
        }
    });
}

fn in_a_terminal(kept: &Kept) {
    let argv = ["sh", "-c", "tty; stty size; read line; stty size; exit 5"].map(str::to_owned).to_vec();
    let console = Console::Terminal { rows: 30, columns: 100 };
    let mut process = kept.start(ExecOrder { argv, env: Vec::new(), cwd: None, console }).unwrap();
    let mut terminal = File::from(process.terminal.take().unwrap());
    let mut seen = String::new();
    let mut until = |text: &str, terminal: &mut File| {
        let mut piece = [0; 1024];
        while !seen.contains(text) {
            let length = terminal.read(&mut piece).unwrap();
            assert!(length > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    };
    until("/dev/pts/0\r\n30 100\r\n", &mut terminal);
    process.resize(WindowSize { rows: 20, columns: 90 }).unwrap();
    terminal.write_all(b"\n").unwrap();
    until("20 90\r\n", &mut terminal);
    assert_eq!(code(&process), Some(5));
}

#[test]
fn a_container_on_docker_serves_many_programs() {
    many_programs(Backend::Docker);
}

#[test]
fn a_container_on_gvisor_serves_many_programs() {
    many_programs(Backend::Gvisor);
}

/// Whoever keeps a container ends it by letting go, and what is killed with its keeper is swept by the next.
#[test]
fn a_container_that_nobody_keeps_is_gone() {
    let ground = Ground::new(Backend::Docker);
    let record = ground.reserve("left");
    let kept = ground.keep(&record, &[]);
    let process = start(&kept, &["sleep", "1000"]);
    drop(kept);
    assert_eq!(process.wait(PATIENCE), Some(Ending::Lost));
    assert!(process.signal(Signal::TERM).is_err());
    record.close().unwrap();
    ground.nothing_is_left();
}

/// A sandbox as its keeper has it: over a socket, whatever it is made of.
struct Keeper {
    serving: Serving,
    next: u64,
}

impl Keeper {
    fn raise(ground: &Ground, record: &Live, disk: &KeptImage<'_>) -> Self {
        let policy = policy(&[]);
        let job = ground.at_rest(&policy, record);
        let company = Company { beside: None, aliases: &[], disk: Some(disk) };
        let (mut running, _kept) = ground.container.serve(&job, &company).unwrap();
        while !running.is_serving() {
            assert_eq!(running.take_report().unwrap(), None);
        }
        Self { serving: Serving::new(running).unwrap(), next: 1 }
    }

    fn order(line: &str, console: Console) -> ExecOrder {
        ExecOrder {
            argv: ["sh", "-c", line].map(str::to_owned).to_vec(),
            env: Vec::new(),
            cwd: None,
            console,
        }
    }

    /// What pid 1 says of one program, until it ends.
    fn end(&self, exec: u64) -> Report {
        loop {
            let (answer, _) = self.serving.hear().unwrap().unwrap();
            if answer.id == exec && answer.report != Report::Began {
                return answer.report;
            }
        }
    }

    fn shell(&mut self, line: &str) -> (Report, String) {
        let exec = self.next;
        self.next += 1;
        let pipes =
            [self.serving.pipe().unwrap(), self.serving.pipe().unwrap(), self.serving.pipe().unwrap()];
        let [stdin, stdout, stderr] = pipes;
        let theirs = [stdin.0.as_fd(), stdout.1.as_fd(), stderr.1.as_fd()];
        self.serving.start(exec, &Self::order(line, Console::Pipes), &theirs).unwrap();
        drop((stdin, stdout.1, stderr.1));
        let out = read(stdout.0);
        (self.end(exec), out + &read(stderr.0))
    }

    /// The file behind a terminal, and the number of the program that has it.
    fn terminal(&mut self, line: &str) -> (u64, File) {
        let exec = self.next;
        self.next += 1;
        let console = Console::Terminal { rows: 30, columns: 100 };
        self.serving.start(exec, &Self::order(line, console), &[]).unwrap();
        let (answer, descriptors) = self.serving.hear().unwrap().unwrap();
        assert_eq!((answer.id, answer.report), (exec, Report::Began));
        (exec, File::from(descriptors.into_iter().next().unwrap()))
    }

    /// Nothing of it runs any more; its disk stays.
    fn stop(self) {
        self.serving.kill().unwrap();
        while self.serving.hear().unwrap().is_some() {}
        let over = self.serving.finish().unwrap();
        assert!(over.left.is_none() && over.isolation.is_some() && !over.is_cut_off, "{over:?}");
    }
}

fn kept_as_a_native_one(backend: Backend) {
    let ground = Ground::new(backend);
    let image = ground.directory.path().join("disk");
    let record = ground.reserve("kept");
    let mut keeper = Keeper::raise(&ground, &record, &KeptImage { path: &image, is_new: true });
    let (report, out) = keeper.shell("echo lasts > file; echo home > ~/file; id -un; exit 3");
    assert!(matches!(report, Report::Exited { code: 3, .. }) && out == "pond\n", "{report:?} {out}");
    let (report, _) = keeper.shell("exec no-such-program");
    assert!(matches!(report, Report::Exited { code: 127, .. }), "{report:?}");
    let (exec, mut terminal) = keeper.terminal("stty size; read line; stty size");
    let mut seen = String::new();
    let mut piece = [0; 1024];
    let size = Winsize { ws_row: 20, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    while !seen.contains("30 100\r\n") {
        let length = terminal.read(&mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    terminal.write_all(b"\n").unwrap();
    while let Ok(length @ 1..) = terminal.read(&mut piece) {
        seen.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    assert!(seen.ends_with("20 90\r\n"), "{seen:?}");
    assert!(matches!(keeper.end(exec), Report::Exited { code: 0, .. }));
    // A connection from outside to a port of the sandbox's own.
    let serves = "python3 -c \"import socket; l = socket.create_server(('127.0.0.1', 4000)); print('up', flush=True); c, _ = l.accept(); c.sendall(b'hello')\"";
    let exec = keeper.next;
    keeper.next += 1;
    let [stdin, stdout, stderr] = [(); 3].map(|()| keeper.serving.pipe().unwrap());
    let theirs = [stdin.0.as_fd(), stdout.1.as_fd(), stderr.1.as_fd()];
    keeper.serving.start(exec, &Keeper::order(serves, Console::Pipes), &theirs).unwrap();
    let mut up = File::from(stdout.0);
    let length = up.read(&mut piece).unwrap();
    assert_eq!(&piece[..length], b"up\n");
    keeper.serving.connect(77, 4000).unwrap();
    let socket = loop {
        let (answer, descriptors) = keeper.serving.hear().unwrap().unwrap();
        if answer.id == 77 {
            assert_eq!(answer.report, Report::Connected);
            break descriptors.into_iter().next().unwrap();
        }
    };
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    assert_eq!(read(socket), "hello");
    keeper.stop();
    ground.nothing_is_left();
    // Again on the same disk, in another container.
    let mut keeper = Keeper::raise(&ground, &record, &KeptImage { path: &image, is_new: false });
    let (_, out) = keeper.shell("cat file ~/file");
    assert_eq!(out, "lasts\nhome\n");
    keeper.stop();
    record.close().unwrap();
    ground.nothing_is_left();
}

#[test]
fn a_keeper_of_native_sandboxes_keeps_one_on_docker() {
    kept_as_a_native_one(Backend::Docker);
}

#[test]
fn a_keeper_of_native_sandboxes_keeps_one_on_gvisor() {
    kept_as_a_native_one(Backend::Gvisor);
}
