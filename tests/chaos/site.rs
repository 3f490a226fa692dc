//! A whole site on one machine: a control plane, an orchestrator, two workers, each a process with a state directory of its own, and
//! lossy ways between them. Any of them can be killed, stopped and started again, and so can the Postgres below.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::dice::Dice;
use crate::http::{self, Reply};
use crate::lossy::{Lossy, PLANTED};
use crate::server::{Disk, Server};

pub(crate) const WORKERS: usize = 2;
/// Longer than anything takes on a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
/// Long enough for a loaded machine to renew, short enough to be lost within a round.
const LEASES: [(&str, &str); 3] =
    [("POND_LEASE_TIME", "6s"), ("POND_OFFER_TIME", "3s"), ("POND_GRACE_TIME", "10s")];

/// What a site keeps its state on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    Sqlite,
    Postgres,
    /// SQLite on a disk that is small enough to be filled.
    SmallDisk,
}

/// One of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Control,
    Orchestrator,
    Worker(usize),
}

pub(crate) struct Site {
    pub(crate) directory: TempDir,
    small_disk: bool,
    pub(crate) postgres: Option<Server>,
    ports: [u16; 2],
    /// From workers to the orchestrator, from there to the control plane, and from people to the control plane.
    pub(crate) ways: [Lossy; 3],
    pub(crate) token: String,
    running: [Option<Child>; 2 + WORKERS],
}

impl Role {
    pub(crate) const ALL: [Self; 2 + WORKERS] =
        [Self::Control, Self::Orchestrator, Self::Worker(0), Self::Worker(1)];

    fn number(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Orchestrator => 1,
            Self::Worker(number) => 2 + number,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Control => "control".to_owned(),
            Self::Orchestrator => "orchestrator".to_owned(),
            Self::Worker(number) => format!("worker-{number}"),
        }
    }
}

