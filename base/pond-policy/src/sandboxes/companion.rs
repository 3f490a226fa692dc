//! Companions: containers beside a sandbox, on its network, under a name of their own, confined as it is.
//!
//! Invariants: an image is one the engine has by name, never a path; a check that could never pass because it was written for another
//! tool is refused; every time has a bound.

use super::id::Alias;
use crate::block::OverrideKey;
use crate::duration::Timeout;
use crate::image::Image;
use crate::limits::{Count, Cpus, Memory, Pids, TmpfsSize};
use crate::refusal::{Code, Refusals};
use crate::run::executor::{ARGUMENT, ENV_NAME, ENV_VALUE, read_list, read_map};
use crate::shape::{Echo, Field, Item, Kind, Need, Object, Shape};

const MOST_COMPANIONS: usize = 16;
const MOST_COMMANDS: usize = 16;
const MOST_ARGUMENTS: usize = 1024;

/// How often a check may fail before the companion counts as unhealthy.
pub type Retries = Count<1, 100>;

const ARGV: Kind = Kind::List { of: &Kind::Text(ARGUMENT), least: 1, most: MOST_ARGUMENTS };

pub(super) const COMPANIONS: Field = Field {
    name: "companions",
    need: Need::Optional,
    kind: Kind::Map { key: Alias::FORM, of: &Kind::Object(&SHAPE), most: MOST_COMPANIONS },
    doc: "Containers beside the sandbox, by the name under which it reaches them; backends docker and gvisor.",
};
const IMAGE: Field = Field {
    name: "image",
    need: Need::Required(Code::MissingField),
    kind: Image::kind(Code::CompanionInvalid),
    doc: "The image, as the engine has it; nothing is pulled.",
};
const COMMAND: Field = Field {
    name: "command",
    need: Need::Optional,
    kind: ARGV,
    doc: "What it runs instead of the image's own command; no shell reads it.",
};
const ENV: Field = Field {
    name: "env",
    need: Need::Optional,
    kind: Kind::Map { key: ENV_NAME, of: &Kind::Text(ENV_VALUE), most: 256 },
    doc: "Its environment variables.",
};
const LIMITS: Field = Field {
    name: "limits",
    need: Need::Optional,
    kind: Kind::Object(&LIMITS_SHAPE),
    doc: "Quantities that differ from the profile's.",
};
const HEALTHCHECK: Field = Field {
    name: "healthcheck",
    need: Need::Optional,
    kind: Kind::Object(&HEALTH_SHAPE),
    doc: "How it is told that the companion serves; without one, it serves when it runs.",
};
const POST_START: Field = Field {
    name: "post_start_on_primary",
    need: Need::Optional,
    kind: Kind::List { of: &ARGV, least: 0, most: MOST_COMMANDS },
    doc: "Commands run in the sandbox, in order, once the companion is healthy; each is a program and its arguments.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "companion",
    doc: "A container beside the sandbox.",
    fields: &[IMAGE, COMMAND, ENV, LIMITS, HEALTHCHECK, POST_START],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

const MEMORY: Field = OverrideKey::Memory.field();
const CPUS: Field = OverrideKey::Cpus.field();
const PIDS_LIMIT: Field = OverrideKey::PidsLimit.field();
const TMPFS_SIZE: Field = OverrideKey::TmpfsSize.field();

static LIMITS_SHAPE: Shape = Shape {
    name: "limits",
    doc: "Quantities that differ from the profile's.",
    fields: &[MEMORY, CPUS, PIDS_LIMIT, TMPFS_SIZE],
    unknown: Code::OverrideNotAllowed,
    echo: Echo::Given,
};

const TEST: Field = Field {
    name: "test",
    need: Need::Required(Code::MissingField),
    kind: ARGV,
    doc: "A program and its arguments, run in the companion; it is healthy when this ends with 0.",
};
const INTERVAL: Field = time("interval", "From the end of one check to the next; 30s without it.");
const TIMEOUT: Field = time("timeout", "When a check counts as failed; 30s without it.");
const RETRIES: Field = Field {
    name: "retries",
    need: Need::Optional,
    kind: Retries::kind(Code::HealthcheckInvalid),
    doc: "Checks that must fail in a row, 1 to 100; 3 without it.",
};
const START_PERIOD: Field =
    time("start_period", "Time from the start in which failed checks do not count; none without it.");
const START_INTERVAL: Field =
    time("start_interval", "From check to check in the start period; 5s without it.");

static HEALTH_SHAPE: Shape = Shape {
    name: "healthcheck",
    doc: "How it is told that a companion serves.",
    fields: &[TEST, INTERVAL, TIMEOUT, RETRIES, START_PERIOD, START_INTERVAL],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

const fn time(name: &'static str, doc: &'static str) -> Field {
    Field { name, need: Need::Optional, kind: Timeout::kind(Code::HealthcheckInvalid), doc }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    pub alias: Alias,
    /// A name in the engine's store.
    pub image: String,
    /// Empty: the image's own.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub limits: CompanionLimits,
    pub healthcheck: Option<Healthcheck>,
    pub post_start_on_primary: Vec<Vec<String>>,
}

/// What differs from the limits of the sandbox's profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompanionLimits {
    pub memory: Option<Memory>,
    pub cpus: Option<Cpus>,
    pub pids_limit: Option<Pids>,
    pub tmpfs_size: Option<TmpfsSize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healthcheck {
    pub test: Vec<String>,
    pub interval: Timeout,
    pub timeout: Timeout,
    pub retries: Retries,
    pub start_period: Option<Timeout>,
    pub start_interval: Timeout,
}

pub(super) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Vec<Companion> {
    let entries = item.map(refusals).unwrap_or_default();
    entries.iter().filter_map(|(alias, item)| read_one(Alias::parse(alias)?, item, refusals)).collect()
}

fn read_one(alias: Alias, item: &Item<'_>, refusals: &mut Refusals) -> Option<Companion> {
    let object = item.object(refusals)?;
    let image = object.item(&IMAGE).and_then(|item| read_image(item, refusals));
    let command = object.item(&COMMAND).map(|item| read_list(item, refusals)).unwrap_or_default();
    let env = read_map(&object, &ENV, refusals);
    let limits = object.item(&LIMITS).and_then(|item| item.object(refusals));
    let limits = limits.map(|object| read_limits(&object, refusals)).unwrap_or_default();
    let healthcheck = match object.item(&HEALTHCHECK) {
        None => Some(None),
        Some(item) => read_health(item, refusals).map(Some),
    };
    let after = object.item(&POST_START).and_then(|item| item.list(refusals)).unwrap_or_default();
    let post_start_on_primary = after.iter().map(|item| read_list(item, refusals)).collect();
    Some(Companion {
        alias,
        image: image?,
        command,
        env,
        limits,
        healthcheck: healthcheck?,
        post_start_on_primary,
    })
}

fn read_image(item: &Item<'_>, refusals: &mut Refusals) -> Option<String> {
    match item.parsed(Image::parse, refusals)? {
        Image::Reference(name) => Some(name),
        Image::File(_) => {
            let message = "a companion's image is one the engine has: load the file and name the image";
            refusals.refuse(Code::CompanionInvalid, item.path(), message);
            None
        }
    }
}

fn read_limits(object: &Object<'_>, refusals: &mut Refusals) -> CompanionLimits {
    CompanionLimits {
        memory: object.item(&MEMORY).and_then(|item| item.quantity(Memory::parse, refusals)),
        cpus: object.item(&CPUS).and_then(|item| item.quantity(Cpus::parse, refusals)),
        pids_limit: object.item(&PIDS_LIMIT).and_then(|item| item.quantity(Pids::parse, refusals)),
        tmpfs_size: object.item(&TMPFS_SIZE).and_then(|item| item.quantity(TmpfsSize::parse, refusals)),
    }
}

fn read_health(item: &Item<'_>, refusals: &mut Refusals) -> Option<Healthcheck> {
    let object = item.object(refusals)?;
    let test = object.item(&TEST).and_then(|item| read_test(item, refusals));
    let retries = object.item(&RETRIES).map(|item| item.quantity(Retries::parse, refusals));
    let mut time = |field: &Field, otherwise: u64| match object.item(field) {
        None => Some(Timeout::fixed(otherwise)),
        Some(item) => item.quantity(Timeout::parse, refusals),
    };
    let (interval, timeout, start_interval) =
        (time(&INTERVAL, 30), time(&TIMEOUT, 30), time(&START_INTERVAL, 5));
    let start_period = match object.item(&START_PERIOD) {
        None => Some(None),
        Some(item) => item.quantity(Timeout::parse, refusals).map(Some),
    };
    Some(Healthcheck {
        test: test?,
        interval: interval?,
        timeout: timeout?,
        retries: retries.unwrap_or(Some(Retries::fixed(3)))?,
        start_period: start_period?,
        start_interval: start_interval?,
    })
}

/// Other tools begin the list with a word of their own; as a program it does not exist, and the check would never pass.
fn read_test(item: &Item<'_>, refusals: &mut Refusals) -> Option<Vec<String>> {
    let test = read_list(item, refusals);
    if let Some(word @ ("CMD" | "CMD-SHELL" | "NONE")) = test.first().map(String::as_str) {
        let message = format!(
            "`{word}` is not a program: write the program and its arguments, such as [\"pg_isready\"] or [\"sh\", \"-c\", \"…\"]"
        );
        refusals.refuse(Code::HealthcheckInvalid, item.path(), message);
        return None;
    }
    Some(test)
}
