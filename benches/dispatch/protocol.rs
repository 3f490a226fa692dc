//! A control plane with its orchestrator, as `pond serve` has them, and workers that send and check everything a worker does,
//! and run nothing. Calls go through the doors without a connection below them.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use http_body_util::Full;
use pond_control::plane::{Bell, Plane};
use pond_control::protocol;
use pond_control::store::{Actor, Grant, Moment, Rules, Store, Submission};
use pond_orchestrator::serve::{Upstream, router};
use pond_orchestrator::{Bounds, Relay, follow_here};
use pond_policy::name::{Name, Project};
use pond_policy::operator::Operator;
use pond_policy::run::{Run, preflight};
use pond_policy::settings::Settings;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::enroll::{Identity, JoinToken, Joined, answer};
use pond_seal::key::{KeyId, PublicKey, SigningKey};
use pond_seal::offer::{Addressee, Offer, SignedOffer};
use pond_seal::request::{HEADER, Request, RequestNonce, SignedHead};
use pond_seal::result::{self, FileDigest};
use pond_seal::statement::Statement;
use pond_seal::vault::KeyRing;
use pond_wire::orch::{self, Blob, Few, Hash, Id, Lease, MOST_OFFER_BYTES, Route, Version};
use serde::Serialize;
use tower::ServiceExt as _;

#[path = "../../control/pond-control/tests/protocol/said.rs"]
mod said;

use said::{MANIFEST, digest, packed, said};

const DOCUMENT: &str = "project: acme\nstages:\n  - name: noop\n    executor:\n      kind: swarm\n      command: [\"true\"]\n      timeout: 100s\n      sandbox: {profile: untrusted-code-write}\n";
const CAN: &str = "sandbox.native";
const BOUNDS: Bounds = Bounds { intents: 10_000, intents_per_project: 2_000, waiting: 10_000 };
const MOST_ANSWER: usize = 1 << 20;

fn clock() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Moment(i64::try_from(since.as_millis()).unwrap())
}

pub(crate) struct Control {
    plane: Arc<Plane>,
    doors: Router,
    run: Run,
}

impl Control {
    pub(crate) async fn open(address: &str) -> Self {
        let store =
            Store::open(address, KeyRing::generate().unwrap(), Rules::default(), clock()).await.unwrap();
        let acme = Project::from(Name::parse("acme").unwrap());
        store.create_project(&acme, &Actor::System, clock()).await.unwrap();
        let plane = Arc::new(Plane {
            store,
            key: SigningKey::generate().unwrap(),
            settings: Settings::default(),
            operator: Operator::default(),
            files: Path::new("/nonexistent").to_owned(),
            vault: Path::new("/nonexistent").to_owned(),
            bell: Bell::default(),
            judged: protocol::Judged::default(),
            clock,
        });
        let relay = Arc::new(Relay::new(BOUNDS));
        let (feed, hearing) = (protocol::feed::follow(Arc::clone(&plane)), Arc::clone(&relay));
        tokio::spawn(async move { follow_here(&hearing, feed).await });
        let doors = router(Upstream::Here(protocol::router(Arc::clone(&plane))), relay);
        let run = preflight(&pond_wire::decode::decode(DOCUMENT.as_bytes()).unwrap(), &Settings::default());
        Self { plane, doors, run: run.unwrap() }
    }

    pub(crate) async fn submit(&self) {
        let document = DOCUMENT.as_bytes();
        let submission = Submission { run: &self.run, document, source: None, retries: 0, idempotency: None };
        self.plane.store.submit(submission, &Actor::System, clock()).await.unwrap();
    }

    /// Whoever waits hears of what was submitted.
    pub(crate) fn tell(&self) {
        self.plane.bell.ring();
    }

    pub(crate) async fn worker(&self) -> Worker {
        let token = JoinToken::issue(&self.plane.key.public()).unwrap();
        let expires_at = clock().plus(std::time::Duration::from_secs(600));
        let grant = Grant { tier: Tier::Trusted, tenant: None, tags: &[], expires_at };
        let hash = token.hash().into();
        self.plane.store.issue_enrollment(&hash, grant, &Actor::System, clock()).await.unwrap();
        Worker::join(self.doors.clone(), self.plane.key.public(), &token).await
    }

    pub(crate) async fn close(&self) {
        self.plane.store.close().await;
    }
}

pub(crate) struct Worker {
    doors: Router,
    control: PublicKey,
    identity: Identity,
    /// Of its X25519 key, which is worked out once.
    seal_key: KeyId,
    name: String,
}

