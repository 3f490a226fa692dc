//! PEM around one short DER value, and base64 in the two spellings DSSE allows. Both are strict: one block, its own label,
//! nothing around it, no second spelling of the same bytes.
//!
//! Keys are read and written in constant time. What is signed or sealed is for everybody to see: there the quick decoder will do.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

/// Keys have one line of base64; nobody needs more.
const MOST_TEXT: usize = 1024;

/// One block, its body on one line: what keys need.
pub(crate) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(Base64::encode_string(der));
    Zeroizing::new(format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", body.as_str()))
}

pub(crate) fn decode(label: &str, text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if text.len() > MOST_TEXT {
        return None;
    }
    let body = text.trim().strip_prefix(&format!("-----BEGIN {label}-----"))?;
    let body = body.strip_suffix(&format!("-----END {label}-----"))?.trim();
    Base64::decode_vec(body).ok().map(Zeroizing::new)
}

/// Either alphabet, padded, canonical.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
