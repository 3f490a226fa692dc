//! Bad input: one clear line, exit 125, and nothing left behind.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::copy;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Done, Traces, World, names};

/// Everything of this world that a refused run could have left, its directories included.
pub(crate) fn left(world: &World) -> (Traces, BTreeSet<String>, BTreeSet<String>) {
    let state = world.state();
    (Traces::of(world, &BTreeSet::new()), names(&state.join("runs")), names(&state.join("scratch")))
}

/// Refused with one line that says this, and nothing left.
fn refused(world: &World, arguments: &[&OsStr], says: &str) {
    world.shell("true");
    let before = left(world);
    let done = Done::of(world.pond(&[]).args(arguments).output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    assert!(done.stderr.starts_with("pond: ") && done.stderr.contains(says), "{says}: {done:?}");
    assert!(!done.stderr.trim_end().contains(char::is_control), "{done:?}");
    assert_eq!(left(world), before);
}

fn words<'a>(list: &[&'a str]) -> Vec<&'a OsStr> {
    list.iter().map(|word| OsStr::new(*word)).collect()
}

#[test]
fn a_command_that_cannot_start() {
    let world = World::new();
    world.write("bad.sh", "#!/no/such/interpreter\n");
    world.write("plain.sh", "#!/bin/sh\n");
    world.write("of-directory.sh", "#!/usr\n");
    world.write("itself.sh", "#!./itself.sh\n");
    world.write("garbage", "\u{7f}ELF\u{2}garbage");
    world.write("empty", "");
    for name in ["bad.sh", "of-directory.sh", "itself.sh", "garbage", "empty"] {
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(world.project().join(name), executable).unwrap();
    }
    refused(&world, &words(&["run", "--", "no-such-command"]), "\"no-such-command\" did not run");
    refused(&world, &words(&["run", "--", "./bad.sh"]), "the interpreter it names");
    refused(&world, &words(&["run", "--", "./plain.sh"]), "Permission denied");
    refused(&world, &words(&["run", "--", ""]), "No such file");
    refused(&world, &words(&["run", "--", "/"]), "the command is a directory");
    refused(&world, &words(&["run", "--", "./of-directory.sh"]), "did not run");
    refused(&world, &words(&["run", "--", "./itself.sh"]), "did not run");
    refused(&world, &words(&["run", "--", "./garbage"]), "Exec format error");
    refused(&world, &words(&["run", "--", "./empty"]), "Exec format error");
    refused(&world, &words(&["run", "--", "a\u{1b}[2J\nb"]), "\\u{1b}[2J\\nb");
}

/// The parser's own words, which come with a line or two on how to ask.
#[test]
fn a_command_line_without_a_command() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    let odd = OsStr::from_bytes(b"in\xffvalid");
    for arguments in [words(&["run"]), words(&["run", "--"]), [&words(&["run", "--"])[..], &[odd]].concat()] {
        let done = Done::of(world.pond(&[]).args(&arguments).output().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
        assert_eq!(done.stderr.matches("error: ").count(), 1, "{done:?}");
        assert_eq!(left(&world), before, "{arguments:?}");
    }
}

