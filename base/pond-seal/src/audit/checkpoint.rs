//! A checkpoint: size and root of the log, signed by the control plane, as a C2SP signed note. What somebody keeps elsewhere.
//!
//! HOSTILE INPUT until [`Checkpoint::verify`] returned. The origin is derived from the key, so that a checkpoint of one log is
//! none of another. Signatures of others (witnesses) are passed over.

use crate::Digest;
use crate::key::{PublicKey, SigningKey};
use crate::pem::{from_base64, to_base64};

/// Ours has 250; witnesses may add a few lines.
pub const MOST_BYTES: usize = 16 << 10;
/// What C2SP calls Ed25519.
const ALGORITHM: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    pub size: u64,
    pub root: Digest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFault {
    #[error("not a checkpoint: a signed note of origin, size and root")]
    Malformed,
    #[error("the checkpoint is of another log than the trusted key's")]
    Origin,
    #[error("no signature of the checkpoint is of the trusted key")]
    KeyUnknown,
    #[error("the checkpoint's signature does not hold")]
    SignatureInvalid,
}

impl CheckpointFault {
    /// Stable; the documents list it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "checkpoint_malformed",
            Self::Origin => "checkpoint_origin",
            Self::KeyUnknown => "checkpoint_key",
            Self::SignatureInvalid => "checkpoint_signature",
        }
    }
}

/// The name of the log whose checkpoints this key signs.
#[must_use]
pub fn origin(key: &PublicKey) -> String {
    format!("pond.audit/{}", key.id())
}

/// How other tools are told of the key: C2SP's verifier key.
#[must_use]
pub fn verifier_key(key: &PublicKey) -> String {
    let origin = origin(key);
    let hint: String = hint(&origin, key).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{origin}+{hint}+{}", to_base64(&[[ALGORITHM].as_slice(), key.bytes()].concat()))
}

/// The first bytes of a signature, which say whose it is.
fn hint(name: &str, key: &PublicKey) -> [u8; 4] {
    let digest = Digest::of(&[name.as_bytes(), &[b'\n', ALGORITHM], key.bytes()].concat());
    let [a, b, c, d, ..] = *digest.as_bytes();
    [a, b, c, d]
}

impl Checkpoint {
    /// The note, with its signature.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> String {
        let public = key.public();
        let origin = origin(&public);
        let text = format!("{origin}\n{}\n{}\n", self.size, to_base64(self.root.as_bytes()));
        let signed = [hint(&origin, &public).as_slice(), &key.sign(text.as_bytes())].concat();
        format!("{text}\n\u{2014} {origin} {}\n", to_base64(&signed))
    }

    /// What a note says, if `key` signed it.
    pub fn verify(note: &str, key: &PublicKey) -> Result<Self, CheckpointFault> {
        let fault = CheckpointFault::Malformed;
        if note.len() > MOST_BYTES {
            return Err(fault);
        }
        let (body, signatures) = note.split_once("\n\n").ok_or(fault)?;
        let text = format!("{body}\n");
        let mut lines = body.split('\n');
        let (Some(name), Some(size), Some(root), None) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(fault);
        };
        let signatures = signatures.strip_suffix('\n').ok_or(fault)?;
        if name != origin(key) {
            return Err(CheckpointFault::Origin);
        }
        check_signature(&text, signatures, key)?;
        let number = size.parse::<u64>().ok().filter(|number| number.to_string() == size).ok_or(fault)?;
        let root = from_base64(root).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()).ok_or(fault)?;
        Ok(Self { size: number, root: Digest::from_bytes(root) })
    }
}

fn check_signature(text: &str, lines: &str, key: &PublicKey) -> Result<(), CheckpointFault> {
    let (origin, mut found) = (origin(key), Err(CheckpointFault::KeyUnknown));
    let own = hint(&origin, key);
    for line in lines.split('\n') {
        let rest = line.strip_prefix("\u{2014} ").ok_or(CheckpointFault::Malformed)?;
        let (name, signature) = rest.split_once(' ').ok_or(CheckpointFault::Malformed)?;
        let bytes = from_base64(signature).ok_or(CheckpointFault::Malformed)?;
        let Some((of, signature)) = bytes.split_first_chunk::<4>() else {
            return Err(CheckpointFault::Malformed);
        };
        if name == origin && *of == own && found.is_err() {
            let holds = key.holds(text.as_bytes(), signature);
            found = if holds { Ok(()) } else { Err(CheckpointFault::SignatureInvalid) };
        }
    }
    found
}
