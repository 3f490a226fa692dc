//! The commands against pond's own control plane: one process, one store, no worker. What a worker does with a run is tried with
//! `pond up`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::remote::scripted::Scripted;
use crate::support::{Done, World, first_line};

const SECRET: &str = "hunter2-that-nobody-may-read";

/// A control plane on a port of its own, and the token it made for its first user.
pub(crate) struct Serving {
    pub(crate) world: World,
    child: Child,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Serving {
    pub(crate) fn start() -> Self {
        let serving = Self::start_in(World::new(), &["serve"]);
        assert_eq!(serving.run(&["project", "create", "acme"]).code, 0);
        serving
    }

    pub(crate) fn start_in(world: World, role: &[&str]) -> Self {
        let mut command = world.pond(role);
        command.args(["--listen", "127.0.0.1:0", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let said: Value = serde_json::from_str(&first_line(&mut child))
            .unwrap_or_else(|fault| panic!("`pond serve` says where it listens: {fault}"));
        let text = |field: &str| said[field].as_str().unwrap().to_owned();
        Self { url: text("listening"), token: text("admin_token"), world, child }
    }

    fn pond(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.pond(arguments);
        command.env("POND_URL", &self.url).env("POND_TOKEN", &self.token);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.pond(arguments).output().unwrap())
    }

    fn typed(&self, arguments: &[&str], text: &str) -> Done {
        let mut command = self.pond(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        Done::of(child.wait_with_output().unwrap())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let done = self.run(arguments);
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {arguments:?}: {done:?}"))
    }

    /// The code of a refusal, and nothing else on standard output.
    fn refused(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{arguments:?}: {done:?}");
        let code = done.stderr.trim_end().rsplit_once('[').and_then(|(_, code)| code.strip_suffix(']'));
        code.unwrap_or_else(|| panic!("{arguments:?}: {done:?}")).to_owned()
    }

    fn document(&self, project: &str) {
        let text = format!(
            "project: {project}\nstages:\n  - name: build\n    executor:\n      kind: swarm\n      command: [\"true\"]\n      \
             sandbox: {{ profile: untrusted-code-write, backend: gvisor }}\n"
        );
        self.world.write("run.yaml", &text);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

/// Its state directory lost the key, or it is another one's database.
#[test]
fn a_store_that_another_key_signs_for_is_not_served() {
    let serving = Serving::start();
    let started = Instant::now();
    while serving.run(&["audit", "verify"]).code != 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", serving.run(&["audit", "verify"]));
    }
    std::fs::remove_file(serving.world.state().join("control/signing.key")).unwrap();
    let mut command = serving.world.pond(&["serve", "--listen", "127.0.0.1:0"]);
    let mut other = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while other.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    if other.try_wait().unwrap().is_none() {
        other.kill().unwrap();
    }
    let done = Done::of(other.wait_with_output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
    assert!(done.stderr.contains("signed by another control plane"), "{done:?}");
}

#[test]
fn a_run_nobody_can_take_waits_says_why_and_is_cancelled() {
    let serving = Serving::start();
    serving.document("acme");
    let done = serving.run(&["submit", "run.yaml"]);
    let run = done.stdout.trim_end().to_owned();
    assert!(done.code == 0 && !run.is_empty(), "{done:?}");
    let shown = serving.run(&["show", &run]);
    assert!(
        shown.stdout.contains("no worker is in pool:trusted; one that offers sandbox.gvisor is needed"),
        "{shown:?}"
    );
    let listed = serving.json(&["runs", "--json"]);
    assert_eq!((listed[0]["id"].as_str(), listed[0]["state"].as_str()), (Some(run.as_str()), Some("active")));
    assert_eq!(serving.json(&["runs", "--json", "--state", "failed"]), Value::Array(Vec::new()));
    assert_eq!(serving.run(&["runs", "--local"]).stdout, "no runs\n");
    let fetched = serving.run(&["fetch", &run, "--out", "out"]);
    assert!(
        fetched.code == 125 && fetched.stderr.contains("build has no result: it is queued"),
        "{fetched:?}"
    );
    assert!(!serving.world.project().join("out").exists());
    let cancelled = serving.run(&["cancel", &run, "--reason", "not today"]);
    assert_eq!(cancelled.stdout, format!("{run} is cancelled\n"), "{cancelled:?}");
    let view = serving.json(&["show", &run, "--json"]);
    assert_eq!(
        (view["run"]["state"].as_str(), view["run"]["cancel"].as_str()),
        (Some("cancelled"), Some("not today"))
    );
    let logs = serving.run(&["logs", "-f", &run]);
    assert_eq!(logs, Done { code: 0, stdout: String::new(), stderr: String::new() });
}

#[test]
fn who_follows_a_run_hears_of_its_end() {
    let serving = Serving::start();
    serving.document("acme");
    let mut command = serving.pond(&["submit", "run.yaml", "--no-source", "--follow"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let run = lines.find_map(|line| line.strip_prefix("pond: run ").map(str::to_owned)).unwrap();
    let why = "pond: build waits: no worker is in pool:trusted; one that offers sandbox.gvisor is needed";
    assert_eq!(lines.next().as_deref(), Some(why));
    assert_eq!(serving.run(&["cancel", &run]).code, 0);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.starts_with("pond: build cancelled")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
}

#[test]
fn who_follows_a_run_as_json_gets_each_key_once() {
    let serving = Serving::start();
    serving.document("acme");
    let mut command = serving.pond(&["submit", "run.yaml", "--no-source", "--follow", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = loop {
        let runs = serving.json(&["runs", "--json"]);
        if let Some(run) = runs[0]["id"].as_str() {
            break run.to_owned();
        }
    };
    assert_eq!(serving.run(&["cancel", &run]).code, 0);
    let done = Done::of(child.wait_with_output().unwrap());
    let read = pond_wire::decode::decode_json(done.stdout.as_bytes());
    assert!(read.is_ok(), "a key is there twice: {read:?}");
    let mut said: Value = serde_json::from_str(&done.stdout).unwrap();
    let own = said.as_object_mut().unwrap();
    let ends = ["exit_code", "warnings", "input_sha256"].map(|key| own.remove(key).unwrap());
    assert_eq!((done.code, ends), (130, [130.into(), serde_json::json!([]), Value::Null]));
    assert_eq!(said, serving.json(&["show", &run, "--json"]));
}

#[test]
fn a_submission_counts_once() {
    let serving = Serving::start();
    serving.document("acme");
    let submit = || serving.run(&["submit", "run.yaml", "--no-source", "--idempotency-key", "once"]);
    let (first, second) = (submit(), submit());
    assert_eq!((first.code, &first.stdout), (0, &second.stdout), "{second:?}");
    let other = serving.refused(&[
        "submit",
        "run.yaml",
        "--no-source",
        "--idempotency-key",
        "once",
        "--retries",
        "1",
    ]);
    assert_eq!(other, "key_reused");
    assert_eq!(serving.json(&["runs", "--json"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn bad_documents_sources_and_names() {
    let serving = Serving::start();
    serving.world.write(
        "run.yaml",
        "project: acme\nstages:\n  - name: build\n    executor: { kind: swarm }\n  - nane: x\n",
    );
    let done = serving.run(&["submit", "run.yaml"]);
    let faults = done.stderr.lines().filter(|line| line.starts_with("fault ")).count();
    assert!(done.code == 125 && faults >= 3 && done.stderr.ends_with("nothing was run\n"), "{done:?}");
    let judged = serving.run(&["preflight", "run.yaml", "--remote"]);
    assert_eq!((judged.code, judged.stderr), (125, done.stderr), "the same judgement");
    serving.world.write("run.yaml", &"#".repeat((1 << 20) + 1));
    let done = serving.run(&["submit", "run.yaml"]);
    assert!(done.code == 125 && done.stderr.contains("[document_too_large]"), "{done:?}");
    serving.world.write("run.yaml", "{\"project\": ");
    assert_eq!(serving.run(&["submit", "run.yaml"]).code, 125);
    serving.document("nobody");
    let unknown = "fault    project  [project_unknown]\n         there is no project nobody\nrefused: 1 fault, nothing was run\n";
    for command in [
        &["submit", "run.yaml"][..],
        &["submit", "run.yaml", "--no-source"],
        &["preflight", "run.yaml", "--remote"],
    ] {
        let done = serving.run(command);
        assert_eq!(
            (done.code, done.stdout.as_str(), done.stderr.as_str()),
            (125, "", unknown),
            "{command:?}"
        );
    }
    serving.document("acme");
    let huge = std::fs::File::create_new(serving.world.project().join("huge")).unwrap();
    huge.set_len((1 << 30) + 1).unwrap();
    let done = serving.run(&["submit", "run.yaml"]);
    assert!(done.code == 125 && done.stderr.contains("huge is larger than"), "{done:?}");
    assert_eq!(serving.json(&["runs", "--json"]), Value::Array(Vec::new()), "nothing was submitted");
    for command in [
        &["show", "r1"][..],
        &["logs", "r1"],
        &["logs", "-f", "r1"],
        &["cancel", "r1"],
        &["fetch", "r1", "--out", "out"],
    ] {
        assert_eq!(serving.refused(command), "not_found");
    }
}

#[test]
fn tokens_allow_what_they_say_until_they_are_revoked() {
    let serving = Serving::start();
    let made = serving.json(&["token", "create", "--scope", "runs:read", "--project", "acme", "--json"]);
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let with =
        |arguments: &[&str]| Done::of(serving.pond(arguments).env("POND_TOKEN", token).output().unwrap());
    assert_eq!(with(&["runs"]).stdout, "no runs\n");
    for command in [
        &["secret", "ls"][..],
        &["worker", "ls"],
        &["project", "create", "other"],
        &["token", "create", "--scope", "runs:read"],
    ] {
        let done = with(command);
        assert!(done.code == 125 && done.stderr.ends_with("[scope_missing]\n"), "{command:?}: {done:?}");
    }
    let listed = serving.run(&["token", "ls"]);
    assert!(listed.stdout.contains(id) && !listed.stdout.contains(token), "{listed:?}");
    assert_eq!(serving.run(&["token", "revoke", id]).code, 0);
    let done = with(&["runs"]);
    assert!(done.code == 125 && done.stderr.ends_with("[unauthenticated]\n"), "{done:?}");
}

#[test]
fn secrets_are_named_and_never_shown() {
    let serving = Serving::start();
    let stored = serving.typed(&["secret", "set", "model", "--project", "acme"], &format!("{SECRET}\n"));
    assert_eq!(stored.stdout, "model is stored for project acme\n", "{stored:?}");
    assert_eq!(serving.json(&["secret", "ls", "--project", "acme", "--json"])[0]["name"], "model");
    assert_eq!(serving.run(&["secret", "rotate"]).code, 0);
    let all = serving.json(&["secret", "ls", "--json"]);
    assert_eq!(
        (&all[0]["name"], &all[0]["project"]),
        (&"model".into(), &"acme".into()),
        "without --project too"
    );
    for command in [&["project", "create", ""][..], &["secret", "set", "a b"], &["secret", "rm", ""]] {
        let done = serving.run(&[command, &["--json"]].concat());
        let said: Value = serde_json::from_str(&done.stdout).unwrap();
        let message = said["error"]["message"].as_str().unwrap();
        assert_eq!((done.code, said["error"]["code"].as_str()), (125, Some("name_invalid")), "{command:?}");
        assert!(message.starts_with("NAME: \""), "{command:?}: {message}");
    }
    for file in files_below(&serving.world.state()) {
        let content = std::fs::read(&file).unwrap_or_default();
        assert!(
            !content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()),
            "{}",
            file.display()
        );
    }
    assert_eq!(serving.run(&["secret", "rm", "model", "--project", "acme"]).code, 0);
    assert_eq!(serving.refused(&["secret", "rm", "model", "--project", "acme"]), "not_found");
}

#[test]
fn what_fernet_sealed_is_imported_whole_or_not_at_all() {
    /// The example of the specification, which holds "hello".
    const KEY: &str = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=";
    const TOKEN: &str = "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==";
    let serving = Serving::start();
    serving.world.write("fernet.key", KEY);
    let import = ["secret", "import", "--fernet-key-file", "fernet.key", "--project", "acme"];
    let good = format!("{{\"claude\": \"{TOKEN}\"}}\n{{\"git.token-2\": \"{TOKEN}\"}}\n");
    let key = serving.world.project().join("fernet.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = serving.typed(&import, &good);
    assert!(open.code == 125 && open.stderr.contains("is open to others"), "{open:?}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();

    let bad = good.replacen("gAAAAAAd", "gAAAAAAe", 1);
    let refused = serving.typed(&[&import[..], &["--json"]].concat(), &bad);
    let said: Value = serde_json::from_str(&refused.stdout).unwrap();
    let fault = &said["refusals"][0];
    assert_eq!(
        (refused.code, fault["code"].as_str(), fault["path"].as_str()),
        (125, Some("fernet_token_unopened"), Some("claude")),
        "{refused:?}"
    );
    let list = ["secret", "ls", "--project", "acme", "--json"];
    assert_eq!(serving.json(&list), Value::Array(Vec::new()), "one bad token, and nothing is stored");

    let done = serving.typed(&import, &good);
    let expected = "claude is stored for project acme\ngit.token-2 is stored for project acme\n";
    assert_eq!(done, Done { code: 0, stdout: expected.to_owned(), stderr: String::new() });
    let stored = serving.json(&list);
    let names: Vec<_> = stored.as_array().unwrap().iter().map(|secret| secret["name"].as_str()).collect();
    assert_eq!(names, [Some("claude"), Some("git.token-2")]);
}

#[test]
fn hosts_and_workers() {
    let serving = Serving::start();
    let allowed = serving.run(&["egress", "allow", "git.acme.com", "*.acme.dev:8443", "--project", "acme"]);
    assert_eq!((allowed.code, allowed.stdout.lines().count()), (0, 3), "{allowed:?}");
    assert_eq!(
        serving.refused(&["egress", "allow", "api.anthropic.com", "--project", "acme"]),
        "host_refused"
    );
    assert_eq!(serving.run(&["egress", "deny", "git.acme.com", "--project", "acme"]).code, 0);
    let left = serving.json(&["egress", "ls", "--project", "acme", "--json"]);
    assert_eq!(left["rules"], serde_json::json!(["*.acme.dev:8443"]));
    assert!(serving.run(&["worker", "token"]).stdout.starts_with("pond_join_"));
    assert_eq!(serving.run(&["worker", "token", "--tier", "byo"]).code, 125, "a byo worker has a tenant");
    let trusted = serving.run(&["worker", "token", "--tenant", "acme", "--json"]);
    let said: Value = serde_json::from_str(&trusted.stdout).unwrap();
    assert_eq!((trusted.code, said["error"]["code"].as_str()), (125, Some("usage")), "{trusted:?}");
    let unknown = serving.run(&["token", "create", "--scope", "runs:read", "--project", "nope"]);
    let expected = "fault    project  [project_unknown]\n         there is no project nope\nrefused: 1 fault, nothing was run\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (125, expected));
    assert!(serving.run(&["worker", "ls"]).stdout.starts_with("no workers"));
    assert_eq!(serving.refused(&["worker", "revoke", "w1"]), "not_found");
}

/// `cert.pem` and `key.pem` in the project, for this machine.
pub(crate) fn certificate(world: &World) {
    let made = world
        .command("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=pond", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_server_is_believed_by_its_certificate() {
    let world = World::new();
    certificate(&world);
    let serving = Serving::start_in(world, &["serve", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    assert!(serving.url.starts_with("https://"));
    assert_eq!(serving.refused(&["runs"]), "server_unreachable");
    let believed = serving.run(&["runs", "--ca-file", "cert.pem"]);
    assert_eq!((believed.code, believed.stdout.as_str()), (0, "no runs\n"), "{believed:?}");
}

/// Whoever waits for a worker that offers nothing finds out why.
#[test]
fn a_machine_that_can_run_nothing_says_so() {
    let world = World::new();
    let up = format!("{} up --listen 127.0.0.1:0", env!("CARGO_BIN_EXE_pond"));
    let done = world.host_shell(&format!(
        "unshare --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec {up}' > up.log 2>&1 &
         for _ in $(seq 600); do grep -q unable up.log && break; sleep 0.1; done
         kill $!; wait; grep unable up.log"
    ));
    assert!(done.stdout.contains("`pond doctor` says why"), "{done:?} {}", world.read("up.log"));
}

const TWO_STAGES: &str = "\
project: acme
stages:
  - name: edit
    executor:
      kind: swarm
      command: [sh, -c, echo made here > made.txt; echo said; echo aside >&2]
      artifacts: [made.txt]
      sandbox: { profile: untrusted-code-write, backend: native }
  - name: fail
    executor:
      kind: swarm
      command: [sh, -c, echo made here > made.txt; exit 7]
      sandbox: { profile: untrusted-code-write, backend: native }
";

/// Passes every request on to a real server, under another path if `path` says so, and every answer back as `change` makes it.
fn between(serving: &Serving, path: fn(&str) -> String, change: fn(Vec<u8>) -> Vec<u8>) -> Scripted {
    let real = serving.url.trim_start_matches("http://").to_owned();
    Scripted::new(move |asked| {
        #[expect(clippy::disallowed_methods, reason = "a test dials the server it started")]
        let mut stream = std::net::TcpStream::connect(&real).unwrap();
        let token = asked.header("authorization").unwrap();
        let head = format!(
            "{}\r\nhost: {real}\r\nauthorization: {token}\r\nconnection: close\r\n\r\n",
            path(&asked.line)
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        change(answer)
    })
}

fn with_another_word(answer: Vec<u8>) -> Vec<u8> {
    let found = answer.windows(9).position(|window| window == b"made here");
    found.map_or(answer.clone(), |at| [&answer[..at], b"made HERE", &answer[at + 9..]].concat())
}

/// In the last place: among the contents that are kept by themselves.
fn with_another_content(answer: Vec<u8>) -> Vec<u8> {
    let found = answer.windows(9).rposition(|window| window == b"made here");
    found.map_or(answer.clone(), |at| [&answer[..at], b"made HERE", &answer[at + 9..]].concat())
}

/// What comes is what the worker signed, for this stage, or nothing comes.
#[test]
fn a_result_is_fetched_as_it_was_signed_or_not_at_all() {
    let serving = Serving::start_in(World::new(), &["up"]);
    assert_eq!(serving.run(&["project", "create", "acme"]).code, 0);
    serving.world.write("run.yaml", TWO_STAGES);
    let done = serving.run(&["submit", "run.yaml", "--follow"]);
    assert_eq!((done.code, done.stdout.as_str()), (7, "edit | said\n"), "{done:?}");
    assert!(
        done.stderr.contains("\nedit | aside\n") && done.stderr.contains("fail failed: exited with code 7"),
        "{done:?}"
    );
    let run = serving.json(&["runs", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let fetch = |url: &str, out: &str| {
        Done::of(serving.pond(&["fetch", &run, "edit", "--out", out]).env("POND_URL", url).output().unwrap())
    };
    let cancelled = serving.run(&["cancel", &run]);
    assert_eq!(cancelled.stdout, format!("{run} had ended before: failed\n"), "{cancelled:?}");
    let fetched = fetch(&serving.url, "out");
    assert_eq!(fetched.code, 0, "{fetched:?}");
    assert_eq!(serving.world.read("out/artifacts/made.txt"), "made here\n");
    assert_eq!(serving.world.read("out/stdout.log"), "said\n");
    assert!(fetched.stdout.contains("holds    the audit log has this result\n"), "{fetched:?}");
    is_in_the_log(&serving, &run);
    assert!(fetch(&serving.url, "out").stderr.contains("it is there already"));
    let altered = between(&serving, str::to_owned, with_another_word);
    let refused = fetch(&altered.url(), "altered");
    assert!(refused.code == 125 && refused.stdout.contains("REFUSED"), "{refused:?}");
    let altered = between(&serving, str::to_owned, with_another_content);
    let refused = fetch(&altered.url(), "altered");
    assert!(refused.code == 125 && refused.stdout.contains("[result_mismatch]"), "{refused:?}");
    let other = between(&serving, |line| line.replace("/stages/edit/", "/stages/fail/"), |answer| answer);
    let refused = fetch(&other.url(), "other");
    assert!(refused.code == 125 && refused.stdout.contains("[run_mismatch]"), "{refused:?}");
    let left = crate::support::names(&serving.world.project());
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["out", "run.yaml"],
        "nothing of what was refused is kept"
    );
}

/// What was fetched is checked again with nothing but its files and the two keys.
fn is_in_the_log(serving: &Serving, run: &str) {
    let view = serving.json(&["show", run, "--json"]);
    let worker = view["stages"][0]["results"][0]["worker"].clone();
    let workers = serving.json(&["worker", "ls", "--json"]);
    let worker = workers.as_array().unwrap().iter().find(|known| known["id"] == worker).unwrap();
    let key = worker["signing_key"].as_str().unwrap();
    let exported = serving.run(&["audit", "export", "--out", "log.jsonl"]);
    let log_key = exported.stderr.trim_end().rsplit_once(' ').unwrap().1;
    let verify = |log_key: &str| serving.run(&["verify", "out", "--key", key, "--log-key", log_key]);
    let verified = verify(log_key);
    assert!(
        verified.code == 0 && verified.stdout.contains("holds    the audit log has this result"),
        "{verified:?}"
    );
    let refused = verify(key);
    assert!(refused.code == 125 && refused.stdout.contains("[checkpoint_origin]"), "{refused:?}");
    let proof = serving.world.project().join("out/audit.tlog-proof");
    let text = std::fs::read_to_string(&proof).unwrap();
    std::fs::write(&proof, text.replacen("index ", "index 1", 1)).unwrap();
    let refused = verify(log_key);
    assert!(
        refused.code == 125 && refused.stdout.contains("FAILS    the audit log has this result"),
        "{refused:?}"
    );
    // A good proof, of what another stage made.
    let beside = serving.run(&["fetch", run, "fail", "--out", "beside"]);
    assert_eq!(beside.code, 0, "{beside:?}");
    let beside = serving.world.project().join("beside");
    std::fs::write(&proof, std::fs::read(beside.join("audit.tlog-proof")).unwrap()).unwrap();
    let refused = verify(log_key);
    assert!(refused.code == 125 && refused.stdout.contains("[entry_mismatch]"), "{refused:?}");
    std::fs::remove_dir_all(beside).unwrap();
    std::fs::write(&proof, text).unwrap();
    std::fs::remove_file(serving.world.project().join("log.jsonl")).unwrap();
}

/// Every regular file below a directory.
fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let (mut files, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => pending.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}
