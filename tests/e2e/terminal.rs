//! A job with a terminal: it works as one, it is not the person's, and the person's is whole afterwards.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Traces, World, names};
use crate::tmux::{Tmux, wait_until};

#[test]
fn a_shell_in_a_terminal_of_its_own() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    tmux.line("stty -a > before; $POND run -t -- sh; echo code-$?; stty -a > after; echo over-$((1+1))");
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
    assert_eq!(
        world.read("after"),
        world.read("before").replace("rows 30; columns 100", "rows 20; columns 90")
    );
    assert!(tmux.screen().contains("pond: exit 7"), "{}", tmux.screen());
}

#[test]
fn other_terminals_can_be_made_inside() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    let line = "import os,pty; m,s=pty.openpty(); os.write(s,b'x'); print(os.ttyname(s), os.read(m,1))";
    tmux.line_ending_with(&format!("$POND run -t -- python3 -c \"{line}\""), "code", 0);
    assert!(tmux.screen().contains("/dev/pts/1 b'x'"), "{}", tmux.screen());
}

#[test]
fn the_clipboard_is_out_of_reach() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    let write = "printf '\\033]52;c;aGVsbG8=\\007'";
    // Without pond the same bytes set it.
    tmux.line(write);
    tmux.wait_until(|| tmux.ask(&["show-buffer"]).as_deref() == Some("hello"), "clipboard");
    tmux.ask(&["delete-buffer"]);
    let inside = format!("$POND run -q -t -- sh -c \"{write}; echo wri\"tten");
    tmux.line_ending_with(&inside, "code", 0);
    tmux.wait_for("written");
    assert_eq!(tmux.ask(&["show-buffer"]), None);
    let log = std::fs::read(only_run(&world).join("terminal.log")).unwrap();
    assert_eq!(String::from_utf8_lossy(&log), "\x1b]52;c;aGVsbG8=\x07written\r\n", "raw bytes are kept");
}

/// A script that asks its terminal and prints what it reads until a byte of the answer, in hexadecimal.
fn asks(queries: &str, until: &str) -> String {
    format!(
        "stty raw -echo min 1; printf '{queries}'; while :; do c=$(dd bs=1 count=1 2>/dev/null | od -An -tx1); a=$a$c; [ \"$c\" = ' {until}' ] && break; done; stty sane; echo \"answers$a.\"\n"
    )
}

#[test]
fn the_terminal_does_not_answer_for_the_job() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    // The cursor's position is the one answer that line editors need, so it tells when all answers are in.
    for (query, marker, answer) in [(">c", "kind", " 1b 5b 3e "), (">q", "version", " 1b 50 3e ")] {
        world.write("ask.sh", &asks(&format!("\\033[{query}\\033[6n"), "52"));
        tmux.line_ending_with("clear; sh ask.sh", marker, 0);
        assert!(tmux.screen().contains(answer), "without pond: {query}\n{}", tmux.screen());
        tmux.line_ending_with("clear; $POND run -q -t -- sh ask.sh", &format!("confined-{marker}"), 0);
        let screen = tmux.screen();
        assert!(screen.contains(" 52.") && !screen.contains(answer), "{query}\n{screen}");
    }
}

/// Whoever asks for a keyboard protocol or a version waits for the identity behind it, some without end.
#[test]
fn a_program_that_waits_for_an_answer_gets_ponds() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    let ours = "answers 1b 5b 3f 36 32 3b 32 32 63.";
    world.write("ask.sh", &asks("\\033[?u\\033[>q\\033[c", "63"));
    tmux.line_ending_with("clear; sh ask.sh", "free", 0);
    assert!(tmux.screen().contains("63.") && !tmux.screen().contains(ours), "{}", tmux.screen());
    tmux.line_ending_with("clear; $POND run -q -t -- sh ask.sh", "confined", 0);
    assert!(tmux.screen().contains(ours), "{}", tmux.screen());
    world.write("ask.sh", &asks("\\033[5n", "6e"));
    tmux.line_ending_with("clear; $POND run -q -t -- sh ask.sh", "status", 0);
    assert!(tmux.screen().contains("answers 1b 5b 30 6e."), "{}", tmux.screen());
}

