//! How much passes and for how long: caps, clients that do not read, and a model's events one by one (cases 79, 80, 83, 133
//! and 134). What a cap cuts inside goes on where nothing holds it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::broker::{REAL_KEY, configured};
use crate::crowd::gateway_of;
use crate::rules::files_below;
use crate::world::http::Reply;
use crate::world::models::ANTHROPIC;
use crate::world::servers::Handler;
use crate::world::zone::DOMAIN;
use crate::world::{Done, Plan, World};

/// A client of the far side, through the proxy or without it.
pub(crate) const PRELUDE: &str = r#"
import json, socket, ssl, sys, time
trust = ssl.create_default_context(cafile="ca.pem")
trust.suppress_ragged_eofs = True
direct = "direct" in sys.argv
def tunnel(host):
    s = socket.create_connection((host, 443) if direct else ("127.0.0.1", 3128), 30)
    if not direct:
        s.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        status = int(s.recv(4096).split()[1])
        if status != 200: return status
    return trust.wrap_socket(s, server_hostname=host)
def ask(s, host, path): s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
def read(s, most=1 << 62):
    got = 0
    try:
        while got < most and (more := s.recv(65536)): got += len(more)
    except TimeoutError: return [got, "open"]
    except OSError: pass
    return [got, "closed" if got < most else "open"]
"#;

pub(crate) const LARGE: usize = 1 << 20;

/// A host with a large file, and an operator with caps.
fn capped(caps: &str) -> World {
    let world = World::new(Plan::default());
    world.trust();
    let folder = world.sites().join(format!("large.{DOMAIN}"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), vec![b'x'; LARGE]).unwrap();
    std::fs::write(world.operator_file(), format!("[egress.caps]\n{caps}\n")).unwrap();
    world
}

/// What the script says inside, and where nothing holds it.
fn both(world: &World, script: &str) -> (Value, Value) {
    world.write("job.py", format!("{PRELUDE}{script}"));
    let hosts = format!("*.{DOMAIN}");
    let run = ["run", "--quiet", "--allow-host", &hosts, "--", "/usr/bin/python3", "job.py"];
    let inside = Done::of(world.pond(&run).env("POND_CONFIG", world.operator_file()).output().unwrap());
    let outside = Done::of(world.direct("/usr/bin/python3").args(["job.py", "direct"]).output().unwrap());
    let said =
        |done: &Done| serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    (said(&inside), said(&outside))
}

/// How each tunnel of the one run ended, and what it had moved.
fn ends(world: &World) -> Vec<(String, u64)> {
    let files = files_below(&world.state().join("runs"));
    let (_, record) = files.into_iter().find(|(name, _)| name.ends_with("egress.jsonl")).unwrap();
    let record = String::from_utf8(record).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let closed = events.filter_map(|event| event.get("closed").cloned());
    let moved = |tunnel: &Value, way: &str| tunnel[way].as_u64().unwrap();
    closed
        .map(|tunnel| {
            let both = moved(&tunnel, "bytes_up") + moved(&tunnel, "bytes_down");
            (tunnel["close"].as_str().unwrap().to_owned(), both)
        })
        .collect()
}

#[test]
fn c79_a_quiet_tunnel_ends() {
    let world = capped("idle_seconds = 2");
    let script = r#"
s = tunnel("quiet.pondworld.net")
s.settimeout(6 if direct else 60)
print(json.dumps(read(s)[1]))"#;
    assert_eq!(both(&world, script), (json!("closed"), json!("open")));
    assert_eq!(ends(&world)[0].0, "idle");
}

#[test]
fn c80_a_busy_tunnel_ends_with_its_life() {
    let world = capped("lifetime_seconds = 3");
    let script = r#"
s, until, state = tunnel("busy.pondworld.net"), time.monotonic() + (6 if direct else 60), "open"
try:
    while state == "open" and time.monotonic() < until:
        ask(s, "busy.pondworld.net", "/")
        state = read(s, 1)[1]
        time.sleep(0.1)
except OSError: state = "closed"
print(json.dumps(state))"#;
    assert_eq!(both(&world, script), (json!("closed"), json!("open")));
    assert_eq!(ends(&world)[0].0, "lifetime");
}

