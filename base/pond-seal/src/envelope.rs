//! The DSSE envelope (version 1): some bytes, what type they are, and signatures over both.
//!
//! HOSTILE INPUT until [`Envelope::verify`] returned. A signature covers the payload as it is stored, decoded and never
//! encoded again. Signatures of strangers are passed over, as DSSE asks; a key id only says which signatures to try. One
//! signature of the expected key is enough, and the only thing that counts.

use serde::{Deserialize, Serialize};

use crate::key::{KeyId, PublicKey, SigningKey};
use crate::pem::{from_base64, to_base64};

/// Larger than any statement pond writes, by far.
pub const MOST_BYTES: usize = 1 << 20;
/// The type of what pond signs: an in-toto statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const MOST_SIGNATURES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum EnvelopeFault {
    #[error("the envelope has more than {MOST_BYTES} bytes")]
    TooLarge,
    #[error("the envelope is not a DSSE envelope")]
    Malformed(#[source] serde_json::Error),
    #[error("the payload is not base64")]
    Payload,
    #[error("a signature is not base64")]
    Signature,
    #[error("the envelope has {0} signatures; 1 to {MOST_SIGNATURES} are read")]
    Signatures(usize),
    #[error("the payload is of another type than {0}")]
    PayloadType(&'static str),
    #[error("no signature is of the key {0}")]
    KeyUnknown(KeyId),
    #[error("the signature does not hold for the key {0}")]
    SignatureInvalid(KeyId),
}

impl EnvelopeFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "envelope_too_large",
            Self::Malformed(_) => "envelope_malformed",
            Self::Payload => "payload_encoding",
            Self::Signature => "signature_encoding",
            Self::Signatures(_) => "signature_count",
            Self::PayloadType(_) => "payload_type",
            Self::KeyUnknown(_) => "key_unknown",
            Self::SignatureInvalid(_) => "signature_invalid",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<StoredSignature>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSignature {
    #[serde(default)]
    keyid: Option<String>,
    sig: String,
}

/// An envelope that was read and not yet believed.
#[derive(Debug)]
pub struct Envelope {
    payload_type: String,
    payload: Vec<u8>,
    signatures: Vec<Signed>,
}

#[derive(Debug)]
struct Signed {
    keyid: Option<String>,
    signature: Vec<u8>,
}

/// A payload whose type is right and whose signature held.
#[derive(Debug)]
pub struct Verified<'a>(&'a [u8]);

impl Verified<'_> {
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.0
    }
}

/// What a signed payload is. The type is part of what is signed: a signature for one purpose is none for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An in-toto statement about a run.
    Statement,
    /// A job offered to one worker.
    Offer,
    /// A secret sealed to one worker for one job.
    Release,
    /// The control plane's answer to an enrollment.
    Joined,
    /// A worker's new keys, signed with its old one.
    Rotation,
}

impl Purpose {
    #[must_use]
    pub const fn payload_type(self) -> &'static str {
        match self {
            Self::Statement => PAYLOAD_TYPE,
            Self::Offer => "application/vnd.pond.offer.v1+json",
            Self::Release => "application/vnd.pond.release.v1+json",
            Self::Joined => "application/vnd.pond.joined.v1+json",
            Self::Rotation => "application/vnd.pond.rotation.v1+json",
        }
    }
}

/// Signs an in-toto statement: the bytes of an envelope's file.
pub fn seal(payload: &[u8], key: &SigningKey) -> Result<Vec<u8>, serde_json::Error> {
    seal_as(Purpose::Statement, payload, key)
}

/// Signs a payload: the bytes of its envelope.
pub fn seal_as(purpose: Purpose, payload: &[u8], key: &SigningKey) -> Result<Vec<u8>, serde_json::Error> {
    let signature = key.sign(&pre_authentication_encoding(purpose.payload_type(), payload));
    let stored = Stored {
        payload_type: purpose.payload_type().to_owned(),
        payload: to_base64(payload),
        signatures: vec![StoredSignature {
            keyid: Some(key.public().id().to_string()),
            sig: to_base64(&signature),
        }],
    };
    let mut bytes = serde_json::to_vec(&stored)?;
    bytes.push(b'\n');
    Ok(bytes)
}

impl Envelope {
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeFault> {
        if bytes.len() > MOST_BYTES {
            return Err(EnvelopeFault::TooLarge);
        }
        let stored: Stored = serde_json::from_slice(bytes).map_err(EnvelopeFault::Malformed)?;
        let count = stored.signatures.len();
        if !(1..=MOST_SIGNATURES).contains(&count) {
            return Err(EnvelopeFault::Signatures(count));
        }
        let payload = from_base64(&stored.payload).ok_or(EnvelopeFault::Payload)?;
        let signed = |StoredSignature { keyid, sig }: StoredSignature| {
            let signature = from_base64(&sig).ok_or(EnvelopeFault::Signature)?;
            // An empty id is how some tools spell none.
            Ok(Signed { keyid: keyid.filter(|id| !id.is_empty()), signature })
        };
        let signatures = stored.signatures.into_iter().map(signed).collect::<Result<_, _>>()?;
        Ok(Self { payload_type: stored.payload_type, payload, signatures })
    }

    /// Whether the envelope says that it holds an in-toto statement.
    pub fn check_type(&self) -> Result<(), EnvelopeFault> {
        self.check_purpose(Purpose::Statement)
    }

    fn check_purpose(&self, purpose: Purpose) -> Result<(), EnvelopeFault> {
        let expected = purpose.payload_type();
        if self.payload_type == expected { Ok(()) } else { Err(EnvelopeFault::PayloadType(expected)) }
    }

    /// Whether any signature says it is of this key, or says nothing.
    pub fn check_key(&self, key: &PublicKey) -> Result<(), EnvelopeFault> {
        match self.of(key).next() {
            Some(_) => Ok(()),
            None => Err(EnvelopeFault::KeyUnknown(key.id())),
        }
    }

    /// The statement inside, if `key` signed it.
    pub fn verify(&self, key: &PublicKey) -> Result<Verified<'_>, EnvelopeFault> {
        self.verify_as(Purpose::Statement, key)
    }

    /// The payload, if it is of this purpose and `key` signed it.
    pub fn verify_as(&self, purpose: Purpose, key: &PublicKey) -> Result<Verified<'_>, EnvelopeFault> {
        self.check_purpose(purpose)?;
        self.check_key(key)?;
        let signed = pre_authentication_encoding(&self.payload_type, &self.payload);
        if self.of(key).any(|one| key.holds(&signed, &one.signature)) {
            Ok(Verified(&self.payload))
        } else {
            Err(EnvelopeFault::SignatureInvalid(key.id()))
        }
    }

    fn of(&self, key: &PublicKey) -> impl Iterator<Item = &Signed> {
        let id = key.id().to_string();
        self.signatures.iter().filter(move |one| one.keyid.as_ref().is_none_or(|said| *said == id))
    }
}

/// What DSSE signs: type and payload, each with its length, so that no two pairs spell the same bytes.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests;
