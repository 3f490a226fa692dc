//! An ordinary user: everything a run promises holds without root, in control groups that root handed over once.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::bad_input::{mounted, shared_pond};
use crate::residue::{tasks, wait_until};
use crate::shortage::refused;
use crate::support::{Done, Traces, World, first_line, meets_nothing_of_the_host, names};
use crate::tmux::Tmux;

/// An id that no account has, with a project, a state directory and control groups of its own; the groups go with the value.
pub(crate) struct Visitor {
    pub(crate) world: World,
    pub(crate) pond: PathBuf,
    uid: u32,
    groups: Vec<PathBuf>,
}

impl Visitor {
    pub(crate) fn invite() -> Self {
        let world = World::new();
        let pond = shared_pond(&world);
        let uid = FIRST_UID + some_number();
        let given = world.run(&["host", "delegate", &uid.to_string(), "--json"]);
        let given: Value =
            serde_json::from_str(&given.stdout).unwrap_or_else(|fault| panic!("{fault}: {given:?}"));
        let groups = given["groups"].as_array().unwrap().iter().map(|group| group.as_str().unwrap().into());
        let groups = groups.collect();
        std::fs::create_dir(world.state()).unwrap();
        for directory in [world.project(), world.state()] {
            chown(directory, Some(uid), Some(uid)).unwrap();
        }
        Self { world, pond, uid, groups }
    }

    /// A program started by the user in the project.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.world.command(program);
        command.uid(self.uid).gid(self.uid);
        command
    }

    fn pond(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.pond.to_str().unwrap());
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.pond(arguments).output().unwrap())
    }

    fn summary(&self, flags: &[&str], argv: &[&str]) -> Value {
        let done = self.run(&[&["run", "--json"], flags, &["--"], argv].concat());
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        // A job that a failed test left is in the way of giving the groups back.
        let swept = self.world.run(&["gc"]);
        for group in &self.groups {
            let removed = std::fs::remove_dir(group);
            assert!(
                removed.is_ok() || std::thread::panicking(),
                "{}: {removed:?}, {swept:?}",
                group.display()
            );
        }
    }
}

/// Above all accounts, and with [`some_number`] below the ranges that root's jobs run under.
const FIRST_UID: u32 = 600_000_000;

/// Below a million: tests run side by side, in processes that may all have the number 1.
fn some_number() -> u32 {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
    u32::try_from(random % 1_000_000).unwrap()
}

/// Pid 1 is the same user's as the job; the limit that is reached is the control group's all the same, which can tell.
#[test]
fn a_user_hears_of_processes_that_were_refused() {
    let visitor = Visitor::invite();
    let fork = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 1 & done; wait";
    let done = visitor.run(&["run", "--pids", "8", "--", "bash", "-c", fork]);
    assert!(done.stderr.contains("[pids_limit]: allow it more with --pids 16"), "{done:?}");
}

/// A mask that withholds a user's own rights from that user.
#[test]
fn a_user_can_open_again_what_pond_made_whatever_the_umask() {
    let visitor = Visitor::invite();
    let line = "umask 777; \"$0\" run -q -- touch made && \"$0\" apply";
    let done = visitor.command("sh").args(["-c", line, visitor.pond.to_str().unwrap()]).output().unwrap();
    assert_eq!(Done::of(done).code, 0);
    assert!(visitor.world.project().join("made").exists());
}

#[test]
fn a_job_of_a_user_is_confined_and_its_changes_become_a_patch() {
    let visitor = Visitor::invite();
    let world = &visitor.world;
    world.write("f", "before\n");
    chown(world.project().join("f"), Some(visitor.uid), Some(visitor.uid)).unwrap();
    assert_eq!(visitor.run(&["run", "--", "true"]).code, 0);
    let line = "id -u; cat f; echo after > f; echo new > made; ls /root /home 2>&1 | wc -l; cat /proc/1/environ 2>&1";
    let done = visitor.run(&["run", "--", "sh", "-c", line]);
    let seen: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(seen[..2], ["1000", "before"], "{done:?}");
    assert!(done.stderr.contains("2 files changed") && done.stdout.contains("Permission denied"), "{done:?}");
    assert_eq!(world.read("f"), "before\n", "the checkout itself was not touched");
    let applied = visitor.run(&["apply"]);
    assert_eq!(
        (applied.code, world.read("f").as_str(), world.read("made").as_str()),
        (0, "after\n", "new\n"),
        "{applied:?}"
    );
    assert_eq!(std::fs::metadata(world.project().join("made")).unwrap().uid(), visitor.uid);
}

