//! Becoming a worker: keys and the token's public half; a sealed challenge; the proof; the signed grant. And new keys later.

use serde::{Deserialize, Serialize};

use super::value::{Blob, Few, Hash, Id, Version};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollBegin {
    pub version: Version,
    /// The public half of the join token.
    pub token: Hash,
    pub signing_key: Hash,
    pub seal_key: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollChallenge {
    pub version: Version,
    /// Which enrollment the proof will be for.
    pub enrollment: Id,
    /// The nonce, sealed to the key that is claimed.
    pub sealed: Blob<1024>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollFinish {
    pub version: Version,
    pub enrollment: Id,
    /// The token's signature and the identity's, over nonce, keys and token.
    pub proof: Blob<{ 2 << 10 }>,
    /// What probes on this host confirmed. Tags are not the worker's to name: there is no field for them.
    pub capabilities: Few<String, 16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollReply {
    pub version: Version,
    /// The control plane's public key; the worker compares it with what its token names.
    pub control: Hash,
    /// Who the worker is and what it was granted, signed.
    pub joined: Blob<{ 32 << 10 }>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    pub version: Version,
    /// The new keys, signed with the old one.
    pub rotation: Blob<{ 8 << 10 }>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateReply {
    pub version: Version,
    /// How often the keys have changed.
    pub generation: u64,
}