impl Worker {
    async fn join(doors: Router, control: PublicKey, token: &JoinToken) -> Self {
        let identity = Identity::generate().unwrap();
        let keys = identity.keys();
        let mut worker = Self { doors, control, identity, seal_key: keys.seal.id(), name: String::new() };
        let hash = |text: String| Hash::try_from(text).unwrap();
        let begin = orch::EnrollBegin {
            version: Version,
            token: hash(token.public().to_hex()),
            signing_key: hash(keys.signing.to_hex()),
            seal_key: hash(keys.seal.to_hex()),
        };
        let asked: orch::EnrollChallenge = worker.call(Route::EnrollBegin, &begin).await.0;
        let sealed = serde_json::from_slice(asked.sealed.as_bytes()).unwrap();
        let (nonce, proof) = answer(&sealed, token, &worker.identity).unwrap();
        let finish = orch::EnrollFinish {
            version: Version,
            enrollment: asked.enrollment,
            proof: Blob::new(serde_json::to_vec(&proof).unwrap()).unwrap(),
            capabilities: Few::try_from(vec![CAN.to_owned()]).unwrap(),
        };
        let reply: orch::EnrollReply = worker.call(Route::EnrollFinish, &finish).await.0;
        let joined =
            Joined { control: reply.control.as_str().to_owned(), envelope: reply.joined.into_bytes() };
        worker.name = joined.verify(token, &keys, nonce).unwrap().1.worker;
        worker
    }

    async fn call<T: orch::Body>(&self, route: Route, body: &impl Serialize) -> (T, RequestNonce) {
        let body = serde_json::to_vec(body).unwrap();
        let request = Request { method: "POST", path: route.path(), body: Digest::of(&body) };
        let nonce = RequestNonce::generate().unwrap();
        let now = u64::try_from(clock().0 / 1000).unwrap();
        let (control, key) = (self.control.id(), &self.identity.signing);
        let head = SignedHead::sign(&request, &self.name, control, now, nonce, key).to_text();
        let request = hyper::Request::post(route.path()).header(HEADER, head);
        let request = request.body(Body::new(Full::from(body))).unwrap();
        let response = self.doors.clone().oneshot(request).await.unwrap();
        let (status, body) = (response.status(), to_bytes(response.into_body(), MOST_ANSWER).await.unwrap());
        assert!(status.is_success(), "{}: {}", route.path(), String::from_utf8_lossy(&body));
        (orch::decode(&body).unwrap(), nonce)
    }

    /// The next job, if there is one within a second.
    pub(crate) async fn poll(&self) -> Option<Offer> {
        let capabilities = Few::try_from(vec![CAN.to_owned()]).unwrap();
        let body = orch::Poll { version: Version, wait_seconds: 1, capabilities };
        let (reply, polled) = self.call(Route::Poll, &body).await;
        let orch::PollReply::Offer { offer, .. } = reply else { return None };
        Some(self.opened(offer, polled))
    }

    fn opened(&self, offer: Blob<MOST_OFFER_BYTES>, polled: RequestNonce) -> Offer {
        let me = Addressee { worker: &self.name, worker_key: self.seal_key, polled };
        SignedOffer::from_bytes(offer.into_bytes()).verify(&self.control, me).unwrap()
    }

    /// Signs for what a job that did nothing leaves, which is small and goes with its end: that also says that it began, and asks for the
    /// next, as a worker does whose job was over before it had to say anything.
    pub(crate) async fn carry_out(&self, offer: &Offer) -> Option<Offer> {
        let lease = Lease { job: Id::try_from(offer.job.clone()).unwrap(), epoch: offer.lease_epoch };
        // Of a job that changed nothing.
        let packed = packed(b"", MANIFEST);
        let mut chain = Chain::begin(&offer.job, offer.lease_epoch, result::Stream::Result);
        let link = chain.extend(&packed);
        let last = orch::Last {
            seq: link.seq,
            offset: link.offset,
            bytes: Blob::new(packed.clone()).unwrap(),
            head: Hash::try_from(link.head.to_string()).unwrap(),
        };
        let FileDigest { sha256, bytes } = digest(&packed);
        let log = result::Log { stream: result::Stream::Result, sha256, bytes, truncated: false };
        let statement = Statement { subject: Digest::of(MANIFEST), result: said(offer, b"", vec![log]) };
        let statement = Blob::new(statement.sign(&self.identity.signing).unwrap()).unwrap();
        let next = Some(orch::Next { capabilities: Few::try_from(vec![CAN.to_owned()]).unwrap() });
        let complete = orch::Complete { version: Version, lease, last: Some(last), statement, next };
        let (orch::CompleteReply::Accepted { next, .. }, asked) = self.call(Route::Complete, &complete).await;
        next.map(|offer| self.opened(offer, asked))
    }
}