/// A port nobody is given by chance: below those that connections get.
fn free_port(dice: &mut Dice) -> u16 {
    loop {
        let port = u16::try_from(dice.between(20_000, 32_000)).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Site {
    pub(crate) fn build(ground: Ground, dice: &mut Dice) -> Self {
        let directory = tempfile::Builder::new().prefix("pond-chaos").tempdir().unwrap();
        // Which ports are free is no part of the plan.
        let mut ports = Dice::new(u64::from(std::process::id()));
        let [control, orchestrator] = [free_port(&mut ports), free_port(&mut ports)];
        let ways = [
            Lossy::to(orchestrator, dice.apart()),
            Lossy::to(control, dice.apart()),
            Lossy::to(control, dice.apart()),
        ];
        let small_disk = ground == Ground::SmallDisk;
        if small_disk {
            let place = directory.path().join("control");
            std::fs::create_dir(&place).unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", "size=24m,mode=0700", "pond-chaos"]).arg(&place);
            assert!(mount.status().unwrap().success(), "mounting a small disk");
        }
        let postgres = (ground == Ground::Postgres).then(|| Server::start(Disk::Durable));
        if let Some(server) = &postgres {
            server.database("pond");
        }
        let ports = [control, orchestrator];
        let running = [const { None }; 2 + WORKERS];
        let token = String::new();
        let mut site = Self { directory, small_disk, postgres, ports, ways, token, running };
        site.furnish();
        site
    }

    /// Everybody enrolled and at work, a project, a secret.
    fn furnish(&mut self) {
        let mut first = self.command(Role::Control).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(first.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        self.running[Role::Control.number()] = Some(first);
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            // It refuses to start, in several lines: another site may have taken its port.
            std::io::Read::read_to_string(&mut output, &mut line).unwrap();
            panic!("the control plane does not start: {line}\n{}", self.logs())
        });
        self.token = said["admin_token"].as_str().unwrap().to_owned();
        assert_eq!(self.must("PUT", "/v1/projects/acme", None).status, 201);
        let secret = serde_json::json!({ "value": PLANTED });
        assert_eq!(self.must("PUT", "/v1/credentials/CHAOS", Some(&secret)).status, 204);
        let relay = serde_json::json!({"kind": "relay", "scopes": []});
        let relay = self.must("POST", "/v1/tokens", Some(&relay)).json();
        let file = self.directory.path().join("relay-token");
        std::fs::write(&file, relay["token"].as_str().unwrap()).unwrap();
        self.start(Role::Orchestrator);
        let orchestrator = self.ports[1];
        self.wait("the orchestrator to listen", |_| http::connect(orchestrator).is_ok());
        for number in 0..WORKERS {
            let grant = serde_json::json!({"tier": "trusted", "ttl_seconds": 600});
            let token = self.must("POST", "/v1/workers/tokens", Some(&grant)).json();
            let way = format!("http://127.0.0.1:{}", self.ways[0].port);
            let mut join = self.pond(&Role::Worker(number).name());
            join.args(["worker", "join", "--control", &way, token["token"].as_str().unwrap()]);
            assert!(join.status().unwrap().success(), "joining: {}", self.logs());
            self.start(Role::Worker(number));
        }
    }

    /// pond, with a state directory of this name; what it says goes to the log of the same name.
    pub(crate) fn pond(&self, name: &str) -> Command {
        let base = self.directory.path();
        let config = base.join("pond.toml");
        if !config.exists() {
            std::fs::write(&config, "").unwrap();
        }
        let log = File::options().create(true).append(true).open(base.join(format!("{name}.log"))).unwrap();
        let mut pond = Command::new(env!("CARGO_BIN_EXE_pond"));
        pond.current_dir(base)
            .env("POND_STATE_DIR", base.join(name))
            .env("POND_CONFIG", config)
            .envs(LEASES)
            .env_remove("POND_REQUIRE_SANDBOX")
            .env_remove("POND_MIN_BACKEND")
            // Engines would only be asked what they have.
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if let Some(server) = &self.postgres {
            pond.env("POND_DATABASE_URL", server.address("pond"));
        }
        pond
    }

    fn command(&self, role: Role) -> Command {
        let mut pond = self.pond(&role.name());
        let at = |port: u16| format!("127.0.0.1:{port}");
        match role {
            Role::Control => pond.args(["serve", "--json", "--listen", &at(self.ports[0])]),
            Role::Orchestrator => {
                let control = format!("http://{}", at(self.ways[1].port));
                pond.args(["orchestrator", "--listen", &at(self.ports[1]), "--control", &control])
                    .arg("--token-file")
                    .arg(self.directory.path().join("relay-token"))
            }
            Role::Worker(_) => pond.args(["worker", "run", "--jobs", "2"]),
        };
        pond
    }

    /// Starts what is not running.
    pub(crate) fn start(&mut self, role: Role) {
        let died =
            self.running[role.number()].as_mut().is_none_or(|child| child.try_wait().unwrap().is_some());
        if died {
            self.running[role.number()] = Some(self.command(role).spawn().unwrap());
        }
    }

    pub(crate) fn pid(&self, role: Role) -> Option<Pid> {
        self.running[role.number()].as_ref().map(Pid::from_child)
    }

    /// A signal to what is running.
    pub(crate) fn signal(&mut self, role: Role, signal: Signal) {
        let Some(child) = &mut self.running[role.number()] else { return };
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(child), signal).unwrap();
        }
    }

    pub(crate) fn kill(&mut self, role: Role) {
        self.signal(role, Signal::KILL);
        if let Some(mut child) = self.running[role.number()].take() {
            child.wait().unwrap();
        }
    }

    /// Ends a worker as an operator would, and starts it again: the start sweeps.
    pub(crate) fn restart_gently(&mut self, role: Role) {
        self.signal(role, Signal::TERM);
        let since = Instant::now();
        while self.running[role.number()].as_mut().is_some_and(|child| child.try_wait().unwrap().is_none()) {
            assert!(since.elapsed() < PATIENCE, "waiting for {role:?} to end: {}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.running[role.number()] = None;
        self.start(role);
    }

    /// Straight to the control plane, or over the way that people have to it.
    pub(crate) fn ask(
        &self,
        port: u16,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<Reply> {
        self.keyed(port, (method, path), None, body)
    }

    pub(crate) fn keyed(
        &self,
        port: u16,
        call: (&str, &str),
        key: Option<&str>,
        body: Option<&Value>,
    ) -> std::io::Result<Reply> {
        send(port, &self.token, call, key, body)
    }

    pub(crate) fn control_port(&self) -> u16 {
        self.ports[0]
    }

    /// When everybody is well again: asks until there is an answer that is not an excuse.
    pub(crate) fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let since = Instant::now();
        loop {
            let last = self.ask(self.ports[0], method, path, body);
            match last {
                Ok(reply) if !matches!(reply.status, 429 | 503) => return reply,
                _ => {}
            }
            assert!(since.elapsed() < PATIENCE, "waiting for {method} {path}: {last:?}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < PATIENCE, "waiting for {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn state(&self, role: Role) -> PathBuf {
        self.directory.path().join(role.name())
    }

    /// The last words of everybody.
    pub(crate) fn logs(&self) -> String {
        let tail = |role: Role| {
            let file = self.directory.path().join(format!("{}.log", role.name()));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {}\n{}\n", role.name(), lines[lines.len().saturating_sub(25)..].join("\n"))
        };
        Role::ALL.into_iter().map(tail).collect()
    }
}

pub(crate) fn send(
    port: u16,
    token: &str,
    call: (&str, &str),
    key: Option<&str>,
    body: Option<&Value>,
) -> std::io::Result<Reply> {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    headers.extend(body.map(|_| ("content-type", "application/json")));
    let body = body.map(Value::to_string).unwrap_or_default();
    http::ask(port, call, &headers, body.as_bytes())
}

/// Leaves nothing behind, whatever the test came to.
impl Drop for Site {
    fn drop(&mut self) {
        for role in Role::ALL {
            self.kill(role);
        }
        for number in 0..WORKERS {
            let probed = self.pond(&Role::Worker(number).name()).args(["worker", "probe"]).status();
            assert!(
                probed.is_ok_and(|status| status.success()) || std::thread::panicking(),
                "{}",
                self.logs()
            );
        }
        if self.small_disk {
            unmount(&self.state(Role::Control));
        }
    }
}

fn unmount(place: &Path) {
    let done = Command::new("umount").arg(place).status();
    assert!(
        done.is_ok_and(|status| status.success()) || std::thread::panicking(),
        "unmounting the small disk"
    );
}
