//! A control plane on a port of this machine, and somebody in between who may change what it answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use pond_control::plane::{Bell, Plane};
use pond_control::store::{
    Actor, BundleId, Grant, Moment, NewBundle, ResultView, Rules, RunId, StageView, Store, Stream,
    Submission, Submitted,
};
use pond_control::{protocol, ticker};
use pond_policy::name::{Name, Project};
use pond_policy::operator::Operator;
use pond_policy::run::preflight;
use pond_policy::settings::Settings;
use pond_policy::stage::State;
use pond_policy::tier::Tier;
use pond_sandbox::checkout::Checkout;
use pond_seal::Digest;
use pond_seal::bundle::{DataKey, Encrypting};
use pond_seal::enroll::JoinToken;
use pond_seal::envelope::{Envelope, Purpose};
use pond_seal::key::SigningKey;
use pond_seal::offer::{Offer, SignedOffer};
use pond_seal::statement::Statement;
use pond_seal::vault::KeyRing;
use pond_wire::orch::{self, Blob, PollReply, Version};
use pond_worker::pack::pack;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Longer than anything takes on a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Changes a reply: its path and bytes in, other bytes out; nothing keeps the worker waiting for an answer it cannot have.
pub(crate) type Hook = Box<dyn Fn(&str, Vec<u8>) -> Option<Vec<u8>> + Send + Sync>;

pub(crate) struct Control {
    runtime: Runtime,
    pub(crate) plane: Arc<Plane>,
    pub(crate) key: SigningKey,
    pub(crate) address: SocketAddr,
    hook: Arc<Mutex<Hook>>,
    /// How often each path was called.
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    /// How long the answers of a path take to get to the worker.
    late: Arc<Mutex<BTreeMap<&'static str, Duration>>>,
    directory: TempDir,
}

#[expect(clippy::disallowed_methods, reason = "the tests' control plane has the clock of this machine")]
pub(crate) fn clock() -> Moment {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Moment(i64::try_from(since.as_millis()).unwrap())
}

pub(crate) fn acme() -> Project {
    Project::from(Name::parse("acme").unwrap())
}

/// A signing key has no copies; here two sides of a play hold the same one.
pub(crate) fn copy(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(&key.to_pem()).unwrap()
}

