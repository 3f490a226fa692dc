//! What a run may spend. The operator says how much of each budget a run has; a document may ask for less, never for more.
//!
//! Invariants: an [`Allowance`] has a figure for every budget; narrowing one never raises a figure.

use std::fmt;

use crate::duration::Timeout;
use crate::limits::{ByteBudget, Count, GIB};
use crate::path::Path;
use crate::refusal::{Code, Refusals};
use crate::settings::refuse_text;
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

/// Money, in hundredths.
pub type CostCents = Count<0, 100_000_000>;

named_enum! {
    /// One of the things a run has a budget of, by its field in a document.
    pub enum Budget {
        WallClock => "wall_clock",
        Cost => "max_cost_cents",
        Output => "max_output_bytes",
        Artifacts => "max_artifact_bytes",
        Egress => "max_egress_bytes",
    }
}

impl Budget {
    /// The operator's variable.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::WallClock => "POND_RUN_WALL_CLOCK",
            Self::Cost => "POND_RUN_MAX_COST_CENTS",
            Self::Output => "POND_RUN_MAX_OUTPUT_BYTES",
            Self::Artifacts => "POND_RUN_MAX_ARTIFACT_BYTES",
            Self::Egress => "POND_RUN_MAX_EGRESS_BYTES",
        }
    }

    /// Why a run ended that crossed it; stable.
    pub const fn code(self) -> &'static str {
        match self {
            Self::WallClock => "budget_wall_clock",
            Self::Cost => "budget_cost",
            Self::Output => "budget_output",
            Self::Artifacts => "budget_artifacts",
            Self::Egress => "budget_egress",
        }
    }

    /// The unit of the figures of [`Crossed`].
    pub const fn unit(self) -> &'static str {
        match self {
            Self::WallClock => "seconds",
            Self::Cost => "cents",
            Self::Output | Self::Artifacts | Self::Egress => "bytes",
        }
    }
}

/// A budget that did not suffice: how much there was, and what it came to or would have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed {
    pub budget: Budget,
    pub limit: u64,
    pub figure: u64,
}

impl fmt::Display for Crossed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, limit, figure } = self;
        let unit = budget.unit();
        write!(f, "the run's {budget} is {limit} {unit}, and it came to {figure}")
    }
}

const WALL_CLOCK: Field = budget(
    Budget::WallClock,
    Timeout::kind(Code::BudgetInvalid),
    "Time from submission to end, waiting included, 1s to 7d.",
);
const MAX_COST_CENTS: Field =
    budget(Budget::Cost, CostCents::kind(Code::BudgetInvalid), "Model cost in cents, 0 to 100000000.");
const MAX_OUTPUT_BYTES: Field =
    budget(Budget::Output, ByteBudget::kind(Code::BudgetInvalid), "Bytes of stdout and stderr.");
const MAX_ARTIFACT_BYTES: Field = budget(
    Budget::Artifacts,
    ByteBudget::kind(Code::BudgetInvalid),
    "Bytes of results as they are kept: patches and artifacts, packed.",
);
const MAX_EGRESS_BYTES: Field = budget(
    Budget::Egress,
    ByteBudget::kind(Code::BudgetInvalid),
    "Bytes sent and received through connections.",
);

/// The same table in a run document and in the operator's file.
pub(crate) static SHAPE: Shape = Shape {
    name: "budgets",
    doc: "What the whole run may spend.",
    fields: &[WALL_CLOCK, MAX_COST_CENTS, MAX_OUTPUT_BYTES, MAX_ARTIFACT_BYTES, MAX_EGRESS_BYTES],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

/// Budgets as somebody wrote them down; `None` where nothing was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    pub wall_clock: Option<Timeout>,
    pub max_cost_cents: Option<CostCents>,
    pub max_output_bytes: Option<ByteBudget>,
    pub max_artifact_bytes: Option<ByteBudget>,
    pub max_egress_bytes: Option<ByteBudget>,
}

/// What a run has. Without a word of anybody, pond's own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    pub wall_clock: Timeout,
    pub max_cost_cents: CostCents,
    pub max_output_bytes: ByteBudget,
    pub max_artifact_bytes: ByteBudget,
    pub max_egress_bytes: ByteBudget,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            wall_clock: Timeout::MOST,
            max_cost_cents: CostCents::fixed(1000),
            max_output_bytes: ByteBudget::fixed(GIB),
            max_artifact_bytes: ByteBudget::fixed(4 * GIB),
            max_egress_bytes: ByteBudget::fixed(64 * GIB),
        }
    }
}