#[test]
fn c80_a_tunnel_and_a_job_carry_so_much() {
    let world = capped("tunnel_bytes = \"64k\"\njob_bytes = \"96k\"");
    let script = r#"
told = []
for _ in range(3):
    s = tunnel("large.pondworld.net")
    if isinstance(s, int): told.append(s); continue
    ask(s, "large.pondworld.net", "/file")
    got, state = read(s, 1 << 20)
    told.append([got >= 1 << 20, state])
    s.close()
print(json.dumps(told))"#;
    let whole = json!([[true, "open"], [true, "open"], [true, "open"]]);
    assert_eq!(both(&world, script), (json!([[false, "closed"], [false, "closed"], 403]), whole));
    let end = |close: &str, moved| (close.to_owned(), moved);
    assert_eq!(ends(&world), [end("tunnel_bytes", 64 << 10), end("total_bytes", 32 << 10)]);
}

/// A pond whose job says a line and then waits for one.
struct Job {
    pond: Child,
    said: BufReader<ChildStdout>,
}

impl Job {
    fn start(world: &World, flags: &[&str], script: &str) -> Self {
        world.write("job.py", format!("{PRELUDE}{script}"));
        let run = [&["run", "--quiet"], flags, &["--", "/usr/bin/python3", "-u", "job.py"]].concat();
        let mut pond = world.pond(&run);
        pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY);
        let mut pond = pond.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(pond.stdout.take().unwrap());
        Self { pond, said }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self) {
        self.pond.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn gateway(&self) -> Pid {
        gateway_of(self.pond.id())
    }

    /// KiB of memory its gateway has had at most.
    fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.gateway().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn end(mut self) -> i32 {
        drop(self.pond.stdin.take());
        self.pond.wait().unwrap().code().unwrap()
    }
}

/// What is offered to a client that does not read: more than all sockets on the way hold.
const FLOOD: usize = 48 << 20;
/// Time enough to take all of it, for whoever does.
const PAUSE: Duration = Duration::from_secs(4);
/// What a gateway may grow by while nobody reads.
const GROWTH_KIB: u64 = 8 << 10;

/// Answers with a stream of so many bytes, in events that say nothing.
fn flood() -> Reply {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let event = format!(": {}\n\n", "x".repeat(1020));
    Reply::Raw([head, &event.repeat(FLOOD / event.len())].concat().into_bytes())
}

#[test]
fn c83_a_client_that_does_not_read_stops_the_far_side() {
    let host = format!("flood.{DOMAIN}");
    let handler: Handler = Arc::new(|_| flood());
    let world = World::new(Plan { handlers: HashMap::from([(host.clone(), handler)]), ..Plan::default() });
    world.trust();
    std::fs::write(world.operator_file(), "").unwrap();
    let script = r#"
for reads in (True, False):
    s = tunnel("flood.pondworld.net")
    print("open")
    sys.stdin.readline()
    ask(s, "flood.pondworld.net", "/")
    if reads: read(s)
    print("asked")
    sys.stdin.readline()
    s.close()
"#;
    let mut job = Job::start(&world, &["--allow-host", &host], script);
    let mut memory = 0;
    for _ in 0..2 {
        assert_eq!(job.hear(), "open");
        memory = job.memory();
        job.tell();
        assert_eq!(job.hear(), "asked");
        std::thread::sleep(PAUSE);
        assert!(job.memory() < memory + GROWTH_KIB, "{memory} KiB grew to {}", job.memory());
        job.tell();
    }
    assert_eq!(job.end(), 0);
    let moved: Vec<u64> = ends(&world).into_iter().map(|(_, moved)| moved).collect();
    let offered = u64::try_from(FLOOD - (1 << 20)).unwrap();
    assert!(moved[0] > offered && moved[1] < offered / 2, "{moved:?} of {FLOOD}; memory {memory}");
}

/// Speaks to the model and says what came.
const MODEL: &str = r#"
import os
def call(path, body, room=None):
    s = socket.socket()
    s.settimeout(60)
    if room: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    s.connect(("127.0.0.1", 8377))
    text = json.dumps(body)
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nx-api-key: {os.environ['ANTHROPIC_API_KEY']}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
    return s
