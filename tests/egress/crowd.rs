//! Many at once, and the end of a job (cases 22, 61, 68, 82, 84, 86 and 89).

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use serde_json::{Value, json};

use crate::world::log::Event;
use crate::world::sides::BLACK_HOLE;
use crate::world::zone::{DOMAIN, Script, public};
use crate::world::{Backend, Done, Plan, World};

/// What the jobs of these tests are written with.
const PRELUDE: &str = r#"
import json, socket, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
def connect(host, port=3128):
    s = socket.create_connection(("127.0.0.1", port), 20)
    s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
    return s, s.recv(4096).decode()
def status(host, port=3128):
    s, reply = connect(host, port)
    s.close()
    return int(reply.split()[1])
"#;

fn job(world: &World, rule: &str, script: &str) -> Value {
    world.write("job.py", format!("{PRELUDE}{script}"));
    let run = ["run", "--quiet", "--allow-host", rule, "--", "/usr/bin/python3", "job.py"];
    let done = Done::of(world.pond(&run).output().unwrap());
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

#[test]
fn c61_a_wildcard_names_a_bounded_number_of_hosts() {
    let world = World::new(Plan::default());
    let script = r#"print(json.dumps([status(f"n{n}.wild.pondworld.net") for n in range(258)] + [status("n0.wild.pondworld.net")]))"#;
    let statuses = job(&world, &format!("*.wild.{DOMAIN}"), script);
    let expected: Vec<u16> = [vec![200; 256], vec![403; 2], vec![200]].concat();
    assert_eq!(statuses, json!(expected));
    let asked: std::collections::BTreeSet<String> = world.log.queries().into_iter().collect();
    assert_eq!(asked.len(), 256, "names told to the owner of the domain");
}

#[test]
fn c68_many_who_ask_for_one_name_ask_once() {
    let name = format!("slow.{DOMAIN}");
    let script = Script::Late(200, vec![public(&name).into()]);
    let world = World::new(Plan { names: vec![(name.clone(), script)], ..Plan::default() });
    let script = r#"
with ThreadPoolExecutor(100) as pool:
    print(json.dumps(list(pool.map(status, ["slow.pondworld.net"] * 100))))"#;
    assert_eq!(job(&world, &name, script), json!(vec![200; 100]));
    // One question per family; a resolver in a hurry repeats each at most twice.
    let asked = world.log.queries().len();
    assert!((2..=6).contains(&asked), "asked {asked} times");
}

#[test]
fn c84_tunnels_are_counted_and_given_back() {
    tunnels_are_counted(Backend::Native);
}

fn tunnels_are_counted(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    let name = format!("busy.{DOMAIN}");
    let script = r#"
host = "busy.pondworld.net"
with ThreadPoolExecutor(32) as pool:
    open_tunnels = list(pool.map(connect, [host] * 256))
more, reply = connect(host)
for s, _ in open_tunnels[:3]: s.close()
time.sleep(0.5)
print(json.dumps([
    sorted({reply.split()[1] for _, reply in open_tunnels}),
    reply.split()[1], "retry-after:" in reply.lower(),
    [status(host) for _ in range(3)],
]))"#;
    assert_eq!(job(&world, &name, script), json!([["200"], "429", true, [200, 200, 200]]));
}

/// Where the site does not say what its IPv6 addresses hide, none of them is dialled.
#[test]
fn c57_without_the_sites_word_only_ipv4_is_dialled() {
    let (v4, v6) = ("93.184.216.34".parse().unwrap(), "2a00:64::a00:5".parse().unwrap());
    let name = |label: &str| format!("{label}.wild.{DOMAIN}");
    let names = vec![
        ("ipv4only.arpa".to_owned(), Script::ServerFailure),
        (name("both"), Script::Addresses(vec![v4, v6])),
        (name("six"), Script::Addresses(vec![v6])),
    ];
    let world = World::new(Plan { names, ..Plan::default() });
    let script =
        r#"print(json.dumps([status("both.wild.pondworld.net"), status("six.wild.pondworld.net")]))"#;
    assert_eq!(job(&world, &format!("*.wild.{DOMAIN}"), script), json!([200, 502]));
    assert_eq!(world.log.dials(), [std::net::SocketAddr::new(v4, 443)]);
}

/// Clients that vanish while their host is dialled hold nothing.
#[test]
fn c22_c82_a_client_that_resets_frees_its_tunnel() {
    let hole = format!("hole.wild.{DOMAIN}");
    let script = Script::Addresses(vec![BLACK_HOLE.into()]);
    let world = World::new(Plan { names: vec![(hole, script)], ..Plan::default() });
    let script = r#"
for _ in range(300):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.sendall(b"CONNECT hole.wild.pondworld.net:443 HTTP/1.1\r\n\r\n")
    time.sleep(0.005)
    s.close()
time.sleep(0.5)
print(json.dumps(status("good.wild.pondworld.net")))"#;
    assert_eq!(job(&world, &format!("*.wild.{DOMAIN}"), script), json!(200));
}

/// The end of a job is the end of everything it had open.
#[test]
fn c86_a_killed_job_leaves_no_tunnel() {
    a_killed_job(Backend::Native);
}

fn a_killed_job(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    let name = format!("kept.{DOMAIN}");
    world.write(
        "job.py",
        format!("{PRELUDE}s, _ = connect({name:?})\nprint('open', flush=True)\ntime.sleep(60)\n"),
    );
    // Time enough to open it.
    let timeout = if backend == Backend::Native { "2s" } else { "10s" };
    let run =
        ["run", "--quiet", "--timeout", timeout, "--allow-host", &name, "--", "/usr/bin/python3", "job.py"];
    let done = Done::of(world.pond(&run).output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (124, "open\n"), "{done:?}");
    let ended = |event: &Event| matches!(event, Event::End { .. });
    let patience = Instant::now() + Duration::from_secs(10);
    while !world.log.all().iter().any(ended) {
        assert!(Instant::now() < patience, "the tunnel is still open: {:?}", world.log.all());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Without its gateway a job has no way out, and no other appears.
#[test]
fn c86_a_killed_gateway_leaves_everything_closed() {
    a_killed_gateway(Backend::Native);
}

fn a_killed_gateway(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    let name = format!("kept.{DOMAIN}");
    let script = r#"
print(status("kept.pondworld.net"), flush=True)
sys.stdin.readline()
try: print(status("kept.pondworld.net"))
except (OSError, IndexError): print("closed")
try: print(socket.create_connection(("93.184.216.34", 443), 3))
except OSError as fault: print(fault.errno)
"#;
    world.write("job.py", format!("{PRELUDE}{script}"));
    let run = ["run", "--quiet", "--allow-host", &name, "--", "/usr/bin/python3", "job.py"];
    let mut pond = world.pond(&run).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(pond.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "200");
    // The kernel answers a dial before the far side has taken it down.
    let patience = Instant::now() + Duration::from_secs(10);
    while world.log.dials().is_empty() {
        assert!(Instant::now() < patience, "a tunnel that nobody dialled");
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = world.log.dials().len();
    let gateway = gateway_of(pond.id());
    rustix::process::kill_process(gateway, rustix::process::Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // The job may be gone already.
    drop(pond.stdin.take().unwrap().write_all(b"\n"));
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    pond.wait().unwrap();
    assert!(rest == ["closed", "101"] || rest.is_empty(), "{rest:?}");
    assert_eq!(world.log.dials().len(), before);
}

/// Opens tunnel after tunnel, and says how many were answered.
const COUNTING: &str = r#"
sys.stdin.readline()
print("go", flush=True)
answered = 0
try:
    while True:
        s, reply = connect("kept.pondworld.net")
        if not reply.startswith("HTTP/1.1 200"): break
        answered += 1
        s.close()
except OSError: pass
print(answered)
"#;

/// A tunnel that was answered is in the record, though pond did not listen at the time and the gateway was killed before it could
/// say so (case 92).
#[test]
fn c86_c92_no_tunnel_of_a_killed_gateway_is_without_a_record() {
    let world = World::new(Plan::default());
    world.write("job.py", format!("{PRELUDE}{COUNTING}"));
    let name = format!("kept.{DOMAIN}");
    let run = ["run", "--quiet", "--allow-host", &name, "--", "/usr/bin/python3", "job.py"];
    let mut pond = world.pond(&run).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(pond.stdout.take().unwrap()).lines();
    pond.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "go");
    let (gateway, itself) = (gateway_of(pond.id()), Pid::from_child(&pond));
    let tell = |pid, signal| rustix::process::kill_process(pid, signal).unwrap();
    tell(itself, rustix::process::Signal::STOP);
    // As many as there is room for; then nobody gets an answer.
    let mut dialled = 0;
    while dialled < 100 || dialled < world.log.dials().len() {
        dialled = world.log.dials().len();
        std::thread::sleep(Duration::from_secs(1));
    }
    tell(gateway, rustix::process::Signal::KILL);
    tell(itself, rustix::process::Signal::CONT);
    let answered: usize = lines.next().unwrap().unwrap().parse().unwrap();
    pond.wait().unwrap();
    let runs: Vec<_> = std::fs::read_dir(world.state().join("runs")).unwrap().flatten().collect();
    let record = std::fs::read_to_string(runs[0].path().join("egress.jsonl")).unwrap();
    let opened = record.lines().filter(|line| line.contains("\"opened\"")).count();
    assert!(answered > 100 && opened >= answered, "{answered} answered, {opened} in the record");
}

/// The gateway among the children of a pond.
pub(crate) fn gateway_of(pond: u32) -> Pid {
    let children = std::fs::read_dir(format!("/proc/{pond}/task")).unwrap().flatten();
    let children = children.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap());
    let children: Vec<i32> = children
        .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    let is_gateway = |pid: &&i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("gateway"))
    };
    Pid::from_raw(*children.iter().find(is_gateway).unwrap()).unwrap()
}

/// Whoever asks on a job's behalf, from within, gets the job's verdict.
#[test]
fn c89_a_relay_inside_changes_nothing() {
    a_relay_inside(Backend::Native);
}

fn a_relay_inside(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    let script = r#"
def pump(a, b):
    while data := a.recv(4096): b.sendall(data)
    b.shutdown(socket.SHUT_WR)
def relay(listener):
    while True:
        client = listener.accept()[0]
        proxy = socket.create_connection(("127.0.0.1", 3128))
        for pair in (client, proxy), (proxy, client):
            threading.Thread(target=pump, args=pair, daemon=True).start()
listener = socket.create_server(("127.0.0.1", 9999))
threading.Thread(target=relay, args=(listener,), daemon=True).start()
print(json.dumps([[status(host, port) for port in (3128, 9999)] for host in ("good.pondworld.net", "denied.pondworld.net")]))"#;
    assert_eq!(job(&world, &format!("good.{DOMAIN}"), script), json!([[200, 200], [403, 403]]));
}

/// The same of jobs on another backend.
pub(crate) fn run_on(backend: Backend) {
    tunnels_are_counted(backend);
    a_killed_job(backend);
    a_killed_gateway(backend);
    a_relay_inside(backend);
}