/// The kernel maps one group into a user's sandbox: what belongs to another one of theirs is not copied up.
#[test]
fn what_a_user_cannot_change_is_named_with_the_way_to_change_it() {
    let visitor = Visitor::invite();
    let (world, uid) = (&visitor.world, visitor.uid);
    let (project, other) = (world.project(), uid + 1);
    for name in ["a", "own"] {
        world.write(name, "before\n");
        chown(project.join(name), Some(uid), Some(uid)).unwrap();
    }
    let run =
        |flags: &[&str], line: &str| visitor.run(&[&["run"], flags, &["--", "sh", "-c", line]].concat());
    let write = "echo after > a";
    assert_eq!(run(&[], write).code, 0);
    chown(project.join("a"), Some(uid), Some(other)).unwrap();
    let done = run(&[], write);
    let says = format!("pond: a belongs to group {other}, so the job could not change it [foreign_owner]: ");
    assert!(done.code != 0 && done.stderr.contains(&says) && done.stderr.contains("--snapshot"), "{done:?}");
    assert!(done.stdout.is_empty() && !done.stderr.contains("warning"), "{done:?}");
    let explained = visitor.run(&["explain"]);
    assert!(explained.stdout.contains("foreign_owner"), "{explained:?}");
    // What helps, what is not hindered, and a profile that changes nothing say nothing.
    for (flags, line) in [
        (&["--snapshot"][..], write),
        (&[], "echo after > own"),
        (&["--profile", "untrusted-code-read"], "! echo after > a"),
    ] {
        let done = run(flags, line);
        assert!(done.code == 0 && !done.stderr.contains("belongs to"), "{line}: {done:?}");
    }
    let failed = run(&["--profile", "untrusted-code-read"], "false");
    assert!(!failed.stderr.contains("belongs to"), "{failed:?}");
    // The top of the checkout is looked at before anything starts.
    for (user, group, whose) in
        [(uid, other, format!("group {other}")), (other, uid, format!("user {other}"))]
    {
        chown(&project, Some(user), Some(group)).unwrap();
        let warning = format!("pond: warning: {} belongs to {whose}, ", project.display());
        let done = run(&[], "true");
        assert!(done.stderr.starts_with(&warning) && done.stderr.contains("--snapshot"), "{done:?}");
        for quiet in [&["-q"][..], &["--snapshot"], &["--profile", "untrusted-code-read"]] {
            let done = run(quiet, "true");
            assert!(done.code == 0 && !done.stderr.contains("warning"), "{quiet:?}: {done:?}");
        }
    }
    // And root's jobs know more than one.
    let of_root = World::new();
    of_root.write("a", "before\n");
    chown(of_root.project().join("a"), None, Some(4242)).unwrap();
    let done = of_root.shell("echo after > a && exit 7");
    assert!(done.code == 7 && !done.stderr.contains("belongs to"), "{done:?}");
}

/// A group they share with others stays with the file; where it cannot, what it allowed goes.
#[test]
fn a_file_that_a_user_changes_stays_in_its_group_or_is_closed_to_the_one_it_gets() {
    let visitor = Visitor::invite();
    let (world, uid) = (&visitor.world, visitor.uid);
    let (team, strangers) = (uid + 1, uid + 2);
    for (name, group) in [("shared", team), ("foreign", strangers)] {
        world.write(name, "before\n");
        let path = world.project().join(name);
        chown(&path, Some(uid), Some(group)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    }
    let done = visitor.run(&["run", "-q", "--snapshot", "--", "sh", "-c", "echo after | tee shared foreign"]);
    assert_eq!(done.code, 0, "{done:?}");
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), format!("--groups={team}")];
    let mut apply = world.command("setpriv");
    let applied = Done::of(apply.args(ids).arg(&visitor.pond).args(["apply"]).output().unwrap());
    assert_eq!(applied.code, 0, "{applied:?}");
    let facts = |name: &str| {
        let found = std::fs::metadata(world.project().join(name)).unwrap();
        (world.read(name), found.mode() & 0o7777, found.gid())
    };
    assert_eq!(facts("shared"), ("after\n".to_owned(), 0o640, team));
    assert_eq!(facts("foreign"), ("after\n".to_owned(), 0o600, uid));
}

