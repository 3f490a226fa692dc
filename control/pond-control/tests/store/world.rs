//! A store with a project, and short words for what cases do again and again.

#[path = "raw.rs"]
mod raw;

pub(crate) use raw::raw;

use std::time::Duration;

use pond_control::store::{
    Actor, Completed, Completion, Grant, Lease, Moment, NewWorker, Offer, Outcome, Renewed, Rules, RunId,
    RunView, Spent, Store, Submission, Submitted, WorkerId,
};
use pond_policy::capability::Capability;
use pond_policy::name::{Name, Project};
use pond_policy::run::{Run, preflight};
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use pond_seal::vault::KeyRing;

use super::server::Server;

/// When every case begins.
pub(crate) const START: Moment = Moment(1_800_000_000_000);

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) address: String,
    pub(crate) ring: String,
}

pub(crate) fn on_sqlite(case: impl AsyncFnOnce(&World)) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", directory.path().join("pond.db").display());
    block_on(World::play(address, case));
}

pub(crate) fn on_postgres(server: &Server, name: &str, case: impl AsyncFnOnce(&World)) {
    let address = server.database(name);
    // What fails says in which case; the tests of one topic share a server.
    let told = Told(name);
    block_on(World::play(address, case));
    std::mem::drop(told);
}

struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            use std::io::Write as _;
            let line = format!("in the case {}\n", self.0);
            std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// So many seconds after the start.
pub(crate) fn at(seconds: u64) -> Moment {
    START.plus(Duration::from_secs(seconds))
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn project(text: &str) -> Project {
    Project::from(name(text))
}

/// A document of stages written `name needs,needs`, each a trusted job for any sandbox.
pub(crate) fn document(stages: &[&str]) -> String {
    let stage = |line: &&str| {
        let (name, needs) = line.split_once(' ').unwrap_or((line, ""));
        format!(
            "  - name: {name}\n    needs: [{needs}]\n    executor:\n      kind: swarm\n      command: [make]\n      timeout: 100s\n      sandbox: {{profile: untrusted-code-write}}\n"
        )
    };
    format!("project: acme\nstages:\n{}", stages.iter().map(stage).collect::<String>())
}

pub(crate) fn parse(document: &str) -> Run {
    preflight(&pond_wire::decode::decode(document.as_bytes()).unwrap(), &Settings::default()).unwrap()
}

impl World {
    async fn play(address: String, case: impl AsyncFnOnce(&Self)) {
        let world = Self::open(address).await;
        world.store.create_project(&project("acme"), &Actor::System, START).await.unwrap();
        case(&world).await;
        world.store.close().await;
    }

    pub(crate) async fn open(address: String) -> Self {
        let ring = KeyRing::generate().unwrap();
        let text = ring.to_text().to_string();
        let store = Store::open(&address, ring, Rules::default(), START).await.unwrap();
        Self { store, address, ring: text }
    }

    /// Another control plane on the same database.
    pub(crate) async fn beside(&self) -> Store {
        let ring = KeyRing::parse(&self.ring).unwrap();
        Store::open(&self.address, ring, Rules::default(), START).await.unwrap()
    }

    pub(crate) async fn submit(&self, document: &str) -> RunId {
        self.submit_with(document, 0, START).await
    }

    pub(crate) async fn submit_with(&self, document: &str, retries: u32, now: Moment) -> RunId {
        submit(&self.store, document, retries, now).await
    }

    /// A trusted worker with the native sandbox.
    pub(crate) async fn worker(&self, name: &str) -> WorkerId {
        self.worker_of(name, (Tier::Trusted, None), &["sandbox.native"]).await
    }

    pub(crate) async fn worker_of(
        &self,
        name: &str,
        (tier, tenant): (Tier, Option<&str>),
        capabilities: &[&str],
    ) -> WorkerId {
        let token = Digest::of(name.as_bytes());
        let tenant = tenant.map(project);
        let grant = Grant { tier, tenant: tenant.as_ref(), tags: &[], expires_at: at(60) };
        self.store.issue_enrollment(&token, grant, &Actor::System, START).await.unwrap();
        let capabilities: Vec<Capability> =
            capabilities.iter().map(|text| Capability::parse(text).unwrap()).collect();
        let key = format!("{name}-key");
        let worker = NewWorker { name, sign_key: &key, seal_key: "x", capabilities: &capabilities };
        self.store.enroll(&token, worker, START).await.unwrap()
    }

    pub(crate) async fn claim(&self, worker: &WorkerId, now: Moment) -> Offer {
        let mut offers = self.store.claim((worker, 0), 1, now).await.unwrap();
        assert_eq!(offers.len(), 1, "nothing to claim");
        offers.remove(0)
    }

    pub(crate) async fn nothing_for(&self, worker: &WorkerId, now: Moment) {
        assert_eq!(self.store.claim((worker, 0), 9, now).await.unwrap(), []);
    }

    pub(crate) async fn started(&self, worker: &WorkerId, now: Moment) -> Offer {
        let offer = self.claim(worker, now).await;
        let renewed = self.store.acknowledge(&offer.lease, now).await.unwrap();
        assert_eq!(
            renewed,
            Renewed {
                until: now.plus(Duration::from_secs(60)),
                cancel: false,
                lent_microcents: 0,
                lent_egress_bytes: 0
            }
        );
        offer
    }

    pub(crate) async fn complete(&self, lease: &Lease, outcome: Outcome, now: Moment) -> Completed {
        let completion =
            Completion { lease, outcome, reason: "as told", spent: Spent::default(), envelope: b"envelope" };
        self.store.complete(completion, now).await.unwrap()
    }

    pub(crate) async fn run(&self, id: &RunId) -> RunView {
        self.store.run(id).await.unwrap().unwrap()
    }

    /// A statement of somebody who has the database, and not pond.
    pub(crate) async fn raw(&self, sql: &'static str) {
        raw(&self.address, sql).await;
    }

    /// `name state reason` of each stage, and the run's state.
    pub(crate) async fn told(&self, id: &RunId) -> Vec<String> {
        let view = self.run(id).await;
        let stage = |stage: &pond_control::store::StageView| {
            format!("{} {} {}", stage.name, stage.state, stage.reason.sentence).trim_end().to_owned()
        };
        let stages = view.stages.iter().map(stage);
        stages.chain([format!("run {}", view.run.state.name())]).collect()
    }
}

pub(crate) async fn submit(store: &Store, document: &str, retries: u32, now: Moment) -> RunId {
    let run = parse(document);
    let submission =
        Submission { run: &run, document: document.as_bytes(), source: None, retries, idempotency: None };
    match store.submit(submission, &Actor::System, now).await.unwrap() {
        Submitted::New(id) => id,
        Submitted::Replayed(id) => panic!("{id} was there"),
    }
}
