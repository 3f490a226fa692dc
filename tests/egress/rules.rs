//! Rules and records: what may not be asked for at all (cases 39 to 46, 136 to 143), and what is written down about the
//! rest (cases 24, 88 and 92).

use std::path::Path;

use serde_json::{Value, json};

use crate::world::zone::{DOMAIN, public};
use crate::world::{Done, Plan, World};

/// Rules nobody gets, each with a case.
const REFUSED: [(u8, &str); 26] = [
    (39, "*"),
    (39, "*."),
    (39, "*.com"),
    (39, "*.co.uk"),
    (39, "*.github.io"),
    (39, "a.*.pondworld.net"),
    (39, "*foo.pondworld.net"),
    (39, "pondworld.*"),
    (40, "https://pypi.org"),
    (40, "pypi.org/simple"),
    (40, "pypi.org pypi.org"),
    (40, "PyPI.org"),
    (40, "münchen.de"),
    (41, "169.254.169.254"),
    (41, "[::1]"),
    (41, "localhost"),
    (41, "metadata"),
    (41, ""),
    (136, "api.anthropic.com"),
    (136, "api.openai.com"),
    (136, "generativelanguage.googleapis.com"),
    (139, "*.amazonaws.com"),
    (139, "storage.googleapis.com"),
    (139, "*.workers.dev"),
    (47, "metadata.google.internal"),
    (47, "x.local"),
];

#[test]
fn a_rule_that_gives_too_much_is_refused_before_anything_runs() {
    let world = World::new(Plan::default());
    for (case, rule) in REFUSED {
        let arguments = ["run", "--quiet", "--allow-host", rule, "--", "echo", "ran"];
        let done = Done::of(world.pond(&arguments).output().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "case {case}: {rule:?}: {done:?}");
    }
    let done = Done::of(
        world
            .pond(&["run", "--quiet", "--allow-host", &format!("*.{DOMAIN}"), "--", "echo", "ran"])
            .output()
            .unwrap(),
    );
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "a good rule: {done:?}");
    assert_eq!(world.log.all(), [], "nobody was asked anything");
}

/// Files of an operator that are not understood: nothing runs (cases 42, 44 and 59).
const NOT_UNDERSTOOD: [(u8, &str); 6] = [
    (42, "[egress"),
    (42, "[egress]\nallow = \"old.pondworld.net\"\n"),
    (42, "[egress]\nallow = [\"*\"]\n"),
    (44, "[egress]\nalow = [\"old.pondworld.net\"]\n"),
    (44, "[egres]\nallow = []\n"),
    (59, "[egress]\nallow_cidr = [\"169.254.0.0/16\"]\n"),
];

/// A file with rules, and what a job may then reach of two hosts that it asks for (cases 42 and 44).
const UNDERSTOOD: [(u8, &str, [u16; 2]); 5] = [
    (42, "", [403, 403]),
    (42, "[egress]\npresets = []\nallow = []\n", [403, 403]),
    (42, "[egress]\nallow = [\"one.pondworld.net\"]\n", [200, 403]),
    (44, "[egress]\nallow = [\"*.pondworld.net\"]\ndeny = [\"two.pondworld.net\"]\n", [200, 403]),
    (44, "[egress]\nallow = [\"one.pondworld.net\"]\ndeny = [\"one.pondworld.net:443\"]\n", [403, 403]),
];

const ASK_TWICE: &str = r#"
import json, socket
def status(host):
    with socket.create_connection(("127.0.0.1", 3128), 20) as s:
        s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        return int(s.recv(4096).split()[1])
print(json.dumps([status("one.pondworld.net"), status("two.pondworld.net")]))
"#;

#[test]
fn c42_c44_c59_an_operator_s_file_lets_out_what_it_says_and_no_more() {
    let world = World::new(Plan::default());
    world.write("ask.py", ASK_TWICE);
    let run = |file: Option<&str>| {
        let place = world.operator_file();
        match file {
            Some(text) => std::fs::write(&place, text).unwrap(),
            None => std::fs::remove_file(&place).unwrap(),
        }
        let mut pond = world.pond(&["run", "--quiet", "--", "/usr/bin/python3", "ask.py"]);
        Done::of(pond.env("POND_CONFIG", place).output().unwrap())
    };
    for (case, file, statuses) in UNDERSTOOD {
        let done = run(Some(file));
        assert_eq!(
            (done.code, done.stdout.trim()),
            (0, json!(statuses).to_string().replace(',', ", ").as_str()),
            "case {case}: {file:?}: {done:?}"
        );
    }
    let before = world.log.all().len();
    for (case, file) in NOT_UNDERSTOOD {
        let done = run(Some(file));
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "case {case}: {file:?}: {done:?}");
    }
    let absent = run(None);
    assert_eq!(
        (absent.code, absent.stdout.as_str()),
        (125, ""),
        "case 42: a file that is named and not there"
    );
    assert_eq!(world.log.all().len(), before, "nobody was asked anything");
}

