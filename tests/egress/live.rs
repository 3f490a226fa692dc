//! A job that runs while a person changes what it may reach (cases 43, 44 and 87), and one whose pond is killed.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::rules::files_below;
use crate::world::{Backend, Done, Plan, World};

/// Does what each line of its input says, and prints one line about it.
const OBEDIENT: &str = r#"
import http.client, ssl, socket, sys
trust = ssl.create_default_context(cafile="ca.pem")
kept = {}
def status(host):
    with socket.create_connection(("127.0.0.1", 3128), 20) as s:
        s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        return s.recv(4096).split()[1].decode()
def open_(host):
    kept[host] = http.client.HTTPSConnection("127.0.0.1", 3128, context=trust, timeout=20)
    kept[host].set_tunnel(host, 443)
    return get(host)
def get(host):
    try:
        kept[host].auto_open = host not in seen
        seen.add(host)
        kept[host].request("GET", "/")
        return kept[host].getresponse().read().decode().strip()
    except (OSError, http.client.HTTPException): return "closed"
seen = set()
for line in sys.stdin:
    verb, host = line.split()
    print({"status": status, "open": open_, "get": get}[verb](host), flush=True)
"#;

/// A pond whose job takes orders.
struct Live {
    pond: Child,
    orders: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
}

impl Live {
    fn start(world: &World, flags: &[&str]) -> Self {
        world.trust();
        world.write("job.py", OBEDIENT);
        let run = [&["run", "--quiet"], flags, &["--", "/usr/bin/python3", "job.py"]].concat();
        let mut pond = world.pond(&run);
        pond.env("POND_CONFIG", world.operator_file()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut pond = pond.spawn().unwrap();
        let orders = pond.stdin.take();
        let said = BufReader::new(pond.stdout.take().unwrap()).lines();
        Self { pond, orders, said }
    }

    fn tell(&mut self, order: &str) -> String {
        self.orders.as_mut().unwrap().write_all(format!("{order}\n").as_bytes()).unwrap();
        self.said.next().unwrap_or_else(|| panic!("{order}: the job is gone")).unwrap()
    }

    fn end(mut self) -> i32 {
        drop(self.orders.take());
        self.pond.wait().unwrap().code().unwrap()
    }
}

fn pond(world: &World, words: &[&str]) -> Done {
    Done::of(world.pond(words).output().unwrap())
}

/// The stable code of a refusal, which changes nothing.
fn refusal(world: &World, words: &[&str]) -> String {
    let done = pond(world, &[words, &["--json"]].concat());
    let told: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    assert_eq!(done.code, 125, "{done:?}");
    assert!(told["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{told}");
    told["error"]["code"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
}

fn run_directories(world: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.state().join("runs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn world(backend: Backend) -> World {
    let world = World::new(Plan { backend, ..Plan::default() });
    std::fs::write(world.operator_file(), "[egress]\ndeny = [\"never.pondworld.net\"]\n").unwrap();
    world
}

/// What a user of this id is told at the desk of the one run, though every door on the way is open to him: a refusal's code,
/// or nothing.
fn heard_as(world: &World, uid: u32) -> String {
    let run = run_directories(world).remove(0);
    let socket = run.join("rules");
    for place in socket.ancestors().take_while(|place| place.starts_with(world.directory())) {
        std::fs::set_permissions(place, Permissions::from_mode(0o777)).unwrap();
    }
    let ask = "import json, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.chdir(sys.argv[1]); s.connect('rules')
try:
    s.send(b'{\"allow\":[],\"deny\":[]}')
    print(json.loads(s.recv(4096) or b'{\"refused\":{\"code\":\"\"}}')['refused']['code'])
except ConnectionError: print()";
    let user = ["--reuid", &uid.to_string(), "--regid", &uid.to_string(), "--clear-groups"];
    let mut asked = world.direct("setpriv");
    asked.args(user).args(["python3", "-c", ask]).arg(&run);
    let done = Done::of(asked.output().unwrap());
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    done.stdout.trim().to_owned()
}

#[test]
fn c87_rules_change_while_a_job_runs_and_uncovered_tunnels_end() {
    run_on(Backend::Native);
}

/// The rules of a job on this backend change while it runs.
pub(crate) fn run_on(backend: Backend) {
    let world = world(backend);
    let mut live = Live::start(&world, &["--allow-host", "old.pondworld.net"]);
    assert_eq!(live.tell("status new.pondworld.net"), "403");
    assert_eq!(live.tell("open old.pondworld.net"), "far side: old.pondworld.net");
    let allowed = pond(&world, &["allow", "new.pondworld.net"]);
    let run = run_directories(&world)[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!((allowed.code, allowed.stdout), (0, format!("allowed in {run}: new.pondworld.net\n")));
    assert_eq!(live.tell("open new.pondworld.net"), "far side: new.pondworld.net");
    // Without a change of the rules both stay open.
    assert_eq!(live.tell("get old.pondworld.net"), "far side: old.pondworld.net");
    assert_eq!(pond(&world, &["deny", "--run", &run, "old.pondworld.net"]).code, 0);
    assert_eq!(live.tell("get old.pondworld.net"), "closed");
    assert_eq!(live.tell("status old.pondworld.net"), "403");
    assert_eq!(live.tell("get new.pondworld.net"), "far side: new.pondworld.net");
    assert_eq!(pond(&world, &["allow", "old.pondworld.net"]).code, 0);
    assert_eq!(live.tell("status old.pondworld.net"), "200");
    let socket = world.state().join("runs").join(&run).join("rules");
    assert!(socket.exists());
    assert_eq!(live.end(), 0);
    assert!(!socket.exists(), "the socket is gone with the run");
    assert_eq!(refusal(&world, &["allow", "--run", &run, "x.pondworld.net"]), "run_over");
    let record = std::fs::read_to_string(world.state().join("runs").join(&run).join("egress.jsonl")).unwrap();
    let change = |allow: &[&str], deny: &[&str]| json!({ "uid": 0, "allow": allow, "deny": deny });
    let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes: Vec<Value> = lines.filter_map(|line| line.get("change").cloned()).collect();
    let (new, old) = ("new.pondworld.net", "old.pondworld.net");
    assert_eq!(changes, [change(&[new], &[]), change(&[], &[old]), change(&[old], &[])]);
    assert!(record.contains("\"rule_removed\"") && record.contains("\"rules_replaced\""), "{record}");
    let audit = std::fs::read_to_string(world.state().join("audit.jsonl")).unwrap();
    for command in ["pond allow new", "pond deny old", "pond allow old"] {
        let noted =
            |line: &str| line.contains(&format!("\"{command}.pondworld.net\"")) && line.contains(&run);
        assert!(audit.lines().any(noted), "{command}: {audit}");
    }
}

#[test]
fn c43_c44_a_change_that_may_not_be_made_changes_nothing() {
    let world = world(Backend::Native);
    assert_eq!(refusal(&world, &["allow", "x.pondworld.net"]), "nothing_runs");
    assert_eq!(refusal(&world, &["deny", "--run", "no-such-run", "x.pondworld.net"]), "run_unknown");
    let mut live = Live::start(&world, &["--allow-host", "old.pondworld.net"]);
    assert_eq!(live.tell("status old.pondworld.net"), "200");
    for (words, code) in [
        (&["allow", "new.pondworld.net", "*"][..], "host_invalid"),
        (&["allow", "169.254.169.254"], "host_invalid"),
        (&["allow", "api.openai.com"], "host_reserved"),
        (&["allow", "new.pondworld.net:3128"], "port_reserved"),
        (&["allow", "never.pondworld.net"], "denied_by_operator"),
        (&["deny", "new.pondworld.net", "Old.pondworld.net"], "host_invalid"),
    ] {
        assert_eq!(refusal(&world, words), code, "{words:?}");
    }
    assert_eq!(live.tell("status new.pondworld.net"), "403");
    assert_eq!(live.tell("status old.pondworld.net"), "200");
    // The operator's word stands over one that covers more.
    assert_eq!(pond(&world, &["allow", "*.pondworld.net"]).code, 0);
    assert_eq!(live.tell("status new.pondworld.net"), "200");
    assert_eq!(live.tell("status never.pondworld.net"), "403");
    assert_eq!([heard_as(&world, 65534), heard_as(&world, 0)], ["", "no_host"], "only the owner is heard");
    let mut other = world.pond(&["run", "--quiet", "--profile", "untrusted-code-read", "--", "cat"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    other.stdin.as_mut().unwrap().write_all(b"here\n").unwrap();
    let mut said = BufReader::new(other.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "here");
    assert_eq!(refusal(&world, &["allow", "x.pondworld.net"]), "run_not_named");
    let mut runs = run_directories(&world);
    runs.sort();
    let second = runs[1].file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(refusal(&world, &["allow", "--run", &second, "x.pondworld.net"]), "no_allowlist");
    drop(other.stdin.take());
    assert_eq!((other.wait().unwrap().code(), live.end()), (Some(0), 0));
}

/// What a job did on the network is known even if nobody lived to sum it up (case 92).
#[test]
fn c92_the_record_of_a_killed_run_is_kept() {
    let world = world(Backend::Native);
    let mut live = Live::start(&world, &["--allow-host", "old.pondworld.net"]);
    assert_eq!(live.tell("status denied.pondworld.net"), "403");
    assert_eq!(live.tell("open old.pondworld.net"), "far side: old.pondworld.net");
    live.pond.kill().unwrap();
    live.pond.wait().unwrap();
    let collected = pond(&world, &["gc"]);
    assert_eq!(collected.stdout, "1 swept, 0 removed, 0 kept\n", "{collected:?}");
    assert_eq!(run_directories(&world), Vec::<PathBuf>::new());
    let kept = files_below(&world.state().join("unfinished"));
    assert_eq!(kept.len(), 1, "{kept:?}");
    let text = String::from_utf8_lossy(&kept[0].1);
    for told in ["\"denied.pondworld.net:443\"", "host_not_allowed", "\"opened\"", "\"old.pondworld.net\""] {
        assert!(text.contains(told), "{told}: {text}");
    }
}
