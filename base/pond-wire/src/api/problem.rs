//! How a call fails: problem+json (RFC 9457) with a code that never changes its meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! problems {
    ($( $(#[$meta:meta])* $variant:ident => $name:literal, $status:literal, $title:literal ),+ $(,)?) => {
        /// Why a call was not served. Stable; docs/api.md lists them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ProblemCode { $( $(#[$meta])* #[serde(rename = $name)] $variant ),+ }

        impl ProblemCode {
            pub const ALL: &'static [Self] = &[$( Self::$variant ),+];

            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }

            /// The HTTP status it comes with.
            pub const fn status(self) -> u16 {
                match self { $( Self::$variant => $status ),+ }
            }

            pub const fn title(self) -> &'static str {
                match self { $( Self::$variant => $title ),+ }
            }
        }
    };
}

problems! {
    Malformed => "malformed", 400, "The request cannot be read",
    ParameterInvalid => "parameter_invalid", 400, "A parameter is not what this call takes",
    SourceInvalid => "source_invalid", 400, "The stream is not a packed tree",
    Unauthenticated => "unauthenticated", 401, "A good bearer token is needed",
    ScopeMissing => "scope_missing", 403, "The token does not allow this",
    ProjectForbidden => "project_forbidden", 403, "The token is for another project",
    NotFound => "not_found", 404, "There is nothing here",
    MethodNotAllowed => "method_not_allowed", 405, "This path does not take this method",
    RequestTimeout => "request_timeout", 408, "The request took too long to arrive",
    Conflict => "conflict", 409, "Not in the state it is in",
    /// Ids of sandboxes are never given to another.
    IdTaken => "id_taken", 409, "There is or was a sandbox of this id",
    VaultKeyMissing => "vault_key_missing", 409, "A value is under a key that the vault does not have",
    KeeperMissing => "keeper_missing", 409, "This control plane keeps no sandboxes",
    BodyTooLarge => "body_too_large", 413, "The body is larger than this call takes",
    MediaType => "media_type", 415, "The body is of a type this call does not take",
    /// The document was judged and refused; `faults` says why, completely.
    DocumentRefused => "document_refused", 422, "The document is refused",
    ProjectUnknown => "project_unknown", 422, "There is no such project",
    SourceUnknown => "source_unknown", 422, "There is no such source for this project",
    KeyReused => "key_reused", 422, "The idempotency key was used for a different request",
    GrantRefused => "grant_refused", 422, "Nothing like this can be granted",
    HostRefused => "host_refused", 422, "The host cannot be allowed",
    RateLimited => "rate_limited", 429, "Too many requests",
    Internal => "internal", 500, "The control plane failed",
    Unavailable => "unavailable", 503, "The control plane cannot serve this now",
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// A name for the kind of problem: `urn:pond:problem:` and the code.
    pub r#type: String,
    pub title: String,
    pub status: u16,
    pub code: ProblemCode,
    /// What happened this time.
    pub detail: String,
    /// Everything that is wrong with a document, or with a field of another body; empty for other problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// One fault of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub code: String,
    /// Where, in the document.
    pub path: String,
    pub message: String,
    pub allowed: Vec<String>,
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            r#type: format!("urn:pond:problem:{}", code.name()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            faults: Vec::new(),
        }
    }

    pub fn refused(refusals: pond_policy::refusal::Refusals) -> Self {
        let refusals = crate::contract::Refusals::from(refusals).refusals;
        let detail = match refusals.len() {
            1 => "1 fault".to_owned(),
            many => format!("{many} faults"),
        };
        let faults = refusals.into_iter().map(Fault::from).collect();
        Self { faults, ..Self::new(ProblemCode::DocumentRefused, detail) }
    }
}

impl From<crate::contract::Refusal> for Fault {
    fn from(refusal: crate::contract::Refusal) -> Self {
        let crate::contract::Refusal { code, path, message, allowed } = refusal;
        Self { code: code.to_owned(), path, message, allowed }
    }
}
