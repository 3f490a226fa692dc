//! Whoever watches a job may stop reading: limits and interrupts act all the same, and a reader who is only slow loses nothing.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::done::Done;
use crate::support::{Traces, World};

const PATIENCE: Duration = Duration::from_secs(30);

/// A job that prints for ever.
const FOR_EVER: [&str; 4] = ["--", "sh", "-c", "exec yes"];

/// Starts pond, looks whether its reader's end is stuck, ends it by `end`, and gives its exit code.
fn ends(mut pond: Command, reader: &OwnedFd, end: impl Fn(&Child, &OwnedFd)) -> i32 {
    let mut child = pond.spawn().unwrap();
    // The command keeps this side's copies of what it gave its child.
    drop(pond);
    wait_until(|| is_stuck(reader), "nothing is stuck");
    end(&child, reader);
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // No effect on one that has ended; one that goes on would stay behind.
    child.kill().unwrap();
    child.wait().unwrap().code().unwrap()
}

fn wait_until(mut condition: impl FnMut() -> bool, otherwise: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Output waits to be read, and for a while no more of it comes.
fn is_stuck(reader: &OwnedFd) -> bool {
    let waiting = || rustix::io::ioctl_fionread(reader).unwrap();
    let before = waiting();
    std::thread::sleep(Duration::from_millis(100));
    before > 1024 && waiting() == before
}

fn with_full_pipe(flags: &[&str], stderr_too: bool, end: impl Fn(&Child, &OwnedFd)) -> i32 {
    let world = World::new();
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut pond = world.pond(&[&["run"], flags, &FOR_EVER].concat());
    pond.stdout(writer.try_clone().unwrap());
    pond.stderr(if stderr_too { Stdio::from(writer) } else { Stdio::null() });
    let code = ends(pond, &reader, end);
    assert_eq!(Traces::of(&world, &BTreeSet::new()), before);
    code
}

#[test]
fn time_ends_a_job_whose_output_nobody_reads() {
    assert_eq!(with_full_pipe(&["--timeout", "1s"], false, |_, _| {}), 124);
    assert_eq!(
        with_full_pipe(&["--timeout", "1s"], true, |_, _| {}),
        124,
        "the summary has no reader either"
    );
}

/// Opens its own end of both pipes for reading, makes both readable, waits until pond has taken from the one, and takes from the
/// other what pond is about to read.
const THIEF: &str = r#"
    use Fcntl;
    my $far = O_NONBLOCK;
    sysopen(my $out, "/proc/self/fd/1", O_RDONLY | $far) and sysopen(my $err, "/proc/self/fd/2", O_RDONLY | $far) or die;
    sysopen(my $in, "/proc/self/fd/1", O_WRONLY | $far) or die;
    my ($waiting, $stolen) = (pack("i", 0), "");
    for (;;) {
        select(undef, undef, undef, 0.0015);
        syswrite(STDERR, "y");
        syswrite($in, "x" x 16384);
        do { ioctl($out, 0x541B, $waiting) or die } while (unpack("i", $waiting) >= 16384);
        last if sysread($err, $stolen, 1);
    }
    mkdir("stolen") && open(MARK, ">", "stolen/one") && close(MARK) or die;
    sleep 100000;
"#;

#[test]
fn time_ends_a_job_that_takes_back_what_it_wrote() {
    let world = World::new();
    let mut pond = world.pond(&["run", "--timeout", "4s", "--", "perl", "-e", THIEF]);
    let mut child = pond.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(pond);
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, 124, "{done:?}");
    assert!(done.stderr.contains("1 file changed"), "nothing was stolen: {done:?}");
}

/// A job that writes to a reader who has gone ends as it would in any pipeline, and what it did is its result.
#[test]
fn a_reader_who_has_gone_ends_the_job() {
    let world = World::new();
    let script = ["--", "sh", "-c", "echo made > made; exec yes"];
    let mut pond = world.pond(&[&["run"][..], &script].concat());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = pond.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop(pond);
    wait_until(|| rustix::io::ioctl_fionread(&reader).unwrap() > 0, "the job writes nothing");
    drop(reader);
    wait_until(|| child.try_wait().unwrap().is_some(), "the job goes on without a reader");
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, 141, "{done:?}");
    assert!(
        done.stderr.contains("nobody reads its output any more") && done.stderr.contains("1 file changed"),
        "{done:?}"
    );
}

#[test]
fn an_interrupt_ends_a_job_whose_output_nobody_reads() {
    assert_eq!(with_full_pipe(&[], true, interrupt), 130);
}

fn interrupt(pond: &Child, _: &OwnedFd) {
    let pid = Pid::from_child(pond);
    kill_process(pid, Signal::INT).unwrap();
}

fn on_stalled_terminal(flags: &[&str], end: impl Fn(&Child, &OwnedFd)) -> i32 {
    let world = World::new();
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    let options = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let master = openpt(options).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ioctl_tiocgptpeer(&master, options).unwrap();
    let modes = || format!("{:?}", rustix::termios::tcgetattr(&terminal).unwrap());
    let untouched = modes();
    let mut pond = world.pond(&[&["run"], flags, &FOR_EVER].concat());
    pond.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap());
    pond.stderr(terminal.try_clone().unwrap());
    let code = ends(pond, &master, end);
    assert_eq!(modes(), untouched);
    assert_eq!(Traces::of(&world, &BTreeSet::new()), before);
    code
}

#[test]
fn time_ends_a_job_on_a_terminal_that_stalls() {
    assert_eq!(on_stalled_terminal(&["--timeout", "1s"], |_, _| {}), 124);
    assert_eq!(on_stalled_terminal(&["-t", "--timeout", "1s"], |_, _| {}), 124);
}

#[test]
fn an_interrupt_ends_a_job_on_a_terminal_that_stalls() {
    assert_eq!(on_stalled_terminal(&["-t"], interrupt), 130);
    // The keys that leave a job arrive on a terminal that takes no output.
    let leave = |_: &Child, person: &OwnedFd| {
        rustix::io::write(person, b"\x1d\x1d\x1d").unwrap();
    };
    assert_eq!(on_stalled_terminal(&["-t"], leave), 130);
}

#[test]
fn a_slow_reader_loses_nothing() {
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut pond = world.pond(&["run", "-q", "--timeout", "60s", "--", "seq", "1", "300000"]);
    let mut child = pond.stdout(writer).spawn().unwrap();
    drop(pond);
    wait_until(|| is_stuck(&reader), "nothing is stuck");
    // Well past the time that a stalled reader of a stopped job gets.
    std::thread::sleep(Duration::from_secs(3));
    let text = std::io::read_to_string(std::fs::File::from(reader)).unwrap();
    assert_eq!((text.lines().count(), text.lines().last()), (300_000, Some("300000")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
