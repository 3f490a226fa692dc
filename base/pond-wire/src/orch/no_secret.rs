//! No answer to a worker carries a secret in the clear: planted ones are looked for in every reply, in every spelling, through
//! every layer of JSON and base64, while the worker itself gets them out.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use pond_seal::Digest;
use pond_seal::Secret;
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::bundle::DataKey;
use pond_seal::enroll::{Challenge, Grant, Identity, JoinToken, Joined};
use pond_seal::key::SigningKey;
use pond_seal::offer::{Addressee, Allotted, Offer, SignedOffer, Source};
use pond_seal::request::RequestNonce;
use pond_seal::seal::{Release, Subject};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::*;

struct World {
    control: SigningKey,
    worker: Identity,
    token: JoinToken,
    polled: RequestNonce,
    credential: Vec<u8>,
    data_key: DataKey,
}

impl World {
    fn new(credential: Vec<u8>) -> Self {
        let control = SigningKey::generate().unwrap();
        let token = JoinToken::issue(&control.public()).unwrap();
        let (worker, polled) = (Identity::generate().unwrap(), RequestNonce::generate().unwrap());
        Self { control, worker, token, polled, credential, data_key: DataKey::generate().unwrap() }
    }

    /// Everything that may not be seen. (Seeds as they stand in PEM files: the base64 of their last 32 bytes.)
    fn secrets(&self) -> Vec<Vec<u8>> {
        let pem = |text: &str| {
            let der = STANDARD.decode(text.lines().nth(1).unwrap()).unwrap();
            der[der.len() - 32..].to_vec()
        };
        let token = self.token.to_text();
        vec![
            self.credential.clone(),
            self.data_key.to_secret().expose().to_vec(),
            pem(&self.control.to_pem()),
            pem(&self.worker.signing.to_pem()),
            pem(&self.worker.opening.to_pem()),
            token.rsplit('_').next().unwrap().as_bytes().to_vec(),
        ]
    }

    fn signed_offer(&self) -> Blob<MOST_OFFER_BYTES> {
        let offer = SignedOffer::sign(&self.offer(), &self.control).unwrap();
        Blob::new(offer.as_bytes().to_vec()).unwrap()
    }

    fn offer(&self) -> Offer {
        Offer {
            answers: self.polled,
            worker: "w1".to_owned(),
            worker_key: self.worker.keys().seal.id(),
            tenant: "acme".to_owned(),
            run: "r1".to_owned(),
            stage: "build".to_owned(),
            job: "j1".to_owned(),
            attempt: 1,
            lease_epoch: 7,
            lease_seconds: 60,
            acknowledge_seconds: 15,
            deadline_seconds: 600,
            not_after: 1_800_000_000,
            input: Digest::of(b"input"),
            policy: Digest::of(b"policy"),
            executor: r#"{"kind":"swarm"}"#.to_owned(),
            credentials: vec!["model".to_owned()],
            source: Source::Bundle {
                token: Bearer::generate(Kind::Bundle).unwrap().to_text().as_str().to_owned(),
            },
            allotted: Allotted { cost_microcents: 0, output_bytes: 1, artifact_bytes: 1, egress_bytes: 1 },
        }
    }

    fn release(&self, secret: &Secret, subject: Subject) -> SealReply {
        let context = self.offer().seal_context(subject);
        let key = self.worker.keys().seal;
        let release = Release::issue(secret, Some(&key), &context, &self.control).unwrap();
        SealReply::Released(Blob::new(release.as_bytes().to_vec()).unwrap())
    }

    /// Everything a server can answer on a route; one without an arm does not compile.
    fn replies(&self, route: Route) -> Vec<Value> {
        let version = Version;
        let refused = || SealReply::Refused(Code::try_from("no_pinned_key".to_owned()).unwrap());
        match route {
            Route::EnrollBegin => {
                let challenge = Challenge::issue(&self.token.hash(), &self.worker.keys()).unwrap();
                let sealed = Blob::new(serde_json::to_vec(&challenge.sealed).unwrap()).unwrap();
                vec![value(EnrollChallenge { version, enrollment: name("e1"), sealed })]
            }
            Route::EnrollFinish => {
                let challenge = Challenge::issue(&self.token.hash(), &self.worker.keys()).unwrap();
                let grant =
                    Grant { worker: "w1".to_owned(), tenant: None, tags: vec!["pool:trusted".to_owned()] };
                let joined =
                    Joined::sign(grant, &self.worker.keys(), challenge.nonce, &self.control).unwrap();
                let control = Hash::try_from(joined.control).unwrap();
                vec![value(EnrollReply { version, control, joined: Blob::new(joined.envelope).unwrap() })]
            }
            Route::Rotate => vec![value(RotateReply { version, generation: 1 })],
            Route::Poll => {
                let offer = self.signed_offer();
                vec![
                    value(PollReply::Offer { version, offer }),
                    value(PollReply::Nothing { version, retry_milliseconds: 1 }),
                    value(PollReply::Drain { version }),
                ]
            }
            Route::Acknowledge => vec![value(AcknowledgeReply { version, lease_seconds: 60 })],
            Route::Seal => {
                let secret = Secret::new(self.credential.clone());
                let released = self.release(&secret, Subject::Credential("model".to_owned()));
                vec![value(released), value(refused())]
            }
            Route::Redeem => [self.release(&self.data_key.to_secret(), Subject::BundleKey), refused()]
                .into_iter()
                .map(|key| value(RedeemReply { version, key, bytes: 1 }))
                .collect(),
            Route::Heartbeat => {
                let cancel = Verdict::Cancel { reason: Code::try_from("budget".to_owned()).unwrap() };
                [
                    Verdict::Continue { lease_seconds: 60, lent_microcents: 1, lent_egress_bytes: 2 },
                    cancel,
                    Verdict::Lost {},
                ]
                .into_iter()
                .map(|verdict| value(HeartbeatReply { version, verdict }))
                .collect()
            }
            Route::Chunks => vec![
                value(ChunkReply::Stored { version, pause_milliseconds: 0, cancel: true }),
                value(ChunkReply::Expected { version, seq: 0, offset: 0 }),
                value(ChunkReply::Full { version }),
            ],
            Route::Complete => [None, Some(self.signed_offer())]
                .into_iter()
                .map(|next| value(CompleteReply::Accepted { version, next }))
                .collect(),
            Route::Decline => vec![value(DeclineReply { version })],
        }
    }
}

