//! What a job sees and what it can change.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::shortage::refused;
use crate::support::{Done, World, first_line, names};

/// The caller's mask is nobody else's: what pond makes for the job the job can see.
#[test]
fn a_caller_with_a_strict_umask_runs_jobs_as_well() {
    let world = World::new();
    let line = "umask 077; exec timeout 60 \"$0\" run -q -- sh -c 'umask; cat /etc/hosts > /dev/null && touch /tmp/t made && ls'";
    assert_eq!(
        world.host_shell(line),
        Done { code: 0, stdout: "0022\nmade\n".to_owned(), stderr: String::new() }
    );
}

/// A caller that stands ahead of the host's others does not put its jobs there: no limit binds a real-time task, and one
/// that is exempt from the out-of-memory killer holds up its whole group.
#[test]
fn a_caller_ahead_of_others_leaves_its_job_behind() {
    const PROBE: &str = "cut -d\\  -f19,41 /proc/self/stat; cat /proc/self/oom_score_adj; ionice";
    let world = World::new();
    // A machine may have no real-time share to give, and no right to exempt anybody; then the rest is shown alone.
    let line = format!(
        "rt=$(chrt --rr 5 echo chrt --rr 5); echo -500 2>&- > /proc/self/oom_score_adj; export PROBE='{PROBE}'; \
         exec $rt nice -n -5 ionice -c 1 sh -c 'eval \"$PROBE\"; exec timeout 60 \"$0\" run -q -- sh -c \"$PROBE\"' \"$0\""
    );
    let done = world.host_shell(&line);
    let (outside, inside) =
        done.stdout.split_once("realtime: prio 4\n").unwrap_or_else(|| panic!("{done:?}"));
    assert!(outside.starts_with('-'), "{done:?}");
    assert_eq!((done.code, inside), (0, "0 0\n0\nnone: prio 0\n"), "{done:?}");
}

#[test]
fn the_job_works_on_a_copy_and_the_project_is_untouched() {
    let world = World::new();
    world.write("kept.txt", "before\n");
    world.write("gone.txt", "still here\n");
    let done = world.shell("echo after > kept.txt && rm gone.txt && echo new > made.txt && cat kept.txt");
    assert_eq!((done.code, done.stdout.as_str()), (0, "after\n"), "{done:?}");
    assert_eq!(world.read("kept.txt"), "before\n");
    assert_eq!(world.read("gone.txt"), "still here\n");
    assert!(!world.project().join("made.txt").exists());
}

#[test]
fn the_patch_holds_exactly_what_changed() {
    let world = World::new();
    world.write("kept.txt", "one\ntwo\n");
    world.write("same.txt", "same\n");
    let summary =
        world.summary(&[], &["sh", "-c", "echo three >> kept.txt; touch same.txt; echo x > made.txt"]);
    assert_eq!(summary["result"]["changed"], 2, "{summary:#}");
    let patch = std::fs::read_to_string(summary["result"]["patch"].as_str().unwrap()).unwrap();
    assert!(
        patch.contains("+three") && patch.contains("b/made.txt") && !patch.contains("same.txt"),
        "{patch}"
    );
}

#[test]
fn nothing_of_the_host_is_visible() {
    let world = World::new();
    let home = world.project().parent().unwrap().join("secret");
    std::fs::write(&home, "host secret").unwrap();
    let line = format!(
        "cat {} /root/.profile /etc/shadow /var/lib/dpkg/status 2>/dev/null; ls /root /var 2>/dev/null; ls /home",
        home.display()
    );
    let done = world.shell(&line);
    assert_eq!((done.code, done.stdout.as_str()), (0, "pond\n"), "only the job's own home: {done:?}");
    // The same line without a sandbox reads the secret, so the probe can see what it looks for.
    let open = world.run(&["run", "--profile", "none", "--", "sh", "-c", &line]);
    assert!(open.stdout.contains("host secret"), "{open:?}");
}