/// Switches everything a hostile or dying program could leave switched.
const MESS: &str = "stty raw -echo; trap '' INT TERM HUP QUIT; printf '\\033[?1049h\\033[?25l\\033[?1003h\\033[?2004h\\033[5;9r\\033[4h\\033[31m'; echo re''ady; ";
const STAYS: &str = "while :; do sleep 1; done";
/// At the first key.
const EATS: &str =
    "dd bs=1 count=1 > eaten 2>&1; exec python3 -c 'x = [bytearray(1 << 20) for _ in range(4096)]'";

/// What tmux knows of its terminal's switches.
const SWITCHES: &str =
    "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{insert_flag} #{scroll_region_upper} #{keypad_flag}";

/// Runs the mess with these flags, ends it by `end`, and finds the terminal as it was.
fn is_whole_after(flags: &str, code: u8, says: &str, end: impl Fn(&Tmux<'_>, &str)) {
    is_whole_after_one_that(STAYS, flags, code, says, end);
}

fn is_whole_after_one_that(goes_on: &str, flags: &str, code: u8, says: &str, end: impl Fn(&Tmux<'_>, &str)) {
    let world = World::new();
    world.write("mess.sh", &[MESS, goes_on].concat());
    let tmux = Tmux::start(&world);
    let switches = || tmux.ask(&["display-message", "-p", SWITCHES]);
    let before = switches();
    tmux.line("stty -a > before");
    let pond = format!("exec $POND run -t {flags} -- sh mess.sh");
    tmux.line(&format!("sh -c 'echo $$ > pid; {pond}'; echo code-$?; stty -a > after; echo over-$((1+1))"));
    tmux.wait_for("ready");
    assert_ne!(switches(), before, "the mess is one");
    end(&tmux, world.read("pid").trim());
    tmux.wait_for("over-2");
    let screen = tmux.screen();
    assert!(screen.contains(&format!("code-{code}")) && screen.contains(says), "{screen}");
    assert_eq!(world.read("after"), world.read("before"));
    assert_eq!(switches(), before, "{screen}");
}

#[test]
fn the_terminal_is_whole_after_signals_to_pond() {
    for signal in ["-TERM", "-HUP", "-INT"] {
        is_whole_after("", 130, "pond: interrupted", |_, pid| send(signal, pid));
    }
}

#[test]
fn the_terminal_is_whole_after_the_time_limit() {
    is_whole_after("--timeout 3s", 124, "pond: killed: time limit", |_, _| {});
}

#[test]
fn the_terminal_is_whole_after_the_memory_limit() {
    let says = "pond: killed: memory limit";
    is_whole_after_one_that(EATS, "--memory 64m", 137, says, |tmux, _| tmux.key("x"));
}

#[test]
fn a_job_that_takes_every_key_can_be_left() {
    is_whole_after("", 130, "pond: interrupted", |tmux, _| {
        tmux.key("C-c");
        for _ in 0..3 {
            tmux.key("C-]");
        }
    });
}

#[test]
fn a_closed_window_ends_the_job_and_leaves_nothing() {
    let world = World::new();
    world.write("mess.sh", &[MESS, STAYS].concat());
    let tmux = Tmux::start(&world);
    tmux.line("$POND run -t -- sh mess.sh");
    tmux.wait_for("ready");
    assert_eq!(names(&world.state().join("live")).len(), 1);
    tmux.ask(&["kill-server"]);
    let left = || Traces::of(&world, &BTreeSet::new());
    wait_until(|| left().processes.is_empty(), || format!("{:?}", left()));
    let Traces { processes: _, mounts: _, loops, cgroups, live } = left();
    assert_eq!((loops, cgroups, live), (BTreeSet::new(), BTreeSet::new(), BTreeSet::new()));
    assert!(only_run(&world).join("manifest.json").exists(), "the result was collected");
}

#[test]
fn the_terminal_is_whole_after_a_failed_launch() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    tmux.line("stty -a > before; $POND run -t -- no-such-command; echo code-$?; stty -a > after; echo over-$((1+1))");
    tmux.wait_for("over-2");
    assert!(tmux.screen().contains("code-125"), "{}", tmux.screen());
    assert_eq!(world.read("after"), world.read("before"));
}

#[test]
fn nothing_can_be_typed_into_a_terminal_from_inside() {
    let world = World::new();
    let probe = "import fcntl\nfor name, request, value in [('TIOCSTI', 0x5412, b'\\n'), ('TIOCLINUX', 0x541C, b'\\x03'), ('TIOCSETD', 0x5423, b'\\x00' * 4)]:\n try: fcntl.ioctl(0, request, value); print(name, 'done')\n except OSError as fault: print(name, fault.errno)\n";
    world.write("probe.py", probe);
    let tmux = Tmux::start(&world);
    // Unconfined, root types into its own terminal and sets its line discipline.
    tmux.line_ending_with("python3 probe.py; read typed", "free", 0);
    let screen = tmux.screen();
    assert!(screen.contains("TIOCSTI done") && screen.contains("TIOCSETD done"), "{screen}");
    tmux.line_ending_with("clear; $POND run -t -- python3 probe.py", "confined", 0);
    assert!(tmux.screen().contains("TIOCSTI 1\nTIOCLINUX 1\nTIOCSETD 1\n"), "{}", tmux.screen());
}

#[test]
fn no_process_inside_holds_a_terminal_of_the_host() {
    let world = World::new();
    let tmux = Tmux::start(&world);
    tmux.line("$POND run -t -- sh -c 'echo re\"\"ady; sleep 1000'");
    tmux.wait_for("ready");
    let host = std::fs::metadata("/dev/pts").unwrap().dev();
    let ours = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let server: u32 = tmux.ask(&["display-message", "-p", "#{pid}"]).unwrap().trim().parse().unwrap();
    let below = descendants(server);
    let (inside, outside): (Vec<u32>, Vec<u32>) = below.into_iter().partition(|pid| {
        std::fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|namespace| namespace != ours)
    });
    let holders = |pids: &[u32]| -> Vec<u32> {
        pids.iter().copied().filter(|pid| devices(*pid).contains(&host)).collect()
    };
    assert_eq!((holders(&inside), inside.len()), (Vec::new(), 3), "init, the shell and its sleep");
    assert!(!holders(&outside).is_empty(), "the shell outside has one, or this look finds nothing ever");
}

