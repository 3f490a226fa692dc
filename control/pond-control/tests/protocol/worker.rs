//! A worker as the protocol needs one, over HTTP, with every byte it was ever sent.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::enroll::{Identity, JoinToken, Joined, Rotation, answer};
use pond_seal::key::PublicKey;
use pond_seal::offer::{Addressee, Offer, SignedOffer};
use pond_seal::request::{HEADER, Request, RequestNonce, SignedHead};
use pond_seal::result::{self, RunResult};
use pond_seal::seal::{Release, Subject};
use pond_seal::statement::Statement;
use pond_wire::orch::{self, Blob, Few, Hash, Id, Lease, Route, Version};
use serde::Serialize;
use tokio::net::TcpStream;

use super::world::clock;

/// Longer than anything takes; the bound only keeps a failure from lasting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// The code of a problem.
pub(crate) type Answer<T> = Result<T, String>;

pub(crate) struct Worker {
    pub(crate) at: SocketAddr,
    pub(crate) control: PublicKey,
    pub(crate) identity: Identity,
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
    pub(crate) can: Vec<String>,
    pub(crate) wait_seconds: u32,
    /// Every body that was received.
    pub(crate) seen: Vec<Vec<u8>>,
}

/// A call on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) path: String,
    pub(crate) head: Option<String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn id(text: &str) -> Id {
    Id::try_from(text.to_owned()).unwrap()
}

pub(crate) fn lease(offer: &Offer) -> Lease {
    Lease { job: id(&offer.job), epoch: offer.lease_epoch }
}

/// Sends bytes and gets bytes.
pub(crate) async fn deliver(at: SocketAddr, sent: &Sent) -> (u16, Vec<u8>) {
    let work = async {
        let stream = TcpStream::connect(at).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let mut request = hyper::Request::post(&sent.path).header("host", "pond");
        if let Some(head) = &sent.head {
            request = request.header(HEADER, head);
        }
        let body = Full::new(Bytes::from(sent.body.clone()));
        let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
        driver.abort();
        (status, body)
    };
    let answered = tokio::time::timeout(PATIENCE, work).await;
    answered.unwrap_or_else(|_| panic!("waited a minute for an answer on {}", sent.path))
}

impl Worker {
    pub(crate) fn new(at: SocketAddr, control: PublicKey, identity: Identity, can: &[&str]) -> Self {
        let can = can.iter().map(|text| (*text).to_owned()).collect();
        let (name, tags, seen) = (String::new(), Vec::new(), Vec::new());
        Self { at, control, identity, name, tags, can, wait_seconds: 0, seen }
    }

    /// A body, signed for its route.
    pub(crate) fn signed(&self, route: Route, body: &impl Serialize) -> (Sent, RequestNonce) {
        let body = serde_json::to_vec(body).unwrap();
        let request = Request { method: "POST", path: route.path(), body: Digest::of(&body) };
        let nonce = RequestNonce::generate().unwrap();
        let now = u64::try_from(clock().0 / 1000).unwrap();
        let head =
            SignedHead::sign(&request, &self.name, self.control.id(), now, nonce, &self.identity.signing);
        (Sent { path: route.path().to_owned(), head: Some(head.to_text()), body }, nonce)
    }

