//! A Postgres of the tests' own: Debian's program, an unprivileged user, a socket in a private directory, no port. It ends
//! with the value that stands for it.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// The longest anything is waited for; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(90);
const USER: &str = "postgres";

/// Whether commits reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Durable,
    /// For cases that do not kill anything.
    Careless,
}

#[derive(Debug)]
pub(crate) struct Server {
    directory: TempDir,
    programs: PathBuf,
    owner: Option<(u32, u32)>,
    disk: Disk,
    /// What its socket is called by, whether or not it listens there.
    port: u16,
    /// While it is there.
    pub(crate) process: Option<Child>,
}

impl Server {
    pub(crate) fn start(disk: Disk) -> Self {
        let directory = tempfile::Builder::new().prefix("pond-pg").tempdir().unwrap();
        let owner = rustix::process::geteuid().is_root().then(owner);
        if let Some((user, group)) = owner {
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let mut server = Self { directory, programs: programs(), owner, disk, port: 5432, process: None };
        let data = server.data();
        let mut initdb = server.command("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--locale=C", "--encoding=UTF8", "--username", USER]);
        let made = initdb.arg("--pgdata").arg(&data).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.launch();
        server
    }

    pub(crate) fn launch(&mut self) {
        self.launch_with(&["listen_addresses="]);
    }

    /// On a port of this machine, with a certificate of [`Self::certificate`].
    pub(crate) fn relaunch_with_tls(&mut self, name: &str) -> u16 {
        let [certificate, key] = ["crt", "key"].map(|kind| format!("{name}.{kind}"));
        let files = [format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")];
        self.relaunch_on_a_port(&["ssl=on", &files[0], &files[1]])
    }

    pub(crate) fn relaunch_without_tls(&mut self) -> u16 {
        self.relaunch_on_a_port(&[])
    }

    fn relaunch_on_a_port(&mut self, settings: &[&str]) -> u16 {
        self.kill();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        self.port = port;
        let port_setting = format!("port={port}");
        self.launch_with(&[&["listen_addresses=localhost", &port_setting], settings].concat());
        port
    }

    /// A certificate for `localhost` and its key, where the server looks for them; the certificate's path.
    pub(crate) fn certificate(&self, name: &str) -> String {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        openssl.args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]);
        if let Some((user, group)) = self.owner {
            openssl.uid(user).gid(group);
        }
        let made = openssl.current_dir(self.data()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        self.data().join(format!("{name}.crt")).display().to_string()
    }

    fn launch_with(&mut self, settings: &[&str]) {
        let fsync = match self.disk {
            Disk::Durable => "fsync=on",
            Disk::Careless => "fsync=off",
        };
        let sockets = format!("unix_socket_directories={}", self.directory.path().display());
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data());
        let usual = [fsync, &sockets, "dynamic_shared_memory_type=mmap", "max_connections=60"];
        for setting in usual.iter().chain(settings) {
            postgres.args(["-c", setting]);
        }
        self.process = Some(postgres.process_group(0).spawn().unwrap());
        self.wait("accept connections", |server| server.runs("SELECT 1"));
    }

    /// Kills every process of it at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let group = Pid::from_child(&process);
        kill_process_group(group, Signal::KILL).unwrap();
        process.wait().unwrap();
        // Its children may still be dying; a new server refuses to start beside them.
        self.wait("be gone", |_| kill_process_group(group, Signal::KILL).is_err());
        // It names a process, and another server's may have the number by now.
        if let Err(_gone) = std::fs::remove_file(self.data().join("postmaster.pid")) {}
    }

    /// A new empty database, and its address.
    pub(crate) fn database(&self, name: &str) -> String {
        assert!(self.runs(&format!("CREATE DATABASE {name}")), "cannot make the database {name}");
        self.address(name)
    }

    pub(crate) fn address(&self, name: &str) -> String {
        format!("postgres://{USER}@localhost/{name}?host={}", self.directory.path().display())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Whether the statement went through.
    fn runs(&self, sql: &str) -> bool {
        let mut psql = self.command("psql");
        psql.args(["--no-psqlrc", "--quiet", "-U", USER, "-d", "postgres", "-c", sql, "-p"]);
        psql.arg(self.port.to_string()).arg("-h").arg(self.directory.path()).status().unwrap().success()
    }

    fn command(&self, program: &str) -> Command {
        // A test that is killed takes its server along.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(self.programs.join(program));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(self.directory.path());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < PATIENCE, "Postgres did not {what} within {PATIENCE:?}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // At once, but removing what it holds of the kernel.
        if kill_process(Pid::from_child(&process), Signal::QUIT).is_ok() {
            let started = Instant::now();
            while started.elapsed() < PATIENCE && !matches!(process.try_wait(), Ok(Some(_))) {
                sleep(Duration::from_millis(5));
            }
        }
        if let Err(_already_gone) = kill_process_group(Pid::from_child(&process), Signal::KILL) {}
        if let Err(_already_reaped) = process.wait() {}
    }
}

fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions.map(|entry| entry.unwrap().path()).max();
    newest.unwrap_or_else(|| panic!("the package postgresql is not installed")).join("bin")
}

/// Whom Debian's package made for it.
fn owner() -> (u32, u32) {
    let number = |what: &str| {
        let output = Command::new("id").args([what, USER]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    (number("-u"), number("-g"))
}
