//! A plan that would let a terminal or a disk of the host in is refused, whoever made it.

use pond_wire::jail::{BindKind, HomeFile, Identity, Program, Rlimits, Scratch, Start};

use super::*;

const TERMINAL: Console = Console::Terminal { rows: 24, columns: 80 };

fn plan(console: Console, root: Vec<RootEntry>) -> JailPlan {
    let cap = TmpfsCap { bytes: 1, inodes: 1 };
    JailPlan {
        identity: Identity::Single { uid: 1, gid: 1 },
        hostname: "pond".to_owned(),
        root,
        checkout: CheckoutView::Empty,
        replaced: Vec::new(),
        home: Vec::new(),
        scratch: Scratch::Tmpfs(cap),
        tmp: cap,
        shm: cap,
        rlimits: Rlimits {
            open_files: 1,
            processes: 1,
            stack_bytes: 1,
            file_bytes: 1,
            locked_bytes: 1,
            queue_bytes: 1,
            pending_signals: 1,
        },
        program: Program {
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            search: Vec::new(),
            cwd: "/".to_owned(),
        },
        console,
        doors: Vec::new(),
        start: Start::AtOnce,
        duty: Duty::Once,
    }
}

fn device(path: &str, source: &str) -> RootEntry {
    RootEntry::Device { path: path.to_owned(), source: source.to_owned() }
}

fn is_accepted(console: Console, root: Vec<RootEntry>) -> bool {
    check(&plan(console, root)).is_ok()
}

#[test]
fn what_serves_has_no_program_and_a_place_for_terminals() {
    let with = |duty, console, argv: &[&str]| {
        let sound = plan(console, Vec::new());
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        check(&JailPlan { duty, program: Program { argv, ..sound.program.clone() }, ..sound }).is_ok()
    };
    assert!(with(Duty::Serve, TERMINAL, &[]));
    for (duty, console, argv) in [
        (Duty::Serve, TERMINAL, ["true"].as_slice()),
        (Duty::Serve, Console::Pipes, &[]),
        (Duty::Once, TERMINAL, &[]),
        (Duty::Once, Console::Pipes, &["a\0b"]),
    ] {
        assert!(!with(duty, console, argv), "{duty:?} {console:?} {argv:?}");
    }
}

#[test]
fn a_terminal_has_a_size() {
    assert!(is_accepted(TERMINAL, Vec::new()));
    for (rows, columns) in [(0, 80), (24, 0)] {
        assert!(!is_accepted(Console::Terminal { rows, columns }, Vec::new()), "{rows} {columns}");
    }
}

/// Their mounts travel in one packet with three of the storage, what each was made from at worst, and four that all share.
#[test]
fn only_so_many_directories_are_shown() {
    let shown = |count: usize| {
        let bind = |index| RootEntry::Bind {
            path: format!("/opt/{index}"),
            source: format!("/srv/{index}"),
            kind: BindKind::Directory,
        };
        is_accepted(Console::Pipes, (0..count).map(bind).collect())
    };
    assert_eq!(2 * MOST_SHOWN + 7, pond_sys::socket::MAX_DESCRIPTORS);
    assert_eq!((shown(MOST_SHOWN), shown(MOST_SHOWN + 1)), (true, false));
}

#[test]
fn only_harmless_devices_come_in() {
    assert!(is_accepted(Console::Pipes, vec![device("/dev/null", "/dev/null")]));
    assert!(is_accepted(TERMINAL, vec![device("/dev/tty", "/dev/tty")]));
    for (console, source) in [
        (Console::Pipes, "/dev/tty"),
        (TERMINAL, "/dev/pts/3"),
        (TERMINAL, "/dev/ptmx"),
        (TERMINAL, "/dev/console"),
        (Console::Pipes, "/dev/sda"),
        (Console::Pipes, "/dev/kvm"),
    ] {
        assert!(!is_accepted(console, vec![device("/dev/null", source)]), "{source}");
    }
}

#[test]
fn the_place_of_terminals_is_the_launchers() {
    for path in ["/dev/pts", "/dev/pts/0", "/dev/shm/x", "/proc"] {
        let entry = RootEntry::Directory { path: path.to_owned() };
        assert!(!is_accepted(TERMINAL, vec![entry]), "{path}");
    }
}

#[test]
fn a_job_with_doors_waits_until_they_are_served() {
    let with = |doors: &[Door], start| {
        let plan = JailPlan { doors: doors.to_vec(), start, ..plan(Console::Pipes, Vec::new()) };
        check(&plan).is_ok()
    };
    let front = |port| Door::Front { port };
    let all = [Door::Proxy, Door::Dns, front(443), front(8443), Door::Broker, Door::Git];
    assert!(with(&all, Start::OnGo));
    assert!(!with(&all, Start::AtOnce));
    assert!(!with(&[Door::Proxy, Door::Proxy], Start::OnGo));
    for taken in [0, 53, 3128, 8377, 8378] {
        assert!(!with(&[front(taken)], Start::OnGo), "{taken}");
    }
    let many: Vec<Door> = (1000..1040).map(front).collect();
    assert!(!with(&many, Start::OnGo));
}

#[test]
fn a_file_of_the_home_directory_stays_below_it() {
    let with = |path: &str| {
        let home = vec![HomeFile { path: path.to_owned(), content: String::new() }];
        check(&JailPlan { home, ..plan(Console::Pipes, Vec::new()) }).is_ok()
    };
    assert!(with(".codex/config.toml"));
    for wrong in ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/."] {
        assert!(!with(wrong), "{wrong}");
    }
}

#[test]
fn a_ground_is_for_anybody_and_nothing_in_it_can_be_written_to() {
    let ground = |hostname: &str, shm, root| Ground {
        identity: Identity::Single { uid: 1, gid: 1 },
        hostname: hostname.to_owned(),
        root,
        shm,
    };
    let cap = TmpfsCap { bytes: 1, inodes: 1 };
    let null = device("/dev/null", "/dev/null");
    assert_eq!(check_ground(&ground("pond", cap, vec![null.clone()])), Ok(()));
    let throwaway = RootEntry::Throwaway { path: "/opt".to_owned(), source: None };
    let workspace = RootEntry::Directory { path: WORKSPACE.to_owned() };
    let refused = [
        ground("pond", cap, vec![null.clone(), throwaway]),
        ground("pond", cap, vec![device("/dev/tty", "/dev/tty")]),
        ground("pond", cap, vec![device("/dev/sda", "/dev/sda")]),
        ground("pond", cap, vec![workspace]),
        ground("", cap, vec![null.clone()]),
        ground("pond", TmpfsCap { bytes: 1, inodes: 0 }, vec![null]),
    ];
    for ground in refused {
        assert!(check_ground(&ground).is_err(), "{ground:?}");
    }
}
