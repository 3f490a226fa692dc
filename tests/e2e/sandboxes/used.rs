//! A sandbox in use: a terminal in it, what a program writes while it runs, and a disk that was left in disorder.

use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Boxes;
use super::killed::named;
use crate::residue::wait_until;
use crate::tmux::Tmux;

#[test]
fn a_program_has_a_terminal_of_its_own() {
    let boxes = Boxes::new();
    boxes.create("term", &[]);
    let tmux = Tmux::start(&boxes.world);
    tmux.line("stty -a > before; $POND sandbox exec -t term -- sh; echo code-$?; stty -a > after; echo over-$((1+1))");
    tmux.wait_for("$ ");
    tmux.line("echo $(tty) $TERM $(stty size) > /dev/tty; echo said-$((1+1))");
    tmux.wait_for("said-2");
    assert!(tmux.screen().contains("/dev/pts/0 tmux-256color 30 100"), "{}", tmux.screen());
    tmux.ask(&["resize-window", "-x", "90", "-y", "20"]);
    tmux.line("until [ \"$(stty size)\" = '20 90' ]; do sleep 0.05; done; echo resized-$((1+1))");
    tmux.wait_for("resized-2");
    tmux.line("echo asleep-$((1+1)); sleep 1000; echo awake-$?");
    tmux.wait_for("asleep-2");
    tmux.key("C-c");
    tmux.line("echo alive-$((1+1)); exit 7");
    tmux.wait_for("alive-2");
    tmux.wait_for("code-7");
    tmux.wait_for("over-2");
    let before = boxes.world.read("before").replace("rows 30; columns 100", "rows 20; columns 90");
    assert_eq!(boxes.world.read("after"), before, "the person's own is whole");
    // Another at the same time, and one after it.
    tmux.line("$POND sandbox exec -t term -- tty; echo again-$((1+1))");
    tmux.wait_for("again-2");
}

#[test]
fn what_a_program_writes_is_followed_to_its_end() {
    let boxes = Boxes::new();
    boxes.create("talk", &[]);
    boxes.sandbox(&[
        "exec",
        "-d",
        "talk",
        "--",
        "sh",
        "-c",
        "echo one; sleep 2; echo two; sleep 1; echo three >&2",
    ]);
    let begun = Instant::now();
    let followed = boxes.sandbox(&["logs", "-f", "talk"]);
    assert_eq!((followed.code, followed.stdout.as_str()), (0, "one\ntwo\n"), "{followed:?}");
    assert!(begun.elapsed() > Duration::from_secs(1), "it waited for the rest");
    assert_eq!(boxes.sandbox(&["logs", "-f", "--stderr", "talk", "1"]).stdout, "three\n");
    // One whose sandbox stops meanwhile ends too.
    boxes.sandbox(&["exec", "-d", "talk", "--", "sleep", "600"]);
    let mut follower = boxes.world.pond(&["sandbox", "logs", "-f", "talk"]);
    let mut follower = follower.stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(boxes.sandbox(&["stop", "talk"]).code, 0);
    assert!(follower.wait().unwrap().success());
}

#[test]
fn a_disk_in_disorder_is_mended_before_it_is_used() {
    let boxes = Boxes::new();
    boxes.create("torn", &[]);
    boxes.shell("torn", "echo kept > file; sync");
    assert_eq!(boxes.sandbox(&["stop", "torn"]).code, 0);
    let image = boxes.world.state().join("sandboxes/torn/disk.image");
    let image = image.to_str().unwrap();
    // As a host leaves it that lost its power: not taken down, and its counts are wrong.
    for request in ["set_super_value state 0", "set_inode_field <2> links_count 9"] {
        let done = boxes.world.host_shell(&format!("/usr/sbin/debugfs -w -R '{request}' {image}"));
        assert_eq!(done.code, 0, "{done:?}");
    }
    let check = || boxes.world.host_shell(&format!("/usr/sbin/e2fsck -f -n {image}")).code;
    assert_ne!(check(), 0, "it is in disorder");
    assert_eq!(boxes.sandbox(&["resume", "torn"]).code, 0);
    assert_eq!(boxes.shell("torn", "echo more >> file; cat file").stdout, "kept\nmore\n");
    assert_eq!(boxes.sandbox(&["stop", "torn"]).code, 0);
    assert_eq!(check(), 0, "and no more");
}

/// Another job has the range of ids that the sandbox had: its files are still its own.
#[test]
fn what_was_written_before_a_stop_can_be_changed_after_it() {
    let boxes = Boxes::new();
    boxes.create("again", &[]);
    boxes.shell("again", "mkdir -p a/b && echo one > a/b/file && chmod 600 a/b/file && echo two > ~/own");
    let range = || boxes.shell("again", "awk '{print $2}' /proc/self/uid_map").stdout;
    let before = range();
    for other in [false, true] {
        assert_eq!(boxes.sandbox(&["stop", "again"]).code, 0);
        let taken = other.then(|| taken(&before));
        assert_eq!(boxes.sandbox(&["resume", "again"]).code, 0);
        let changed =
            boxes.shell("again", "echo more >> a/b/file && echo more >> ~/own && stat -c %U a/b/file ~/own");
        assert_eq!((changed.code, changed.stdout.as_str()), (0, "pond\npond\n"), "{changed:?}");
        assert_eq!(range() == before, !other);
        drop(taken);
    }
}

/// Holds a range as a job does.
fn taken(base: &str) -> std::fs::File {
    let slot = (base.trim().parse::<u32>().unwrap() - 0x7000_0000) / 65_536;
    let lock = std::fs::File::options().write(true).open(format!("/run/pond/ids/{slot:04}")).unwrap();
    lock.lock().unwrap();
    lock
}

/// Whoever may call a keeper may call it too often.
#[test]
fn a_keeper_that_ran_out_of_descriptors_hears_again() {
    let boxes = Boxes::new();
    boxes.create("many", &[]);
    let [keeper] = named(&boxes, "pond keeper")[..] else { panic!("one keeper") };
    let pid = rustix::process::Pid::from_raw(keeper);
    let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, few).unwrap();
    let socket = boxes.world.state().join("sandboxes/many/socket");
    let callers: Vec<UnixStream> = (0..80).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let open = || std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
    wait_until(|| open() == 64);
    std::thread::sleep(Duration::from_millis(100));
    drop(callers);
    wait_until(|| open() < 60);
    assert_eq!(boxes.shell("many", "echo here").stdout, "here\n");
}

#[test]
fn what_is_asked_for_in_vain_is_told_by_its_name() {
    let boxes = Boxes::new();
    boxes.create("asked", &[]);
    for (words, code) in [
        (&["exec", "-e", "=x", "asked", "--", "true"][..], "env_invalid"),
        (&["exec", "-w", "../etc", "asked", "--", "true"], "target_invalid"),
        (&["exec", "asked", "--", ""], "command_missing"),
    ] {
        let refused = boxes.sandbox(words);
        assert!(
            refused.code == 125 && refused.stderr.contains(&format!("[{code}]")),
            "{words:?}: {refused:?}"
        );
    }
    boxes.world.write("odd.yaml", "id: odd\nsandbox: 7\n");
    let refused = boxes.sandbox(&["create", "-f", "odd.yaml", "--backend", "native"]);
    assert!(refused.code == 125 && refused.stderr.contains("[wrong_type]"), "{refused:?}");
    assert!(!boxes.world.state().join("sandboxes/odd").exists());
}