impl Control {
    pub(crate) fn start(lease: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let key = SigningKey::generate().unwrap();
        let store = format!("sqlite:{}", directory.path().join("pond.db").display());
        let rules = Rules { lease, poison_after: 100, quarantine_after: 100, ..Rules::default() };
        let plane = runtime.block_on(async {
            let store = Store::open(&store, KeyRing::generate().unwrap(), rules, clock()).await.unwrap();
            store.create_project(&acme(), &Actor::System, clock()).await.unwrap();
            Arc::new(Plane {
                store,
                key: copy(&key),
                settings: Settings::default(),
                operator: Operator::default(),
                vault: directory.path().join("vault.keys"),
                files: directory.path().to_owned(),
                bell: Bell::default(),
                judged: protocol::Judged::default(),
                clock,
            })
        });
        let hook: Arc<Mutex<Hook>> = Arc::new(Mutex::new(Box::new(|_, bytes| Some(bytes))));
        let calls = Arc::new(Mutex::new(BTreeMap::new()));
        let late = Arc::new(Mutex::new(BTreeMap::new()));
        let between = Between { hook: Arc::clone(&hook), calls: Arc::clone(&calls), late: Arc::clone(&late) };
        let router =
            protocol::router(Arc::clone(&plane)).layer(from_fn(move |request: Request, next: Next| {
                let between = between.clone();
                async move { changed(request, next, between).await }
            }));
        let address = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            tokio::spawn(ticker::run(Arc::clone(&plane), ticker::Pace::default(), |_| {}));
            address
        });
        Self { runtime, plane, key, address, hook, calls, late, directory }
    }

    pub(crate) fn between(&self, hook: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    /// Answers of this path take so long from here on.
    pub(crate) fn delay(&self, path: &'static str, by: Duration) {
        self.late.lock().unwrap().insert(path, by);
    }

    pub(crate) fn calls(&self, path: &str) -> usize {
        self.calls.lock().unwrap().get(path).copied().unwrap_or_default()
    }

    pub(crate) fn token(&self) -> String {
        let token = JoinToken::issue(&self.key.public()).unwrap();
        let grant = Grant {
            tier: Tier::Trusted,
            tenant: None,
            tags: &[],
            expires_at: clock().plus(Duration::from_secs(600)),
        };
        let hash = Digest::from(token.hash());
        let issued = self.plane.store.issue_enrollment(&hash, grant, &Actor::System, clock());
        self.runtime.block_on(issued).unwrap();
        token.to_text().to_string()
    }

    pub(crate) fn credential(&self, name: &str, value: &str) {
        let (name, project) = (Name::parse(name).unwrap(), acme());
        let set =
            self.plane.store.set_credential(Some(&project), &name, value.as_bytes(), &Actor::System, clock());
        self.runtime.block_on(set).unwrap();
    }

    /// Uploads a directory as a source.
    pub(crate) fn source(&self, at: &Path) -> BundleId {
        let key = DataKey::generate().unwrap();
        let mut ciphertext = Encrypting::new(Vec::new(), &key).unwrap();
        let packed = pack(&Checkout::open(at).unwrap(), &mut ciphertext).unwrap();
        let ciphertext = ciphertext.finish().unwrap();
        std::fs::write(self.directory.path().join("bundle"), &ciphertext).unwrap();
        let secret = key.to_secret();
        let bundle = NewBundle {
            project: &acme(),
            place: "bundle",
            digest: Digest::of(&ciphertext),
            input: packed.input,
            size: u64::try_from(ciphertext.len()).unwrap(),
            key: secret.expose(),
        };
        self.runtime.block_on(self.plane.store.store_bundle(bundle, &Actor::System, clock())).unwrap()
    }

    /// Submits one stage with this executor.
    pub(crate) fn submit(&self, executor: &str, source: Option<&BundleId>) -> RunId {
        self.submitted("{}", executor, source)
    }

    /// The same, in a run that has these budgets.
    pub(crate) fn submit_within(&self, budgets: &str, executor: &str) -> RunId {
        self.submitted(budgets, executor, None)
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn submitted(&self, budgets: &str, executor: &str, source: Option<&BundleId>) -> RunId {
        let stages = format!(r#"[{{"name":"one","executor":{executor}}}]"#);
        let document = format!(r#"{{"project":"acme","budgets":{budgets},"stages":{stages}}}"#);
        let node = pond_wire::decode::decode(document.as_bytes()).unwrap();
        let run = preflight(&node, &Settings::default()).unwrap();
        let submission =
            Submission { run: &run, document: document.as_bytes(), source, retries: 0, idempotency: None };
        let submitted = self.runtime.block_on(self.plane.store.submit(submission, &Actor::System, clock()));
        self.plane.bell.ring();
        match submitted.unwrap() {
            Submitted::New(id) | Submitted::Replayed(id) => id,
        }
    }

    pub(crate) fn cancel(&self, run: &RunId) {
        let cancelled = self.plane.store.cancel(run, "not wanted any more", &Actor::System, clock());
        assert!(self.runtime.block_on(cancelled).unwrap());
    }

    pub(crate) fn stage(&self, run: &RunId) -> StageView {
        self.runtime.block_on(self.plane.store.run(run)).unwrap().unwrap().stages.remove(0)
    }

    /// Waits until the stage is in one of these states.
    pub(crate) fn wait_for(&self, run: &RunId, states: &[State], worker: &dyn Fn() -> String) -> StageView {
        let since = Instant::now();
        loop {
            let stage = self.stage(run);
            if states.contains(&stage.state) {
                return stage;
            }
            assert!(since.elapsed() < PATIENCE, "waiting for {states:?}: {stage:?}\n{}", worker());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The result of a stage that ended, which has one.
    pub(crate) fn result(&self, stage: &StageView) -> ResultView {
        let mut results = self.runtime.block_on(self.plane.store.results(&stage.id)).unwrap();
        assert_eq!(results.len(), 1, "{stage:?}");
        results.remove(0)
    }

    /// All that was stored of a stream of the stage's last try.
    pub(crate) fn stream(&self, stage: &StageView, stream: Stream) -> Vec<u8> {
        let job = stage.job.as_ref().map_or_else(|| self.result(stage).job, |job| job.id.clone());
        let pieces = self.runtime.block_on(self.plane.store.log(&job, stream, 0, 10_000)).unwrap();
        pieces.into_iter().flat_map(|piece| piece.bytes).collect()
    }

    /// The accepted statement, believed by the key the worker has.
    pub(crate) fn statement(&self, stage: &StageView, worker: &SigningKey) -> Statement {
        let envelope = Envelope::parse(&self.result(stage).envelope).unwrap();
        Statement::decode(&envelope.verify(&worker.public()).unwrap()).unwrap()
    }
}

/// Somebody between the two.
#[derive(Clone)]
struct Between {
    hook: Arc<Mutex<Hook>>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    late: Arc<Mutex<BTreeMap<&'static str, Duration>>>,
}

async fn changed(request: Request, next: Next, Between { hook, calls, late }: Between) -> Response {
    let path = request.uri().path().to_owned();
    *calls.lock().unwrap().entry(path.clone()).or_default() += 1;
    let (parts, body) = next.run(request).await.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    let late = late.lock().unwrap().get(path.as_str()).copied();
    tokio::time::sleep(late.unwrap_or_default()).await;
    let changed = hook.lock().unwrap()(&path, bytes);
    match changed {
        Some(bytes) => Response::from_parts(parts, Body::from(bytes)),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// The offer in a reply to a poll, if it is one.
pub(crate) fn offer_in(reply: &[u8], key: &SigningKey) -> Option<Offer> {
    let Ok(PollReply::Offer { offer, .. }) = orch::decode(reply) else { return None };
    let envelope = Envelope::parse(offer.as_bytes()).unwrap();
    let verified = envelope.verify_as(Purpose::Offer, &key.public()).unwrap();
    Some(serde_json::from_slice(verified.payload()).unwrap())
}

/// A reply to a poll with this offer, signed with this key.
pub(crate) fn reply_with(offer: &Offer, key: &SigningKey) -> Vec<u8> {
    let signed = SignedOffer::sign(offer, key).unwrap();
    let offer = Blob::new(signed.as_bytes().to_vec()).unwrap();
    serde_json::to_vec(&PollReply::Offer { version: Version, offer }).unwrap()
}
