//! What a job in a container sees and may do, asked from inside by a program of the host.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::{Value, json};

use super::POND;
use super::daemon::Daemon;
use crate::support::{Done, MEETING, World, busy_directory};

/// Tries what Docker's own settings let through, and looks around.
const PROBE: &str = r#"
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    return 0 if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()
def attempt(what):
    try: what(); return 0
    except OSError as fault: return fault.errno
def opens(path):
    # A link leads to what is looked at elsewhere or is the probe's own; whatever is masked is the null device.
    if os.path.islink(path): return False
    try: fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError: return False
    return os.fstat(fd).st_rdev not in (os.makedev(1, 3), os.makedev(1, 5), os.makedev(1, 7))
def creates(directory):
    path = directory.rstrip("/") + "/pond-posture"
    made = attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))) == 0
    if made: os.unlink(path)
    return made
def tree(top):
    for directory, names, files in os.walk(top):
        # A process's own files are its own; those of pid 1 are looked at.
        names[:] = [name for name in names if not (directory == "/proc" and name.isdigit() and name != "1")]
        yield directory, files
status = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines())
mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
places = set(mounts) | {d for top in ("/dev", "/etc", "/proc", "/run", "/sys", "/var") for d, _ in tree(top)} | {"/"}
print(json.dumps({
    "io_uring": call(425, 1, 0), "ptrace": call(101, 0, 0, 0, 0), "unshare": call(272, 0x10000000),
    "keyctl": call(250, 0, -3, 0), "clone3": call(435, 0, 0), "tiocsti": call(16, 0, 0x5412, b"x"),
    "vsock": attempt(lambda: socket.socket(40, socket.SOCK_STREAM)),
    "audit": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)),
    "raw": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    "root": attempt(lambda: open("/x", "w")), "usr": attempt(lambda: open("/usr/x", "w")),
    "devices": attempt(lambda: open("/dev/urandom", "w")),
    "sockets": [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)],
    "capabilities": [status.get(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "privileges": status.get("NoNewPrivs"), "filters": status.get("Seccomp_filters"),
    "groups": set(os.getgroups()) <= {os.getgid()}, "owner": os.stat(".").st_uid == os.getuid() > 1000,
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "sys": os.listdir("/sys"), "host": socket.gethostname(),
    "resolver": open("/etc/resolv.conf").read(), "environment": "DOCKER_HOST" in os.environ,
    "tmp": [os.statvfs("/tmp").f_blocks * 4096, os.statvfs("/tmp").f_files],
    "creates": sorted(place for place in places if os.path.isdir(place) and creates(place)),
    "opens": sorted(f"{d}/{f}" for top in ("/dev", "/proc") for d, files in tree(top) for f in files if opens(f"{d}/{f}")),
    "terminal": attempt(os.openpty), "groups of": open("/proc/self/cgroup").read().count(":/\n") == len(open("/proc/self/cgroup").readlines()),
    "signal": attempt(lambda: os.kill(1, 0)), "node": attempt(lambda: os.mknod("/tmp/node", 0o20600, 0)),
    "init": [f for f in ("fd/0", "fd/1", "fd/3", "fd/4", "mem", "root/etc") if attempt(lambda: os.open(f"/proc/1/{f}", os.O_RDONLY | os.O_NONBLOCK)) == 0],
}))
"#;

/// However the copy travels.
fn seen_on(backend: &str, expected: &Value) {
    let (daemon, world) = (Daemon::start(), World::new());
    let arguments = ["run", "-q", "--backend", backend, "--tmp", "64m", "--", "python3", "-c", PROBE];
    for way in ["bind", "stream"] {
        let mut pond = daemon.pond(&world, &arguments);
        let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
        let seen: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(&seen, expected, "{way}: {seen:#}");
    }
}

const EMPTY_SET: &str = "0000000000000000";

fn expected() -> Value {
    json!({
        "io_uring": 1, "ptrace": 1, "unshare": 1, "keyctl": 1, "clone3": 38, "tiocsti": 1,
        "vsock": 97, "audit": 97, "raw": 1,
        "root": 30, "usr": 30, "devices": 13,
        "sockets": [],
        "capabilities": [EMPTY_SET, EMPTY_SET, EMPTY_SET, EMPTY_SET, EMPTY_SET],
        "privileges": "1", "filters": "2",
        "groups": true, "owner": true,
        "processes": 2,
        "interfaces": ["lo"],
        "sys": ["fs"], "host": "pond",
        "resolver": "nameserver 127.0.0.1\n", "environment": false,
        "tmp": [64 << 20, 16384],
        "creates": ["/dev/shm", "/home/pond", "/tmp", "/workspace"],
        "opens": [],
        "terminal": 2, "groups of": true,
        "signal": 1, "node": 1, "init": [],
    })
}

