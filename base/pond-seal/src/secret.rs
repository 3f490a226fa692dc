//! A secret in the clear, from the moment it is opened to the moment it is used.
//!
//! It is zeroed when dropped. It implements neither `Serialize` nor `Debug` nor `Display` nor `Clone`: the only way out of a
//! process is through a seal, and whoever wants the bytes has to say [`Secret::expose`].

use zeroize::Zeroizing;

/// Bytes nobody else may see.
#[expect(missing_debug_implementations, reason = "a secret has no printable form")]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bearer::Bearer;
    use crate::bundle::DataKey;
    use crate::digest::Digest;
    use crate::enroll::{Identity, JoinToken};
    use crate::key::SigningKey;
    use crate::seal::OpenKey;

    /// The inherent constant exists only where the bound holds, and then wins over the trait's.
    macro_rules! probe {
        ($name:ident, $bound:path) => {
            mod $name {
                pub(super) struct Probe<T>(std::marker::PhantomData<T>);
                pub(super) trait Otherwise {
                    const HOLDS: bool = false;
                }
                impl<T> Otherwise for Probe<T> {}
                impl<T: $bound> Probe<T> {
                    pub(super) const HOLDS: bool = true;
                }
            }
        };
    }

    use clones::Otherwise as _;
    use debugs::Otherwise as _;
    use displays::Otherwise as _;
    use serialises::Otherwise as _;

    probe!(serialises, serde::Serialize);
    probe!(displays, std::fmt::Display);
    probe!(debugs, std::fmt::Debug);
    probe!(clones, Clone);

    macro_rules! forms {
        ($type:ty) => {
            [
                serialises::Probe::<$type>::HOLDS,
                displays::Probe::<$type>::HOLDS,
                clones::Probe::<$type>::HOLDS,
                debugs::Probe::<$type>::HOLDS,
            ]
        };
    }

    #[test]
    fn nothing_secret_can_be_serialised_printed_or_copied() {
        assert_eq!(forms!(Digest), [true; 4], "the probe sees what is there");
        assert_eq!([forms!(Secret), forms!(DataKey)], [[false; 4]; 2]);
        // These print an id; their own tests see that it is nothing else.
        let named =
            [forms!(SigningKey), forms!(OpenKey), forms!(JoinToken), forms!(Identity), forms!(Bearer)];
        assert_eq!(named, [[false, false, false, true]; 5]);
    }
}
