//! A run from end to end: a document is submitted with its source, a worker runs the agent in a sandbox, the agent calls the model
//! through the broker, the patch comes back signed, and the model's key is nowhere but upstream.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::{CLAUDE, check_upstream, world};
use crate::broker::REAL_KEY;
use crate::world::sides::tool;
use crate::world::turns::{DONE, FILE, TEXT};
use crate::world::{Done, World, source};

const PATIENCE: Duration = Duration::from_secs(120);

const DOCUMENT: &str = "\
project: acme
stages:
  - name: work
    executor:
      kind: swarm
      command: [./claude, write a file]
      model: main
      timeout: 5m
      harness_files:
        notes.txt: |
          {{MODEL}} at {{BROKER_URL}}
      artifacts: [made.txt]
      sandbox: { profile: untrusted-code-write, backend: native }
";

/// Everything on one machine, on the host side of a world.
pub(crate) struct Up {
    child: Child,
}

impl Up {
    pub(crate) fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.pond(&["up"]);
        command.args(arguments);
        command.env("POND_CONFIG", world.operator_file()).stdin(Stdio::null());
        command
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(world.directory().join("up.log")).unwrap());
        let mut up = Self { child: command.spawn().unwrap() };
        let begun = Instant::now();
        loop {
            let done = ask(world, &["project", "create", "acme"], "");
            if done.code == 0 {
                return up;
            }
            let ended = up.child.try_wait().unwrap();
            let log = std::fs::read_to_string(world.directory().join("up.log")).unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "`pond up` does not serve: {done:?}: {log}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

/// A command of pond's, with the token that `pond up` keeps for this machine.
pub(crate) fn ask(world: &World, arguments: &[&str], typed: &str) -> Done {
    let mut command = world.pond(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who does not read it is no failure.
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap_or_default();
    Done::of(child.wait_with_output().unwrap())
}

fn holds(content: &[u8]) -> bool {
    content.windows(REAL_KEY.len()).any(|window| window == REAL_KEY.as_bytes())
}

#[test]
fn source_in_model_called_patch_out_key_nowhere() {
    let world = world(&CLAUDE);
    world.write("claude", source("agent.py"));
    let program = world.project().join("claude");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(world.directory().join("run.yaml"), DOCUMENT).unwrap();
    let up = Up::start(&world, &[]);
    let stored = ask(&world, &["secret", "set", "main", "--project", "acme"], REAL_KEY);
    assert_eq!(stored.code, 0, "{stored:?}");

    let document = world.directory().join("run.yaml").display().to_string();
    let done = ask(&world, &["submit", &document, "--follow"], "");
    let told: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let expected = json!({ "said": DONE, "aside": CLAUDE.aside, "telemetry": "403", "key_in": [] });
    assert_eq!((done.code, told), (0, expected), "{done:?}");

    let listed = ask(&world, &["runs", "--remote", "--json"], "");
    let listed: Value =
        serde_json::from_str(&listed.stdout).unwrap_or_else(|fault| panic!("{fault}: {listed:?}"));
    let run = listed[0]["id"].as_str().unwrap();
    let out = world.directory().join("out");
    let fetched = ask(&world, &["fetch", run, "--out", out.to_str().unwrap()], "");
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let patch = std::fs::read_to_string(out.join("changes.patch")).unwrap();
    let changed: Vec<&str> = patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
    assert_eq!(changed, [FILE], "{patch}");
    assert!(patch.ends_with(&format!("+{TEXT}")), "{patch}");
    assert_eq!(std::fs::read_to_string(out.join("artifacts").join(FILE)).unwrap(), TEXT);

    let requests = check_upstream(&world, &CLAUDE);
    assert!(requests.len() >= 2, "a question and a report: {requests:?}");
    assert!(world.state().join("control/pond.db").exists(), "the control plane's files are looked at");
    // But for the templates of empty disks: ten sparse gigabytes that no job writes to.
    let found =
        tool("grep").args(["-rlaF", "--exclude=*.image", REAL_KEY]).arg(world.directory()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "these hold the key: {found:?}");
    assert!(!holds(format!("{done:?}{fetched:?}{stored:?}").as_bytes()));
    for file in ["environ", "cmdline"] {
        assert!(
            !holds(&std::fs::read(format!("/proc/{}/{file}", up.child.id())).unwrap()),
            "{file} of `pond up`"
        );
    }
}
