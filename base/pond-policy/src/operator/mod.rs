//! The operator's file, `pond.toml`: the models a job may be given, what they cost, and what every allowlist starts with.
//! A table like any other document: unknown fields are faults, all faults are reported together.
//!
//! Invariants: every model that is accepted can be reached over https and has a price for each id it lists; a
//! credential is a place to read one from, never the credential; no host is both a model's and on the allowlist.

mod caps;
mod egress;
mod git;
mod model;
mod price;

use crate::egress::{HostRule, HostWarning, Preset, lint};
use crate::model::{Price, UpstreamHost};
use crate::node::Node;
use crate::path::Path;
use crate::refusal::{Code, Refusals, Warning, WarningCode};
use crate::run::{Budgets, budgets};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

pub use caps::{Caps, IdleSeconds, JobBytes, LifetimeSeconds, TunnelBytes};
pub use egress::Egress;
pub use git::Git;
pub use model::{Credential, Model};

use crate::limits::Count;
use crate::name::Name;

/// Of a hundred.
pub type Percent = Count<0, 100>;

const MODEL: Field = Field {
    name: "model",
    need: Need::Optional,
    kind: Kind::Map { key: Name::form(Code::NameInvalid), of: &Kind::Object(&model::SHAPE), most: 64 },
    doc: "Models by the name `--model` takes.",
};
const GIT: Field = Field {
    name: "git",
    need: Need::Optional,
    kind: Kind::Map { key: Name::form(Code::NameInvalid), of: &Kind::Object(&git::SHAPE), most: 64 },
    doc: "Credentials for git over https, by the name that a sandbox document's `credentials` use.",
};
const PRICE: Field = Field {
    name: "price",
    need: Need::Optional,
    kind: Kind::Map { key: model::ID, of: &Kind::Object(&price::SHAPE), most: 256 },
    doc: "Prices by model id; they replace the built-in ones.",
};
const EGRESS: Field = Field {
    name: "egress",
    need: Need::Optional,
    kind: Kind::Object(&egress::SHAPE),
    doc: "What every allowlist starts with, and what none may hold.",
};

const SPOT_CHECK_PERCENT: Field = Field {
    name: "spot_check_percent",
    need: Need::Optional,
    kind: Percent::kind(Code::VerifyInvalid),
    doc: "Of a hundred results that nobody asked to have confirmed, so many are: run again by another worker and compared.",
};

const BUDGETS: Field = Field {
    name: "budgets",
    need: Need::Optional,
    kind: Kind::Object(&budgets::SHAPE),
    doc: "What a run may spend.",
};

/// The whole file.
pub static OPERATOR_SHAPE: Shape = Shape {
    name: "operator",
    doc: "The operator's file.",
    fields: &[MODEL, GIT, PRICE, EGRESS, SPOT_CHECK_PERCENT, BUDGETS],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    pub models: Vec<Model>,
    pub git: Vec<Git>,
    pub egress: Egress,
    /// How many of a hundred results are confirmed unasked; none without a word.
    pub spot_check_percent: Option<Percent>,
    /// What runs of a control plane have; the environment may say less.
    pub budgets: Budgets,
    /// What is accepted, and what its author should know.
    pub warnings: Vec<Warning>,
}

impl Operator {
    pub fn read(document: &Node) -> Result<Self, Refusals> {
        let mut refusals = Refusals::default();
        let operator = read(document, &mut refusals);
        refusals.finish(operator)
    }

    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.name.as_str() == name)
    }
}

fn read(document: &Node, refusals: &mut Refusals) -> Option<Operator> {
    let object = OPERATOR_SHAPE.read(document, &Path::root(), refusals)?;
    let entries = |field: &Field, refusals: &mut Refusals| {
        object.item(field).and_then(|item| item.map(refusals)).unwrap_or_default()
    };
    let mut prices: Vec<(String, Price)> = Vec::new();
    for (id, item) in entries(&PRICE, refusals) {
        prices.extend(price::read(&item, refusals).map(|price| (id.to_owned(), price)));
    }
    let priced: Vec<&str> = entries(&PRICE, &mut Refusals::default()).iter().map(|(id, _)| *id).collect();
    let mut models = Vec::new();
    for (name, item) in entries(&MODEL, refusals) {
        models.extend(model::read(name, &item, &prices, &priced, refusals));
    }
    let mut git = Vec::new();
    for (name, item) in entries(&GIT, refusals) {
        git.extend(git::read(name, &item, refusals));
    }
    let egress = object.item(&EGRESS).map_or(Some(Egress::default()), |item| egress::read(item, refusals))?;
    if let Some(item) = object.item(&EGRESS) {
        refuse_model_hosts(&models, &egress, item, refusals);
    }
    let spot_check_percent =
        object.item(&SPOT_CHECK_PERCENT).and_then(|item| item.quantity(Percent::parse, refusals));
    let budgets =
        object.item(&BUDGETS).map_or(Some(Budgets::default()), |item| Budgets::read(item, refusals))?;
    let warnings = object.item(&EGRESS).map(|item| warnings(&egress, item.path())).unwrap_or_default();
    Some(Operator { models, git, egress, spot_check_percent, budgets, warnings })
}

/// What each host can be used for besides; of a preset that the file names, the first thing.
fn warnings(egress: &Egress, path: &Path) -> Vec<Warning> {
    let warning = |path: &Path, HostWarning { code, message }| {
        let (code, path) = (WarningCode::Host(code), path.clone());
        Warning { code, path, message }
    };
    let of_rule = |(index, rule): (usize, &HostRule)| {
        let path = path.field("allow").index(index);
        lint(rule).into_iter().map(move |said| warning(&path, said))
    };
    let of_preset = |(index, preset): (usize, &Preset)| {
        let said = preset.rules().ok()?.iter().find_map(|rule| lint(rule).into_iter().next())?;
        Some(warning(&path.field("presets").index(index), said))
    };
    let named: &[Preset] = if egress.presets == Preset::DEFAULT { &[] } else { &egress.presets };
    let presets = named.iter().enumerate().filter_map(of_preset);
    egress.allow.iter().enumerate().flat_map(of_rule).chain(presets).collect()
}

/// The broker is the only door to a model: a host on the allowlist would be a second one, without a meter.
fn refuse_model_hosts(models: &[Model], egress: &Egress, item: &Item<'_>, refusals: &mut Refusals) {
    for model in models {
        let UpstreamHost::Name(name) = model.upstream.host() else { continue };
        for rule in egress.allow.iter().filter(|rule| rule.covers(name)) {
            let message =
                format!("{rule} reaches the upstream of model {}; the broker is its only door", model.name);
            refusals.refuse(Code::HostReserved, &item.path().field("allow"), message);
        }
    }
}

#[cfg(test)]
mod tests;
