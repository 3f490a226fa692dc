//! The exact request, whole: a field that appears, goes or changes is seen here.

use pond_policy::node::Node;
use pond_policy::settings::Settings;
use pond_wire::jail::{
    BindKind, CheckoutView, Console, Duty, Identity, Program, RootEntry, Scratch, Start, TmpfsCap,
};
use serde_json::{Value, json};

use super::*;

pub(crate) fn jail_plan() -> JailPlan {
    let bind = |path: &str, kind| RootEntry::Bind { path: path.to_owned(), source: path.to_owned(), kind };
    let file = |path: &str| RootEntry::File { path: path.to_owned(), content: format!("of {path}\n") };
    JailPlan {
        identity: Identity::Range { base: 0x7000_0000, owner_uid: 0, owner_gid: 0 },
        hostname: "pond".to_owned(),
        root: vec![
            RootEntry::Directory { path: "/etc".to_owned() },
            bind("/usr", BindKind::Directory),
            RootEntry::Symlink { path: "/bin".to_owned(), target: "usr/bin".to_owned() },
            bind("/etc/ld.so.cache", BindKind::File),
            file("/etc/passwd"),
            file("/etc/nsswitch.conf"),
            RootEntry::Device { path: "/dev/null".to_owned(), source: "/dev/null".to_owned() },
            program("/opt/pond"),
        ],
        checkout: CheckoutView::Empty,
        replaced: Vec::new(),
        home: Vec::new(),
        scratch: Scratch::Ext4Image,
        tmp: TmpfsCap { bytes: 256 << 20, inodes: 65_536 },
        shm: TmpfsCap { bytes: 64 << 20, inodes: 16_384 },
        rlimits: Rlimits {
            open_files: 1,
            processes: 2,
            stack_bytes: 3,
            file_bytes: 4,
            locked_bytes: 5,
            queue_bytes: 6,
            pending_signals: 7,
        },
        program: Program {
            argv: vec!["secret-command".to_owned()],
            env: vec![("NAME".to_owned(), "secret-value".to_owned())],
            search: Vec::new(),
            cwd: "/workspace".to_owned(),
        },
        console: Console::Pipes,
        doors: Vec::new(),
        start: Start::AtOnce,
        duty: Duty::Once,
    }
}

fn requested(kernel: Kernel, runtime: &str) -> Value {
    requested_by(kernel, runtime, Transfer::Bind, &jail_plan())
}

fn requested_by(kernel: Kernel, runtime: &str, transfer: Transfer, plan: &JailPlan) -> Value {
    requested_beside(kernel, runtime, transfer, plan, None)
}

fn requested_beside(
    kernel: Kernel,
    runtime: &str,
    transfer: Transfer,
    plan: &JailPlan,
    beside: Option<&str>,
) -> Value {
    requested_at(kernel, runtime, transfer, plan, (beside, &[]))
}

fn requested_at(
    kernel: Kernel,
    runtime: &str,
    transfer: Transfer,
    plan: &JailPlan,
    (beside, throttles): (Option<&str>, &[Throttle]),
) -> Value {
    let block = Node::Map(vec![("profile".to_owned(), Node::text("untrusted-code-test"))]);
    let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default()).unwrap();
    let facts = Facts {
        plan,
        limits: policy.limits().unwrap(),
        kernel,
        transfer,
        id: 1_879_049_192,
        runtime,
        image: "sha256:0123",
        unset: &["PATH".to_owned()],
        nonce: "nonce",
        stage: "/state/scratch/.job.stage",
        job: "job",
        state: "fe-1",
        beside,
        throttles,
    };
    serde_json::to_value(create(&facts).unwrap()).unwrap()
}

fn bound(source: &str, target: &str, read_only: bool) -> Value {
    json!({
        "Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only,
        "BindOptions": { "Propagation": "rprivate", "NonRecursive": true },
    })
}

fn limit(name: &str, value: u64) -> Value {
    json!({ "Name": name, "Soft": value, "Hard": value })
}

