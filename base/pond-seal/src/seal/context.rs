//! What a sealed secret is for. Control plane and worker build it apart from each other, the one from its store, the other from
//! the offer it verified; a mix-up on either side opens nothing.

use super::Suite;
use crate::digest::Digest;
use crate::key::KeyId;
use crate::transcript::Transcript;

const LABEL: &str = "pond/seal/v1";

/// Which of a job's secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A credential the offer asked for, by its name.
    Credential(String),
    /// The key of the job's source bundle.
    BundleKey,
}

/// Every field is bound; none has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealContext {
    pub subject: Subject,
    pub tenant: String,
    pub worker: String,
    pub worker_key: KeyId,
    pub job: String,
    pub lease_epoch: u64,
    pub input: Digest,
    pub policy: Digest,
    /// In seconds of the server's clock. The worker binds it and does not compare it with a clock of its own.
    pub not_after: u64,
}

impl SealContext {
    /// The bytes HPKE is given as `info`.
    #[must_use]
    pub fn info(&self) -> Vec<u8> {
        let (kind, name) = match &self.subject {
            Subject::Credential(name) => ("credential", name.as_str()),
            Subject::BundleKey => ("bundle_key", ""),
        };
        Transcript::new(LABEL)
            .number(Suite::X25519ChaCha.id().into())
            .text(kind)
            .text(name)
            .text(&self.tenant)
            .text(&self.worker)
            .digest(&self.worker_key.0)
            .text(&self.job)
            .number(self.lease_epoch)
            .digest(&self.input)
            .digest(&self.policy)
            .number(self.not_after)
            .finish()
    }
}
