//! A job that crashes starts nothing on the host. The crash handler is one for the whole machine, so it is replaced for a moment
//! and put back; only crashes under this test's own process names count.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::World;

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// The machine's handler, back when this value goes.
struct Handler {
    before: String,
}

impl Handler {
    /// From now on a crash anywhere appends the name of the process to `seen`.
    fn install(world: &World, seen: &Path) -> Self {
        let script = world.project().join("handler");
        std::fs::write(&script, format!("#!/bin/sh\ncat > /dev/null\necho $1 >> {}\n", seen.display()))
            .unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let before = std::fs::read_to_string(PATTERN).unwrap();
        let handler = Self { before };
        std::fs::write(PATTERN, format!("|{} %e", script.display())).unwrap();
        handler
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        if std::fs::write(PATTERN, &self.before).is_err() {
            eprintln!("{PATTERN} was {:?}: put it back", self.before);
        }
    }
}

/// A program that calls itself `name`, sets its limit of core files to `limit`, and crashes.
fn crash(name: &str, limit: u32) -> String {
    let own = format!("ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)");
    format!("import ctypes, os, resource\n{own}\nresource.setrlimit(4, ({limit}, {limit}))\nos.abort()")
}

#[test]
fn no_crash_handler_of_the_host_is_started_for_a_job() {
    let world = World::new();
    let seen = world.project().join("seen");
    let mark = std::process::id();
    let names = ["free", "quiet", "last"].map(|word| format!("{word}-{mark}"));
    let [free, quiet, last] = &names;
    let handler = Handler::install(&world, &seen);
    let unconfined = |name: &str| {
        world.host_shell(&format!("python3 -c \"{}\"", crash(name, 0)));
    };
    // With a limit of nothing the host's handler is started all the same.
    unconfined(free);
    for limit in [0, 1] {
        let done = world.run(&["run", "--", "python3", "-c", &crash(quiet, limit)]);
        assert_eq!(done.code, 128 + 6, "{done:?}");
    }
    // The kernel starts handlers in order; when this one has been, one for the job would have been.
    unconfined(last);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut text = String::new();
    while !text.contains(last) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        text = std::fs::read_to_string(&seen).unwrap_or_default();
    }
    drop(handler);
    let ours: Vec<&str> = text.lines().filter(|name| names.iter().any(|of| of == name)).collect();
    assert_eq!(ours, [free, last]);
}

#[test]
fn a_job_reads_its_limit_of_core_files_and_cannot_change_it() {
    let world = World::new();
    let ask = "import resource as r\nprint(r.getrlimit(4)); r.setrlimit(4, (0, 0)); print(r.getrlimit(4))";
    assert_eq!(world.run(&["run", "-q", "--", "python3", "-c", ask]).stdout, "(1, 1)\n(1, 1)\n");
}
