//! A job with a terminal in a container: it works as the native one does, on either runtime, and the person's is whole afterwards.

use super::Daemon;
use crate::support::World;
use crate::tmux::Tmux;

/// `pond run -t` with these flags, on this engine, as it is typed.
fn pond(engine: &Daemon, backend: &str, flags: &str) -> String {
    format!("DOCKER_HOST={} $POND run -t --backend {backend} {flags}", engine.address())
}

fn a_shell(backend: &str) {
    let (engine, world) = (Daemon::start(), World::new());
    // A program hears of another size, and sees it.
    world.write(
        "listens.sh",
        "trap 'echo heard $(stty size)' WINCH; echo listens; while :; do sleep 0.1; done\n",
    );
    let tmux = Tmux::start(&world);
    let run = pond(&engine, backend, "-- sh");
    // gVisor's kernel sends the signal, and leaves the key in the line.
    let interrupt = || {
        tmux.key("C-c");
        if backend == "gvisor" {
            tmux.key("Enter");
        }
    };
    tmux.line(&format!("clear; stty -a > before; {run}; echo code-$?; stty -a > after; echo over-$((1+1))"));
    tmux.wait_for("$ ");
    tmux.line("clear; echo $(tty) $TERM $(stty size); echo said-$((1+1))");
    tmux.wait_for("said-2");
    assert!(tmux.screen().contains("/dev/pts/0 tmux-256color 30 100"), "{}", tmux.screen());
    tmux.line("clear; sh listens*");
    tmux.wait_for("listens\n");
    tmux.ask(&["resize-window", "-x", "90", "-y", "20"]);
    tmux.wait_for("heard 20 90");
    interrupt();
    tmux.line("echo asleep-$((1+1)); sleep 1000; echo awake-$?");
    tmux.wait_for("asleep-2");
    interrupt();
    tmux.line("echo alive-$((1+1)); exit 7");
    tmux.wait_for("alive-2");
    tmux.wait_for("code-7");
    tmux.wait_for("over-2");
    let expected = world.read("before").replace("rows 30; columns 100", "rows 20; columns 90");
    assert_eq!(world.read("after"), expected);
    assert!(tmux.screen().contains("pond: exit 7"), "{}", tmux.screen());
    assert_eq!((engine.containers(), engine.processes()), (Vec::new(), Vec::new()));
}

#[test]
fn a_shell_in_a_terminal_on_docker() {
    a_shell("docker");
}

#[test]
fn a_shell_in_a_terminal_on_gvisor() {
    a_shell("gvisor");
}

/// How many terminals a job can open besides its own, and that they work.
const OPENS: &str = "import os, pty
m, s = pty.openpty(); os.write(s, b'x'); print(os.ttyname(s), os.read(m, 1))
held = []
try:
    while len(held) < 200: held.append(pty.openpty())
except OSError as fault: print('refused after', len(held))
";

/// The kernel's own bound is shared by the whole host.
#[test]
fn there_is_a_bound_on_terminals_made_inside() {
    let (engine, world) = (Daemon::start(), World::new());
    world.write("opens.py", OPENS);
    let tmux = Tmux::start(&world);
    let run = pond(&engine, "docker", "-- python3 opens.py");
    tmux.line_ending_with(&run, "code", 0);
    let screen = tmux.screen();
    assert!(screen.contains("/dev/pts/1 b'x'") && screen.contains("refused after 62"), "{screen}");
}

/// What goes to the person's terminal is what native lets through, and nothing types into a terminal from inside.
#[test]
fn the_persons_terminal_is_out_of_reach() {
    let engine = Daemon::start();
    let probe = "import fcntl, os\nos.write(1, b'\\x1b]52;c;aGVsbG8=\\x07')\nfor request, value in [(0x5412, b'\\n'), (0x541C, b'\\x03'), (0x5423, b'\\x00' * 4)]:\n try: fcntl.ioctl(0, request, value); print('done')\n except OSError as fault: print('not', fault.errno)\n";
    for backend in ["docker", "gvisor"] {
        let world = World::new();
        world.write("probe.py", probe);
        let tmux = Tmux::start(&world);
        // Without pond the same bytes set the clipboard.
        tmux.line_ending_with("clear; python3 probe.py | head -c 16", "free", 0);
        tmux.wait_until(|| tmux.ask(&["show-buffer"]).as_deref() == Some("hello"), "clipboard");
        tmux.ask(&["delete-buffer"]);
        let run = pond(&engine, backend, "-q -- python3 probe.py");
        tmux.line_ending_with(&format!("clear; {run}"), "confined", 0);
        assert_eq!(tmux.ask(&["show-buffer"]), None, "{backend}");
        assert!(tmux.screen().contains("not 1\nnot 1\nnot 1\n"), "{backend}\n{}", tmux.screen());
    }
}

/// A job that ignores everything, ended by the clock: nobody waits, nothing is left, the terminal is as it was.
#[test]
fn the_terminal_is_whole_after_the_time_limit_in_a_container() {
    let mess = "stty raw -echo; trap '' INT TERM HUP QUIT; printf '\\033[?1049h\\033[?25l'; echo re''ady; while :; do sleep 1; done";
    for (backend, transfer) in [("docker", "bind"), ("gvisor", "bind"), ("docker", "stream")] {
        let (engine, world) = (Daemon::start(), World::new());
        world.write("mess.sh", mess);
        let tmux = Tmux::start(&world);
        let run = pond(&engine, backend, "--timeout 4s -- sh mess.sh");
        tmux.line(&format!(
            "stty -a > before; POND_CONTAINER_TRANSFER={transfer} {run}; echo code-$?; stty -a > after; echo over-$((1+1))"
        ));
        tmux.wait_for("ready");
        tmux.wait_for("over-2");
        let screen = tmux.screen();
        assert!(screen.contains("code-124") && screen.contains("pond: killed: time limit"), "{screen}");
        assert_eq!(world.read("after"), world.read("before"), "{backend} {transfer}");
        assert_eq!((engine.containers(), engine.processes()), (Vec::new(), Vec::new()));
    }
}
