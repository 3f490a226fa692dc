//! What a run may spend. A document can only ask for less than the operator allows; that comparison is made where the
//! operator's figures are known.

use crate::duration::Timeout;
use crate::limits::{ByteBudget, Count};
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

/// Money, in hundredths.
pub type CostCents = Count<0, 100_000_000>;

const WALL_CLOCK: Field =
    budget("wall_clock", Timeout::kind(Code::BudgetInvalid), "Time from start to end, 1s to 7d.");
const MAX_COST_CENTS: Field =
    budget("max_cost_cents", CostCents::kind(Code::BudgetInvalid), "Model cost in cents, 0 to 100000000.");
const MAX_OUTPUT_BYTES: Field =
    budget("max_output_bytes", ByteBudget::kind(Code::BudgetInvalid), "Bytes of stdout and stderr.");
const MAX_ARTIFACT_BYTES: Field =
    budget("max_artifact_bytes", ByteBudget::kind(Code::BudgetInvalid), "Bytes of kept artifacts.");
const MAX_EGRESS_BYTES: Field =
    budget("max_egress_bytes", ByteBudget::kind(Code::BudgetInvalid), "Bytes sent and received.");

pub(super) static SHAPE: Shape = Shape {
    name: "budgets",
    doc: "What the whole run may spend.",
    fields: &[WALL_CLOCK, MAX_COST_CENTS, MAX_OUTPUT_BYTES, MAX_ARTIFACT_BYTES, MAX_EGRESS_BYTES],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

/// `None` leaves a budget to the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    pub wall_clock: Option<Timeout>,
    pub max_cost_cents: Option<CostCents>,
    pub max_output_bytes: Option<ByteBudget>,
    pub max_artifact_bytes: Option<ByteBudget>,
    pub max_egress_bytes: Option<ByteBudget>,
}

impl Budgets {
    pub(super) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Option<Self> {
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
}

const fn budget(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, need: Need::Optional, kind, doc }
}