    pub(crate) async fn send(&mut self, sent: &Sent) -> Answer<Vec<u8>> {
        let (status, body) = deliver(self.at, sent).await;
        self.seen.push(body.clone());
        if status == 200 {
            return Ok(body);
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["status"], status, "{problem}");
        Err(problem["code"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn call<T: orch::Body>(&mut self, route: Route, body: &impl Serialize) -> Answer<T> {
        let sent = self.signed(route, body).0;
        Ok(orch::decode(&self.send(&sent).await?).unwrap())
    }

    pub(crate) async fn challenge(&mut self, token: &JoinToken) -> Answer<orch::EnrollChallenge> {
        let keys = self.identity.keys();
        let hash = |text: String| Hash::try_from(text).unwrap();
        let body = orch::EnrollBegin {
            version: Version,
            token: hash(token.public().to_hex()),
            signing_key: hash(keys.signing.to_hex()),
            seal_key: hash(keys.seal.to_hex()),
        };
        let path = Route::EnrollBegin.path().to_owned();
        let sent = Sent { path, head: None, body: serde_json::to_vec(&body).unwrap() };
        Ok(orch::decode(&self.send(&sent).await?).unwrap())
    }

    pub(crate) async fn prove(&mut self, token: &JoinToken, asked: &orch::EnrollChallenge) -> Answer<()> {
        let sealed = serde_json::from_slice(asked.sealed.as_bytes()).unwrap();
        let (nonce, proof) =
            answer(&sealed, token, &self.identity).map_err(|fault| fault.code().to_owned())?;
        let body = orch::EnrollFinish {
            version: Version,
            enrollment: asked.enrollment.clone(),
            proof: Blob::new(serde_json::to_vec(&proof).unwrap()).unwrap(),
            capabilities: Few::try_from(self.can.clone()).unwrap(),
        };
        let path = Route::EnrollFinish.path().to_owned();
        let sent = Sent { path, head: None, body: serde_json::to_vec(&body).unwrap() };
        let reply: orch::EnrollReply = orch::decode(&self.send(&sent).await?).unwrap();
        let joined =
            Joined { control: reply.control.as_str().to_owned(), envelope: reply.joined.into_bytes() };
        let (control, grant) = joined.verify(token, &self.identity.keys(), nonce).unwrap();
        assert_eq!(control, self.control);
        (self.name, self.tags) = (grant.worker, grant.tags);
        Ok(())
    }

    pub(crate) async fn join(&mut self, token: &JoinToken) -> Answer<()> {
        let asked = self.challenge(token).await?;
        self.prove(token, &asked).await
    }

    pub(crate) async fn rotate(&mut self, new: Identity, generation: u64) -> Answer<u64> {
        let rotation = Rotation::sign(&self.identity.signing, &new, &self.name, generation).unwrap();
        let body = orch::Rotate { version: Version, rotation: Blob::new(rotation.0).unwrap() };
        let reply: orch::RotateReply = self.call(Route::Rotate, &body).await?;
        self.identity = new;
        Ok(reply.generation)
    }

    pub(crate) fn polling(&self) -> (Sent, RequestNonce) {
        let capabilities = Few::try_from(self.can.clone()).unwrap();
        let body = orch::Poll { version: Version, wait_seconds: self.wait_seconds, capabilities };
        self.signed(Route::Poll, &body)
    }

    pub(crate) async fn asked(&mut self) -> Answer<orch::PollReply> {
        let sent = self.polling().0;
        Ok(orch::decode(&self.send(&sent).await?).unwrap())
    }

    /// A verified offer, if there is one.
    pub(crate) async fn poll(&mut self) -> Answer<Option<Offer>> {
        let (sent, polled) = self.polling();
        let reply: orch::PollReply = orch::decode(&self.send(&sent).await?).unwrap();
        let orch::PollReply::Offer { offer, .. } = reply else { return Ok(None) };
        let me = Addressee { worker: &self.name, worker_key: self.identity.keys().seal.id(), polled };
        Ok(Some(SignedOffer::from_bytes(offer.into_bytes()).verify(&self.control, me).unwrap()))
    }

    pub(crate) async fn acknowledge(&mut self, offer: &Offer) -> Answer<u32> {
        let body = orch::Acknowledge { version: Version, lease: lease(offer) };
        let reply: orch::AcknowledgeReply = self.call(Route::Acknowledge, &body).await?;
        Ok(reply.lease_seconds)
    }

    /// A job that was begun.
    pub(crate) async fn begun(&mut self) -> Offer {
        let offer = self.poll().await.unwrap().unwrap_or_else(|| panic!("no job for {}", self.name));
        assert!((59..=60).contains(&self.acknowledge(&offer).await.unwrap()));
        offer
    }

    pub(crate) async fn seal(&mut self, offer: &Offer, credential: &str) -> Answer<Result<Vec<u8>, String>> {
        let body = orch::Seal { version: Version, lease: lease(offer), credential: id(credential) };
        let reply = self.call(Route::Seal, &body).await?;
        Ok(self.opened(offer, reply, Subject::Credential(credential.to_owned())))
    }

    fn opened(&self, offer: &Offer, reply: orch::SealReply, subject: Subject) -> Result<Vec<u8>, String> {
        let release = match reply {
            orch::SealReply::Released(release) => Release::from_bytes(release.into_bytes()),
            orch::SealReply::Refused(code) => return Err(code.as_str().to_owned()),
        };
        let context = offer.seal_context(subject);
        Ok(release.open(&self.control, &self.identity.opening, &context).unwrap().expose().to_vec())
    }

    /// The bundle's key and ciphertext.
    pub(crate) async fn redeem(&mut self, offer: &Offer, token: &str) -> Answer<(Vec<u8>, Vec<u8>)> {
        let body = orch::Redeem { version: Version, lease: lease(offer), token: token.to_owned() };
        let sent = self.signed(Route::Redeem, &body).0;
        let received = self.send(&sent).await?;
        let end = received.iter().position(|byte| *byte == b'\n').unwrap();
        let head: orch::RedeemReply = orch::decode(&received[..end]).unwrap();
        let ciphertext = received[end + 1..].to_vec();
        assert_eq!(head.bytes, u64::try_from(ciphertext.len()).unwrap());
        Ok((self.opened(offer, head.key, Subject::BundleKey)?, ciphertext))
    }

    pub(crate) async fn heartbeat(&mut self, offer: &Offer, cost: u64) -> Answer<orch::Verdict> {
        let body = orch::Heartbeat {
            version: Version,
            lease: lease(offer),
            cost_microcents: cost,
            wanted: None,
            wanted_egress_bytes: None,
            egress_bytes: 2,
            output_bytes: 3,
        };
        let reply: orch::HeartbeatReply = self.call(Route::Heartbeat, &body).await?;
        Ok(reply.verdict)
    }

    pub(crate) async fn decline(&mut self, offer: &Offer, declined: orch::Declined) -> Answer<()> {
        let body = orch::Decline { version: Version, lease: lease(offer), declined };
        self.call::<orch::DeclineReply>(Route::Decline, &body).await.map(drop)
    }

    pub(crate) async fn chunk(&mut self, chunk: &orch::Chunk) -> Answer<orch::ChunkReply> {
        self.call(Route::Chunks, chunk).await
    }

    /// A whole stream, in pieces.
    pub(crate) async fn stream(&mut self, offer: &Offer, stream: orch::Stream, bytes: &[u8]) -> result::Log {
        let signed = result::Stream::ALL
            .into_iter()
            .find(|one| serde_json::to_value(one).unwrap() == serde_json::to_value(stream).unwrap());
        let signed = signed.unwrap();
        let mut chain = Chain::begin(&offer.job, offer.lease_epoch, signed);
        for piece in bytes.chunks(100) {
            let chunk = piece_of(offer, stream, &mut chain, piece);
            let reply = self.chunk(&chunk).await.unwrap();
            assert!(matches!(reply, orch::ChunkReply::Stored { .. }), "{reply:?}");
        }
        let (sha256, length) = (Digest::of(bytes), u64::try_from(bytes.len()).unwrap());
        result::Log { stream: signed, sha256, bytes: length, truncated: false }
    }

    pub(crate) async fn complete(&mut self, offer: &Offer, envelope: Vec<u8>) -> Answer<()> {
        let body = self.completion(offer, envelope);
        let reply: orch::CompleteReply = self.call(Route::Complete, &body).await?;
        assert_eq!(reply, orch::CompleteReply::Accepted { version: Version, next: None });
        Ok(())
    }

    pub(crate) fn completion(&self, offer: &Offer, envelope: Vec<u8>) -> orch::Complete {
        orch::Complete {
            version: Version,
            lease: lease(offer),
            last: None,
            statement: Blob::new(envelope).unwrap(),
            next: None,
        }
    }

    pub(crate) fn sign(&self, subject: Digest, result: RunResult) -> Vec<u8> {
        Statement { subject, result }.sign(&self.identity.signing).unwrap()
    }
}

pub(crate) fn piece_of(offer: &Offer, stream: orch::Stream, chain: &mut Chain, piece: &[u8]) -> orch::Chunk {
    let link = chain.extend(piece);
    orch::Chunk {
        version: Version,
        lease: lease(offer),
        stream,
        seq: link.seq,
        offset: link.offset,
        bytes: Blob::new(piece.to_vec()).unwrap(),
        head: Hash::try_from(link.head.to_string()).unwrap(),
    }
}