#[test]
fn the_request_is_exactly_this() {
    let host_config = json!({
        "Runtime": "runc",
        "NetworkMode": "none", "IpcMode": "none", "CgroupnsMode": "private", "UsernsMode": "host",
        "Privileged": false, "CapDrop": ["ALL"], "CapAdd": [],
        "SecurityOpt": ["no-new-privileges", format!("seccomp={}", seccomp::profile().unwrap())],
        "ReadonlyRootfs": true,
        "MaskedPaths": [
            "/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore",
            "/proc/key-users", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
            "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats",
        ],
        "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        "Mounts": [
            bound("/state/scratch/.job.stage/shown-0", "/usr", true),
            bound("/state/scratch/.job.stage/shown-1", "/etc/ld.so.cache", true),
            bound("/state/scratch/.job.stage/passwd", "/etc/passwd", true),
            bound("/state/scratch/.job.stage/shown-2", "/.pond/init", true),
            bound("/state/scratch/.job.stage/workspace", "/workspace", false),
            bound("/state/scratch/.job.stage/home", "/home/pond", false),
        ],
        "Tmpfs": {
            "/dev/mqueue": "ro,nosuid,nodev,noexec,size=4096,nr_inodes=16,mode=555",
            "/dev/pts": "ro,nosuid,nodev,noexec,size=4096,nr_inodes=16,mode=555",
            "/dev/shm": "rw,exec,nosuid,nodev,size=67108864,nr_inodes=16384,mode=1777,uid=1879049192,gid=1879049192",
            "/sys": "ro,nosuid,nodev,noexec,size=4096,nr_inodes=16,mode=555",
            "/sys/fs/cgroup": "ro,nosuid,nodev,noexec,size=4096,nr_inodes=16,mode=555",
            "/tmp": "rw,exec,nosuid,nodev,size=268435456,nr_inodes=65536,mode=1777,uid=1879049192,gid=1879049192",
        },
        "Ulimits": [
            limit("core", 1), limit("fsize", 4), limit("memlock", 5), limit("msgqueue", 6), limit("nice", 0),
            limit("nofile", 1), limit("nproc", 2), limit("rtprio", 0), limit("sigpending", 7), limit("stack", 3),
        ],
        "Memory": 2_147_483_648_u64, "MemorySwap": 2_147_483_648_u64,
        "NanoCpus": 2_000_000_000_u64, "PidsLimit": 256,
        "BlkioDeviceReadBps": [], "BlkioDeviceWriteBps": [],
        "Init": false, "AutoRemove": false,
        "LogConfig": { "Type": "none" }, "RestartPolicy": { "Name": "no" },
    });
    let expected = json!({
        "Hostname": "pond", "User": "1879049192:1879049192", "Image": "sha256:0123",
        "Entrypoint": ["/.pond/init"], "Cmd": ["nonce"], "Env": ["PATH"], "WorkingDir": "/",
        "Labels": { "io.pond.job": "job", "io.pond.state": "fe-1" },
        "Healthcheck": { "Test": ["NONE"] },
        "OpenStdin": true, "StdinOnce": true,
        "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false,
        "NetworkDisabled": true,
        "HostConfig": host_config,
    });
    let request = requested(Kernel::Host, "runc");
    assert_eq!(request, expected, "{request:#}");
}

#[test]
fn gvisor_differs_in_its_runtime_its_first_user_and_in_room_for_its_own_threads() {
    let (mut request, expected) = (requested(Kernel::Gvisor, "runsc"), requested(Kernel::Host, "runc"));
    assert_eq!(request["HostConfig"]["Runtime"], "runsc");
    assert_eq!(request["HostConfig"]["PidsLimit"], 256 + 256);
    // Pid 1 becomes the job's user by itself: its streams must not be that user's.
    assert_eq!(request["User"], "0:0");
    assert_eq!(request["HostConfig"]["CapAdd"], json!(["SETGID", "SETPCAP", "SETUID"]));
    request["User"] = expected["User"].clone();
    for part in ["Runtime", "PidsLimit", "CapAdd"] {
        request["HostConfig"][part] = expected["HostConfig"][part].clone();
    }
    assert_eq!(request, expected);
}

