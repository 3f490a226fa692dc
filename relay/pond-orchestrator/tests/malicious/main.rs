//! An orchestrator that reads everything, replays, reorders, swaps, changes and forges, between a control plane and two
//! workers that check what pond-seal and pond-wire check. It gains nothing: every attack ends in a code, and what any sequence of
//! them reaches is a job that was not run, or run again.

#![expect(clippy::unwrap_used, reason = "a test says where it failed by panicking there")]

mod attacks;
mod control;
mod disorder;
mod worker;

use std::collections::BTreeMap;

use control::{Control, Enrolled, Job};
use pond_policy::capability::Requirement;
use pond_policy::name::Project;
use pond_policy::path::Path;
use pond_policy::tags::Tag;
use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::enroll::Identity;
use pond_seal::key::SigningKey;
use pond_seal::request::SeenNonces;
use pond_seal::result::Stream;
use pond_wire::orch::Route;
use serde::{Deserialize, Serialize};
use worker::Worker;

/// The server's clock.
const NOW: u64 = 1_800_000_000;

/// A worker's call on its way.
#[derive(Debug, Clone)]
struct Sent {
    route: Route,
    head: String,
    body: Vec<u8>,
}

/// What a worker signs about a job, as far as this play needs it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    job: String,
    epoch: u64,
    log: Digest,
    output: String,
}

struct Play {
    control: Control,
    workers: Vec<Worker>,
}

fn tags(texts: &[&str]) -> Vec<Tag> {
    texts.iter().map(|text| Tag::parse(text).unwrap()).collect()
}

fn job(name: &str, tenant: &str, required: &[&str]) -> (String, Job) {
    let job = Job {
        project: Project::parse(tenant, &Path::root()).unwrap(),
        capability: Requirement::parse("sandbox.*").unwrap(),
        tags: tags(required),
        secret: format!("sk-of-{name}-0123456789").into_bytes(),
        epoch: 0,
        offer: None,
        log: Chain::begin(name, 0, Stream::Stdout),
        kept: Vec::new(),
        result: None,
    };
    (name.to_owned(), job)
}

/// `w0` is trusted; `w1` was brought by acme and sees acme's work only.
fn play() -> Play {
    let key = SigningKey::generate().unwrap();
    let mut enrolled = BTreeMap::new();
    let mut workers = Vec::new();
    for (name, granted) in [("w0", &["pool:trusted"][..]), ("w1", &["pool:byo", "tenant:acme"])] {
        let identity = Identity::generate().unwrap();
        let seen = SeenNonces::new(1000);
        enrolled.insert(name.to_owned(), Enrolled { keys: identity.keys(), tags: tags(granted), seen });
        workers.push(Worker {
            name: name.to_owned(),
            identity,
            control: key.public(),
            polled: None,
            job: None,
            log: None,
            began: Vec::new(),
            opened: Vec::new(),
            said: Vec::new(),
        });
    }
    let jobs = BTreeMap::from([
        job("j-trusted", "other", &["pool:trusted"]),
        job("j-byo", "acme", &["pool:byo", "tenant:acme"]),
        job("j-any", "other", &[]),
    ]);
    Play { control: Control { key, workers: enrolled, jobs }, workers }
}