/// A `/tmp` is looked at in a user's namespace as in root's.
#[test]
fn a_users_tmp_that_is_full_is_named() {
    let visitor = Visitor::invite();
    let fill = "exec 2> /dev/null; head -c 2m /dev/zero > /tmp/a";
    let summary = visitor.summary(&["--tmp", "1m"], &["sh", "-c", fill]);
    assert_eq!(summary["findings"][0]["code"], "tmp_full", "{summary:#}");
}

/// The program is the user's own, as one installed into a home directory is: only its mount keeps a job from writing it.
#[test]
fn the_catalogue_holds_for_a_user() {
    let visitor = Visitor::invite();
    chown(&visitor.pond, Some(visitor.uid), Some(visitor.uid)).unwrap();
    let done = visitor.run(&["attack", "--json"]);
    let report: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let (probes, failed) = (report["probes"].as_array().unwrap(), ["breached", "broken"]);
    let failed = probes.iter().filter(|probe| failed.iter().any(|kind| probe["verdict"]["kind"] == *kind));
    assert_eq!(failed.collect::<Vec<_>>(), Vec::<&Value>::new());
    assert_eq!((&report["canaries"], done.code), (&json!([]), 0));
    assert!(report["held"].as_u64().unwrap() > 120, "{report:#}");
}

#[test]
fn a_directory_that_is_shown_to_a_users_job_leads_to_nothing_of_the_host() {
    let visitor = Visitor::invite();
    meets_nothing_of_the_host(&visitor.world, |arguments| visitor.pond(arguments));
}

/// What is mounted below hides something, and only root may see behind it.
#[test]
fn a_mount_in_the_way_of_a_user_is_named() {
    let visitor = Visitor::invite();
    let (project, pond, uid) = (visitor.world.project(), visitor.pond.display(), visitor.uid);
    let run = |place: &str, flags: &str| {
        let user = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
        let line = format!(
            "mount -t tmpfs x {place}; cd {}; exec {user} {pond} run {flags} -- true",
            project.display()
        );
        mounted(&visitor.world, &line)
    };
    std::fs::create_dir(project.join("sub")).unwrap();
    let below = project.join("sub").display().to_string();
    refused(&run(&below, ""), &["open the checkout", &format!("mounted on {below}"), "--snapshot"]);
    assert_eq!(run(&below, "-q --snapshot").code, 0);
    refused(&run("/usr/local/lib", ""), &["toolchain directories", "mounted on /usr/local/lib", "as root"]);
    let root = format!("mount -t tmpfs x /usr/local/lib; cd {}; exec $P run -q -- true", project.display());
    let root = mounted(&visitor.world, &root);
    assert_eq!(root.code, 0, "{root:?}");
}

