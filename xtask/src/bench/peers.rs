//! How each contender launches `true`: the same program, namespaces as equal as its own options allow.

use super::bundle::TRUE;
use super::docker::Daemon;
use super::race::{Contender, Pace};
use super::stand::Stand;
use super::visitor::Visitor;

pub(super) const SPAWN: &str = "posix_spawn";
pub(super) const POND: &str = "pond run";
pub(super) const POND_RESIDENT: &str = "pond, resident launcher";
pub(super) const BUBBLEWRAP: &str = "bubblewrap";
pub(super) const RUNC: &str = "runc";
pub(super) const DOCKER: &str = "docker run";
pub(super) const POND_USER: &str = "pond run, ordinary user";
pub(super) const POND_RESIDENT_USER: &str = "pond, resident launcher, ordinary user";
pub(super) const BUBBLEWRAP_USER: &str = "bubblewrap, ordinary user";

/// What starts in a tenth of a second or more runs in every tenth round.
const SLOW: Pace = Pace::EveryNth(10);

pub(super) fn ours(stand: &Stand) -> Vec<Contender> {
    let checkout = stand.path("checkout");
    let spawning = |words: &[String]| stand.spawning(&strs(words));
    vec![
        quick(SPAWN, stand.spawning(&[TRUE])),
        quick(POND, spawning(&stand.pond_run(&checkout))),
        quick("pond run, with gateway", spawning(&stand.pond_run_with_gateway(&checkout))),
        quick(POND_RESIDENT, stand.resident(&["resident"], &["true"])),
        quick("pond, resident launcher, disk released", stand.resident(&["released"], &["true"])),
        quick(BUBBLEWRAP, spawning(&bubblewrap(&checkout))),
    ]
}

pub(super) fn visiting(stand: &Stand, visitor: &Visitor<'_>) -> Vec<Contender> {
    let checkout = visitor.checkout();
    let spawning = |words: &[String]| visitor.instrument(&[&["spawn"], &strs(words)[..]].concat());
    vec![
        quick(POND_USER, spawning(&stand.pond_run(&checkout))),
        quick(POND_RESIDENT_USER, visitor.resident()),
        quick(BUBBLEWRAP_USER, spawning(&bubblewrap(&checkout))),
    ]
}

pub(super) fn containers(stand: &Stand, bundle: &str, docker: &Daemon<'_>) -> Vec<Contender> {
    let runtime = |name: &str, options: &[&str]| -> Vec<String> {
        let state = stand.path(&format!("{name}-state"));
        let words = [&[name, "--root", &state], options, &["run", "--bundle", bundle, "pond-bench"]].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    vec![
        quick("crun", without_unified(stand, &runtime("crun", &[]))),
        quick(RUNC, stand.spawning(&strs(&runtime("runc", &[])))),
        Contender {
            name: "runsc",
            instrument: stand.spawning(&strs(&runtime("runsc", &["--network=none"]))),
            pace: SLOW,
        },
        Contender { name: DOCKER, instrument: stand.spawning(&strs(&docker.run(TRUE))), pace: SLOW },
    ]
}

/// crun refuses a host that has both versions of control groups, so its instrument lives where v2 is not mounted beside v1.
fn without_unified(stand: &Stand, words: &[String]) -> crate::run::Invocation {
    let hide = "if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi; exec \"$0\" spawn \"$@\"";
    let elsewhere = ["unshare", "--mount", "sh", "-c", hide, &stand.path("launch")].map(str::to_owned);
    stand.command(&strs(&[&elsewhere[..], words].concat()))
}

fn quick(name: &'static str, instrument: crate::run::Invocation) -> Contender {
    Contender { name, instrument, pace: Pace::EveryRound }
}

/// All namespaces, a read-only toolchain, a writable checkout, no capability; bubblewrap has no limits and no filter to add.
fn bubblewrap(checkout: &str) -> Vec<String> {
    let namespaces = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"];
    let root =
        ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin"];
    let libraries = [
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ];
    let writable =
        ["--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--bind", checkout, "/workspace", "--chdir", "/workspace"];
    let last = ["--hostname", "pond", "--cap-drop", "ALL", "--", TRUE];
    let words = namespaces.into_iter().chain(root).chain(libraries).chain(writable).chain(last);
    words.map(str::to_owned).collect()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
