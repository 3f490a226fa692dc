//! The control plane as the protocol needs it: its checks are pond-seal's, pond-wire's and pond-policy's; the store is a map.

use std::collections::BTreeMap;

use pond_policy::capability::{Capability, Requirement};
use pond_policy::name::Project;
use pond_policy::tags::{JobTags, Tag, may_receive};
use pond_seal::chain::{Accepted, Chain, ChainFault, Link};
use pond_seal::enroll::IdentityKeys;
use pond_seal::envelope::Envelope;
use pond_seal::key::SigningKey;
use pond_seal::offer::{Allotted, Offer, SignedOffer, Source};
use pond_seal::request::{Request, SeenNonces, SignedHead};
use pond_seal::result::Stream;
use pond_seal::seal::{Release, Subject};
use pond_seal::{Digest, Secret};
use pond_wire::orch::{self, Blob, Lease, MOST_OFFER_BYTES, Route, Version};
use serde::Serialize;

use crate::{NOW, Sent};

pub(crate) type Outcome = Result<Vec<u8>, &'static str>;

pub(crate) struct Control {
    pub(crate) key: SigningKey,
    pub(crate) workers: BTreeMap<String, Enrolled>,
    pub(crate) jobs: BTreeMap<String, Job>,
}

pub(crate) struct Enrolled {
    pub(crate) keys: IdentityKeys,
    pub(crate) tags: Vec<Tag>,
    pub(crate) seen: SeenNonces,
}

pub(crate) struct Job {
    pub(crate) project: Project,
    pub(crate) capability: Requirement,
    pub(crate) tags: Vec<Tag>,
    pub(crate) secret: Vec<u8>,
    pub(crate) epoch: u64,
    pub(crate) offer: Option<Offer>,
    pub(crate) log: Chain,
    pub(crate) kept: Vec<u8>,
    pub(crate) result: Option<Vec<u8>>,
}

fn json(reply: &impl Serialize) -> Outcome {
    Ok(serde_json::to_vec(reply).unwrap())
}

impl Control {
    /// The orchestrator says: this worker asked, and should get that job. Everything it says is judged again.
    pub(crate) fn grant(&mut self, job: &str, sent: &Sent) -> Outcome {
        let (worker, head) = self.authentic(Route::Poll, sent)?;
        let poll: orch::Poll = orch::decode(&sent.body).map_err(|fault| fault.code())?;
        let offer = self.offer(job, worker, &head, poll.capabilities.as_slice())?;
        json(&orch::PollReply::Offer { version: Version, offer })
    }

