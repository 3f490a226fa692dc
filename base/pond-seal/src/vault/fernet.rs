//! Fernet, read only: values that another system sealed are opened once and sealed anew.
//!
//! HOSTILE INPUT until the tag held. Version 0x80, time, IV, AES-128-CBC, HMAC-SHA-256 over all of it; the tag is compared in
//! constant time before anything is decrypted. A token's age is not judged: an import takes what is there.

use std::fmt;

use aes::cipher::{BlockModeDecrypt, KeyIvInit, block_padding::Pkcs7};
use base64ct::{Base64Url, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::MOST_BYTES;

const VERSION: u8 = 0x80;
const TIME: usize = 8;
const IV: usize = 16;
const TAG: usize = 32;
/// Base64 of the largest value with its frame.
const MOST_TOKEN: usize = (MOST_BYTES + 128) / 3 * 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FernetFault {
    #[error("a Fernet key is 32 bytes in URL-safe base64")]
    Key,
    #[error("not a Fernet token")]
    Malformed,
    #[error("the token was changed, or is of another key")]
    Sealed,
}

/// A key that opens tokens. It is zeroed when dropped, and seals nothing.
pub struct FernetKey {
    signing: Zeroizing<[u8; 16]>,
    encryption: Zeroizing<[u8; 16]>,
}

impl FernetKey {
    pub fn parse(text: &str) -> Result<Self, FernetFault> {
        let mut bytes = Zeroizing::new([0; 32]);
        let read = Base64Url::decode(text.trim(), bytes.as_mut_slice()).map_err(|_| FernetFault::Key)?;
        let (signing, encryption) = read.split_first_chunk().ok_or(FernetFault::Key)?;
        let encryption = encryption.try_into().map_err(|_| FernetFault::Key)?;
        Ok(Self { signing: Zeroizing::new(*signing), encryption: Zeroizing::new(encryption) })
    }

    pub fn open(&self, token: &str) -> Result<Zeroizing<Vec<u8>>, FernetFault> {
        if token.len() > MOST_TOKEN {
            return Err(FernetFault::Malformed);
        }
        let bytes = Base64Url::decode_vec(token.trim()).map_err(|_| FernetFault::Malformed)?;
        let signed = bytes.len().checked_sub(TAG).ok_or(FernetFault::Malformed)?;
        let (signed, tag) = bytes.split_at_checked(signed).ok_or(FernetFault::Malformed)?;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.signing.as_slice()).map_err(|_| FernetFault::Key)?;
        mac.update(signed);
        mac.verify_slice(tag).map_err(|_| FernetFault::Sealed)?;
        self.decrypt(signed).ok_or(FernetFault::Malformed)
    }

    fn decrypt(&self, signed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let ([VERSION], rest) = signed.split_first_chunk()? else { return None };
        let (_, rest) = rest.split_at_checked(TIME)?;
        let (iv, ciphertext) = rest.split_first_chunk::<IV>()?;
        let mode = cbc::Decryptor::<aes::Aes128>::new((&*self.encryption).into(), iv.into());
        mode.decrypt_padded_vec::<Pkcs7>(ciphertext).ok().map(Zeroizing::new)
    }
}

impl fmt::Debug for FernetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FernetKey")
    }
}