/// What root may look into, and a user may not; and file systems that a checkout can lie on.
#[test]
fn a_checkout_that_a_user_cannot_have() {
    let visitor = Visitor::invite();
    let (world, uid, pond) = (&visitor.world, visitor.uid, visitor.pond.display());
    assert_eq!(visitor.run(&["run", "-q", "--", "true"]).code, 0);
    let left = || (Traces::of(world, &BTreeSet::new()), names(&world.state().join("runs")));
    let before = left();
    let unreadable = world.project().join("unreadable");
    std::fs::create_dir(&unreadable).unwrap();
    for (owner, mode) in [(uid, 0o000), (uid, 0o300), (0, 0o700)] {
        chown(&unreadable, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&unreadable, std::fs::Permissions::from_mode(mode)).unwrap();
        let done = visitor.run(&["run", "--checkout", "unreadable", "--", "true"]);
        refused(&done, &["Permission denied"]);
        assert_eq!(left(), before, "{owner} {mode:o}");
    }
    let user = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    let overlay =
        "mkdir l u w m; echo here > l/f; mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m; cd m";
    // Nobody's files change their owner on the way into a user's sandbox, so an overlay can lie below one.
    for setup in [
        format!("{overlay}; exec {user} {pond} run -q"),
        format!("{overlay}; exec {user} {pond} run -q --snapshot"),
        format!("mkdir p; echo here > p/f; mount -o remount,ro .; cd p; exec {user} {pond} run -q"),
    ] {
        let done = mounted(world, &format!("{setup} -- cat f"));
        assert_eq!((done.code, done.stdout.as_str()), (0, "here\n"), "{setup}: {done:?}");
    }
    assert_eq!(left().0, before.0);
}

#[test]
fn a_users_home_with_the_state_directory_in_it_is_no_checkout() {
    let visitor = Visitor::invite();
    let home = visitor.world.project();
    let run = |arguments: &[&str]| {
        let mut pond = visitor.pond(arguments);
        pond.env("HOME", &home).env_remove("POND_STATE_DIR").env_remove("XDG_STATE_HOME");
        Done::of(pond.output().unwrap())
    };
    let whole = run(&["run", "--", "cat", ".local/state/pond/signing-key.pem"]);
    refused(&whole, &["pond's state directory", "/.local/state/pond lies below the checkout"]);
    std::fs::create_dir(home.join("part")).unwrap();
    let part = run(&["run", "-q", "--checkout", "part", "--", "true"]);
    assert_eq!(part.code, 0, "{part:?}");
    assert!(home.join(".local/state/pond/signing-key.pem").exists(), "what the first run would have shown");
}

#[test]
fn without_a_delegated_group_a_user_is_told_how_to_get_one() {
    let visitor = Visitor::invite();
    for group in &visitor.groups {
        std::fs::remove_dir(group).unwrap();
    }
    let done = visitor.run(&["run", "--", "true"]);
    for group in &visitor.groups {
        std::fs::create_dir(group).unwrap();
    }
    refused(&done, &["no job group may be made", &format!("pond host delegate {}", visitor.uid)]);
}

#[test]
fn every_limit_of_a_user_ends_the_job() {
    let visitor = Visitor::invite();
    let eat = "x=[]\nwhile True: x.append(bytearray(1<<20))";
    let summary = visitor.summary(&["--memory", "64m"], &["python3", "-c", eat]);
    assert_eq!(summary["verdict"], json!({"kind": "killed", "limit": "memory"}), "{summary:#}");
    // The disk is memory, and counts.
    let summary = visitor.summary(&["--memory", "64m"], &["sh", "-c", "head -c 200m /dev/zero > big"]);
    assert_ne!(summary["verdict"], json!({"kind": "exited", "code": 0}), "{summary:#}");
    let summary = visitor.summary(&["--timeout", "1s"], &["sleep", "100"]);
    assert_eq!(
        (&summary["verdict"]["kind"], &summary["exit_code"]),
        (&"timed_out".into(), &124.into()),
        "{summary:#}"
    );
    let fork = "import os,time\nn=0\ntry:\n while n<200:\n  if os.fork()==0: time.sleep(60)\n  n+=1\nexcept OSError: pass\nprint(n)";
    let few = visitor.run(&["run", "--pids", "32", "--", "python3", "-c", fork]);
    assert!(few.stdout.trim().parse::<u32>().is_ok_and(|count| count < 32), "{few:?}");
    // With room the same allocation is no crime.
    let summary = visitor
        .summary(&["--memory", "512m"], &["python3", "-c", "x=[bytearray(1<<20) for _ in range(100)]"]);
    assert_eq!(summary["exit_code"], 0, "{summary:#}");
}