/// Everything a job could do to the records: secrets in places nobody should copy from, and bytes that move a cursor.
const TALKATIVE: &str = r#"
import socket
def send(data):
    with socket.create_connection(("127.0.0.1", 3128)) as s:
        s.sendall(data)
        s.settimeout(5)
        try:
            while s.recv(4096): pass
        except OSError: pass
send(b"POST https://hello.pondworld.net/planted-secret?planted-secret HTTP/1.1\r\nAuthorization: Bearer planted-secret\r\nContent-Length: 14\r\n\r\nplanted-secret")
send(b"CONNECT user:planted-secret@hello.pondworld.net:443 HTTP/1.1\r\n\r\n")
send(b"CONNECT hello.pondworld.net:443 HTTP/1.1\r\nCookie: planted-secret\r\nProxy-Authorization: Basic planted-secret\r\n\r\nplanted-secret")
send(b"CONNECT \x1b[2Jevil\"\n.com:443 HTTP/1.1\r\n\r\n")
send(b"CONNECT a\x1b]0;x\x07b.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
send(b"CONNECT denied.pondworld.net:443 HTTP/1.1\r\n\r\n")
"#;

#[test]
fn c24_c88_c92_records_hold_verdicts_and_never_what_was_said() {
    let world = World::new(Plan::default());
    let ca = world.trust();
    world.write("talk.py", TALKATIVE);
    let fetch = format!("curl --silent --cacert {ca} https://hello.{DOMAIN}/planted-secret");
    world.write("job.sh", format!("/usr/bin/python3 talk.py\n{fetch}\n"));
    let run = ["run", "--json", "--allow-host", "hello.pondworld.net", "--", "sh", "job.sh"];
    let done = Done::of(world.pond(&run).output().unwrap());
    let summary: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    assert_eq!(summary["exit_code"], 0, "{summary:#}");
    let files = files_below(&world.state().join("runs"));
    let records: Vec<&(String, Vec<u8>)> =
        files.iter().filter(|(name, _)| name.ends_with("egress.jsonl")).collect();
    assert_eq!(records.len(), 1, "one record of the network");
    let text = String::from_utf8(records[0].1.clone()).unwrap();
    let address = public(&format!("hello.{DOMAIN}"));
    let expected = json!({
        "approval": { "job": null, "door": "proxy", "tunnel": null, "host": "hello.pondworld.net", "port": 443,
            "rule": "hello.pondworld.net", "address": address },
        "bytes_up": null, "bytes_down": null, "duration_ms": null, "close": null,
    });
    assert_eq!(last_tunnel(&text), expected);
    for expected in
        ["denied.pondworld.net:443", "host_not_allowed", "https_only", "hello.pondworld.net", "bytes_up"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("planted-secret") && !text.contains('\x1b'), "{text}");
    assert!(!done.stdout.contains("planted-secret") && !done.stderr.contains('\x1b'), "{done:?}");
    for (name, content) in &files {
        let told = content.windows(14).any(|window| window == b"planted-secret");
        assert!(!told, "{name} holds the secret");
    }
}

/// The end of the last tunnel, whole, but for what differs from run to run.
fn last_tunnel(record: &str) -> Value {
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut tunnel = events.filter_map(|event| event.get("closed").cloned()).next_back().unwrap();
    for changing in ["bytes_up", "bytes_down", "duration_ms"] {
        assert!(tunnel[changing].take().is_u64(), "{record}");
    }
    // Some clients leave without a word, and the job may be over before their leaving is noticed.
    let close = tunnel["close"].take();
    assert!(["finished", "client_reset", "job_ended"].map(Value::from).contains(&close), "{record}");
    for changing in ["job", "tunnel"] {
        assert!(!tunnel["approval"][changing].take().is_null(), "{record}");
    }
    tunnel
}

/// Every file below a directory, with what it holds.
pub(crate) fn files_below(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file() {
                files.push((path.display().to_string(), std::fs::read(path).unwrap()));
            }
        }
    }
    files
}

/// Case 136 again: whoever asks for it, a model's upstream is the broker's alone.
#[test]
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn c136_the_upstream_of_a_model_is_on_no_list() {
    let directory = tempfile::tempdir().unwrap();
    let (file, project) = (directory.path().join("pond.toml"), directory.path().join("project"));
    std::fs::create_dir(&project).unwrap();
    let text = "[model.own]\napi = \"openai-chat\"\nupstream = \"https://llm.pondworld.net\"\ncredential = \"env:X\"\nmodels = [\"m\"]\n\n[price.m]\ninput = 1.0\noutput = 1.0\nmax_input = 1000\nmax_output = 1000\n";
    std::fs::write(&file, text).unwrap();
    let run = |host: &str| {
        let mut pond = std::process::Command::new(env!("CARGO_BIN_EXE_pond"));
        pond.args(["run", "--allow-host", host, "--", "true"]).current_dir(&project);
        pond.env("POND_CONFIG", &file).env("POND_STATE_DIR", directory.path().join("state"));
        pond.output().unwrap()
    };
    for rule in ["llm.pondworld.net", "*.pondworld.net"] {
        let refused = run(rule);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("only door"), "{refused:?}");
    }
    assert_eq!(run("other.pondworld.net").status.code(), Some(0));
}
