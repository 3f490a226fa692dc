//! A control plane that listens, with a project; and its workers' documents.

#[path = "../store/raw.rs"]
mod raw;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use pond_control::plane::{Bell, Plane};
use pond_control::protocol;
use pond_control::protocol::Judged;
use pond_control::store::{Actor, BundleId, Grant, Moment, Rules, RunId, Store, Submission, Submitted};
use pond_policy::name::{Name, Project};
use pond_policy::operator::Operator;
use pond_policy::run::preflight;
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_seal::enroll::{Identity, JoinToken};
use pond_seal::key::SigningKey;
use pond_seal::vault::KeyRing;
use tokio::task::JoinHandle;

use super::server::Server;
use super::worker::Worker;

pub(crate) struct World {
    pub(crate) plane: Arc<Plane>,
    /// Where it listens.
    pub(crate) at: SocketAddr,
    address: String,
    ring: String,
    /// What the next start of the control plane reads.
    pub(crate) operator: Operator,
    files: PathBuf,
    clock: fn() -> Moment,
    listening: JoinHandle<()>,
}

pub(crate) fn on_sqlite(case: impl AsyncFnOnce(&mut World)) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", directory.path().join("pond.db").display());
    block_on(play(address, directory.path().into(), case));
}

pub(crate) fn on_postgres(server: &Server, name: &str, case: impl AsyncFnOnce(&mut World)) {
    let directory = tempfile::tempdir().unwrap();
    block_on(play(server.database(name), directory.path().into(), case));
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

async fn play(address: String, files: PathBuf, case: impl AsyncFnOnce(&mut World)) {
    let mut world = World::open(address, files, Settings::default()).await;
    world.plane.store.create_project(&project("acme"), &Actor::System, clock()).await.unwrap();
    case(&mut world).await;
    world.listening.abort();
    world.plane.store.close().await;
}

pub(crate) fn clock() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Moment(i64::try_from(since.as_millis()).unwrap())
}

pub(crate) fn later(seconds: u64) -> Moment {
    clock().plus(Duration::from_secs(seconds))
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn project(text: &str) -> Project {
    Project::from(name(text))
}

/// One stage `build` with these executor lines and sandbox.
pub(crate) fn document(project: &str, more: &str, sandbox: &str) -> String {
    format!(
        "project: {project}\nstages:\n  - name: build\n    executor:\n      kind: swarm\n      command: [make]\n      timeout: 100s\n{more}      sandbox: {{{sandbox}}}\n"
    )
}

pub(crate) fn plain() -> String {
    document("acme", "", "profile: untrusted-code-write")
}

impl World {
    pub(crate) async fn open(address: String, files: PathBuf, settings: Settings) -> Self {
        Self::open_at(address, files, settings, clock).await
    }

    /// With a clock of the test's own.
    pub(crate) async fn open_at(
        address: String,
        files: PathBuf,
        settings: Settings,
        clock: fn() -> Moment,
    ) -> Self {
        let ring = KeyRing::generate().unwrap().to_text().to_string();
        let key = SigningKey::generate().unwrap();
        let operator = Operator::default();
        let plane = plane(&address, &ring, key, &files, (settings, clock, operator.clone())).await;
        let (at, listening) = listen(protocol::router(Arc::clone(&plane))).await;
        Self { plane, at, address, ring, operator, files, clock, listening }
    }

    /// Another process with the same store and key.
    pub(crate) async fn restart(&mut self, settings: Settings) {
        self.listening.abort();
        self.plane.store.close().await;
        let key = SigningKey::from_pem(&self.plane.key.to_pem()).unwrap();
        let set = (settings, self.clock, self.operator.clone());
        self.plane = plane(&self.address, &self.ring, key, &self.files, set).await;
        (self.at, self.listening) = listen(protocol::router(Arc::clone(&self.plane))).await;
    }

    pub(crate) async fn token(&self, tier: Tier, tenant: Option<&str>) -> JoinToken {
        let token = JoinToken::issue(&self.plane.key.public()).unwrap();
        let tenant = tenant.map(project);
        let grant = Grant { tier, tenant: tenant.as_ref(), tags: &[], expires_at: later(600) };
        let digest = token.hash().into();
        self.plane.store.issue_enrollment(&digest, grant, &Actor::System, clock()).await.unwrap();
        token
    }

    /// A trusted worker with the native sandbox.
    pub(crate) async fn worker(&self) -> Worker {
        self.worker_of(Tier::Trusted, None, &["sandbox.native"]).await
    }

    pub(crate) async fn worker_of(&self, tier: Tier, tenant: Option<&str>, can: &[&str]) -> Worker {
        let token = self.token(tier, tenant).await;
        let mut worker = Worker::new(self.at, self.plane.key.public(), Identity::generate().unwrap(), can);
        worker.join(&token).await.unwrap();
        worker
    }

    pub(crate) async fn submit(&self, document: &str) -> RunId {
        self.submit_with(document, None).await
    }

    pub(crate) async fn submit_with(&self, document: &str, source: Option<&BundleId>) -> RunId {
        let node = pond_wire::decode::decode(document.as_bytes()).unwrap();
        let run = preflight(&node, &Settings::default()).unwrap();
        let document = document.as_bytes();
        let submission = Submission { run: &run, document, source, retries: 0, idempotency: None };
        let submitted = self.plane.store.submit(submission, &Actor::System, clock()).await.unwrap();
        self.plane.bell.ring();
        match submitted {
            Submitted::New(id) | Submitted::Replayed(id) => id,
        }
    }

    pub(crate) async fn cancel(&self, run: &RunId) {
        self.plane.store.cancel(run, "over", &Actor::System, clock()).await.unwrap();
    }

    /// State and reason of the stage.
    pub(crate) async fn stage(&self, run: &RunId) -> (String, String) {
        let view = self.plane.store.run(run).await.unwrap().unwrap();
        (view.stages[0].state.to_string(), view.stages[0].reason.to_string())
    }

    /// Every action in the audit log, in order.
    pub(crate) async fn audit(&self) -> Vec<(String, String)> {
        let entries = self.plane.store.audit(None, Default::default(), 1000).await.unwrap();
        entries.into_iter().map(|entry| (entry.action.name().to_owned(), entry.detail)).collect()
    }

    /// A statement of somebody who has the database, and not pond.
    pub(crate) async fn raw(&self, sql: &'static str) {
        raw::raw(&self.address, sql).await;
    }
}

async fn plane(
    address: &str,
    ring: &str,
    key: SigningKey,
    files: &std::path::Path,
    (settings, clock, operator): (Settings, fn() -> Moment, Operator),
) -> Arc<Plane> {
    let ring = KeyRing::parse(ring).unwrap();
    let store = Store::open(address, ring, Rules::default(), clock()).await.unwrap();
    let bell = Bell::default();
    let (files, vault) = (files.to_owned(), files.join("vault.keys"));
    Arc::new(Plane { store, key, settings, operator, files, vault, bell, judged: Judged::default(), clock })
}

pub(crate) async fn listen(router: Router) -> (SocketAddr, JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    (at, tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }))
}
