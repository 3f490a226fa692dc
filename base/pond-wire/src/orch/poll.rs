//! Asking for work. The answer carries no secret: a signed offer names the credentials to ask for and holds a token that
//! fetches ciphertext.

use serde::{Deserialize, Serialize};

use super::value::{Blob, Few, NotAValue, Version};

/// The longest a poll may be held open.
pub const MOST_WAIT_SECONDS: u32 = 60;
/// The most bytes of a signed offer.
pub const MOST_OFFER_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    pub version: Version,
    #[serde(deserialize_with = "wait")]
    pub wait_seconds: u32,
    /// What probes on this host confirm at this moment: `sandbox.native`, `sandbox.gvisor`.
    pub capabilities: Few<String, 16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum PollReply {
    /// Nothing for this worker; ask again after this long.
    Nothing { version: Version, retry_milliseconds: u32 },
    /// A job: the control plane's signed bytes.
    Offer { version: Version, offer: Blob<MOST_OFFER_BYTES> },
    /// No more work is given to this worker; it finishes what it has.
    Drain { version: Version },
}

fn wait<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let seconds = u32::deserialize(deserializer)?;
    match seconds <= MOST_WAIT_SECONDS {
        true => Ok(seconds),
        false => Err(serde::de::Error::custom(NotAValue::Wait(MOST_WAIT_SECONDS))),
    }
}