body = {"model": "claude-haiku-4-5", "max_tokens": 50, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
"#;

fn with_model(handler: Handler) -> World {
    let handlers = HashMap::from([(ANTHROPIC.to_owned(), handler)]);
    let world = configured(Plan { handlers, ..Plan::default() }, "anthropic", ANTHROPIC, "claude-haiku-4-5");
    world.trust();
    world
}

const MODEL_FLAGS: [&str; 4] = ["--model", "main", "--max-cost-cents", "100"];

/// The provider says its next word only when the job has told it, by another call, that the last one has come: a broker
/// that kept an event back would wait for ever.
#[test]
fn c133_each_event_comes_before_the_next_one_leaves() {
    const EVENTS: usize = 6;
    let (next, events) = sync_channel(EVENTS);
    let (events, sent) = (Arc::new(Mutex::new(events)), Mutex::new(0));
    let handler: Handler = Arc::new(move |request| {
        if !request.target.starts_with("/v1/messages/count_tokens") {
            next.send(b"event: ping\ndata: {\"type\":\"ping\",\"n\":0}\n\n".to_vec()).unwrap();
            return Reply::Fed(Arc::clone(&events));
        }
        let mut sent = sent.lock().unwrap();
        *sent += 1;
        let last = if *sent == EVENTS { "message_stop" } else { "ping" };
        next.send(format!("event: {last}\ndata: {{\"type\":{last:?},\"n\":{sent}}}\n\n").into_bytes())
            .unwrap();
        Reply::ok("application/json", r#"{"input_tokens":1}"#)
    });
    let world = with_model(handler);
    let script = r#"
s, text, seen = call("/v1/messages", body), "", 0
while "message_stop" not in text:
    while f'"n":{seen}' not in text:
        more = s.recv(65536).decode()
        if not more: sys.exit(f"ended after {seen}")
        text += more
    seen += 1
    if seen < 7: call("/v1/messages/count_tokens", {k: body[k] for k in ("model", "messages")}).recv(1)
print(seen)
"#;
    let mut job = Job::start(&world, &MODEL_FLAGS, &format!("{MODEL}{script}"));
    assert_eq!(job.hear(), (EVENTS + 1).to_string());
    assert_eq!(job.end(), 0);
}

/// Parts of a stream that the provider got rid of do not grow while nobody reads, and do when somebody does.
#[test]
fn c134_a_reader_that_takes_its_time_holds_the_provider_back() {
    const PARTS: usize = 512;
    let gone = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gone);
    let world = with_model(Arc::new(move |_| {
        let (next, parts) = sync_channel(0);
        let gone = Arc::clone(&counted);
        std::thread::spawn(move || {
            let part = format!(": {}\n\n", "x".repeat(1020)).repeat(32).into_bytes();
            while gone.load(Ordering::Relaxed) < PARTS && next.send(part.clone()).is_ok() {
                gone.fetch_add(1, Ordering::Relaxed);
            }
        });
        Reply::Fed(Arc::new(Mutex::new(parts)))
    }));
    let script = r#"
s = call("/v1/messages", body, 1 << 16)
s.recv(1)
print("asked")
sys.stdin.readline()
print(read(s, 15 << 20)[1])
"#;
    let mut job = Job::start(&world, &MODEL_FLAGS, &format!("{MODEL}{script}"));
    assert_eq!(job.hear(), "asked");
    let memory = job.memory();
    let (mut held, until) = (usize::MAX, Instant::now() + Duration::from_secs(120));
    while held != gone.load(Ordering::Relaxed) {
        assert!(Instant::now() < until, "nothing holds the provider back");
        held = gone.load(Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    assert!(held < PARTS, "all of {PARTS} parts went up to somebody who does not read");
    assert!(job.memory() < memory + GROWTH_KIB, "{memory} KiB grew to {}", job.memory());
    job.tell();
    assert_eq!(job.hear(), "open");
    assert_eq!(job.end(), 0);
    assert!(gone.load(Ordering::Relaxed) > held);
}