#[test]
fn a_job_on_docker_has_the_native_posture() {
    seen_on("docker", &expected());
}

/// The same, but for what gVisor's kernel does not know (Landlock, inodes of a memory file system) or does not tell in /proc.
#[test]
fn a_job_on_gvisor_has_the_native_posture_but_for_what_its_kernel_lacks() {
    let mut expected = expected();
    let differing = [
        ("root", json!(13)),
        ("usr", json!(13)),
        ("devices", json!(0)),
        ("capabilities", json!([EMPTY_SET, EMPTY_SET, EMPTY_SET, EMPTY_SET, null])),
        ("privileges", Value::Null),
        ("filters", Value::Null),
        ("tmp", json!([64 << 20, 0])),
        ("opens", json!(["/dev/fuse", "/dev/random", "/dev/urandom", "/proc/1/task/1/comm"])),
        ("terminal", json!(30)),
    ];
    for (name, value) in differing {
        expected[name] = value;
    }
    seen_on("gvisor", &expected);
}

/// As native: contents alone are shown.
#[test]
fn a_directory_shown_to_a_container_leads_to_nothing_of_the_host() {
    let (daemon, world) = (Daemon::start(), World::new());
    let home = world.project().parent().unwrap().join("home");
    let _busy = busy_directory(&home);
    let command = ["--tool", "nvm", "--", "python3", "-c", MEETING, "/opt/pond/nvm/version"];
    for backend in ["docker", "gvisor"] {
        let arguments = [&["run", "-q", "--backend", backend][..], &command].concat();
        let done = Done::of(daemon.pond(&world, &arguments).env("HOME", &home).output().unwrap());
        assert_eq!(
            done.stdout, "connect: Connection refused, lock: yes, read: held\n",
            "{backend}: {done:?}"
        );
    }
}

/// Says which of these files somebody has locked, and once its input ends whether anybody opened one meanwhile.
const WATCH: &str = r#"
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
def is_locked(path):
    try: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError: return True
print([is_locked(path) for path in sys.argv[1:]].count(True), "locked", flush=True)
for path in sys.argv[1:]: assert libc.inotify_add_watch(watch, path.encode(), 0x20) > 0, path
print("watching", flush=True)
sys.stdin.read()
try: print("seen", bool(os.read(watch, 1 << 16)))
except BlockingIOError: print("seen nothing")
"#;

/// What every program on the host opens when it starts, pond's own file and a tool's are other files inside, whoever holds or
/// watches them.
#[test]
fn a_file_shown_to_a_job_leads_to_nothing_of_the_host() {
    let (daemon, world) = (Daemon::start(), World::new());
    let home = world.project().parent().unwrap().join("home");
    let tool = home.join(".local/bin/uv");
    std::fs::create_dir_all(tool.parent().unwrap()).unwrap();
    std::fs::write(&tool, "").unwrap();
    let [cache, inside] = ["/etc/ld.so.cache", "/opt/pond/uv/bin/uv"];
    let theirs = [cache, POND, tool.to_str().unwrap()];
    let _held = theirs.map(|path| {
        let file = std::fs::File::open(path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        file
    });
    let run = |flags: &[&str], files: &[&str]| {
        let arguments = [&["run", "-q"], flags, &["--", "python3", "-c", WATCH], files].concat();
        let mut pond = daemon.pond(&world, &arguments);
        let pond = pond.env("HOME", &home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pond.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.ends_with("watching\n") && said.read_line(&mut text).unwrap() > 0 {}
        drop(theirs.map(|path| std::fs::File::open(path).unwrap()));
        drop(child.stdin.take());
        said.read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        text
    };
    assert_eq!(run(&["--profile", "none"], &theirs), "3 locked\nwatching\nseen True\n");
    let nothing = "0 locked\nwatching\nseen nothing\n";
    assert_eq!(run(&["--backend", "native", "--tool", "uv"], &[cache, inside]), nothing);
    for backend in ["docker", "gvisor"] {
        let seen = run(&["--backend", backend, "--tool", "uv"], &[cache, "/.pond/init", inside]);
        assert_eq!(seen, nothing, "{backend}");
    }
}

/// Servers and their tests meet on the loopback, also where there is no gateway that had to bring it up.
#[test]
fn a_job_without_a_way_out_reaches_itself() {
    let (daemon, world) = (Daemon::start(), World::new());
    let line = "import socket; l = socket.create_server(('127.0.0.1', 0)); socket.create_connection(l.getsockname()); print('met')";
    for backend in ["docker", "gvisor"] {
        let flags = ["run", "-q", "--backend", backend, "--profile", "untrusted-code-read"];
        let done = daemon.run(&world, &[&flags[..], &["--", "python3", "-c", line]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (0, "met\n"), "{backend}: {done:?}");
    }
}
