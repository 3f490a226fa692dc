//! Followers: of events, and of output while it arrives.

use std::io::{Read, Write};

use pond_control::store::{Chunk, Completion, Lease, Outcome};
use pond_seal::chain::Chain;
use pond_seal::result::Stream;

use super::client::{ask, open, parse};
use super::world::{Set, World};

pub(crate) fn events_go_on_where_they_stopped(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a", "b a"]);
    world.ask("POST", &format!("/v1/runs/{run}/cancel"), None);
    let bearer = format!("Bearer {}", world.admin);
    let follow = |last: Option<&str>| {
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        ask(world.address, "GET", &format!("/v1/runs/{run}/events"), &headers, b"")
    };
    let all = follow(None);
    assert_eq!(all.header("content-type"), Some("text/event-stream"));
    let text = all.text();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let expected =
        ["run.submitted", "stage.queued", "run.cancelling", "stage.ended", "stage.ended", "run.ended"];
    assert_eq!(names, expected);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).nth(1).unwrap();
    let event: pond_wire::api::Event = serde_json::from_str(data).unwrap();
    assert_eq!((event.action.as_str(), event.stage.as_deref()), ("stage.queued", Some("a")));
    let third = text.lines().filter_map(|line| line.strip_prefix("id: ")).nth(2).unwrap();
    let rest = follow(Some(third)).text();
    assert_eq!(
        rest.lines().filter_map(|line| line.strip_prefix("event: ")).collect::<Vec<_>>(),
        expected[3..]
    );
    assert_eq!(follow(Some("x")).problem(), "parameter_invalid");
}

struct Job<'a> {
    world: &'a World,
    lease: Lease,
    chain: Chain,
}

impl<'a> Job<'a> {
    fn begin(world: &'a World) -> Self {
        let worker = world.worker();
        let lease = world.block_on(async {
            let store = &world.plane.store;
            let lease = store.claim((&worker, 0), 1, world.plane.now()).await.unwrap().remove(0).lease;
            store.acknowledge(&lease, world.plane.now()).await.unwrap();
            lease
        });
        let chain = Chain::begin(lease.job.as_str(), lease.epoch, Stream::Stdout);
        Self { world, lease, chain }
    }

    fn write(&mut self, bytes: &[u8]) {
        let at = self.chain.at();
        let chain = self.chain.extend(bytes).head;
        let chunk = Chunk { stream: Stream::Stdout, sequence: at.seq, offset: at.offset, bytes, chain };
        self.world
            .block_on(self.world.plane.store.append_log(&self.lease, chunk, self.world.plane.now()))
            .unwrap();
        self.world.plane.bell.ring();
    }

    fn end(&self) {
        let completion = Completion {
            lease: &self.lease,
            outcome: Outcome::Succeeded,
            reason: "",
            spent: pond_control::store::Spent::default(),
            envelope: b"{\"signed\":1}",
        };
        let now = self.world.plane.now();
        self.world.block_on(self.world.plane.store.complete(completion, now)).unwrap();
        self.world.plane.bell.ring();
    }
}

pub(crate) fn output_is_read_by_bytes_and_followed(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a"]);
    let mut job = Job::begin(&world);
    let path = format!("/v1/runs/{run}/stages/a/logs");
    assert_eq!(world.ask("GET", &path, None).text(), "");
    job.write(b"one ");
    job.write(b"two ");
    let read = |query: &str| world.ask("GET", &format!("{path}{query}"), None).text();
    assert_eq!(
        (read(""), read("?offset=2"), read("?offset=6"), read("?offset=99")),
        ("one two ".into(), "e two ".into(), "o ".into(), String::new())
    );
    assert_eq!(read("?stream=stderr"), "");
    let mut follower = open(world.address);
    let head = format!(
        "GET {path}?follow=true HTTP/1.1\r\nHost: pond\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        world.admin
    );
    follower.write_all(head.as_bytes()).unwrap();
    let mut raw = Vec::new();
    let mut piece = [0; 4096];
    while !raw.windows(4).any(|window| window == b"two ") {
        let read = follower.read(&mut piece).unwrap();
        assert!(read > 0, "the stream ended while the job ran");
        raw.extend_from_slice(&piece[..read]);
    }
    job.write(b"three");
    job.end();
    follower.read_to_end(&mut raw).unwrap();
    assert_eq!(parse(&raw).text(), "one two three");
    assert_eq!(read(""), "one two three", "it stays when the job is over");
    let statement = world.ask("GET", &format!("/v1/runs/{run}/stages/a/statement"), None);
    assert_eq!((statement.status, statement.text().as_str()), (200, "{\"signed\":1}"));
    assert_eq!(statement.header("content-type"), Some("application/vnd.dsse.envelope.v1+json"));
    let shown = world.ask("GET", &format!("/v1/runs/{run}"), None).json();
    assert_eq!(shown["stages"][0]["results"][0]["outcome"], "succeeded");
}

/// Three workers were lost on it, or it was refused half-way: nobody has a result, and what it said is all there is to go by.
pub(crate) fn output_is_there_without_a_result(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a"]);
    let mut job = Job::begin(&world);
    job.write(b"so far");
    let store = &world.plane.store;
    world.block_on(store.refuse(&job.lease, "gone", world.plane.now())).unwrap();
    let shown = world.ask("GET", &format!("/v1/runs/{run}"), None).json();
    assert_eq!(
        (&shown["stages"][0]["state"], &shown["stages"][0]["results"]),
        (&"failed".into(), &serde_json::json!([]))
    );
    assert_eq!(world.ask("GET", &format!("/v1/runs/{run}/stages/a/logs"), None).text(), "so far");
}
