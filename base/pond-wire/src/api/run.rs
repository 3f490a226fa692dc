//! Runs: submitted, listed, watched, cancelled.

use pond_policy::stage::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Document, Millis};
use crate::contract;
use crate::orch::Id;

/// `POST /v1/runs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    pub document: Document,
    /// What the stages work on: the `source` that `POST /v1/sources` answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Id>,
    /// How often a stage that failed is tried again.
    #[serde(default)]
    #[schemars(range(max = 10))]
    pub retries: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitReply {
    pub run: String,
    /// What was accepted and its author should know.
    pub warnings: Vec<Warning>,
}

/// `POST /v1/sources`, once the stream has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceReply {
    pub source: String,
    /// The input hash: of the tree as a job will see it.
    pub input_sha256: String,
    /// Of the stream as it was sent.
    pub bytes: u64,
    pub entries: u64,
}

/// A document that passed preflight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    pub project: String,
    pub stages: Vec<AcceptedStage>,
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptedStage {
    pub name: String,
    pub needs: Vec<String>,
    pub sandbox_block: Value,
    pub required_capability: Option<String>,
    pub required_tags: Vec<String>,
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    pub code: String,
    pub path: String,
    pub message: String,
}

/// `POST /v1/runs/{run}/cancel`; the body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Active,
    Succeeded,
    Failed,
    Cancelled,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    Queued,
    Leased,
    Running,
    Verifying,
    Succeeded,
    Failed,
    Cancelled,
    Refused,
}

/// What a result says of one try at a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    Failed,
    /// It did not verify.
    Rejected,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSummary {
    pub id: String,
    pub project: String,
    pub state: RunState,
    /// Why it is being cancelled, or was.
    pub cancel: Option<String>,
    /// The same for programs: `cancelled`, or the budget that was used up (`budget_cost`, …).
    pub cancel_code: Option<String>,
    pub open_stages: u64,
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunPage {
    pub runs: Vec<RunSummary>,
    /// The `cursor` of the next page; none on the last.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunView {
    pub run: RunSummary,
    pub source: Option<String>,
    /// In the order of the document.
    pub stages: Vec<StageView>,
    /// What the run has of each budget, and has used.
    pub budgets: Vec<BudgetView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetView {
    /// By its field in a document: `wall_clock`, `max_cost_cents`, …
    pub budget: String,
    pub unit: String,
    pub limit: u64,
    pub used: u64,
    /// Of money: lent to running stages, or counted as spent because nobody knows.
    pub set_aside: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageView {
    pub id: String,
    pub name: String,
    pub state: StageState,
    /// Why it ended so, or what it waits for; empty when there is nothing to say.
    pub reason: String,
    /// The same for programs; docs/troubleshooting.md has them all.
    pub code: String,
    /// The try that is under way.
    pub job: Option<JobView>,
    pub ended_at: Option<Millis>,
    /// Every accepted result, oldest first.
    pub results: Vec<ResultView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobView {
    pub id: String,
    pub attempt: u64,
    pub worker: Option<String>,
    /// How often it has been claimed.
    pub epoch: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultView {
    pub job: String,
    pub worker: String,
    pub attempt: u64,
    pub epoch: u64,
    pub outcome: Outcome,
    /// Of the signed statement.
    pub statement_sha256: String,
    pub at: Millis,
    pub standing: Standing,
    /// Paths in which it differs from the result of another worker.
    pub differs: Vec<String>,
}

/// What a result counts for beside those of other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nobody else was asked.
    Single,
    /// Others are asked.
    Unconfirmed,
    /// Enough others agree.
    Confirmed,
    /// Others disagree.
    Distrusted,
}

/// What one event of the stream says; its id is what `Last-Event-ID` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at: Millis,
    /// `run.submitted`, `stage.running`, …
    pub action: String,
    /// The stage's name.
    pub stage: Option<String>,
    pub detail: Value,
}

impl RunState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        match self {
            Self::Active => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Refused => true,
        }
    }
}

impl StageState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Leased | Self::Running | Self::Verifying)
    }
}

impl From<State> for StageState {
    fn from(state: State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Leased => Self::Leased,
            State::Running => Self::Running,
            State::Verifying => Self::Verifying,
            State::Succeeded => Self::Succeeded,
            State::Failed => Self::Failed,
            State::Cancelled => Self::Cancelled,
            State::Refused => Self::Refused,
        }
    }
}

impl From<contract::Warning> for Warning {
    fn from(warning: contract::Warning) -> Self {
        let contract::Warning { code, path, message } = warning;
        Self { code: code.to_owned(), path, message }
    }
}

impl From<&pond_policy::run::Run> for Accepted {
    fn from(run: &pond_policy::run::Run) -> Self {
        let contract::Preflight { project, stages, warnings } = contract::Preflight::from(run);
        let stages = stages.into_iter().map(AcceptedStage::from).collect();
        Self { project, stages, warnings: warnings.into_iter().map(Warning::from).collect() }
    }
}

impl From<contract::Stage> for AcceptedStage {
    fn from(stage: contract::Stage) -> Self {
        let contract::Stage {
            name,
            needs,
            sandbox_block,
            required_capability,
            required_tags,
            timeout_seconds,
        } = stage;
        Self { name, needs, sandbox_block, required_capability, required_tags, timeout_seconds }
    }
}
