//! A control plane with two projects, listening on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pond_control::api::{Rate, Rates, nothing_here, router_with, wrong_method};
use pond_control::keeper::Keeper;
use pond_control::listen::{Transport, serve};
use pond_control::plane::{Bell, Plane};
use pond_control::protocol::Judged;
use pond_control::store::{Actor, Grant, Moment, NewToken, NewWorker, Rules, Store, WorkerId};
use pond_policy::capability::Capability;
use pond_policy::name::{Name, Project};
use pond_policy::operator::Operator;
use pond_policy::scope::Scope;
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::key::SigningKey;
use pond_seal::vault::KeyRing;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::client::{Reply, ask};
use super::keeper::Memory;
use super::server::Server;

pub(crate) struct World {
    pub(crate) plane: Arc<Plane>,
    pub(crate) address: SocketAddr,
    /// Of everything.
    pub(crate) admin: String,
    /// Who keeps this world's sandboxes.
    pub(crate) keeper: Arc<Memory>,
    runtime: tokio::runtime::Runtime,
    end: Option<oneshot::Sender<()>>,
    database: String,
    directory: TempDir,
}

/// How a case differs from the usual.
pub(crate) struct Set {
    pub(crate) settings: Settings,
    pub(crate) rates: Rates,
    /// Whether somebody keeps sandboxes.
    pub(crate) keeps: bool,
}

impl Default for Set {
    fn default() -> Self {
        let plenty = Rate { per_second: 10_000, burst: 10_000 };
        let rates = Rates { token: plenty, address: plenty, failed: plenty, audit: plenty };
        Self { settings: Settings::default(), rates, keeps: true }
    }
}

/// Where the database is, for cases that start another control plane.
pub(crate) type Case = fn(&dyn Fn(Set) -> World);

pub(crate) fn on_sqlite(case: Case) {
    case(&|set| {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", directory.path().join("pond.db").display());
        World::start(&address, directory, set)
    });
}

pub(crate) fn on_postgres(server: &Server, name: &str, case: Case) {
    // What fails says in which case; the cases share one server.
    let told = Told(name);
    let worlds = AtomicI64::new(0);
    case(&|set| {
        let number = worlds.fetch_add(1, Ordering::Relaxed);
        let short: String = name.chars().take(50).collect();
        let address = server.database(&format!("{short}_{number}"));
        World::start(&address, tempfile::tempdir().unwrap(), set)
    });
    std::mem::drop(told);
}

struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            use std::io::Write as _;
            std::io::stderr().write_all(format!("in the case {}\n", self.0).as_bytes()).unwrap();
        }
    }
}

fn now() -> Moment {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Moment(i64::try_from(since.as_millis()).unwrap())
}

pub(crate) fn project(text: &str) -> Project {
    Project::from(Name::parse(text).unwrap())
}

/// A document of one project, with stages written `name needs`.
pub(crate) fn document(project: &str, stages: &[&str]) -> Value {
    let stage = |line: &&str| {
        let (name, need) = line.split_once(' ').unwrap_or((line, ""));
        let needs: Vec<&str> = Some(need).filter(|need| !need.is_empty()).into_iter().collect();
        json!({"name": name, "needs": needs, "executor": {
            "kind": "swarm", "command": ["make"], "sandbox": {"profile": "untrusted-code-write"}}})
    };
    json!({"project": project, "stages": stages.iter().map(stage).collect::<Vec<_>>()})
}

