//! Asking for a secret of a job, at the moment it is needed. Either a box that only this worker opens, or a refusal: there is no
//! third form, and no field that could hold a secret.

use serde::{Deserialize, Serialize};

use super::lease::Lease;
use super::value::{Blob, Code, Id, NotAValue, Version};

pub(super) const MOST_RELEASE_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub version: Version,
    pub lease: Lease,
    /// One of the credentials the offer names.
    pub credential: Id,
}

/// `{"ok":true,"release":…}` or `{"ok":false,"code":…}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Answer", into = "Answer")]
pub enum SealReply {
    Released(Blob<MOST_RELEASE_BYTES>),
    Refused(Code),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redeem {
    pub version: Version,
    pub lease: Lease,
    /// The one-time token of the offer.
    #[serde(deserialize_with = "token")]
    pub token: String,
}

/// What comes before the ciphertext of a bundle: the key it opens with, sealed, and how long it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedeemReply {
    pub version: Version,
    pub key: SealReply,
    pub bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    version: Version,
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<Blob<MOST_RELEASE_BYTES>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
}

impl TryFrom<Answer> for SealReply {
    type Error = NotAValue;

    fn try_from(answer: Answer) -> Result<Self, NotAValue> {
        match (answer.ok, answer.release, answer.code) {
            (true, Some(release), None) => Ok(Self::Released(release)),
            (false, None, Some(code)) => Ok(Self::Refused(code)),
            (true | false, _, _) => Err(NotAValue::Answer),
        }
    }
}

impl From<SealReply> for Answer {
    fn from(reply: SealReply) -> Self {
        let (ok, release, code) = match reply {
            SealReply::Released(release) => (true, Some(release), None),
            SealReply::Refused(code) => (false, None, Some(code)),
        };
        Self { version: Version, ok, release, code }
    }
}

fn token<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match text.len() <= 128 && !text.is_empty() && text.bytes().all(plain) {
        true => Ok(text),
        false => Err(serde::de::Error::custom(NotAValue::Token)),
    }
}