#[test]
fn the_environment_of_the_caller_stays_outside() {
    let world = World::new();
    let planted = ("PLANTED_SECRET", "value-of-the-secret");
    // As the job gets it from the kernel, before a program could add to it.
    let environment = |arguments: &[&str]| {
        let command = [&["run"], arguments, &["--", "cat", "/proc/self/environ"]].concat();
        let output =
            world.pond(&command).env(planted.0, planted.1).env("HOME", "/home/of-the-caller").output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let inside = environment(&["--profile", "untrusted-code-test", "--env", "MINE=1"]);
    let expected = [
        "HOME=/home/pond",
        "LC_CTYPE=C.UTF-8",
        "LOGNAME=pond",
        "MINE=1",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD=/workspace",
        "SHELL=/bin/sh",
        "TMPDIR=/tmp",
        "USER=pond",
    ];
    assert_eq!(inside, expected.map(str::to_owned).into());
    let with_a_way_out = environment(&[]);
    assert!(!with_a_way_out.iter().any(|variable| variable.contains(planted.1)), "{with_a_way_out:?}");
    let open = environment(&["--profile", "none"]);
    assert!(open.contains("PLANTED_SECRET=value-of-the-secret"), "{open:?}");
}

#[test]
fn there_is_no_way_out() {
    let world = World::new();
    let probe = "import socket,sys\ns=socket.socket(); s.settimeout(2)\ntry:\n s.connect(('192.0.2.1', 443)); print('connected')\nexcept OSError as e: print(e.errno)";
    let done = world.run(&["run", "--", "python3", "-c", probe]);
    assert_eq!(done.stdout, "101\n", "network unreachable: {done:?}");
    let names = world.shell("ls /sys 2>&1; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '");
    assert!(names.stdout.ends_with("lo\n") && names.stdout.lines().count() <= 2, "{names:?}");
}

#[test]
fn the_identity_inside_is_not_root_and_has_no_power() {
    let world = World::new();
    let done = world.shell(
        "id -u; grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'",
    );
    let expected = "1000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n";
    assert_eq!(done.stdout, expected, "{done:?}");
}

#[test]
fn only_three_descriptors_are_open_at_the_first_instruction() {
    let world = World::new();
    let done = world.run(&[
        "run",
        "--",
        "python3",
        "-c",
        "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4])",
    ]);
    // The fourth is the listing's own.
    assert_eq!(done.stdout, "[0, 1, 2, 3]\n", "{done:?}");
}

#[test]
fn a_read_only_checkout_cannot_be_written() {
    let world = World::new();
    world.write("kept.txt", "before\n");
    let line = "cat kept.txt; echo x > kept.txt; echo y > new.txt; echo z > $HOME/ok && cat $HOME/ok";
    let done = world.run(&["run", "--profile", "untrusted-code-read", "--", "sh", "-c", line]);
    assert_eq!(done.stdout, "before\nz\n", "{done:?}");
    assert_eq!(world.read("kept.txt"), "before\n");
    assert!(!world.project().join("new.txt").exists());
}

#[test]
fn the_sealed_profile_checks_the_command_before_anything_starts() {
    let world = World::new();
    for argv in [
        &["sh", "-c", "echo hi"][..],
        &["/usr/bin/python3", "-V"],
        &["./python3"],
        &["env", "A=1", "python3"],
        &["rm", "-rf", "."],
    ] {
        let arguments = [&["run", "--profile", "untrusted-code-test", "--"], argv].concat();
        let done = world.run(&arguments);
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{argv:?}: {done:?}");
    }
    assert!(
        !world.state().join("runs").exists() || crate::support::names(&world.state().join("runs")).is_empty()
    );
    let done = world.run(&["run", "--profile", "untrusted-code-test", "--", "python3", "-c", "print(6*7)"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "42\n"), "{done:?}");
}

#[test]
fn unconfined_is_said_out_loud_and_can_be_forbidden() {
    let world = World::new();
    let done = world.run(&["run", "--profile", "none", "--", "echo", "hi"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "hi\n"));
    assert!(done.stderr.contains("unconfined_sandbox"), "{done:?}");
    let output = world
        .pond(&["run", "--profile", "none", "--", "touch", "ran"])
        .env("POND_REQUIRE_SANDBOX", "true")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(!world.project().join("ran").exists());
}

#[test]
fn credentials_in_the_git_configuration_stay_outside() {
    let world = World::new();
    std::fs::create_dir(world.project().join(".git")).unwrap();
    let config = "[remote \"origin\"]\n\turl = https://me:token-in-url@git.acme.com/x.git\n\tfetch = all\n";
    world.write(".git/config", config);
    for profile in ["untrusted-code-write", "untrusted-code-read"] {
        let done = world.run(&["run", "--profile", profile, "--", "cat", ".git/config"]);
        assert_eq!(done.stdout, config.replace("me:token-in-url@", ""), "{profile}: {done:?}");
    }
    assert_eq!(world.read(".git/config"), config);
    let summary = world.summary(&[], &["true"]);
    assert_eq!(summary["result"]["changed"], 0, "{summary:#}");
}

/// A submodule's address is often made from that of the repository around it, token and all.
#[test]
fn credentials_of_submodules_stay_outside() {
    let world = World::new();
    let config = "[remote \"origin\"]\n\turl = https://me:token-in-url@git.acme.com/x.git\n";
    let homes = [".git", ".git/modules/lib", ".git/modules/lib/modules/deep/er", ".git/worktrees/beside"];
    for home in homes.iter().chain(&[".git/worktrees/beside/modules/lib"]) {
        std::fs::create_dir_all(world.project().join(home)).unwrap();
        world.write(&format!("{home}/HEAD"), "ref: refs/heads/main\n");
        world.write(&format!("{home}/config"), config);
    }
    let outside = world.command("grep").args(["-rc", "token-in-url", ".git"]).output().unwrap();
    assert_eq!(Done::of(outside).stdout.matches(":1").count(), 5, "nothing to find");
    let done =
        world.run(&["run", "-q", "--", "sh", "-c", "grep -r token-in-url .git; grep -rl acme .git | wc -l"]);
    assert_eq!((done.code, done.stdout.trim()), (0, "5"), "{done:?}");
}

/// They are held until the job has them: a few bytes of disk must not become gigabytes.
#[test]
fn configurations_without_end_are_refused() {
    let world = World::new();
    std::fs::create_dir_all(world.project().join(".git/modules/first")).unwrap();
    world.write(".git/modules/first/config", &format!("[http]\n\textraheader = x\n{}", "#".repeat(900_000)));
    let config = |name: &str| world.project().join(".git/modules").join(name).join("config");
    assert_eq!(world.run(&["run", "-q", "--", "true"]).code, 0);
    std::fs::create_dir(world.project().join(".git/modules/second")).unwrap();
    std::fs::hard_link(config("first"), config("second")).unwrap();
    let done = world.run(&["run", "-q", "--", "true"]);
    assert!(done.code == 125 && done.stderr.contains("more than pond looks through"), "{done:?}");
}

/// What its owner keeps to themselves is not put where the job can read it, with or without its credentials.
#[test]
fn a_configuration_of_somebody_else_stays_theirs() {
    let world = World::new();
    let home = world.project().join(".git/modules/theirs");
    std::fs::create_dir_all(&home).unwrap();
    world.write(".git/modules/theirs/config", "[remote \"o\"]\n\turl = https://me:token@git.acme.com/x\n");
    world.write(".git/modules/theirs/notes", "theirs\n");
    let line = "cat .git/modules/theirs/*";
    let reads = || world.run(&["run", "-q", "--", "sh", "-c", line]);
    assert!(reads().stdout.contains("theirs"), "what is the checkout's owner's is the job's");
    std::os::unix::fs::chown(&home, Some(12345), Some(12345)).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let done = reads();
    assert!(done.code != 0 && done.stdout.is_empty(), "{done:?}");
}

/// A linked worktree holds only the way to its repository, and that leads out of what a job sees.
#[test]
fn a_job_that_fails_without_its_repository_is_told_where_that_is() {
    let world = World::new();
    let git = "git init -q one && cd one && git -c user.name=a -c user.email=a commit -q --allow-empty -m 1 && git worktree add -q ../two";
    let made = Done::of(world.command("sh").args(["-c", git]).output().unwrap());
    assert_eq!(made.code, 0, "{made:?}");
    let run = |checkout: &str, command: &str| {
        world.run(&["run", "--checkout", checkout, "--", "sh", "-c", command])
    };
    let (code, place) = ("[repository_elsewhere]", "one/.git/worktrees/two");
    let failed = run("two", "git status");
    assert_eq!(failed.code, 128, "{failed:?}");
    assert!(failed.stderr.contains(code) && failed.stderr.contains(place), "{failed:?}");
    for (checkout, command, expected) in [("two", "true", 0), ("one", "git status", 0), ("one", "exit 3", 3)]
    {
        let done = run(checkout, command);
        assert!(done.code == expected && !done.stderr.contains(code), "{checkout} {command}: {done:?}");
    }
}

#[test]
fn a_rule_that_cannot_act_is_refused() {
    let world = World::new();
    for profile in ["untrusted-code-read", "untrusted-code-test"] {
        let done =
            world.run(&["run", "--profile", profile, "--allow-host", "git.acme.com", "--", "touch", "ran"]);
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
        assert!(done.stderr.contains("allow_hosts"), "{done:?}");
    }
}

#[test]
fn a_tool_of_the_home_directory_is_offered_by_name_and_nothing_else_of_it() {
    let world = World::new();
    let home = world.project().parent().unwrap().join("home");
    for part in [".cargo/bin", ".rustup"] {
        std::fs::create_dir_all(home.join(part)).unwrap();
    }
    std::fs::write(home.join(".cargo/credentials.toml"), "a token").unwrap();
    std::fs::write(home.join(".cargo/bin/cargo"), "#!/bin/sh\necho the cargo of the home\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.join(".cargo/bin/cargo"), executable).unwrap();
    let line = "cargo; cat $CARGO_HOME/credentials.toml; echo x > $CARGO_HOME/bin/cargo; ls $CARGO_HOME";
    let run = |flags: &[&str]| {
        let arguments = [&["run"], flags, &["--", "sh", "-c", line]].concat();
        let output = world.pond(&arguments).env("HOME", &home).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&["--tool", "cargo"]), "the cargo of the home\nbin\ngit\nregistry\nrustup\n");
    assert!(!run(&[]).contains("of the home"));
    assert_eq!(std::fs::read_to_string(home.join(".cargo/bin/cargo")).unwrap().lines().count(), 2);
}

/// Contents alone are shown: behind the same names no service listens, and nobody else holds a lock.
#[test]
fn a_directory_that_is_shown_leads_to_nothing_of_the_host() {
    let world = World::new();
    crate::support::meets_nothing_of_the_host(&world, |arguments| world.pond(arguments));
}

/// What every program on the host opens when it starts is another file inside: whoever watches or locks it meets nobody.
#[test]
fn a_file_that_is_shown_leads_to_nothing_of_the_host() {
    let world = World::new();
    let everybodys = File::open("/etc/ld.so.cache").unwrap();
    rustix::fs::flock(&everybodys, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let lock = "import fcntl; fcntl.flock(open('/etc/ld.so.cache'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let outside = world.command("python3").args(["-c", lock]).output().unwrap();
    assert_ne!(Done::of(outside).code, 0, "nothing to meet");
    let inside = world.run(&["run", "-q", "--", "python3", "-c", lock]);
    assert_eq!(inside, Done { code: 0, stdout: String::new(), stderr: String::new() });
}

/// Every directory and file of the host comes the same way, whichever this host has: what is bound as it is are devices.
#[test]
fn no_directory_of_the_host_is_bound() {
    let world = World::new();
    let line = "while read -r _ _ _ root place rest; do case $rest in *' - overlay '*) continue; esac; \
                [ \"$root\" = / ] || [ -c \"$place\" ] || echo \"$place\"; done < /proc/self/mountinfo; \
                grep -c ' /usr ro,.* overlay ' /proc/self/mountinfo";
    let done = world.shell(line);
    let mut seen: Vec<&str> = done.stdout.lines().collect();
    seen.sort_unstable();
    assert_eq!((done.code, seen), (0, vec!["/home/pond", "/proc/sys", "1"]), "{done:?}");
}

/// Directories below /etc are parts of one overlay: from none of them a way leads to the rest of it.
#[test]
fn a_part_of_a_shared_overlay_leads_to_no_other_part() {
    let world = World::new();
    let line = "for place in /etc/alternatives /etc/ssl/certs; do cd $place || exit 1; \
                for way in . .. ../.. ../../..; do ls -a $way | grep -x -e shadow -e passwd-; done; \
                test -e $place/../shadow && echo $place; done; \
                test -e /etc/ssl/private && echo private; ls /etc/ssl/certs | grep -c .";
    let done = world.shell(line);
    assert!(std::path::Path::new("/etc/shadow").exists(), "nothing to find");
    let counted: usize = done.stdout.trim().parse().unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    assert!(counted > 0 && done.code == 0, "{done:?}");
}

#[test]
fn a_socket_in_place_of_a_file_is_not_shown() {
    let world = World::new();
    let home = world.project().parent().unwrap().join("home");
    std::fs::create_dir_all(home.join(".local/bin")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(home.join(".local/bin/uv")).unwrap();
    let run =
        || Done::of(world.pond(&["run", "--tool", "uv", "--", "true"]).env("HOME", &home).output().unwrap());
    refused(&run(), &["open the host's toolchain directories", "something else"]);
    drop(listener);
    std::fs::remove_file(home.join(".local/bin/uv")).unwrap();
    std::fs::write(home.join(".local/bin/uv"), "").unwrap();
    assert_eq!(run().code, 0);
}

#[test]
fn a_job_can_open_its_own_streams_by_name() {
    let world = World::new();
    let done = world.shell("echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/stdin");
    assert_eq!((done.code, done.stdout.as_str()), (0, "out\n"), "{done:?}");
    assert!(done.stderr.starts_with("err\n"), "{done:?}");
}

/// A run whose command has begun, the inits of its sandbox, and the run itself, to be ended.
struct Begun {
    child: Child,
    inits: Vec<PathBuf>,
}

impl Begun {
    fn new(world: &World, secret: &str) -> Self {
        let mut child = world
            .pond(&["run", "--", "sh", "-c", "echo up; exec sleep 100"])
            .env("PLANTED", secret)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        let job = names(&world.state().join("live")).pop_first().unwrap();
        let of_job = |process: &PathBuf| {
            let named =
                std::fs::read(process.join("cmdline")).is_ok_and(|line| line.starts_with(b"pond-jail\0"));
            named && std::fs::read_to_string(process.join("cgroup")).is_ok_and(|text| text.contains(&job))
        };
        let processes = names(Path::new("/proc")).into_iter();
        let inits = processes.map(|pid| Path::new("/proc").join(pid)).filter(of_job).collect();
        Self { child, inits }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Everything in a process's memory that it could have written.
fn memory_of(process: &Path) -> Vec<u8> {
    let maps = std::fs::read_to_string(process.join("maps")).unwrap();
    let memory = File::open(process.join("mem")).unwrap();
    let mut all = Vec::new();
    for map in maps.lines().filter(|map| map.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw")))
    {
        let (start, end) = map.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        // The kernel's own pages are not to be had this way.
        if memory.read_exact_at(&mut bytes, start).is_ok() {
            all.extend(bytes);
        }
    }
    all
}

/// Seen from the host: inside nobody may look. Launcher and init begin as copies of pond.
#[test]
fn init_knows_nothing_of_the_callers_environment() {
    let world = World::new();
    let secret = "planted-in-the-environment";
    let begun = Begun::new(&world, secret);
    let holds = |process: &PathBuf| {
        let bytes = memory_of(process);
        let found = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        (found("pond-jail"), found(secret))
    };
    assert_eq!(begun.inits.iter().map(holds).collect::<Vec<_>>(), [(true, false)]);
}

/// Seen from the host: inside nobody may look.
#[test]
fn init_holds_nothing_but_its_five_descriptors() {
    let world = World::new();
    let begun = Begun::new(&world, "");
    let held = || begun.inits.iter().map(|init| names(&init.join("fd")).len()).collect::<Vec<_>>();
    // The job may be quicker to say its first word than init to close the last of them.
    let deadline = Instant::now() + Duration::from_secs(10);
    while held() != [5] && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(held(), [5], "{:?}", begun.inits);
}

/// The kernel counts them per user, for who is inside and for who made the sandbox: on root's account, one job would have what every other
/// job and the host's own services need.
#[test]
fn a_job_takes_away_only_its_own_inotify_instances() {
    const ALL: &str =
        "import ctypes\nl=ctypes.CDLL(None)\nn=0\nwhile l.inotify_init1(0)>=0: n+=1\nprint(n, flush=True)";
    const ONE: &str = "import ctypes\nprint(ctypes.CDLL(None).inotify_init1(0) >= 0)";
    let world = World::new();
    let hold = format!("{ALL}\nimport time; time.sleep(20)");
    let mut job = world.pond(&["run", "--", "python3", "-c", &hold]).stdout(Stdio::piped()).spawn().unwrap();
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    assert_eq!(first_line(&mut job).trim(), most.trim(), "it holds all that one account may have");
    let host = |user: &str, script: &str| {
        let user = format!("--reuid={user}");
        let done = world
            .command("setpriv")
            .args([&user, "--clear-groups", "/usr/bin/python3", "-c", script])
            .output();
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    // As somebody who holds them all, to see that there is an end of them.
    let spent = host("61777", &format!("{ALL}\n{ONE}"));
    assert!(spent.ends_with("\nFalse\n"), "{spent}");
    assert_eq!(host("0", ONE), "True\n", "root has its own");
    assert_eq!(world.run(&["run", "--", "python3", "-c", ONE]).stdout, "True\n", "so has another job");
    job.kill().unwrap();
    job.wait().unwrap();
}
