//! `[egress]`: presets and rules of the operator, for every allowlist, and caps for every job.

use crate::block::{HOST, MOST_HOSTS, read_hosts};
use crate::egress::{HostRule, Preset};
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

use super::caps::{self, Caps};

const RULES: Kind = Kind::List { of: &Kind::Text(HOST), least: 0, most: MOST_HOSTS };

const PRESETS: Field = Field {
    name: "presets",
    need: Need::Optional,
    kind: Kind::List {
        of: &Kind::Choice { names: Preset::NAMES, code: Code::UnknownPreset },
        least: 0,
        most: Preset::NAMES.len(),
    },
    doc: "The built-in sets of hosts an allowlist starts with; without it pypi, npm, crates and github.",
};
const ALLOW: Field =
    Field { name: "allow", need: Need::Optional, kind: RULES, doc: "Hosts added to every allowlist." };
const DENY: Field = Field {
    name: "deny",
    need: Need::Optional,
    kind: RULES,
    doc: "Hosts no job reaches, whatever else allows them.",
};
const CAPS: Field = Field {
    name: "caps",
    need: Need::Optional,
    kind: Kind::Object(&caps::SHAPE),
    doc: "What connections of a job may carry, and for how long.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "egress",
    doc: "What jobs may reach.",
    fields: &[PRESETS, ALLOW, DENY, CAPS],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    pub presets: Vec<Preset>,
    pub allow: Vec<HostRule>,
    pub deny: Vec<HostRule>,
    pub caps: Caps,
}

impl Default for Egress {
    fn default() -> Self {
        let (presets, caps) = (Preset::DEFAULT.to_vec(), Caps::default());
        Self { presets, allow: Vec::new(), deny: Vec::new(), caps }
    }
}

pub(super) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Option<Egress> {
    let object = item.object(refusals)?;
    let rules = |field: &Field, refusals: &mut Refusals| {
        object.item(field).map(|item| read_hosts(item, refusals)).unwrap_or_default()
    };
    let (allow, deny) = (rules(&ALLOW, refusals), rules(&DENY, refusals));
    let presets = match object.item(&PRESETS) {
        None => Preset::DEFAULT.to_vec(),
        Some(item) => {
            let items = item.list(refusals).unwrap_or_default();
            items.iter().filter_map(|item| item.choice(Preset::from_name, refusals)).collect()
        }
    };
    let caps = object.item(&CAPS).map_or(Some(Caps::default()), |item| caps::read(item, refusals))?;
    Some(Egress { presets, allow, deny, caps })
}
