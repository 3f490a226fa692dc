//! What a job in a container sees and may do, asked from inside by a program of the host.

use serde_json::Value;

use super::daemon::Daemon;
use crate::done::Done;
use crate::support::World;

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
status = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines())
mounts = [line.split() for line in open("/proc/self/mountinfo")]
print(json.dumps({
    "io_uring": call(425, 1, 0), "ptrace": call(101, 0, 0, 0, 0), "unshare": call(272, 0x10000000),
    "keyctl": call(250, 0, -3, 0), "clone3": call(435, 0, 0), "tiocsti": call(16, 0, 0x5412, b"x"),
    "vsock": attempt(lambda: socket.socket(40, socket.SOCK_STREAM)),
    "audit": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)),
    "raw": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    "root": attempt(lambda: open("/x", "w")), "usr": attempt(lambda: open("/usr/x", "w")),
    "devices": attempt(lambda: open("/dev/urandom", "w")),
    "sockets": [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)],
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "privileges": status["NoNewPrivs"], "filters": status.get("Seccomp_filters"),
    "groups": os.getgroups() == [os.getgid()], "owner": os.stat(".").st_uid == os.getuid() > 1000,
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "sys": os.listdir("/sys"), "host": socket.gethostname(),
    "resolver": open("/etc/resolv.conf").read(), "environment": "DOCKER_HOST" in os.environ,
    "tmp": [os.statvfs("/tmp").f_blocks * 4096, os.statvfs("/tmp").f_files],
    "writable": sorted(m[4] for m in mounts if "rw" in m[5].split(",") and m[4][:5] not in ("/proc", "/dev", "/dev/")),
}))
"#;

#[test]
fn a_job_on_docker_has_the_native_posture() {
    let (daemon, world) = (Daemon::start(), World::new());
    let expected = serde_json::json!({
        "io_uring": 1, "ptrace": 1, "unshare": 1, "keyctl": 1, "clone3": 38, "tiocsti": 1,
        "vsock": 97, "audit": 97, "raw": 1,
        "root": 30, "usr": 30, "devices": 13,
        "sockets": [],
        "capabilities": vec!["0000000000000000"; 5],
        "privileges": "1", "filters": "2",
        "groups": true, "owner": true,
        "processes": 2,
        "interfaces": ["lo"],
        "sys": [], "host": "pond",
        "resolver": "nameserver 127.0.0.1\n", "environment": false,
        "tmp": [64 << 20, 16384],
        "writable": ["/home/pond", "/sys/fs/cgroup", "/tmp", "/workspace"],
    });
    let arguments = ["run", "-q", "--backend", "docker", "--tmp", "64m", "--", "python3", "-c", PROBE];
    // However the copy travels.
    for way in ["bind", "stream"] {
        let mut pond = daemon.pond(&world, &arguments);
        let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
        let seen: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(seen, expected, "{way}: {seen:#}");
    }
}
