//! The values bodies are made of. Each has one spelling and a bound, checked while it is decoded.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pond_policy::name::Name;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAValue {
    #[error("this pond speaks version 1")]
    Version,
    #[error("not a name of 1 to 64 letters, digits, dots, underscores or dashes")]
    Id,
    #[error("not 64 lower-case hexadecimal digits")]
    Hash,
    #[error("not a code of 1 to 64 lower-case letters, digits or underscores")]
    Code,
    #[error("not base64 of at most {0} bytes")]
    Blob(usize),
    #[error("more than {0} entries")]
    TooMany(usize),
    #[error("not a token")]
    Token,
    #[error("not at most {0} seconds")]
    Wait(u32),
    #[error("an answer that is neither a release nor a refusal")]
    Answer,
}

/// The version of the protocol, in every body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Version;

impl TryFrom<u32> for Version {
    type Error = NotAValue;

    fn try_from(number: u32) -> Result<Self, NotAValue> {
        if number == 1 { Ok(Self) } else { Err(NotAValue::Version) }
    }
}

impl From<Version> for u32 {
    fn from(Version: Version) -> Self {
        1
    }
}

macro_rules! text_value {
    ($(#[$meta:meta])* $type:ident, $fault:expr, $pattern:literal, $fits:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NotAValue;

            fn try_from(text: String) -> Result<Self, NotAValue> {
                let fits: fn(&str) -> bool = $fits;
                if fits(&text) { Ok(Self(text)) } else { Err($fault) }
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern})
            }
        }
    };
}

text_value!(
    /// The name of a worker, job or credential.
    Id, NotAValue::Id, "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", |text| Name::parse(text).is_some()
);
text_value!(
    /// 32 bytes: a digest, a public key or the id of one.
    Hash, NotAValue::Hash, "^[0-9a-f]{64}$",
    |text| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
);
text_value!(
    /// Why something was refused; stable, and listed in the documents.
    Code, NotAValue::Code, "^[a-z0-9_]{1,64}$",
    |text| (1..=64).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
);

/// Bytes for somebody else: signed, sealed or a job's own output. Shown by their number only.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Blob<const MOST: usize>(Vec<u8>);

impl<const MOST: usize> Blob<MOST> {
    pub fn new(bytes: Vec<u8>) -> Result<Self, NotAValue> {
        if bytes.len() <= MOST { Ok(Self(bytes)) } else { Err(NotAValue::Blob(MOST)) }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<const MOST: usize> TryFrom<String> for Blob<MOST> {
    type Error = NotAValue;

    fn try_from(text: String) -> Result<Self, NotAValue> {
        STANDARD.decode(text).map_err(|_| NotAValue::Blob(MOST)).and_then(Self::new)
    }
}

/// Without a copy of the bytes, which are most of what their body weighs.
impl<const MOST: usize> Serialize for Blob<MOST> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<const MOST: usize> fmt::Debug for Blob<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

/// A list with a bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "Vec<T>",
    into = "Vec<T>",
    bound(deserialize = "T: Deserialize<'de>", serialize = "T: Serialize + Clone")
)]
pub struct Few<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Few<T, MOST> {
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MOST: usize> TryFrom<Vec<T>> for Few<T, MOST> {
    type Error = NotAValue;

    fn try_from(list: Vec<T>) -> Result<Self, NotAValue> {
        if list.len() <= MOST { Ok(Self(list)) } else { Err(NotAValue::TooMany(MOST)) }
    }
}

impl<T, const MOST: usize> From<Few<T, MOST>> for Vec<T> {
    fn from(few: Few<T, MOST>) -> Self {
        few.0
    }
}