impl Budgets {
    pub(crate) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Option<Self> {
        let object = item.object(refusals)?;
        let mut bytes =
            |field| object.item(field).and_then(|item| item.quantity(ByteBudget::parse, refusals));
        let (max_output_bytes, max_artifact_bytes, max_egress_bytes) =
            (bytes(&MAX_OUTPUT_BYTES), bytes(&MAX_ARTIFACT_BYTES), bytes(&MAX_EGRESS_BYTES));
        let wall_clock = object.item(&WALL_CLOCK).and_then(|item| item.quantity(Timeout::parse, refusals));
        let max_cost_cents =
            object.item(&MAX_COST_CENTS).and_then(|item| item.quantity(CostCents::parse, refusals));
        Some(Self { wall_clock, max_cost_cents, max_output_bytes, max_artifact_bytes, max_egress_bytes })
    }

    /// Reads the operator's variables; `text` gives what each is set to.
    pub fn parse(text: impl Fn(&str) -> Option<String>) -> Result<Self, Refusals> {
        let mut refusals = Refusals::default();
        let budgets = Self {
            wall_clock: setting(Budget::WallClock, &text, Timeout::parse, &mut refusals),
            max_cost_cents: setting(Budget::Cost, &text, CostCents::parse, &mut refusals),
            max_output_bytes: setting(Budget::Output, &text, ByteBudget::parse, &mut refusals),
            max_artifact_bytes: setting(Budget::Artifacts, &text, ByteBudget::parse, &mut refusals),
            max_egress_bytes: setting(Budget::Egress, &text, ByteBudget::parse, &mut refusals),
        };
        refusals.finish(Some(budgets))
    }
}

impl Allowance {
    /// What an operator gives runs: by the environment and by the file. Where both speak, the smaller counts.
    #[must_use]
    pub fn of_operator(environment: Budgets, file: Budgets) -> Self {
        let own = Self::default();
        Self {
            wall_clock: smaller(environment.wall_clock, file.wall_clock, own.wall_clock),
            max_cost_cents: smaller(environment.max_cost_cents, file.max_cost_cents, own.max_cost_cents),
            max_output_bytes: smaller(
                environment.max_output_bytes,
                file.max_output_bytes,
                own.max_output_bytes,
            ),
            max_artifact_bytes: smaller(
                environment.max_artifact_bytes,
                file.max_artifact_bytes,
                own.max_artifact_bytes,
            ),
            max_egress_bytes: smaller(
                environment.max_egress_bytes,
                file.max_egress_bytes,
                own.max_egress_bytes,
            ),
        }
    }

    /// What a document gets that asks for this; asking for more is a fault of its own for each budget.
    pub(super) fn narrowed(self, asked: Budgets, written: &Item<'_>, refusals: &mut Refusals) -> Self {
        let mut asking = Asking { written, refusals };
        Self {
            wall_clock: asking.within(Budget::WallClock, asked.wall_clock, self.wall_clock),
            max_cost_cents: asking.within(Budget::Cost, asked.max_cost_cents, self.max_cost_cents),
            max_output_bytes: asking.within(Budget::Output, asked.max_output_bytes, self.max_output_bytes),
            max_artifact_bytes: asking.within(
                Budget::Artifacts,
                asked.max_artifact_bytes,
                self.max_artifact_bytes,
            ),
            max_egress_bytes: asking.within(Budget::Egress, asked.max_egress_bytes, self.max_egress_bytes),
        }
    }
}

struct Asking<'a, 'd> {
    written: &'a Item<'d>,
    refusals: &'a mut Refusals,
}

impl Asking<'_, '_> {
    fn within<T: Copy + Ord + fmt::Display>(&mut self, budget: Budget, asked: Option<T>, allowed: T) -> T {
        let Some(asked) = asked else { return allowed };
        if asked > allowed {
            let message = format!("asks for {asked}, and this deployment gives a run {allowed}");
            self.refusals.refuse(Code::BudgetAboveLimit, &self.place(budget), message);
        }
        asked.min(allowed)
    }

    /// Where the document says it; what else is wrong with it has been told.
    fn place(&self, budget: Budget) -> Path {
        let field = SHAPE.fields.iter().find(|field| field.name == budget.name());
        let object = self.written.object(&mut Refusals::default());
        let item = object.as_ref().zip(field).and_then(|(object, field)| object.item(field));
        item.map_or_else(|| self.written.path().field(budget.name()), |item| item.path().clone())
    }
}

fn smaller<T: Ord>(one: Option<T>, other: Option<T>, neither: T) -> T {
    match (one, other) {
        (Some(one), Some(other)) => one.min(other),
        (Some(said), None) | (None, Some(said)) => said,
        (None, None) => neither,
    }
}

fn setting<T, F: fmt::Display>(
    budget: Budget,
    text: &impl Fn(&str) -> Option<String>,
    parse: fn(&str) -> Result<T, F>,
    refusals: &mut Refusals,
) -> Option<T> {
    let said = text(budget.variable())?;
    parse(&said).map_err(|fault| refuse_text(budget.variable(), &fault.to_string(), refusals)).ok()
}

const fn budget(budget: Budget, kind: Kind, doc: &'static str) -> Field {
    Field { name: budget.name(), need: Need::Optional, kind, doc }
}
