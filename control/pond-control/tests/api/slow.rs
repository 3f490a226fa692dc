//! Clients that take their time: each is let go when its time is up, whatever it trickles, and nobody else waits for them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{open, parse};
use super::server::{Disk, Server};
use super::world::{Set, World, on_sqlite};

/// Longer than a head may take, and than a body may.
const HEAD: std::ops::Range<Duration> = Duration::from_secs(5)..Duration::from_secs(25);
const BODY: std::ops::Range<Duration> = Duration::from_secs(20)..Duration::from_secs(60);

/// Sends this at once, then a byte twice a second, until the other end is done with it; how long that took and what it said.
fn trickle(at: SocketAddr, first: &str, byte: &[u8]) -> (Duration, Vec<u8>) {
    let started = Instant::now();
    let mut stream = open(at);
    stream.write_all(first.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while started.elapsed() < Duration::from_secs(80) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => said.extend_from_slice(&piece[..read]),
            Err(fault) if fault.kind() == std::io::ErrorKind::WouldBlock => {
                if stream.write_all(byte).is_err() {
                    break;
                }
            }
            Err(_reset) => break,
        }
    }
    (started.elapsed(), said)
}

#[test]
fn who_is_slow_is_let_go_and_holds_nobody_up() {
    on_sqlite(|start: &dyn Fn(Set) -> World| {
        let world = start(Set::default());
        let at = world.address;
        let bearer = world.admin.clone();
        let silent = std::thread::spawn(move || trickle(at, "", b""));
        let head =
            std::thread::spawn(move || trickle(at, "GET /healthz HTTP/1.1\r\nHost: pond\r\nX: ", b"x"));
        let body = std::thread::spawn(move || {
            let head = "POST /v1/preflight HTTP/1.1\r\nHost: pond\r\nContent-Type: application/json\r\n";
            trickle(
                at,
                &format!("{head}Authorization: Bearer {bearer}\r\nContent-Length: 1000\r\n\r\n"),
                b" ",
            )
        });
        let meanwhile = Instant::now();
        while !body.is_finished() {
            let asked = Instant::now();
            assert_eq!(world.ask("GET", "/v1/runs", None).status, 200);
            assert!(asked.elapsed() < Duration::from_secs(5), "waited {:?}", asked.elapsed());
            assert!(meanwhile.elapsed() < Duration::from_secs(90));
            std::thread::sleep(Duration::from_millis(500));
        }
        for slow in [silent, head] {
            let (took, said) = slow.join().unwrap();
            assert!(HEAD.contains(&took), "{took:?}: {}", String::from_utf8_lossy(&said));
        }
        let (took, said) = body.join().unwrap();
        assert!(BODY.contains(&took), "{took:?}: {}", String::from_utf8_lossy(&said));
        assert_eq!(parse(&said).problem(), "request_timeout");
    });
}

/// Every process of a database, stopped for as long as this is there.
struct Silence(Vec<Pid>);

impl Silence {
    fn of(server: &Server) -> Self {
        let first = server.process.as_ref().unwrap().id();
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        let children = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
        let all: Vec<Pid> = children
            .chain([i32::try_from(first).unwrap()])
            .map(|pid: i32| Pid::from_raw(pid).unwrap())
            .collect();
        all.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        Self(all)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
    }
}

/// A database that neither answers nor ends: nobody waits until it does.
#[test]
fn a_store_that_says_nothing_is_told_of() {
    let server = Server::start(Disk::Careless);
    let directory = tempfile::tempdir().unwrap();
    let world = World::start(&server.database("silent"), directory, Set::default());
    assert_eq!(world.ask("GET", "/v1/runs", None).status, 200);
    let stopped = Silence::of(&server);
    let calls = [("GET", "/v1/runs"), ("GET", "/readyz"), ("GET", "/v1/projects")];
    let told = calls.map(|(method, path)| {
        let reply = world.ask(method, path, None);
        (reply.status, reply.problem())
    });
    drop(stopped);
    assert_eq!(told, [(); 3].map(|()| (503, "unavailable".to_owned())));
    assert_eq!(world.ask("GET", "/v1/runs", None).status, 200);
}
