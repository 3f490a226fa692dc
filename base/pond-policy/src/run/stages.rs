//! Stages: their names, what each needs, how its result is verified.

use super::executor;
use super::graph::{self, Outline};
use super::{Compare, Executor, Quorum, Stage, Verify};
use crate::name::{Name, Project};
use crate::refusal::{Code, Refusals};
use crate::settings::Settings;
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

const MOST_NEEDS: usize = 64;

const NAME: Field = Field {
    name: "name",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(Name::form(Code::NameInvalid)),
    doc: "Unique within the run.",
};
const NEEDS: Field = Field {
    name: "needs",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Text(Name::form(Code::NameInvalid)), least: 0, most: MOST_NEEDS },
    doc: "Stages that must succeed first.",
};
const EXECUTOR: Field = Field {
    name: "executor",
    need: Need::Required(Code::MissingField),
    kind: Kind::Object(&executor::SHAPE),
    doc: "What runs, and how it is confined.",
};
const VERIFY: Field = Field {
    name: "verify",
    need: Need::Optional,
    kind: Kind::Object(&VERIFY_SHAPE),
    doc: "Run again on other workers and compare.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "stage",
    doc: "One piece of work.",
    fields: &[NAME, NEEDS, EXECUTOR, VERIFY],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

const QUORUM: Field = Field {
    name: "quorum",
    need: Need::Required(Code::MissingField),
    kind: Quorum::kind(Code::VerifyInvalid),
    doc: "Workers that must agree, 1 to 9.",
};
const COMPARE: Field = Field {
    name: "compare",
    need: Need::Optional,
    kind: Kind::Choice { names: Compare::NAMES, code: Code::VerifyInvalid },
    doc: "What must agree; the whole output manifest by default.",
};

static VERIFY_SHAPE: Shape = Shape {
    name: "verify",
    doc: "How a result is checked by running the stage again.",
    fields: &[QUORUM, COMPARE],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

/// A stage whose parts may still be missing; the graph is checked on these, so that one fault does not hide another.
struct Draft {
    outline: Outline,
    executor: Option<Executor>,
    verify: Option<Option<Verify>>,
}

pub(super) fn read(
    item: &Item<'_>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Vec<Stage>> {
    let drafts: Vec<Draft> = item
        .list(refusals)?
        .iter()
        .filter_map(|stage| read_draft(stage, project, settings, refusals))
        .collect();
    let outlines: Vec<&Outline> = drafts.iter().map(|draft| &draft.outline).collect();
    graph::check(&outlines, refusals);
    drafts.into_iter().map(Draft::finish).collect()
}

fn read_draft(
    item: &Item<'_>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Draft> {
    let object = item.object(refusals)?;
    let name =
        object.item(&NAME).and_then(|item| Some((item.parsed(Name::parse, refusals)?, item.path().clone())));
    let needs = object.item(&NEEDS).and_then(|item| item.list(refusals)).unwrap_or_default();
    let mut read_need = |need: &Item<'_>| Some((need.parsed(Name::parse, refusals)?, need.path().clone()));
    let needs = needs.iter().filter_map(&mut read_need).collect();
    let executor = object.item(&EXECUTOR).and_then(|item| executor::read(item, project, settings, refusals));
    let verify = object.item(&VERIFY).map_or(Some(None), |item| read_verify(item, refusals).map(Some));
    Some(Draft { outline: Outline { name, needs }, executor, verify })
}

fn read_verify(item: &Item<'_>, refusals: &mut Refusals) -> Option<Verify> {
    let object = item.object(refusals)?;
    let quorum = object.item(&QUORUM).and_then(|item| item.quantity(Quorum::parse, refusals));
    let compare = object
        .item(&COMPARE)
        .map_or(Some(Compare::Manifest), |item| item.choice(Compare::from_name, refusals));
    Some(Verify { quorum: quorum?, compare: compare? })
}

impl Draft {
    fn finish(self) -> Option<Stage> {
        let needs = self.outline.needs.into_iter().map(|(name, _)| name).collect();
        let (name, _) = self.outline.name?;
        Some(Stage { name, needs, executor: self.executor?, verify: self.verify? })
    }
}
