//! Who keeps the sandboxes of this machine, as far as the control plane knows him: something the program was given, that makes
//! sandboxes, runs programs in them and says what happens to them.
//!
//! TRUSTED asks, HOST answers. The control plane links no sandbox and never touches one; what crosses this trait is a document, names
//! and bytes. Bytes that come back are a hostile job's: passed on, never read. Invariant: whose a sandbox is, is written down with it
//! (`io.pond.*` labels) by who asked for it, and judged here with every call.

use std::fmt;
use std::pin::Pin;

use pond_policy::refusal::Refusals;
use pond_policy::sandboxes::{SandboxId, Share};
use pond_wire::api::{ExecView, NewExec, OutputStream, SandboxEvent, SandboxView};

/// What a keeper answers with, in its own time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, KeepFault>> + Send + 'a>>;

/// A sandbox that somebody wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub id: SandboxId,
    /// The whole document as JSON, with its id in it; it has been read and found good.
    pub document: Vec<u8>,
    /// Labels of pond's own, kept with the sandbox.
    pub own: Vec<(String, String)>,
}

/// A sandbox as its keeper knows it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub view: SandboxView,
    /// Labels of pond's own.
    pub own: Vec<(String, String)>,
}

impl Kept {
    #[must_use]
    pub fn own(&self, key: &str) -> Option<&str> {
        self.own.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// Why a keeper did not do it.
#[derive(Debug, thiserror::Error)]
pub enum KeepFault {
    #[error("there is no such sandbox, program or file")]
    Unknown,
    /// There is or was a sandbox of this id.
    #[error("the id is taken")]
    Taken(Box<Kept>),
    /// Its words say which state it is in and what that allows.
    #[error("{0}")]
    WrongState(String),
    #[error("the document is refused")]
    Refused(Refusals),
    /// What was asked for cannot be done with what there is inside; the words are for who asked.
    #[error("{0}")]
    Impossible(String),
    #[error("the file is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the keeper cannot serve this now: {0}")]
    Busy(String),
    #[error("the keeper failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Makes, keeps and ends sandboxes.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// What of the host those who ask from outside may have in their sandboxes.
    fn shares(&self) -> &[Share];
    /// Accepts it; it is made afterwards.
    fn create(&self, wanted: Wanted) -> Answer<'_, Kept>;
    fn show<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept>;
    /// All there are, deleted ones among them for as long as they are remembered.
    fn list(&self) -> Answer<'_, Vec<Kept>>;
    fn stop<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept>;
    fn resume<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept>;
    /// One that is being deleted, or is, is as it should be.
    fn delete<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept>;
    /// Events after number `after`, oldest first, at most `most`.
    fn events<'a>(&'a self, id: &'a SandboxId, after: u64, most: usize) -> Answer<'a, Vec<SandboxEvent>>;
    fn start<'a>(&'a self, id: &'a SandboxId, exec: &'a NewExec) -> Answer<'a, ExecView>;
    fn exec<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView>;
    fn cancel<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView>;
    /// Bytes of its output from `offset` on, at most `most`; none where there are none yet.
    fn output<'a>(&'a self, id: &'a SandboxId, from: Output, most: usize) -> Answer<'a, Vec<u8>>;
    /// A regular file of at most `most` bytes.
    fn read<'a>(&'a self, id: &'a SandboxId, path: &'a str, most: usize) -> Answer<'a, Vec<u8>>;
    /// Makes or replaces a regular file.
    fn write<'a>(&'a self, id: &'a SandboxId, path: &'a str, bytes: Vec<u8>) -> Answer<'a, ()>;
}

/// A place in a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    pub exec: u64,
    pub stream: OutputStream,
    pub offset: u64,
}
