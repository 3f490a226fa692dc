//! One run, understood: all that the sequence from record to statement needs to know, wherever it was asked for. Flags and a
//! control plane's offer both become this value, so that there is one sequence and not two.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;

use pond_policy::backend::{Backend, Strength};
use pond_policy::capability::Requirement;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::native::Provided;
use pond_sandbox::record::JobName;
use pond_seal::Digest;
use pond_seal::result::Lease;
use pond_wire::jail::{Console, HomeFile};
use pond_worker::collect::Ignored;
use pond_worker::order::Wires;
use pond_worker::path::RelPath;

use super::egress::Plan;
use super::model::Chosen;

#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(super) asker: Asker<'a>,
    pub(super) argv: &'a [String],
    pub(super) policy: &'a SandboxPolicy,
    pub(super) backend: Backend,
    /// The directory the job works on.
    pub(super) checkout: &'a Path,
    pub(super) view: View,
    pub(super) env: Vec<(String, String)>,
    /// Files in `$HOME`.
    pub(super) home: Vec<HomeFile>,
    pub(super) artifacts: Vec<RelPath>,
    pub(super) ignored: Ignored,
    pub(super) tools: Vec<Provided>,
    pub(super) console: Console,
    pub(super) manner: Manner,
    /// Where everything shall also lie.
    pub(super) out: Option<&'a Path>,
    pub(super) resolvers: &'a [SocketAddr],
    /// How many bytes a second of its disk it may use, where the operator says so.
    pub(super) disk_rate: Option<u64>,
    /// The job, once something of it may have run.
    pub(super) begun: RefCell<Option<JobName>>,
    /// Where the job may go, until its gateway is started.
    pub(super) way_out: RefCell<Option<(Plan, Option<Chosen>)>>,
}

/// Who wants the job.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asker<'a> {
    /// Somebody here: signals end the job, and standard input is the job's.
    Person,
    ControlPlane(&'a Commission<'a>),
}

/// A job that a control plane gave to this machine: what its statement repeats, and who ends it.
#[derive(Debug)]
pub(crate) struct Commission<'a> {
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) lease: Lease,
    /// Over the tree in the checkout.
    pub(crate) input: Digest,
    /// Over the policy, as it was offered and as it was resolved here.
    pub(crate) policy: Digest,
    /// How much of its output is left to the run.
    pub(crate) output_bytes: u64,
    /// What the statement is signed with.
    pub(crate) key: &'a Path,
    /// To the daemon: where output goes, and what ends the job.
    pub(crate) wires: &'a Wires,
}

/// What of the checkout the job works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Live,
    Snapshot,
}

/// What is said besides what the job says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// A summary for a person.
    Summary,
    /// Nothing.
    Quiet,
    /// One object, and nothing of what the job says.
    Json,
}

impl<'a> Request<'a> {
    pub(super) fn commission(&self) -> Option<&'a Commission<'a>> {
        match self.asker {
            Asker::Person => None,
            Asker::ControlPlane(commission) => Some(commission),
        }
    }
}

/// The backend that was asked for, or the first that is strong enough.
pub(crate) fn backend(policy: &SandboxPolicy) -> Backend {
    match policy.requirement() {
        Some(Requirement::Exact(backend)) => backend,
        None | Some(Requirement::AtLeast(Strength::SharedKernel)) => Backend::Native,
        Some(Requirement::AtLeast(Strength::UserKernel)) => Backend::Gvisor,
        Some(Requirement::AtLeast(Strength::VirtualMachine)) => Backend::Firecracker,
    }
}
