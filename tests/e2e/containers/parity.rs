//! The same run on every backend: the same output, verdict, findings and patch.

use std::process::Stdio;

use serde_json::{Value, json};

use super::daemon::Daemon;
use crate::support::World;

/// How the job's copy travels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Bound,
    Streamed,
}

struct Case {
    flags: &'static [&'static str],
    command: &'static [&'static str],
    input: &'static str,
    expected: Expected,
}

struct Expected {
    code: u8,
    verdict: &'static str,
    findings: &'static [&'static str],
    changed: u64,
}

const fn ended(code: u8, changed: u64) -> Expected {
    Expected { code, verdict: "exited", findings: &[], changed }
}

const CASES: [Case; 10] = [
    Case {
        flags: &[],
        command: &[
            "sh",
            "-c",
            "cat f; echo after > f; mkdir d; echo new > d/n; cat; pwd; id -un; cp f /tmp/; cp f /dev/shm/; echo e >&2",
        ],
        input: "typed\n",
        expected: ended(0, 2),
    },
    Case { flags: &[], command: &["sh", "-c", "rm f; exit 137"], input: "", expected: ended(137, 1) },
    Case {
        flags: &[],
        command: &["sh", "-c", "kill -9 $$"],
        input: "",
        expected: Expected { code: 137, verdict: "signaled", findings: &[], changed: 0 },
    },
    // Whatever it leaves behind does not keep the run.
    Case {
        flags: &[],
        command: &["sh", "-c", "sleep 1000 & echo started"],
        input: "",
        expected: ended(0, 0),
    },
    Case {
        flags: &["--timeout", "2s"],
        command: &["sleep", "1000"],
        input: "",
        expected: Expected { code: 124, verdict: "timed_out", findings: &["time_limit"], changed: 0 },
    },
    Case {
        flags: &["--memory", "256m"],
        command: &["python3", "-c", "x = bytearray(1 << 30)"],
        input: "",
        expected: Expected { code: 137, verdict: "killed", findings: &["memory_limit"], changed: 0 },
    },
    // Read to the end and not a byte more.
    Case {
        flags: &[],
        command: &["python3", "-c", "import sys; print(len(sys.stdin.read())); print('x' * 300000)"],
        input: "0123456789",
        expected: ended(0, 0),
    },
    Case {
        flags: &["--profile", "untrusted-code-read"],
        command: &["sh", "-c", "cat f; echo x > f"],
        input: "",
        expected: ended(2, 0),
    },
    Case {
        flags: &["--profile", "untrusted-code-test"],
        command: &["python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80))"],
        input: "",
        expected: ended(1, 0),
    },
    Case {
        flags: &[],
        command: &[
            "sh",
            "-c",
            "curl --silent --max-time 20 https://www.example.com/ ; getent hosts pypi.org",
        ],
        input: "",
        expected: Expected { code: 0, verdict: "exited", findings: &["host_not_allowed"], changed: 0 },
    },
];

/// What a run came to, as far as it must not depend on the backend.
fn outcome(daemon: &Daemon, case: &Case, backend: &str, way: Way) -> Value {
    let world = World::new();
    world.write("f", "before\n");
    let arguments = [&["run", "--json", "--backend", backend], case.flags, &["--"], case.command].concat();
    let mut pond = daemon.pond(&world, &arguments);
    let transfer = match way {
        Way::Bound => "bind",
        Way::Streamed => "stream",
    };
    pond.env("POND_CONTAINER_TRANSFER", transfer);
    let mut child = pond.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A job that ends without reading leaves nobody to read it.
    drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), case.input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("{fault}: {said}"));
    let directory =
        std::path::Path::new(summary["directory"].as_str().unwrap_or_else(|| panic!("{summary}")));
    let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let codes: Vec<&Value> =
        summary["findings"].as_array().unwrap().iter().map(|finding| &finding["code"]).collect();
    json!({
        "code": summary["exit_code"], "verdict": summary["verdict"]["kind"], "findings": codes,
        "changed": summary["result"]["changed"], "stdout": text("stdout.log"), "stderr": text("stderr.log"),
        "patch": text("changes.patch"),
    })
}

/// What is known to differ, and why.
fn expect_differences(native: &mut Value, case: &Case, backend: &str, way: Way) {
    if way == Way::Bound {
        return;
    }
    // A copy that the job must not change is somebody else's, on a file system that can be written.
    if case.flags.contains(&"untrusted-code-read") {
        let said = native["stderr"].as_str().unwrap().replace("Read-only file system", "Permission denied");
        native["stderr"] = said.into();
    }
    // gVisor's kernel is what is killed for its memory, and takes the copy along.
    if case.expected.verdict == "killed" && backend == "gvisor" {
        (native["changed"], native["patch"]) = (Value::Null, "".into());
    }
}

fn compare(backend: &str, way: Way) {
    let daemon = Daemon::start();
    for case in &CASES {
        let mut native = outcome(&daemon, case, "native", way);
        let contained = outcome(&daemon, case, backend, way);
        let Expected { code, verdict, findings, changed } = case.expected;
        let told = json!([native["code"], native["verdict"], native["findings"], native["changed"]]);
        assert_eq!(told, json!([code, verdict, findings, changed]), "{:?}: {native}", case.command);
        expect_differences(&mut native, case, backend, way);
        assert_eq!(contained, native, "{:?} on {backend}", case.command);
    }
    assert_eq!(daemon.containers(), Vec::<String>::new());
}

#[test]
fn docker_gives_what_native_gives() {
    compare("docker", Way::Bound);
}

#[test]
fn docker_gives_what_native_gives_by_a_stream() {
    compare("docker", Way::Streamed);
}

#[test]
fn gvisor_gives_what_native_gives() {
    compare("gvisor", Way::Bound);
}

#[test]
fn gvisor_gives_what_native_gives_by_a_stream() {
    compare("gvisor", Way::Streamed);
}
