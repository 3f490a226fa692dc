//! The in-toto statement (version 1) that pond signs: its subject is the output manifest of a run, its predicate what is known
//! about the run.
//!
//! Decoded from a [`Verified`] payload only. Strict: one subject, no unknown and no repeated fields, and the types before
//! anything else, so that a statement of another kind is never taken for one of these.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Digest;
use crate::envelope::{Verified, seal};
use crate::key::SigningKey;
use crate::result::RunResult;

pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
pub const PREDICATE_TYPE: &str = "urn:pond:attestation:run-result:v1";
/// What all versions of the predicate have in common.
const PREDICATE_FAMILY: &str = "urn:pond:attestation:run-result:v";
/// The name of the one subject. Its digest is what counts.
const SUBJECT: &str = "manifest.json";

#[derive(Debug, thiserror::Error)]
pub enum StatementFault {
    #[error("the payload is not an in-toto statement")]
    Malformed(#[source] serde_json::Error),
    #[error("the statement is not of type {STATEMENT_TYPE}")]
    StatementType,
    #[error("the predicate is not about a run of pond")]
    PredicateType,
    #[error("the predicate is of a version this pond does not know; it knows {PREDICATE_TYPE}")]
    PredicateVersion,
    #[error("the statement has another subject than one output manifest")]
    Subject,
    #[error("the predicate is not what its version says")]
    Predicate(#[source] serde_json::Error),
}

impl StatementFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "statement_malformed",
            Self::StatementType => "statement_type",
            Self::PredicateType => "predicate_type",
            Self::PredicateVersion => "predicate_version",
            Self::Subject => "subject_malformed",
            Self::Predicate(_) => "predicate_malformed",
        }
    }
}

/// What is said about one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The digest of the output manifest.
    pub subject: Digest,
    pub result: RunResult,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "_type")]
    statement_type: &'a str,
    subject: [Subject; 1],
    #[serde(rename = "predicateType")]
    predicate_type: &'a str,
    predicate: &'a RunResult,
}

/// The outer layer, its predicate left as it is until its type is known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read<'a> {
    #[serde(rename = "_type")]
    statement_type: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    #[serde(borrow)]
    predicate: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    digest: DigestSet,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestSet {
    sha256: Digest,
}

impl Statement {
    /// The bytes of the signed envelope's file.
    pub fn sign(&self, key: &SigningKey) -> Result<Vec<u8>, serde_json::Error> {
        let digest = DigestSet { sha256: self.subject };
        let written = Written {
            statement_type: STATEMENT_TYPE,
            subject: [Subject { name: SUBJECT.to_owned(), digest }],
            predicate_type: PREDICATE_TYPE,
            predicate: &self.result,
        };
        seal(&serde_json::to_vec(&written)?, key)
    }

    pub fn decode(verified: &Verified<'_>) -> Result<Self, StatementFault> {
        let read: Read<'_> = serde_json::from_slice(verified.payload()).map_err(StatementFault::Malformed)?;
        if read.statement_type != STATEMENT_TYPE {
            return Err(StatementFault::StatementType);
        }
        if read.predicate_type != PREDICATE_TYPE {
            return Err(match read.predicate_type.starts_with(PREDICATE_FAMILY) {
                true => StatementFault::PredicateVersion,
                false => StatementFault::PredicateType,
            });
        }
        let [Subject { name, digest }] = read.subject.as_slice() else { return Err(StatementFault::Subject) };
        if name != SUBJECT {
            return Err(StatementFault::Subject);
        }
        let result = serde_json::from_str(read.predicate.get()).map_err(StatementFault::Predicate)?;
        Ok(Self { subject: digest.sha256, result })
    }
}

#[cfg(test)]
mod tests;