/// A user's launcher has power over the job's own namespace, and that is all the internet posture needs of it.
#[test]
fn the_internet_of_a_user_ends_at_the_gateway() {
    let visitor = Visitor::invite();
    let dial = "import socket\nfor a in [('192.0.2.7', 4444), ('169.254.169.254', 80)]:\n s = socket.create_connection(a, 30)\n \
                print(s.recv(9))";
    let flags = ["--profile", "untrusted-code-internet"];
    let summary = visitor.summary(&flags, &["python3", "-c", dial]);
    assert_eq!(summary["exit_code"], 0, "{summary:#}");
    let hosts = summary["network"]["hosts"].as_array().unwrap();
    let told: BTreeSet<String> =
        hosts.iter().map(|host| format!("{} {}", host["target"], host["refusals"][0]["code"])).collect();
    let expected = [r#""169.254.169.254:80" "ip_literal""#, r#""192.0.2.7:4444" "ip_literal""#];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(told, expected, "{summary:#}");
}

#[test]
fn a_snapshot_of_a_user() {
    let visitor = Visitor::invite();
    visitor.world.write("f", "before\n");
    let summary = visitor.summary(&["--snapshot"], &["sh", "-c", "cat f > copy"]);
    assert_eq!(summary["base"]["kind"], "snapshot", "{summary:#}");
    assert_eq!((&summary["exit_code"], &summary["result"]["changed"]), (&0.into(), &1.into()), "{summary:#}");
    assert_eq!(names(&visitor.world.state().join("live")), BTreeSet::new());
}

#[test]
fn a_terminal_of_a_user() {
    let visitor = Visitor::invite();
    let tmux = Tmux::start(&visitor.world);
    let uid = visitor.uid;
    let world = &visitor.world;
    std::fs::set_permissions(world.project().parent().unwrap(), std::fs::Permissions::from_mode(0o755))
        .unwrap();
    tmux.line(&format!(
        "alias as=\"setpriv --reuid {uid} --regid {uid} --clear-groups {}\"",
        visitor.pond.display()
    ));
    tmux.line("as run -t -- sh -c 'tty; stty size; echo said-$((1+1)); exit 7'; echo code''-$?");
    tmux.wait_for("code-7");
    let screen = tmux.screen();
    assert!(screen.contains("/dev/pts/0\n30 100\nsaid-2"), "{screen}");
}

#[test]
fn a_killed_pond_of_a_user_takes_its_job_along_and_the_next_start_sweeps() {
    let visitor = Visitor::invite();
    let world = &visitor.world;
    assert_eq!(visitor.run(&["run", "--", "true"]).code, 0);
    let before = Traces::of(world, &BTreeSet::new());
    let mut child = visitor
        .pond(&["run", "--snapshot", "--", "sh", "-c", "echo started; sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "started\n");
    let during = Traces::of(world, &BTreeSet::new());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!during.cgroups.is_empty() && during.live.len() == 1, "{during:?}");
    wait_until(|| during.cgroups.iter().all(|group| tasks(group).is_empty()));
    assert_eq!(visitor.run(&["run", "--", "true"]).code, 0);
    assert_eq!(Traces::of(world, &during.live), before);
}

#[test]
fn a_user_without_processes_left() {
    let visitor = Visitor::invite();
    assert_eq!(visitor.run(&["run", "--", "true"]).code, 0);
    let before = Traces::of(&visitor.world, &BTreeSet::new());
    let pond = visitor.pond.display();
    let with = |most: u32| {
        let line = format!("ulimit -u {most}; exec {pond} run -- true");
        Done::of(visitor.command("bash").args(["-c", &line]).output().unwrap())
    };
    for most in [1, 2, 3] {
        let done = with(most);
        // How far it comes is for the scheduler to say, and a gateway that gets no thread says so itself, before pond does.
        let last = done.stderr.lines().last().unwrap_or_default();
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
        assert!(last.starts_with("pond: ") && last.contains("out of processes"), "{done:?}");
        let before_it: Vec<&str> = done.stderr.lines().rev().skip(1).collect();
        assert!(before_it.iter().all(|line| line.starts_with("pond-gateway: ")), "{done:?}");
        assert_eq!(Traces::of(&visitor.world, &BTreeSet::new()), before, "{most}");
    }
    assert_eq!(with(16).code, 0);
}
