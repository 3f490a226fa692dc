//! The real key: read from a descriptor, held where it is wiped on release, and never printed. It leaves only inside the
//! one header of an upstream request.

use std::io::Read;

use http::HeaderValue;
use pond_policy::model::Auth;
use pond_wire::gateway::broker::MAX_KEY_BYTES;
use thiserror::Error;
use zeroize::Zeroizing;

#[derive(Debug, Error)]
pub enum KeyFault {
    #[error("reading a key failed")]
    Read(#[source] std::io::Error),
    #[error("a key is longer than {MAX_KEY_BYTES} bytes")]
    TooLong,
    #[error("a key is shorter than 16 bytes")]
    TooShort,
    #[error("a key holds bytes that are not printable")]
    NotPlain,
}

/// No shorter key is real, and a short one could not be found again in an answer without masking ordinary words.
const LEAST: usize = 16;

/// One model's key.
#[derive(Clone)]
pub struct Key(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads a key to the end of `source`; white space around it is not part of it.
    pub fn read(source: &mut impl Read) -> Result<Self, KeyFault> {
        // The whole room at once: a vector that grows would leave copies behind.
        let mut room = Zeroizing::new(vec![0; MAX_KEY_BYTES + 1]);
        let mut length = 0;
        while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match source.read(rest) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(KeyFault::Read(error)),
            }
        }
        let key = room.get(..length).unwrap_or_default().trim_ascii();
        if length > MAX_KEY_BYTES {
            return Err(KeyFault::TooLong);
        }
        if key.len() < LEAST {
            return Err(KeyFault::TooShort);
        }
        if !key.iter().all(u8::is_ascii_graphic) {
            return Err(KeyFault::NotPlain);
        }
        Ok(Self(Zeroizing::new(key.to_vec())))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The header that carries the key, marked so that nothing prints or indexes it.
    pub(super) fn header(&self, auth: Auth) -> Result<(&'static str, HeaderValue), KeyFault> {
        let (name, before) = auth.header();
        let mut value = Zeroizing::new(Vec::with_capacity(before.len() + self.0.len()));
        value.extend_from_slice(before.as_bytes());
        value.extend_from_slice(&self.0);
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| KeyFault::NotPlain)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<u8>, String> {
        let key = Key::read(&mut &text[..]).map_err(|fault| fault.to_string())?;
        Ok(key.bytes().to_vec())
    }

    #[test]
    fn a_key_is_trimmed_bounded_and_plain() {
        assert_eq!(read(b"  sk-0123456789abcdef\r\n"), Ok(b"sk-0123456789abcdef".to_vec()));
        assert_eq!(read(&[b'k'; MAX_KEY_BYTES]).map(|key| key.len()), Ok(MAX_KEY_BYTES));
        assert_eq!(read(&[b'k'; MAX_KEY_BYTES + 1]), Err("a key is longer than 4096 bytes".into()));
        assert_eq!(read(b"short"), Err("a key is shorter than 16 bytes".into()));
        assert_eq!(
            read(b"sk-0123456789\r\nX-Evil: 1"),
            Err("a key holds bytes that are not printable".into())
        );
        assert_eq!(
            read("sk-0123456789é-abc".as_bytes()),
            Err("a key holds bytes that are not printable".into())
        );
    }

    #[test]
    fn c135_no_debug_output_shows_the_key() {
        let key = Key::read(&mut &b"sk-0123456789abcdef"[..]).unwrap();
        let (_, header) = key.header(Auth::Bearer).unwrap();
        assert_eq!(format!("{key:?} {header:?}"), "Key Sensitive");
        assert_eq!(header.as_bytes(), b"Bearer sk-0123456789abcdef");
    }
}
