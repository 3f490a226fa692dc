//! A program in a sandbox that lasts is confined as the job of `pond run` is, and two sandboxes have nothing in common.

use super::Boxes;

/// What a program can find out about its own confinement.
const SELF_PORTRAIT: &str = "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp|Groups)' /proc/self/status; umask; ulimit -a; \
     cat /proc/self/cgroup | wc -l; ls /proc/self/ns | sort; ls /sys 2>&1; ip link 2>/dev/null | grep -c UP";

/// Attempts that no job may get away with; each prints only if it succeeded.
const ATTEMPTS: &str = "(kill -9 1) 2>/dev/null && echo killed-1; \
     cat /proc/1/environ 2>/dev/null && echo read-environ; ls /proc/1/fd/ 2>/dev/null && echo listed-fds; \
     (head -c 1 /proc/1/mem) 2>/dev/null && echo read-memory; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; \
     unshare -U true 2>/dev/null && echo unshared; touch /etc/x 2>/dev/null && echo wrote-etc; \
     mknod /tmp/d c 1 3 2>/dev/null && echo device; chroot / true 2>/dev/null && echo chrooted; \
     python3 -c 'import ctypes;l=ctypes.CDLL(None,use_errno=True);print(\"traced\") if l.ptrace(16,1,0,0)==0 else None'; \
     python3 -c 'import socket;socket.socket(socket.AF_VSOCK)' 2>/dev/null && echo vsock; \
     python3 -c 'import socket;s=socket.socket(socket.AF_UNIX);s.connect(\"\\0x\")' 2>/dev/null; echo over";

#[test]
fn a_program_is_confined_as_the_job_of_a_run_is() {
    let boxes = Boxes::new();
    boxes.create("cell", &[]);
    let inside = boxes.shell("cell", SELF_PORTRAIT);
    let line = ["run", "-q", "--profile", "untrusted-code-internet", "--", "sh", "-c", SELF_PORTRAIT];
    let job = boxes.world.run(&line);
    assert_eq!(inside.stdout, job.stdout, "{inside:?} {job:?}");
    assert!(inside.stdout.contains("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1"), "{inside:?}");
    assert!(inside.stdout.contains("CapBnd:\t0000000000000000"), "{inside:?}");
}

#[test]
fn nothing_inside_reaches_pid_1_or_the_host() {
    let boxes = Boxes::new();
    boxes.create("cell", &[]);
    assert_eq!(boxes.shell("cell", ATTEMPTS).stdout, "over\n");
    assert_eq!(boxes.shell("cell", "echo alive").stdout, "alive\n");
    // The same attempts succeed where nothing stands in the way, so they can be made at all.
    let outside = boxes.world.host_shell(
        "touch /tmp/pond-control-$$ && rm /tmp/pond-control-$$ && unshare -U true && echo unshared; cat /proc/$$/environ > /dev/null && echo read",
    );
    assert_eq!(outside.stdout, "unshared\nread\n", "{outside:?}");
}

#[test]
fn two_sandboxes_have_nothing_in_common() {
    let boxes = Boxes::new();
    boxes.create("left", &[]);
    boxes.create("right", &[]);
    boxes.sandbox(&["exec", "-d", "left", "--", "python3", "-m", "http.server", "9321"]);
    let reach = "python3 -c 'import urllib.request as u;print(u.urlopen(\"http://127.0.0.1:9321/\",timeout=3).status)' 2>&1 | tail -1";
    crate::residue::wait_until(|| boxes.shell("left", reach).stdout == "200\n");
    let across = boxes.shell("right", reach);
    assert!(across.stdout.contains("refused"), "{across:?}");
    boxes.shell("left", "echo secret > file");
    assert_eq!(boxes.shell("right", "ls; ls ~; pgrep -c python3").stdout, "0\n");
}

#[test]
fn the_quota_of_the_disk_holds_over_a_stop() {
    let boxes = Boxes::new();
    boxes.create("full", &[]);
    let room = boxes.shell("full", "df -k --output=size . | tail -1").stdout.trim().parse::<u64>().unwrap();
    assert!(room <= 20 << 20, "as large as the profile says: {room} KiB");
    // Reserved, not written: the host's disk is shared by other tests.
    let reserve = |size: u64| boxes.shell("full", &format!("fallocate -l {size}K big && echo all")).stdout;
    assert_eq!(reserve(room * 2), "");
    assert_eq!(reserve(room / 2), "all\n", "what is refused is refused for its size");
    for step in ["stop", "resume"] {
        assert_eq!(boxes.sandbox(&[step, "full"]).code, 0, "{step}");
    }
    assert_eq!(boxes.shell("full", "df -k --output=size . | tail -1").stdout.trim(), room.to_string());
    assert_eq!(reserve(room * 2), "", "the disk that was kept is no larger");
}

#[test]
fn a_profile_with_a_list_of_commands_has_it_here_too() {
    let boxes = Boxes::new();
    boxes.create("listed", &["--profile", "untrusted-code-test"]);
    let denied = boxes.sandbox(&["exec", "listed", "--", "curl", "http://example.com"]);
    assert!(denied.code == 125 && !denied.stderr.contains("[exec_failed]"), "{denied:?}");
    let audit = std::fs::read_to_string(boxes.world.state().join("audit.jsonl")).unwrap();
    assert!(audit.lines().any(|line| line.contains("curl") && line.contains("\"denied\":\"")), "{audit}");
}
