//! The run document: a project, optional budgets, and stages that need one another, each with an executor and the
//! sandbox that confines it.
//!
//! Trust zone: read by the control plane and the command line before anything is stored. Invariants: a `Run` has every
//! stage confined or explicitly not; needs form no cycle; every fault of a document is reported at once, with its path.

pub(crate) mod budgets;
pub(crate) mod executor;
mod graph;
mod stages;

use crate::dispatch::Dispatch;
use crate::duration::Timeout;
use crate::harness::Agent;
use crate::limits::Count;
use crate::name::{Name, Project};
use crate::node::Node;
use crate::path::Path;
use crate::refusal::{Code, Refusals, Warning};
use crate::settings::Settings;
use crate::shape::{Echo, Field, Kind, Need, Shape};

pub use budgets::{Allowance, Budget, Budgets, CostCents, Crossed};

pub const MOST_STAGES: usize = 256;

const PROJECT: Field = Field {
    name: "project",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(Name::form(Code::ProjectInvalid)),
    doc: "The tenant the run belongs to.",
};
const BUDGETS: Field = Field {
    name: "budgets",
    need: Need::Optional,
    kind: Kind::Object(&budgets::SHAPE),
    doc: "What the whole run may spend; never more than the operator allows.",
};
const STAGES: Field = Field {
    name: "stages",
    need: Need::Required(Code::MissingField),
    kind: Kind::List { of: &Kind::Object(&stages::SHAPE), least: 1, most: MOST_STAGES },
    doc: "What is run, in any order that respects `needs`.",
};

/// The whole document.
pub static RUN_SHAPE: Shape = Shape {
    name: "run",
    doc: "A run: stages of confined work for one project.",
    fields: &[PROJECT, BUDGETS, STAGES],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

named_enum! {
    /// What executes a stage.
    pub enum ExecutorKind {
        Swarm => "swarm",
    }
}

named_enum! {
    /// What must agree between re-runs of a stage.
    pub enum Compare {
        Manifest => "manifest",
        Paths => "paths",
        Exit => "exit",
    }
}

/// How many workers must agree on a stage.
pub type Quorum = Count<1, 9>;

/// A document that may be stored and dispatched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub project: Project,
    /// What it has, after what its author and the operator said.
    pub budgets: Allowance,
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub name: Name,
    pub needs: Vec<Name>,
    pub executor: Executor,
    pub verify: Option<Verify>,
}

/// How the result of a stage is checked by running it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    pub quorum: Quorum,
    pub compare: Compare,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executor {
    pub kind: ExecutorKind,
    pub program: Program,
    pub model: Option<String>,
    /// Path below `$HOME` and template text, in document order.
    pub harness_files: Vec<(String, String)>,
    pub env: Vec<(String, String)>,
    /// Paths in the working copy to keep.
    pub artifacts: Vec<String>,
    pub timeout: Timeout,
    pub dispatch: Dispatch,
}

/// What runs inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    Command(Vec<String>),
    Agent(Agent),
}

impl Program {
    /// The words that are executed.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        match self {
            Self::Command(argv) => argv.clone(),
            Self::Agent(agent) => vec![agent.program().to_owned()],
        }
    }
}

impl Run {
    /// Everything accepted that its author should know, with the place of each.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.stages.iter().flat_map(|stage| &stage.executor.dispatch.warnings)
    }
}

/// Reads a whole document and decides every stage as dispatch would.
pub fn preflight(document: &Node, settings: &Settings) -> Result<Run, Refusals> {
    let mut refusals = Refusals::default();
    let run = read(document, settings, &mut refusals);
    refusals.finish(run)
}

/// Reads one stage's executor on the machine that will run it, and decides it as dispatch did.
pub fn executor(document: &Node, project: &Project, settings: &Settings) -> Result<Executor, Refusals> {
    let mut refusals = Refusals::default();
    let object = executor::SHAPE.read(document, &Path::root(), &mut refusals);
    let read = object.and_then(|object| executor::judge(&object, Some(project), settings, &mut refusals));
    refusals.finish(read)
}

fn read(document: &Node, settings: &Settings, refusals: &mut Refusals) -> Option<Run> {
    let object = RUN_SHAPE.read(document, &Path::root(), refusals)?;
    let project =
        object.item(&PROJECT).and_then(|item| item.parsed(Name::parse, refusals)).map(Project::from);
    let budgets = match object.item(&BUDGETS) {
        None => Some(settings.run),
        Some(item) => Budgets::read(item, refusals).map(|asked| settings.run.narrowed(asked, item, refusals)),
    };
    let stages =
        object.item(&STAGES).and_then(|item| stages::read(item, project.as_ref(), settings, refusals));
    Some(Run { project: project?, budgets: budgets?, stages: stages? })
}

#[cfg(test)]
mod tests;