/// For whoever reads JSON the same is one object, and nothing on the side.
#[test]
fn a_program_that_asks_gets_one_object() {
    let world = World::new();
    world.write("bad.sh", "#!/no/such/interpreter\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.project().join("bad.sh"), executable).unwrap();
    world.shell("true");
    let before = left(&world);
    for (rest, code) in [
        (&["--", "no-such-command"][..], "not_started"),
        (&["--", "./bad.sh"], "not_started"),
        (&["--", "a\u{1b}[2J\nb"], "not_started"),
        (&["--checkout", "bad.sh", "--", "true"], "checkout_unusable"),
        (&["--checkout", "mi\u{1b}[2J\nssing", "--", "true"], "checkout_unusable"),
        (&["--env", "=x", "--", "true"], "usage"),
        (&["--out", "bad.sh", "--", "true"], "usage"),
        (&["--tty", "--", "true"], "usage"),
        (&["--tool", "none", "--", "true"], "unknown_tool"),
        (&["--profile", "sealed", "--", "sh"], "command_shell"),
        (&["--no-such-flag", "--", "true"], "usage"),
        (&["--memory"], "usage"),
        (&["--"], "usage"),
    ] {
        let done = world.run(&[&["run", "--json"], rest].concat());
        assert_eq!((done.code, done.stderr.as_str()), (125, ""), "{done:?}");
        let object: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert!(object["error"]["message"].is_string(), "{object:#}");
        assert_eq!(object["error"]["code"], code, "{object:#}");
        assert_eq!(left(&world), before, "{rest:?}");
    }
    let done = world.run(&["apply", "--json", "no-such-run"]);
    let object: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((done.code, &object["error"]["code"]), (125, &"run_unknown".into()), "{object:#}");
    // What the job is given is not what pond was asked for.
    let done = world.run(&["run", "--memory", "--", "--json"]);
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
}

#[test]
fn a_checkout_that_is_none() {
    let world = World::new();
    world.write("file", "x");
    symlink(world.project(), world.project().join("link")).unwrap();
    let odd = OsString::from_vec(b"odd\xff".to_vec());
    std::fs::create_dir(world.project().join(&odd)).unwrap();
    let run = |checkout: &OsStr, says| {
        refused(
            &world,
            &[&words(&["run", "--checkout"])[..], &[checkout], &words(&["--", "true"])].concat(),
            says,
        );
    };
    symlink("/no/such/place", world.project().join("dangling")).unwrap();
    // Opening one would wait for somebody to write.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.project().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let _service = std::os::unix::net::UnixListener::bind(world.project().join("socket")).unwrap();
    run(OsStr::new("link"), "is a symbolic link");
    run(OsStr::new("dangling"), "is a symbolic link");
    run(OsStr::new("pipe"), "is not a directory");
    run(OsStr::new("socket"), "is not a directory");
    run(OsStr::new("file"), "is not a directory");
    run(OsStr::new("/dev/null"), "is not a directory");
    run(OsStr::new("missing"), "No such file");
    run(OsStr::new("mi\u{1b}[2J\nssing\u{202e}"), "mi\\u{1b}[2J\\nssing\\u{202e} cannot be opened");
    run(OsStr::new("/"), "is the root directory");
    run(&odd, "is not UTF-8");
}

/// Whoever stands in a directory keeps it, and it leads nowhere any more.
#[test]
fn a_checkout_that_was_removed() {
    let world = World::new();
    let done = world.host_shell("mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run -- true");
    crate::shortage::refused(&done, &["was removed"]);
}

/// The key that signs runs is in the state directory, and no job may read it.
#[test]
fn a_checkout_around_the_state_directory() {
    let world = World::new();
    world.shell("true");
    let key = world.state().join("signing-key.pem");
    assert!(key.exists(), "{}", key.display());
    let around = world.project().parent().unwrap().to_owned();
    let link = around.join("link");
    symlink(world.state(), &link).unwrap();
    let run = |checkout: &Path, state: &Path, flags: &[&str]| {
        let mut pond = world.pond(&[&["run"], flags, &["--", "true"]].concat());
        Done::of(pond.current_dir(checkout).env("POND_STATE_DIR", state).output().unwrap())
    };
    for (checkout, state, flags) in [
        (&around, world.state(), &[] as &[&str]),
        (&around, world.state(), &["--snapshot"]),
        (&around, link.clone(), &[]),
        (&world.state(), world.state(), &[]),
        (&world.project(), "relative".into(), &[]),
    ] {
        let done = run(checkout, &state, flags);
        crate::shortage::refused(&done, &["lies below the checkout", "set POND_STATE_DIR"]);
    }
    let done = run(&world.project(), &link, &[]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// What somebody wrote elsewhere than on the command line is named with its place, and what is expected there.
#[test]
fn faults_name_the_place_they_are_in() {
    let world = World::new();
    world.write("pond.toml", "[egress]\npresets = [\"pypi\"\n");
    world.write("other.toml", "[egres]\n");
    for (file, says) in [("pond.toml", "line 2: not valid TOML"), ("other.toml", "egres")] {
        let file = world.project().join(file);
        let done = Done::of(world.pond(&["run", "--", "true"]).env("POND_CONFIG", &file).output().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
        assert!(done.stderr.contains(says) && done.stderr.contains(file.to_str().unwrap()), "{done:?}");
    }
    world.shell("true");
    let run = names(&world.state().join("runs")).into_iter().next().unwrap();
    for key in ["zz", "0123", "no-such-file.pem"] {
        let done = world.run(&["verify", &run, "--key", key]);
        assert!(done.code == 125 && done.stderr.contains("64 hexadecimal digits"), "{done:?}");
    }
    let odd = OsStr::from_bytes(b"/tmp/pond-in\xffvalid");
    let done = Done::of(world.pond(&["run", "--", "true"]).env("POND_STATE_DIR", odd).output().unwrap());
    assert!(done.code == 125 && done.stderr.contains("POND_STATE_DIR is not UTF-8"), "{done:?}");
}

#[test]
fn a_command_line_that_is_too_long() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    let words: Vec<String> = (0..60).map(|_| "x".repeat(100 << 10)).collect();
    let arguments: Vec<&str> =
        ["run", "--", "true"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let command = world.pond(&arguments).output();
    // Where the caller's own limit allows none that long there is nothing to see.
    let Ok(output) = command else {
        let shorter = &arguments[..arguments.len() / 4];
        assert_eq!(world.run(shorter).code, 0);
        return;
    };
    let done = Done::of(output);
    assert_eq!((done.code, done.stderr.lines().count()), (125, 1), "{done:?}");
    assert!(done.stderr.contains("put what is long into a file"), "{done:?}");
    assert_eq!(left(&world), before);
}

/// The program where any user may run it.
pub(crate) fn shared_pond(world: &World) -> std::path::PathBuf {
    let directory = world.project().parent().unwrap().to_owned();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("pond");
    let mut target = std::fs::File::create_new(&path).unwrap();
    copy(&mut std::fs::File::open(env!("CARGO_BIN_EXE_pond")).unwrap(), &mut target).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn a_checkout_of_somebody_else() {
    let world = World::new();
    let pond = shared_pond(&world);
    std::fs::set_permissions(world.project(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::create_dir(world.state()).unwrap();
    std::os::unix::fs::chown(world.state(), Some(4321), Some(4321)).unwrap();
    let output = Command::new(pond)
        .args(["run", "--checkout"])
        .arg(world.project())
        .args(["--", "true"])
        .current_dir("/")
        .env("POND_STATE_DIR", world.state())
        .uid(4321)
        .gid(4321)
        .output()
        .unwrap();
    let done = Done::of(output);
    assert_eq!((done.code, done.stderr.lines().count()), (125, 1), "{done:?}");
    assert!(done.stderr.contains("cannot be opened: Permission denied"), "{done:?}");
    assert_eq!((names(&world.state().join("live")), names(&world.state().join("runs"))), Default::default());
}

/// Runs pond after `setup`, in a mount namespace that takes its mounts along when it ends. `$P` is pond.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
pub(crate) fn mounted(world: &World, setup: &str) -> Done {
    let anchor = world.project().parent().unwrap().join("anchor");
    std::fs::create_dir_all(&anchor).unwrap();
    let script = format!("set -e; mount -t tmpfs -o size=64m x \"$1\"; cd \"$1\"; {setup}");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(&anchor)
        .env("P", env!("CARGO_BIN_EXE_pond"))
        .env("POND_STATE_DIR", world.state())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    Done::of(output)
}

#[test]
fn checkouts_on_other_file_systems() {
    let world = World::new();
    world.shell("true");
    let before = left(&world).0;
    let job = "-- sh -c 'cat f; echo more >> f'";
    for remount in ["true", "mount -o remount,ro ."] {
        let done = mounted(&world, &format!("mkdir p; echo here > p/f; {remount}; cd p; $P run {job}"));
        assert_eq!((done.code, done.stdout.as_str()), (0, "here\n"), "{remount}: {done:?}");
        assert!(done.stderr.contains("1 file changed"), "{remount}: {done:?}");
    }
    let overlay =
        "mkdir l u w m; echo here > l/f; mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m; cd m";
    let done = mounted(&world, &format!("{overlay}; $P run {job}"));
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.lines().count()), (125, "", 1), "{done:?}");
    assert!(done.stderr.contains("--snapshot"), "{done:?}");
    let done = mounted(&world, &format!("{overlay}; $P run --snapshot {job}"));
    assert_eq!((done.code, done.stdout.as_str()), (0, "here\n"), "{done:?}");
    assert_eq!(left(&world).0, before);
}

#[test]
fn names_that_mean_to_be_obeyed() {
    let world = World::new();
    for name in [&b"new\nline"[..], b"\x1b[2Jclear", b"in\xffvalid", b"-rf", b"pond: exit 0"] {
        let path = world.project().join(OsStr::from_bytes(name));
        std::fs::write(&path, "x\n").unwrap();
    }
    let done =
        world.shell("for f in * ./-rf; do echo more >> \"$f\"; done; mkfifo \"$(printf 'pi\\033[2Jpe')\"");
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert!(done.stderr.contains("5 files changed"), "{done:?}");
    let control = |line: &str| line.contains(char::is_control);
    assert!(!done.stderr.lines().any(control), "{done:?}");
    let applied = world.run(&["apply", "--flagged", "--incomplete"]);
    assert_eq!((applied.code, applied.stdout.lines().count()), (0, 5), "{applied:?}");
    assert!(!applied.stdout.lines().chain(applied.stderr.lines()).any(control), "{applied:?}");
    assert_eq!(std::fs::read(world.project().join(OsStr::from_bytes(b"in\xffvalid"))).unwrap(), b"x\nmore\n");
    let listed = world.run(&["runs"]);
    assert!(!listed.stdout.lines().any(control), "{listed:?}");
}

#[test]
fn a_checkout_with_a_name_that_means_to_be_obeyed() {
    let world = World::new();
    let odd = world.project().join("a\u{1b}[2J\nb");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("f"), "x").unwrap();
    let run =
        Done::of(world.pond(&["run", "--", "sh", "-c", "echo y > f"]).current_dir(&odd).output().unwrap());
    assert_eq!(run.code, 0, "{run:?}");
    let done = Done::of(world.pond(&["apply"]).current_dir(&odd).output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (0, "modified f\n"), "{done:?}");
    assert!(!done.stderr.contains('\u{1b}') && done.stderr.lines().count() == 1, "{done:?}");
    assert_eq!(std::fs::read_to_string(odd.join("f")).unwrap(), "y\n");
}
