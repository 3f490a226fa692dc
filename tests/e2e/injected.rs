//! A step of the launch that fails, whichever it is: the command never runs, pond says so, and nothing is left.
//!
//! strace makes every call of one kind fail, in every process of the run.

use crate::bad_input::left;
use crate::support::{Done, World};

/// One for every step that has a call of its own, in the order of a launch.
const CALLS: [&str; 31] = [
    "socketpair",
    "clone3",
    "close_range",
    "pipe2",
    "memfd_create",
    "sendmsg",
    "signalfd4",
    "setgroups",
    "setresgid",
    "setresuid",
    "unshare",
    "setsid",
    "sethostname",
    "socket",
    "fsopen",
    "fsconfig",
    "fsmount",
    "mkdirat",
    "fchownat",
    "symlinkat",
    "open_tree",
    "mount_setattr",
    "move_mount",
    "fchdir",
    "pivot_root",
    "umount2",
    "capset",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "seccomp",
];

fn with_failing(world: &World, call: &str) -> Done {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=ENOMEM"));
    let mut strace = world.command("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject, env!("CARGO_BIN_EXE_pond")]);
    Done::of(strace.args(["run", "--", "sh", "-c", "echo ran; echo x > made"]).output().unwrap())
}

#[test]
fn a_step_that_fails_ends_the_launch() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    for call in CALLS {
        let done = with_failing(&world, call);
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{call}: {done:?}");
        let (own, others): (Vec<&str>, Vec<&str>) =
            done.stderr.lines().partition(|line| line.starts_with("pond: "));
        // A role that cannot even begin says why itself: its socket is all it has in common with pond.
        let roles = |name: &str| others.iter().filter(|line| line.starts_with(name)).count();
        let said = (own.len(), roles("pond-jail: ") < 2, roles("pond-gateway: ") < 2);
        assert_eq!(said, (1, true, true), "{call}: {done:?}");
        assert_eq!(roles("pond-"), others.len(), "{call}: {done:?}");
        assert_eq!(left(&world), before, "{call}");
    }
    // Looked at and left alone, the same run works: tracing is not what stopped it.
    let done = with_failing(&world, "swapon");
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{done:?}");
}
