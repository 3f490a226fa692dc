//! A worker as the protocol needs it. It believes what it can verify with the key it pinned, for the poll it has open.

use pond_seal::Digest;
use pond_seal::chain::Chain;
use pond_seal::enroll::Identity;
use pond_seal::envelope::seal;
use pond_seal::key::PublicKey;
use pond_seal::offer::{Addressee, Offer, SignedOffer};
use pond_seal::request::{Request, RequestNonce, SignedHead};
use pond_seal::result::Stream;
use pond_seal::seal::{Release, Subject};
use pond_wire::orch::{self, Blob, Few, Hash, Id, Lease, Route, Version};
use serde::Serialize;

use crate::{NOW, Said, Sent};

pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) control: PublicKey,
    pub(crate) polled: Option<RequestNonce>,
    pub(crate) job: Option<Offer>,
    pub(crate) log: Option<Chain>,
    /// Every offer it began, every secret it opened with the job it was for, every statement it made.
    pub(crate) began: Vec<Offer>,
    pub(crate) opened: Vec<(String, Vec<u8>)>,
    pub(crate) said: Vec<Vec<u8>>,
}

fn id(text: &str) -> Id {
    Id::try_from(text.to_owned()).unwrap()
}

fn next() -> orch::Next {
    orch::Next { capabilities: Few::try_from(vec!["sandbox.native".to_owned()]).unwrap() }
}

impl Worker {
    pub(crate) fn poll(&mut self) -> Sent {
        let orch::Next { capabilities } = next();
        let (sent, nonce) =
            self.send(Route::Poll, &orch::Poll { version: Version, wait_seconds: 25, capabilities });
        self.polled = Some(nonce);
        sent
    }

    pub(crate) fn offered(&mut self, reply: &[u8]) -> Result<(), &'static str> {
        let polled = self.polled.ok_or("not_polling")?;
        // The answer to a poll, or to a result that also asked.
        let offer = match (orch::decode(reply), orch::decode(reply)) {
            (Ok(orch::PollReply::Offer { offer, .. }), _) => offer,
            (_, Ok(orch::CompleteReply::Accepted { next: Some(offer), .. })) => offer,
            (Ok(_), _) | (_, Ok(_)) => return Err("nothing"),
            (Err(fault), Err(_)) => return Err(fault.code()),
        };
        let me = Addressee { worker: &self.name, worker_key: self.identity.keys().seal.id(), polled };
        let signed = SignedOffer::from_bytes(offer.into_bytes());
        let offer = signed.verify(&self.control, me).map_err(|fault| fault.code())?;
        self.polled = None;
        self.log = Some(Chain::begin(&offer.job, offer.lease_epoch, Stream::Stdout));
        self.began.push(offer.clone());
        self.job = Some(offer);
        Ok(())
    }

    pub(crate) fn ask_secret(&self) -> Option<Sent> {
        let body = orch::Seal { version: Version, lease: self.lease()?, credential: id("model") };
        Some(self.send(Route::Seal, &body).0)
    }

    pub(crate) fn released(&mut self, reply: &[u8]) -> Result<Vec<u8>, &'static str> {
        let reply: orch::SealReply = orch::decode(reply).map_err(|fault| fault.code())?;
        let orch::SealReply::Released(release) = reply else { return Err("refused") };
        let offer = self.job.as_ref().ok_or("no_job")?;
        let context = offer.seal_context(Subject::Credential("model".to_owned()));
        let release = Release::from_bytes(release.into_bytes());
        let secret =
            release.open(&self.control, &self.identity.opening, &context).map_err(|fault| fault.code())?;
        self.opened.push((offer.job.clone(), secret.expose().to_vec()));
        Ok(secret.expose().to_vec())
    }

    pub(crate) fn chunk(&mut self, bytes: &[u8]) -> Option<Sent> {
        let lease = self.lease()?;
        let link = self.log.as_mut()?.extend(bytes);
        let body = orch::Chunk {
            version: Version,
            lease,
            stream: orch::Stream::Stdout,
            seq: link.seq,
            offset: link.offset,
            bytes: Blob::new(bytes.to_vec()).unwrap(),
            head: Hash::try_from(link.head.to_string()).unwrap(),
        };
        Some(self.send(Route::Chunks, &body).0)
    }

    pub(crate) fn complete(&mut self, output: &str) -> Option<Sent> {
        let lease = self.lease()?;
        let said = Said {
            job: lease.job.as_str().to_owned(),
            epoch: lease.epoch,
            log: self.log.as_ref()?.at().head,
            output: output.to_owned(),
        };
        let statement = seal(&serde_json::to_vec(&said).unwrap(), &self.identity.signing).unwrap();
        self.said.push(statement.clone());
        let (sent, nonce) = self.send(Route::Complete, &self.completion(statement, Some(next())));
        self.polled = Some(nonce);
        Some(sent)
    }

    pub(crate) fn send_statement(&self, statement: Vec<u8>) -> Sent {
        self.send(Route::Complete, &self.completion(statement, None)).0
    }

    fn completion(&self, statement: Vec<u8>, next: Option<orch::Next>) -> orch::Complete {
        let (lease, statement) = (self.lease().unwrap(), Blob::new(statement).unwrap());
        orch::Complete { version: Version, lease, last: None, statement, next }
    }

    fn lease(&self) -> Option<Lease> {
        let offer = self.job.as_ref()?;
        Some(Lease { job: id(&offer.job), epoch: offer.lease_epoch })
    }

    fn send(&self, route: Route, body: &impl Serialize) -> (Sent, RequestNonce) {
        let body = serde_json::to_vec(body).unwrap();
        let request = Request { method: "POST", path: route.path(), body: Digest::of(&body) };
        let nonce = RequestNonce::generate().unwrap();
        let key = &self.identity.signing;
        let head = SignedHead::sign(&request, &self.name, self.control.id(), NOW, nonce, key);
        (Sent { route, head: head.to_text(), body }, nonce)
    }
}
