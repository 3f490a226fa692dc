//! A job as it is offered to one worker, signed by the control plane.
//!
//! HOSTILE until [`SignedOffer::verify`] returned: it crosses the orchestrator. The signature is checked over the exact bytes
//! before any of them is read. An offer names the worker, its key and the poll it answers, so that one worker's offer, or an old
//! one, is nobody else's. It carries no secret: it says which will be released, and a token that fetches ciphertext.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::{Envelope, EnvelopeFault, Purpose, seal_as};
use crate::key::{KeyId, PublicKey, SigningKey};
use crate::request::RequestNonce;
use crate::seal::{SealContext, Subject};

/// One attempt at a stage, for one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The nonce of the poll this answers.
    pub answers: RequestNonce,
    pub worker: String,
    /// The id of the worker's X25519 key, to which everything for this job is sealed.
    pub worker_key: KeyId,
    pub tenant: String,
    pub run: String,
    pub stage: String,
    pub job: String,
    pub attempt: u32,
    pub lease_epoch: u64,
    /// How long the worker may go without a renewal. Durations, not times: no worker's clock is believed.
    pub lease_seconds: u32,
    /// How long it has to say that it begins.
    pub acknowledge_seconds: u32,
    /// How long the job may take in all.
    pub deadline_seconds: u32,
    /// In seconds of the server's clock.
    pub not_after: u64,
    /// Over the tree the job will see.
    pub input: Digest,
    /// Over what the worker resolves the sandbox block to.
    pub policy: Digest,
    /// The stage's executor, as JSON text; it is parsed under pond-wire's caps.
    pub executor: String,
    /// Names of credentials to ask for once the job is acknowledged.
    pub credentials: Vec<String>,
    pub source: Source,
    pub allotted: Allotted,
}

/// What this job may use of its run's budgets. Where bytes are counted as they pass they are one more than is left, so that whoever
/// counts for the whole run sees them crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allotted {
    /// Money that is set aside for this lease alone, in millionths of a cent; a renewal may lend more.
    pub cost_microcents: u64,
    pub output_bytes: u64,
    pub artifact_bytes: u64,
    pub egress_bytes: u64,
}

/// Where the job's source comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Source {
    /// The job starts in an empty directory.
    Empty {},
    /// A bundle, fetched once with this token; its key is sealed and released on its own.
    Bundle { token: String },
}

/// Who reads an offer: what it must name.
#[derive(Debug, Clone, Copy)]
pub struct Addressee<'a> {
    pub worker: &'a str,
    pub worker_key: KeyId,
    /// The nonce of the poll that is open.
    pub polled: RequestNonce,
}

#[derive(Debug, thiserror::Error)]
pub enum OfferFault {
    #[error("the offer is not signed by the control plane")]
    Envelope(#[from] EnvelopeFault),
    #[error("the offer is malformed")]
    Malformed(#[source] serde_json::Error),
    #[error("writing the offer")]
    Encode(#[source] serde_json::Error),
    #[error("the offer is for another worker")]
    OtherWorker,
    #[error("the offer is for another key of this worker")]
    OtherKey,
    #[error("the offer answers another poll")]
    OtherPoll,
}

impl OfferFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Envelope(fault) => fault.code(),
            Self::Malformed(_) => "offer_malformed",
            Self::Encode(_) => "offer_encoding",
            Self::OtherWorker => "offer_worker",
            Self::OtherKey => "offer_key",
            Self::OtherPoll => "offer_replayed",
        }
    }
}

/// The exact bytes of an offer with their signature, as they are relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedOffer(Vec<u8>);

impl SignedOffer {
    pub fn sign(offer: &Offer, control: &SigningKey) -> Result<Self, OfferFault> {
        let payload = serde_json::to_vec(offer).map_err(OfferFault::Encode)?;
        seal_as(Purpose::Offer, &payload, control).map(Self).map_err(OfferFault::Encode)
    }

    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn verify(&self, control: &PublicKey, me: Addressee<'_>) -> Result<Offer, OfferFault> {
        let envelope = Envelope::parse(&self.0)?;
        let verified = envelope.verify_as(Purpose::Offer, control)?;
        let offer: Offer = serde_json::from_slice(verified.payload()).map_err(OfferFault::Malformed)?;
        if offer.worker != me.worker {
            return Err(OfferFault::OtherWorker);
        }
        if offer.worker_key != me.worker_key {
            return Err(OfferFault::OtherKey);
        }
        if offer.answers != me.polled {
            return Err(OfferFault::OtherPoll);
        }
        Ok(offer)
    }
}

impl Offer {
    /// What a secret of this job is sealed for.
    #[must_use]
    pub fn seal_context(&self, subject: Subject) -> SealContext {
        SealContext {
            subject,
            tenant: self.tenant.clone(),
            worker: self.worker.clone(),
            worker_key: self.worker_key,
            job: self.job.clone(),
            lease_epoch: self.lease_epoch,
            input: self.input,
            policy: self.policy,
            not_after: self.not_after,
        }
    }
}

#[cfg(test)]
mod tests;
