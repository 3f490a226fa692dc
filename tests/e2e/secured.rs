//! Machines apart, over TLS: a control plane, an orchestrator and two workers, each in a process of its own that believes the others by
//! their certificate, and none without it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use crate::serving::Serving;
use crate::support::{Done, World};

const DOCUMENT: &str = "\
project: acme
stages:
  - name: edit
    executor:
      kind: swarm
      command: [sh, -c, cat README.md; echo made here > made.txt]
      artifacts: [made.txt]
      sandbox: { profile: untrusted-code-write, backend: native }
  - name: test
    needs: [edit]
    executor:
      kind: swarm
      command: [sh, -c, cat made.txt; echo tested >> made.txt; rm README.md]
      sandbox: { profile: untrusted-code-write, backend: native }
";

/// A process that is ended with this value.
struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

/// Reads the error stream until it says this; the rest goes unread.
fn heard(child: &mut Child, what: &str) -> String {
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut all = Vec::new();
    for line in lines {
        if let Some((_, rest)) = line.split_once(what) {
            return rest.to_owned();
        }
        all.push(line);
    }
    panic!("it ended without {what:?}: {all:?}");
}

/// A machine of its own: `pond` with another state directory.
fn on_machine(serving: &Serving, name: &str, words: &[&str]) -> std::process::Command {
    let mut command = serving.world.pond(words);
    command.env("POND_STATE_DIR", serving.world.state().join(name));
    command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    command
}

fn orchestrator(serving: &Serving) -> (Role, String) {
    let token = serving.run(&["token", "create", "--relay", "--ca-file", "cert.pem"]).stdout;
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--ca-file", "cert.pem"];
    let words = [&["orchestrator", "--listen", "127.0.0.1:0", "--control", &serving.url], &tls[..]].concat();
    let mut command = on_machine(serving, "orchestrator", &words);
    command.env("POND_RELAY_TOKEN", token.trim_end()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let line = format!("{{{}", heard(&mut child, "{"));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["event"], "listening", "{line}");
    (Role(child), format!("https://{}", line["address"].as_str().unwrap()))
}

fn join(serving: &Serving, name: &str, at: &str, trust: &[&str]) -> Done {
    let token = serving.run(&["worker", "token", "--ca-file", "cert.pem"]).stdout;
    let mut command = on_machine(serving, name, &[&["worker", "join", "--control", at], trust].concat());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn a_run_goes_through_four_processes_over_tls() {
    let world = World::new();
    crate::serving::certificate(&world);
    let serving = Serving::start_in(world, &["serve", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let trusting = |words: &[&str]| serving.run(&[words, &["--ca-file", "cert.pem"]].concat());
    assert_eq!(trusting(&["project", "create", "acme"]).code, 0);
    let (_orchestrator, at) = orchestrator(&serving);
    let stranger = join(&serving, "stranger", &at, &[]);
    assert!(stranger.code == 125 && stranger.stderr.contains("UnknownIssuer"), "{stranger:?}");
    let mut workers = Vec::new();
    for name in ["w1", "w2"] {
        let joined = join(&serving, name, &at, &["--ca-file", "cert.pem"]);
        assert_eq!(joined.code, 0, "{joined:?}");
        let mut command = on_machine(&serving, name, &["worker", "run", "--jobs", "1"]);
        workers.push(Role(command.stderr(Stdio::null()).spawn().unwrap()));
    }
    serving.world.write("README.md", "read over TLS\n");
    serving.world.write("run.yaml", DOCUMENT);
    let done = trusting(&["submit", "run.yaml", "--follow"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "edit | read over TLS\ntest | made here\n"),
        "{done:?}"
    );
    let run = done.stderr.lines().find_map(|line| line.strip_prefix("pond: run ")).unwrap().to_owned();
    let fetched = trusting(&["fetch", &run, "edit", "--out", "out"]);
    assert_eq!(
        (fetched.code, serving.world.read("out/artifacts/made.txt").as_str()),
        (0, "made here\n"),
        "{fetched:?}"
    );
    // What the second changed is told against what the first made, and its signature holds.
    let fetched = trusting(&["fetch", &run, "test", "--out", "tested"]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let patch = serving.world.read("tested/changes.patch");
    assert!(patch.contains(" made here\n+tested\n") && patch.contains("deleted file mode"), "{patch}");
}