impl World {
    pub(crate) fn start(address: &str, directory: TempDir, set: Set) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (files, vault) = (directory.path().join("files"), directory.path().join("vault.keys"));
        std::fs::create_dir(&files).unwrap();
        let ring = KeyRing::generate().unwrap();
        std::fs::write(&vault, ring.to_text().as_bytes()).unwrap();
        let (end, ended) = oneshot::channel();
        let keeper = Arc::new(Memory::default());
        let keeping = set.keeps.then(|| Arc::clone(&keeper) as Arc<dyn Keeper>);
        let (plane, at, admin) = runtime.block_on(async {
            let store = Store::open(address, ring, Rules::default(), now()).await.unwrap();
            let key = SigningKey::generate().unwrap();
            let (operator, bell) = (Operator::default(), Bell::default());
            let plane = Arc::new(Plane {
                store,
                key,
                settings: set.settings,
                operator,
                files,
                vault,
                bell,
                judged: Judged::default(),
                clock: now,
            });
            for name in ["acme", "other"] {
                plane.store.create_project(&project(name), &Actor::System, now()).await.unwrap();
            }
            let admin = issue(&plane, Kind::Api, Scope::ALL, None, None).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let router = router_with(Arc::clone(&plane), set.rates, keeping);
            let router = router.fallback(nothing_here).method_not_allowed_fallback(wrong_method);
            tokio::spawn(serve(listener, Transport::Plain, router, async {
                ended.await.unwrap_or_default();
            }));
            (plane, at, admin)
        });
        Self {
            plane,
            address: at,
            admin,
            keeper,
            runtime,
            end: Some(end),
            database: address.to_owned(),
            directory,
        }
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Another control plane on the same database, with a vault of its own.
    pub(crate) async fn beside(&self, ring: KeyRing) -> Store {
        Store::open(&self.database, ring, Rules::default(), now()).await.unwrap()
    }

    pub(crate) fn token(&self, scopes: &[Scope], of: Option<&str>) -> String {
        self.block_on(issue(&self.plane, Kind::Api, scopes, of, None))
    }

    pub(crate) fn token_of(&self, kind: Kind, life: Option<i64>) -> String {
        self.block_on(issue(&self.plane, kind, Scope::ALL, None, life))
    }

    pub(crate) fn revoked_token(&self) -> String {
        let token = self.token(Scope::ALL, None);
        let tokens = self.block_on(self.plane.store.tokens(None)).unwrap();
        let id = Bearer::parse(&token).unwrap().id().to_owned();
        let found = tokens.iter().find(|view| view.token.id.as_str().ends_with(&id)).unwrap();
        assert!(
            self.block_on(self.plane.store.revoke_token(&found.token.id, &Actor::System, now())).unwrap()
        );
        token
    }

    pub(crate) fn worker(&self) -> WorkerId {
        let token = Digest::of(b"join");
        let grant = Grant {
            tier: Tier::Trusted,
            tenant: None,
            tags: &[],
            expires_at: now().plus(Duration::from_secs(600)),
        };
        let capabilities = [Capability::parse("sandbox.native").unwrap()];
        let worker = NewWorker { name: "w", sign_key: "k", seal_key: "x", capabilities: &capabilities };
        self.block_on(async {
            self.plane.store.issue_enrollment(&token, grant, &Actor::System, now()).await.unwrap();
            self.plane.store.enroll(&token, worker, now()).await.unwrap()
        })
    }

    /// With the admin's token, and JSON if there is a body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.ask_as(&self.admin, method, path, body)
    }

    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        let bytes = body.map(ToString::to_string).unwrap_or_default();
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        ask(self.address, method, path, &headers, bytes.as_bytes())
    }

    pub(crate) fn submit(&self, stages: &[&str]) -> String {
        let body = json!({"document": document("acme", stages)});
        let reply = self.ask("POST", "/v1/runs", Some(&body));
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["run"].as_str().unwrap().to_owned()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.plane.files).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.send(()).unwrap_or_default();
        }
        self.runtime.block_on(self.plane.store.close());
        assert!(self.directory.path().exists());
    }
}

async fn issue(plane: &Plane, kind: Kind, scopes: &[Scope], of: Option<&str>, life: Option<i64>) -> String {
    let bearer = Bearer::generate(kind).unwrap();
    let of = of.map(project);
    let expires_at = life.map(|millis| Moment(now().0 + millis));
    let new = NewToken { bearer: &bearer, scopes, project: of.as_ref(), expires_at };
    plane.store.issue_token(new, &Actor::System, now()).await.unwrap();
    bearer.to_text().as_str().to_owned()
}