#[test]
fn a_machine_is_given_files_and_room_and_no_directory() {
    let mut plan = jail_plan();
    plan.root.retain(|entry| entry.path() == PROGRAM || !matches!(entry, RootEntry::Bind { .. }));
    let request = requested_by(Kernel::Machine, "kata-fc", Transfer::Stream, &plan);
    let host = &request["HostConfig"];
    assert_eq!(host["Runtime"], "kata-fc");
    assert_eq!(
        host["Mounts"],
        json!([
            bound("/state/scratch/.job.stage/passwd", "/etc/passwd", true),
            bound("/state/scratch/.job.stage/shown-0", "/.pond/init", true),
        ])
    );
    let own = "mode=0755,uid=1879049192,gid=1879049192";
    let room = "rw,exec,nosuid,nodev,size=1073741824,nr_inodes=200000";
    let (mut rest, mut expected) = (request.clone(), requested(Kernel::Host, "runc"));
    let mut tmpfs = expected["HostConfig"]["Tmpfs"].clone();
    tmpfs["/home/pond"] = format!("rw,exec,nosuid,nodev,size=536870912,nr_inodes=200000,{own}").into();
    tmpfs["/workspace"] = format!("{room},{own}").into();
    assert_eq!(host["Tmpfs"], tmpfs);
    // Everything else is as for any other container.
    for field in ["Runtime", "Mounts", "Tmpfs"] {
        rest["HostConfig"][field].take();
        expected["HostConfig"][field].take();
    }
    assert_eq!(rest, expected);
    // What the job must not change is not the job's.
    plan.checkout =
        CheckoutView::ReadOnly(pond_wire::jail::CheckoutPath { path: "/c".to_owned(), device: 1, inode: 2 });
    let request = requested_by(Kernel::Machine, "kata-fc", Transfer::Stream, &plan);
    let theirs = format!("{room},mode=0755,uid=1879049193,gid=1879049193");
    assert_eq!(request["HostConfig"]["Tmpfs"]["/workspace"], theirs);
}

/// Of the other's network it has all, and of nothing else more than any other container.
#[test]
fn a_companion_shares_a_network_and_nothing_else() {
    let plan = jail_plan();
    let request = requested_beside(Kernel::Host, "runc", Transfer::Bind, &plan, Some("0123"));
    let mut expected = requested(Kernel::Host, "runc");
    expected["HostConfig"]["NetworkMode"] = json!("container:0123");
    expected["NetworkDisabled"] = json!(false);
    expected["Hostname"] = json!("");
    assert_eq!(request, expected);
}

#[test]
fn a_job_with_a_terminal_has_an_instance_of_its_own() {
    let mut plan = jail_plan();
    plan.console = Console::Terminal { rows: 24, columns: 80 };
    for (kernel, runtime) in [(Kernel::Host, "runc"), (Kernel::Gvisor, "runsc")] {
        let mut expected = requested(kernel, runtime);
        expected["HostConfig"]["Tmpfs"].as_object_mut().unwrap().remove("/dev/pts");
        if kernel == Kernel::Host {
            let hung = bound("/state/scratch/.job.stage/terminals", "/dev/pts", false);
            expected["HostConfig"]["Mounts"].as_array_mut().unwrap().push(hung);
        }
        assert_eq!(requested_by(kernel, runtime, Transfer::Bind, &plan), expected);
    }
}

#[test]
fn a_rate_is_asked_for_on_each_disk_both_ways() {
    let throttle = |path: &str| Throttle { path: path.to_owned(), rate: 20 << 20 };
    let throttles = [throttle("/dev/vda"), throttle("/dev/loop3")];
    let plan = jail_plan();
    for (kernel, runtime) in [(Kernel::Host, "runc"), (Kernel::Gvisor, "runsc")] {
        let mut expected = requested(kernel, runtime);
        let each = json!([
            { "Path": "/dev/vda", "Rate": 20_971_520 },
            { "Path": "/dev/loop3", "Rate": 20_971_520 },
        ]);
        expected["HostConfig"]["BlkioDeviceReadBps"] = each.clone();
        expected["HostConfig"]["BlkioDeviceWriteBps"] = each;
        assert_eq!(requested_at(kernel, runtime, Transfer::Bind, &plan, (None, &throttles)), expected);
    }
}

#[test]
fn whoever_unpacks_is_nobody_special() {
    let exec = serde_json::to_value(unpacker("/workspace", 7)).unwrap();
    let expected = json!({
        "User": "7:7", "Cmd": ["/.pond/init", "unpack", "/workspace"], "Env": [], "WorkingDir": "/",
        "Privileged": false, "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false,
    });
    assert_eq!(exec, expected);
}

#[test]
fn neither_the_command_nor_its_environment_is_told_to_the_engine() {
    assert!(!requested(Kernel::Host, "runc").to_string().contains("secret"));
}

#[test]
fn only_the_files_an_engine_would_cover_are_staged() {
    let plan = jail_plan();
    assert_eq!(staged_files(&plan).collect::<Vec<_>>(), [("passwd", "of /etc/passwd\n")]);
}