    fn offer(
        &mut self,
        job: &str,
        worker: String,
        head: &SignedHead,
        capabilities: &[String],
    ) -> Result<Blob<MOST_OFFER_BYTES>, &'static str> {
        let offered: Vec<Capability> =
            capabilities.iter().filter_map(|text| Capability::parse(text)).collect();
        let enrolled = &self.workers[&worker];
        let row = self.jobs.get_mut(job).ok_or("job_unknown")?;
        if row.result.is_some() {
            return Err("job_over");
        }
        let required = JobTags { required: &row.tags, project: Some(&row.project) };
        may_receive(&enrolled.tags, required).map_err(|_| "withheld")?;
        if !row.capability.satisfied_by(&offered) {
            return Err("incapable");
        }
        row.epoch += 1;
        row.log = Chain::begin(job, row.epoch, Stream::Stdout);
        row.kept.clear();
        let offer = Offer {
            answers: head.nonce(),
            worker_key: enrolled.keys.seal.id(),
            worker,
            tenant: row.project.as_str().to_owned(),
            run: "r1".to_owned(),
            stage: "s1".to_owned(),
            job: job.to_owned(),
            attempt: 1,
            lease_epoch: row.epoch,
            lease_seconds: 60,
            acknowledge_seconds: 15,
            deadline_seconds: 600,
            not_after: NOW + 600,
            input: Digest::of(job.as_bytes()),
            policy: Digest::of(b"policy"),
            executor: "{}".to_owned(),
            credentials: vec!["model".to_owned()],
            source: Source::Empty {},
            allotted: Allotted { cost_microcents: 0, output_bytes: 1, artifact_bytes: 1, egress_bytes: 1 },
        };
        let signed = SignedOffer::sign(&offer, &self.key).unwrap();
        row.offer = Some(offer);
        Ok(Blob::new(signed.as_bytes().to_vec()).unwrap())
    }

    /// Any other call.
    pub(crate) fn call(&mut self, route: Route, sent: &Sent) -> Outcome {
        let (worker, head) = self.authentic(route, sent)?;
        match route {
            Route::Seal => {
                let body: orch::Seal = orch::decode(&sent.body).map_err(|fault| fault.code())?;
                let key = self.workers[&worker].keys.seal.clone();
                let row = self.held(&worker, &body.lease)?;
                let (secret, offer) =
                    (Secret::new(row.secret.clone()), row.offer.clone().ok_or("lease_stale")?);
                let context = offer.seal_context(Subject::Credential(body.credential.as_str().to_owned()));
                let release = Release::issue(&secret, Some(&key), &context, &self.key).unwrap();
                json(&orch::SealReply::Released(Blob::new(release.as_bytes().to_vec()).unwrap()))
            }
            Route::Chunks => {
                let body: orch::Chunk = orch::decode(&sent.body).map_err(|fault| fault.code())?;
                let row = self.held(&worker, &body.lease)?;
                let head = Digest::try_from(body.head.as_str().to_owned()).unwrap();
                let link = Link { seq: body.seq, offset: body.offset, head };
                if row.log.accept(link, body.bytes.as_bytes(), 1 << 20).map_err(ChainFault::code)?
                    == Accepted::New
                {
                    row.kept.extend(body.bytes.as_bytes());
                }
                json(&orch::ChunkReply::Stored { version: Version, pause_milliseconds: 0, cancel: false })
            }
            Route::Complete => {
                let body: orch::Complete = orch::decode(&sent.body).map_err(|fault| fault.code())?;
                let key = self.workers[&worker].keys.signing.clone();
                let row = self.held(&worker, &body.lease)?;
                let envelope = Envelope::parse(body.statement.as_bytes()).map_err(|fault| fault.code())?;
                let verified = envelope.verify(&key).map_err(|fault| fault.code())?;
                let said: crate::Said =
                    serde_json::from_slice(verified.payload()).map_err(|_| "statement")?;
                if (said.job.as_str(), said.epoch) != (body.lease.job.as_str(), body.lease.epoch) {
                    return Err("statement_lease");
                }
                if said.log != row.log.at().head {
                    return Err("statement_log");
                }
                match &row.result {
                    Some(result) if result != body.statement.as_bytes() => return Err("lease_stale"),
                    Some(_) | None => row.result = Some(body.statement.as_bytes().to_vec()),
                }
                let next = body.next.and_then(|next| self.next(worker, &head, next.capabilities.as_slice()));
                json(&orch::CompleteReply::Accepted { version: Version, next })
            }
            Route::EnrollBegin
            | Route::EnrollFinish
            | Route::Rotate
            | Route::Poll
            | Route::Acknowledge
            | Route::Redeem
            | Route::Heartbeat
            | Route::Decline => Err("not_in_this_play"),
        }
    }

    /// Some job that nobody holds and this worker may have.
    fn next(
        &mut self,
        worker: String,
        head: &SignedHead,
        capabilities: &[String],
    ) -> Option<Blob<MOST_OFFER_BYTES>> {
        let free = self.jobs.iter().filter(|(_, row)| row.offer.is_none());
        let free: Vec<String> = free.map(|(name, _)| name.clone()).collect();
        free.iter().find_map(|job| self.offer(job, worker.clone(), head, capabilities).ok())
    }

    fn authentic(&mut self, route: Route, sent: &Sent) -> Result<(String, SignedHead), &'static str> {
        let head = SignedHead::parse(&sent.head).map_err(|fault| fault.code())?;
        let enrolled = self.workers.get_mut(head.worker()).ok_or("worker_unknown")?;
        let request = Request { method: "POST", path: route.path(), body: Digest::of(&sent.body) };
        let (key, control) = (enrolled.keys.signing.clone(), self.key.public().id());
        head.verify(&request, &key, control, NOW, &mut enrolled.seen).map_err(|fault| fault.code())?;
        Ok((head.worker().to_owned(), head))
    }

    fn held(&mut self, worker: &str, lease: &Lease) -> Result<&mut Job, &'static str> {
        let row = self.jobs.get_mut(lease.job.as_str()).ok_or("job_unknown")?;
        let holder = row.offer.as_ref().map(|offer| (offer.worker.as_str(), offer.lease_epoch));
        if holder == Some((worker, lease.epoch)) { Ok(row) } else { Err("lease_stale") }
    }
}
