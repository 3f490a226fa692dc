//! How a plan, a ground or an order for a program is written down for the launcher and for pid 1.
//!
//! Compact and without names, because every launch waits for two readings of it: both ends are the same file, so neither can know a
//! field that the other does not. What is not understood to its last byte is refused.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The text says nothing that the reader could not: what it was, whoever wrote it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not understood as what it should be")]
pub struct BytesFault;

pub fn encode(what: &impl Serialize) -> Result<Vec<u8>, BytesFault> {
    postcard::to_allocvec(what).map_err(|_| BytesFault)
}

/// Whoever reads has bounded how many there are.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BytesFault> {
    match postcard::take_from_bytes(bytes) {
        Ok((what, [])) => Ok(what),
        Ok(_) | Err(_) => Err(BytesFault),
    }
}

#[cfg(test)]
mod tests {
    //! All of it or nothing.
    use proptest::prelude::*;

    use super::*;
    use crate::jail::{BindKind, Ground, Identity, RootEntry, TmpfsCap};

    fn ground(path: String) -> Ground {
        let identity = Identity::Range { base: 65_536, owner_uid: 7, owner_gid: u32::MAX };
        let root = vec![
            RootEntry::Directory { path: path.clone() },
            RootEntry::Throwaway { path: path.clone(), source: None },
            RootEntry::Bind { path, source: "/usr".to_owned(), kind: BindKind::File },
        ];
        Ground { identity, hostname: "pond".to_owned(), root, shm: TmpfsCap { bytes: u64::MAX, inodes: 1 } }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(path in ".*") {
            let ground = ground(path);
            prop_assert_eq!(decode(&encode(&ground).unwrap()), Ok(ground));
        }

        #[test]
        fn any_bytes_end_in_a_value_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            if let Ok(ground) = decode::<Ground>(&bytes) {
                prop_assert!(encode(&ground).unwrap().len() <= bytes.len());
            }
        }
    }

    #[test]
    fn neither_less_nor_more_is_understood() {
        let whole = encode(&ground("/etc".to_owned())).unwrap();
        for length in 0..whole.len() {
            assert_eq!(decode::<Ground>(&whole[..length]), Err(BytesFault), "{length}");
        }
        assert_eq!(decode::<Ground>(&[whole, vec![0]].concat()), Err(BytesFault));
    }
}
