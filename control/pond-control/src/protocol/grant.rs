//! What a job is allowed, decided again from the stored document whenever something is given out for it: the offer, a credential,
//! the bundle's key, the acceptance of its result.
//!
//! The document was judged when it was submitted; the operator may have demanded more since, and whoever wrote to the store may
//! not have asked. What is not allowed now is not given out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pond_policy::harness::{TemplateFault, Values, fill};
use pond_policy::name::{Name, Project};
use pond_policy::node::Node;
use pond_policy::path::Path;
use pond_policy::refusal::{Refusal, Refusals};
use pond_policy::route::{Have, Mismatch, Need};
use pond_policy::run::{Executor, Verify, preflight};
use pond_policy::sandbox::{self, SandboxPolicy};
use pond_policy::settings::Settings;
use pond_seal::Digest;
use pond_seal::seal::{SealContext, SealKey, Subject};
use pond_seal::tree::Tree;
use pond_wire::contract;
use pond_wire::decode::decode;

use crate::plane::Plane;
use crate::store::{Held, Lease, Work, WorkerView};

/// What a job may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) policy: Digest,
    pub(super) input: Digest,
    /// Over the command's words.
    pub(super) command: Digest,
    /// The stage's executor as JSON.
    pub(super) executor: String,
    pub(super) credentials: Vec<String>,
    pub(super) deadline: Duration,
    /// In seconds of the server's clock.
    pub(super) not_after: u64,
    /// How its result is confirmed.
    pub(super) verify: Option<Verify>,
    pub(super) need: Need,
    /// What holds it.
    pub(super) sandbox: Arc<SandboxPolicy>,
    /// Whether it has a model, which costs money.
    pub(super) costs: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Withheld {
    #[error("the stored document cannot be read")]
    Document,
    #[error("{}", lines(.0))]
    Refused(Vec<Refusal>),
    #[error("{}", .0.message)]
    Timeout(Refusal),
    #[error("the stored document is of another project, or has no such stage")]
    OtherStage,
    #[error("the operator demands more than when the stage was queued: {0}")]
    Demanding(Mismatch),
    #[error("a file of the stage: {0}")]
    Template(TemplateFault),
    #[error("writing what the sandbox block means")]
    Encode(#[source] serde_json::Error),
}

fn lines(refusals: &[Refusal]) -> String {
    let line = |refusal: &Refusal| format!("{} {} [{}]", refusal.path, refusal.message, refusal.code.name());
    refusals.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn refused(refusals: Refusals) -> Withheld {
    Withheld::Refused(refusals.into_list())
}

/// What a stage of a document comes to under the settings of this process: the same bytes always come to the same.
#[derive(Debug)]
struct Terms {
    project: Project,
    name: String,
    timeout: Duration,
    need: Need,
    policy: Digest,
    sandbox: Arc<SandboxPolicy>,
    command: Digest,
    executor: String,
    credentials: Vec<String>,
    verify: Option<Verify>,
    costs: bool,
}

/// Terms of the documents that were read lately. One is judged for its offer, for every release and for its result, and most runs
/// have a document that others had too. What is refused is not remembered.
#[derive(Debug, Default)]
pub struct Judged(Mutex<HashMap<(Digest, u64), Arc<Terms>>>);

/// Stages that are remembered.
const MOST_TERMS: usize = 1024;

impl Judged {
    fn terms(&self, work: &Work, settings: &Settings) -> Result<Arc<Terms>, Withheld> {
        let key = (Digest::of(&work.document), work.position);
        if let Some(terms) = self.lock().get(&key) {
            return Ok(Arc::clone(terms));
        }
        let terms = Arc::new(Terms::read(work, settings)?);
        let mut remembered = self.lock();
        if remembered.len() >= MOST_TERMS {
            remembered.clear();
        }
        remembered.insert(key, Arc::clone(&terms));
        Ok(terms)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Digest, u64), Arc<Terms>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terms {
    fn read(work: &Work, settings: &Settings) -> Result<Self, Withheld> {
        let document = decode(&work.document).map_err(|_| Withheld::Document)?;
        let run = preflight(&document, settings).map_err(refused)?;
        let position = usize::try_from(work.position).map_err(|_| Withheld::OtherStage)?;
        let stage = run.stages.get(position).ok_or(Withheld::OtherStage)?;
        let sandbox = resolved(&stage.executor, settings)?;
        let policy = contract::SandboxPolicy::from(&sandbox).canonical().map_err(Withheld::Encode)?;
        Ok(Self {
            name: stage.name.as_str().to_owned(),
            timeout: stage.executor.timeout.duration(),
            need: Need::of(&stage.executor.dispatch, &run.project),
            policy: Digest::of(&policy),
            sandbox: Arc::new(sandbox),
            command: command(&stage.executor)?,
            executor: executor_text(&document, position).ok_or(Withheld::OtherStage)?,
            credentials: credentials(&stage.executor)?,
            verify: stage.verify,
            costs: stage.executor.model.is_some(),
            project: run.project,
        })
    }

    fn are_of(&self, held: &Held) -> bool {
        self.project == held.project && self.name == held.work.name && self.timeout == held.work.timeout
    }
}

impl Granted {
    /// `have` is what the worker that asks was granted and confirmed.
    pub(super) fn judge(plane: &Plane, held: &Held, have: &Have) -> Result<Self, Withheld> {
        let terms = plane.judged.terms(&held.work, &plane.settings)?;
        if !terms.are_of(held) {
            return Err(Withheld::OtherStage);
        }
        terms.need.met_by(have).map_err(Withheld::Demanding)?;
        let rules = plane.store.rules();
        let last = held.offered_at.plus(rules.offer + held.work.timeout + rules.grace);
        Ok(Self {
            policy: terms.policy,
            input: held.source.as_ref().map_or_else(|| Tree::new().finish(), |(_, input)| *input),
            command: terms.command,
            executor: terms.executor.clone(),
            credentials: terms.credentials.clone(),
            deadline: held.work.timeout,
            not_after: u64::try_from(last.0 / 1000).unwrap_or(0),
            verify: terms.verify,
            need: terms.need.clone(),
            sandbox: Arc::clone(&terms.sandbox),
            costs: terms.costs,
        })
    }

    /// The same, for no longer than this.
    pub(super) fn within(mut self, most: Duration) -> Self {
        self.deadline = self.deadline.min(most);
        self
    }

    pub(super) fn seal_context(
        &self,
        held: &Held,
        (lease, worker): (&Lease, &WorkerView),
        key: &SealKey,
        subject: Subject,
    ) -> SealContext {
        SealContext {
            subject,
            tenant: held.project.to_string(),
            worker: worker.id.to_string(),
            worker_key: key.id(),
            job: lease.job.to_string(),
            lease_epoch: lease.epoch,
            input: self.input,
            policy: self.policy,
            not_after: self.not_after,
        }
    }
}

/// What the worker will resolve the block to, apart from us.
fn resolved(executor: &Executor, settings: &Settings) -> Result<SandboxPolicy, Withheld> {
    let block = executor.dispatch.block.to_node();
    let policy = sandbox::resolve(Some(&block), settings).map_err(refused)?;
    policy.with_timeout(executor.timeout, &Path::root()).map_err(Withheld::Timeout)
}

/// As a statement names it: the words as a JSON list.
fn command(executor: &Executor) -> Result<Digest, Withheld> {
    let argv = executor.program.argv();
    Ok(Digest::of(&serde_json::to_vec(&argv).map_err(Withheld::Encode)?))
}

fn executor_text(document: &Node, position: usize) -> Option<String> {
    let Node::List(stages) = field(document, "stages")? else { return None };
    let executor = field(stages.get(position)?, "executor")?;
    Some(contract::value(executor).to_string())
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Node::Map(entries) = node else { return None };
    entries.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The key of the stage's model, by the model's name, and what its files name.
fn credentials(executor: &Executor) -> Result<Vec<String>, Withheld> {
    let named = RefCell::new(Vec::new());
    let model = executor.model.as_deref().map(|wish| wish.split(':').next().unwrap_or(wish));
    named.borrow_mut().extend(model.filter(|name| Name::parse(name).is_some()).map(str::to_owned));
    let secret = |name: &str| {
        named.borrow_mut().push(name.to_owned());
        Some(String::new())
    };
    let values = Values { model: "", broker_url: "", dummy_key: "", secret: &secret };
    for (_, text) in &executor.harness_files {
        fill(text, &values).map_err(Withheld::Template)?;
    }
    let mut named = named.into_inner();
    named.retain(|name| Name::parse(name).is_some());
    named.sort();
    named.dedup();
    Ok(named)
}