fn name(text: &str) -> Id {
    Id::try_from(text.to_owned()).unwrap()
}

fn value(reply: impl Serialize) -> Value {
    serde_json::to_value(reply).unwrap()
}

/// Whether the secret stands anywhere in the value, however often it was encoded.
fn shows(value: &Value, secret: &[u8]) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => {
            shown_in(text.as_bytes(), secret) || decoded(text).is_some_and(|bytes| layer(&bytes, secret))
        }
        Value::Array(items) => items.iter().any(|item| shows(item, secret)),
        Value::Object(entries) => {
            entries.iter().any(|(key, value)| shown_in(key.as_bytes(), secret) || shows(value, secret))
        }
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok().filter(|bytes| !bytes.is_empty())
}

fn layer(bytes: &[u8], secret: &[u8]) -> bool {
    shown_in(bytes, secret) || serde_json::from_slice(bytes).is_ok_and(|value| shows(&value, secret))
}

/// As it is, in hexadecimal, and in base64 whatever stands before it.
fn shown_in(bytes: &[u8], secret: &[u8]) -> bool {
    let contains = |part: &[u8]| !part.is_empty() && bytes.windows(part.len()).any(|window| window == part);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let shifted = (0..3).map(|shift| {
        let text = STANDARD_NO_PAD.encode([&vec![0; shift], secret].concat());
        // The first and last characters also hold bits of what stands beside.
        text[(shift * 8).div_ceil(6)..text.len() - 1].to_owned()
    });
    contains(secret) || contains(hex.as_bytes()) || shifted.into_iter().any(|text| contains(text.as_bytes()))
}

#[test]
fn the_search_finds_what_is_there() {
    let secret = b"sk-planted-0123456789";
    let nested = |bytes: &[u8]| serde_json::json!({"payload": STANDARD.encode(bytes)});
    for bytes in [&secret[..], b"xsk-planted-0123456789y", b"xxsk-planted-0123456789"] {
        let once = nested(bytes);
        let twice = nested(once.to_string().as_bytes());
        let thrice = nested(twice.to_string().as_bytes());
        for value in [serde_json::json!(String::from_utf8(bytes.to_vec()).unwrap()), once, twice, thrice] {
            assert!(shows(&value, secret), "{value}");
        }
        assert!(shown_in(STANDARD.encode(bytes).as_bytes(), secret));
    }
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shows(&serde_json::json!([hex]), secret));
    assert!(!shows(&serde_json::json!({"payload": "sk-planted-012345678"}), secret));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_reply_shows_a_planted_secret(credential in "[ -~]{16,80}") {
        let world = World::new(credential.into_bytes());
        let secrets = world.secrets();
        for route in Route::ALL {
            for reply in world.replies(route) {
                for (at, secret) in secrets.iter().enumerate() {
                    prop_assert!(!shows(&reply, secret), "secret {} in {:?}: {}", at, route, reply);
                }
            }
        }
    }

    /// The same replies do bring the secrets to the worker: nothing above holds because nothing was sent.
    #[test]
    fn the_worker_gets_what_nobody_else_sees(credential in proptest::collection::vec(any::<u8>(), 1..200)) {
        let world = World::new(credential.clone());
        let PollReply::Offer { offer, .. } = decode(world.replies(Route::Poll)[0].to_string().as_bytes()).unwrap() else {
            panic!("the first reply is an offer");
        };
        let me = Addressee { worker: "w1", worker_key: world.worker.keys().seal.id(), polled: world.polled };
        let control = world.control.public();
        let offer = SignedOffer::from_bytes(offer.into_bytes()).verify(&control, me).unwrap();
        let open = |reply: SealReply, subject: Subject| {
            let SealReply::Released(release) = reply else { panic!("refused") };
            let context = offer.seal_context(subject);
            Release::from_bytes(release.into_bytes()).open(&control, &world.worker.opening, &context).unwrap().expose().to_vec()
        };
        let reply = decode(world.replies(Route::Seal)[0].to_string().as_bytes()).unwrap();
        prop_assert_eq!(open(reply, Subject::Credential("model".to_owned())), credential);
        let reply: RedeemReply = decode(world.replies(Route::Redeem)[0].to_string().as_bytes()).unwrap();
        prop_assert_eq!(open(reply.key, Subject::BundleKey), world.data_key.to_secret().expose().to_vec());
    }
}
