//! The user's API under `/v1`: bodies and replies, as JSON.
//!
//! Trust zone: bodies are read by the control plane and hostile to it; replies are read by clients. Invariants: unknown fields
//! are refused; a document travels as the text it was written as, so that nothing in it is lost before it is judged; a secret
//! goes in and never out, and does not print itself. Times are milliseconds since 1970, by the control plane's clock.

mod audit;
mod problem;
mod project;
mod run;
mod sandbox;
mod token;
mod value;
mod worker;

pub use audit::{AuditEntry, AuditPage, LogCheckpoint, LogConsistency, LogProof};
pub use problem::{Fault, Problem, ProblemCode};
pub use project::{CredentialView, Credentials, EgressRules, ProjectView, Projects, Rotated, SetCredential};
pub use run::{
    Accepted, AcceptedStage, BudgetView, Cancel, Event, JobView, Outcome, ResultView, RunPage, RunState,
    RunSummary, RunView, SourceReply, StageState, StageView, Standing, Submit, SubmitReply, Warning,
};
pub use sandbox::{
    CompanionView, ExecState, ExecView, MOST_FILE_BYTES, NewExec, NewSandbox, OutputStream, PortView,
    SandboxEvent, SandboxPage, SandboxState, SandboxView,
};
pub use token::{NewToken, Scope, TokenKind, TokenReply, TokenView, Tokens};
pub use value::{Document, Hidden};
pub use worker::{JoinTokenReply, NewJoinToken, Tier, WorkerState, WorkerView, Workers};

/// The bodies this boundary takes and gives, as the answer to `Content-Type`.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// A packed tree ([`crate::tree`]).
pub const TREE_TYPE: &str = "application/vnd.pond.tree";
/// A signed statement, as it was signed.
pub const ENVELOPE_TYPE: &str = "application/vnd.dsse.envelope.v1+json";

/// Entries of the audit log, a line each.
pub const LINES_TYPE: &str = "application/jsonl";

/// Milliseconds since 1970.
pub type Millis = u64;

#[cfg(test)]
mod tests;