#[test]
fn agents_get_a_terminal_by_themselves_and_others_do_not() {
    let world = World::new();
    for name in ["claude", "mytool"] {
        world.write(name, "#!/bin/sh\ntty\n");
    }
    let tmux = Tmux::start(&world);
    tmux.line("chmod +x claude mytool; alias run=\"$POND run -q\"");
    for (line, marker, says) in [
        ("run -- ./claude", "auto", "/dev/pts/0\nauto"),
        ("run --no-tty -- ./claude", "off", "not a tty\noff"),
        ("run -- ./claude </dev/null", "fed", "not a tty\nfed"),
        ("run -- ./claude | cat", "piped", "not a tty\npiped"),
        ("run -- ./mytool", "other", "not a tty\nother"),
        ("run -t -- ./mytool", "asked", "/dev/pts/0\nasked"),
        ("TERM=../x run -t -- sh -c 'echo is $TERM'", "kind", "is xterm\nkind"),
    ] {
        tmux.line(&format!("{line}; echo {marker}''-$?"));
        tmux.wait_for(says);
    }
    let refused = world.run(&["run", "-t", "--", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("needs a terminal"), "{refused:?}");
}

fn only_run(world: &World) -> std::path::PathBuf {
    let runs = names(&world.state().join("runs"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    world.state().join("runs").join(runs.first().unwrap())
}

#[expect(clippy::disallowed_methods, reason = "tests send signals as a person does")]
fn send(signal: &str, pid: &str) {
    assert!(std::process::Command::new("kill").args([signal, pid]).status().unwrap().success());
}

/// Every process that descends from this one.
fn descendants(of: u32) -> Vec<u32> {
    let mut found = vec![of];
    let parents: Vec<(u32, u32)> = names(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter_map(|pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// The file systems that the open descriptors of a process lie on.
fn devices(pid: u32) -> Vec<u64> {
    let directory = format!("/proc/{pid}/fd");
    names(Path::new(&directory))
        .iter()
        .filter_map(|fd| std::fs::metadata(format!("{directory}/{fd}")).ok())
        .map(|metadata| metadata.dev())
        .collect()
}
