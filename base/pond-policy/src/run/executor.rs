//! A stage's executor: the command or agent, what it is given, what is kept, and the sandbox around it. The rules that
//! join these fields (a sealed profile and its command, a profile and its time) are decided here.

use super::{Executor, ExecutorKind, Program};
use crate::block::SANDBOX_SHAPE;
use crate::command;
use crate::dispatch::{self, Dispatch};
use crate::duration::Timeout;
use crate::harness::{self, Agent};
use crate::image::Image;
use crate::name::Project;
use crate::profile::{Commands, Network, Profile};
use crate::quote::quote;
use crate::refusal::{Code, Refusal, Refusals};
use crate::sandbox::check_timeout;
use crate::settings::Settings;
use crate::shape::{Echo, Field, Item, Kind, Need, Object, Shape, TextForm};

const KIB: usize = 1024;

const KIND: Field = Field {
    name: "kind",
    need: Need::Required(Code::MissingField),
    kind: Kind::Choice { names: ExecutorKind::NAMES, code: Code::UnknownKind },
    doc: "What executes the stage.",
};
const COMMAND: Field = Field {
    name: "command",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Text(ARGUMENT), least: 1, most: 1024 },
    doc: "The program and its arguments; no shell reads them. Exactly one of command and agent.",
};
const AGENT: Field = Field {
    name: "agent",
    need: Need::Optional,
    kind: Kind::Choice { names: Agent::NAMES, code: Code::UnknownAgent },
    doc: "A known agent. Exactly one of command and agent.",
};
const MODEL: Field = Field {
    name: "model",
    need: Need::Optional,
    kind: Kind::Text(MODEL_FORM),
    doc: "The model the broker serves to the job.",
};
const HARNESS_FILES: Field = Field {
    name: "harness_files",
    need: Need::Optional,
    kind: Kind::Map { key: PATH, of: &Kind::Text(CONTENT), most: 64 },
    doc: "Files made in $HOME: path and text, in which {{MODEL}}, {{BROKER_URL}} and {{SECRET:NAME}} are filled in.",
};
const ENV: Field = Field {
    name: "env",
    need: Need::Optional,
    kind: Kind::Map { key: ENV_NAME, of: &Kind::Text(ENV_VALUE), most: 256 },
    doc: "Environment variables.",
};
const ARTIFACTS: Field = Field {
    name: "artifacts",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Text(PATH), least: 0, most: 256 },
    doc: "Paths in the working copy to keep.",
};
const TIMEOUT: Field = Field {
    name: "timeout",
    need: Need::Optional,
    kind: Timeout::kind(Code::TimeoutInvalid),
    doc: "When the job is killed, 1s to 7d; at most 60s on untrusted-code-test.",
};
const SANDBOX: Field = Field {
    name: "sandbox",
    need: Need::Required(Code::MissingSandbox),
    kind: Kind::Object(&SANDBOX_SHAPE),
    doc: "How the job is confined.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "executor",
    doc: "What runs, and how it is confined.",
    fields: &[KIND, COMMAND, AGENT, MODEL, HARNESS_FILES, ENV, ARTIFACTS, TIMEOUT, SANDBOX],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

pub(crate) const ARGUMENT: TextForm = TextForm {
    pattern: "^[^\\u0000]*$",
    most: 128 * KIB,
    check: has_no_nul,
    code: Code::CommandInvalid,
    rule: "text of at most 128 KiB without NUL; put numbers in quotes",
};
pub(crate) const ENV_NAME: TextForm = TextForm {
    pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    most: 128,
    check: is_env_name,
    code: Code::EnvInvalid,
    rule: "a variable name of at most 128 letters, digits and underscores, not beginning with a digit",
};
pub(crate) const ENV_VALUE: TextForm = TextForm {
    pattern: "^[^\\u0000]*$",
    most: 32 * KIB,
    check: has_no_nul,
    code: Code::EnvInvalid,
    rule: "text of at most 32 KiB without NUL; put numbers in quotes",
};
pub(crate) const MODEL_FORM: TextForm = TextForm {
    pattern: "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$",
    most: 128,
    check: is_model,
    code: Code::ModelInvalid,
    rule: "a model name of at most 128 plain characters",
};
const PATH: TextForm = TextForm {
    pattern: "^[^/\\u0000-\\u001f\\u007f][^\\u0000-\\u001f\\u007f]*$",
    most: 1024,
    check: is_inner_path,
    code: Code::PathInvalid,
    rule: "a relative path without `.`, `..` or empty parts, at most 1024 bytes",
};
const CONTENT: TextForm = TextForm {
    pattern: "^",
    most: 256 * KIB,
    check: |_| true,
    code: Code::HarnessInvalid,
    rule: "text of at most 256 KiB",
};

pub(super) fn read(
    item: &Item<'_>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Executor> {
    judge(&item.object(refusals)?, project, settings, refusals)
}

pub(super) fn judge(
    object: &Object<'_>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Executor> {
    let kind = object.item(&KIND).and_then(|item| item.choice(ExecutorKind::from_name, refusals));
    let program = read_program(object, refusals);
    let model = object.item(&MODEL).and_then(|item| item.text(refusals)).map(str::to_owned);
    let harness_files = read_harness(object, refusals);
    let env = read_map(object, &ENV, refusals);
    let artifacts = object.item(&ARTIFACTS).map(|item| read_list(item, refusals)).unwrap_or_default();
    let timeout = object.item(&TIMEOUT).and_then(|item| item.quantity(Timeout::parse, refusals));
    let dispatch = object.item(&SANDBOX).and_then(|item| read_sandbox(item, project, settings, refusals))?;

    let profile = dispatch.block.profile();
    let timeout = timeout.unwrap_or(profile.time().default);
    let program = program?;
    check_joint(object, profile, &program, timeout, refusals);
    Some(Executor { kind: kind?, program, model, harness_files, env, artifacts, timeout, dispatch })
}

fn read_program(object: &Object<'_>, refusals: &mut Refusals) -> Option<Program> {
    let command = object.item(&COMMAND).map(|item| read_command(item, refusals)).map(Program::Command);
    let agent = object.item(&AGENT).map(|item| item.choice(Agent::from_name, refusals).map(Program::Agent));
    match (command, agent) {
        (Some(command), None) => Some(command),
        (None, Some(agent)) => agent,
        (None, None) => {
            let message = "nothing to run: give `command` or `agent`";
            refusals.refuse(Code::CommandMissing, &object.path.field(COMMAND.name), message);
            None
        }
        (Some(_), Some(_)) => {
            let message = "both `command` and `agent` are given; keep one";
            refusals.refuse(Code::CommandConflict, &object.path.field(COMMAND.name), message);
            None
        }
    }
}

fn read_command(item: &Item<'_>, refusals: &mut Refusals) -> Vec<String> {
    let argv = read_list(item, refusals);
    if argv.first().is_some_and(String::is_empty) {
        refusals.refuse(Code::CommandInvalid, &item.path().index(0), "the program has no name");
    }
    argv
}

/// Files that can be filled in and made: what their texts name is checked here, and whether it is there where they are made.
fn read_harness(object: &Object<'_>, refusals: &mut Refusals) -> Vec<(String, String)> {
    let entries = object.item(&HARNESS_FILES).and_then(|item| item.map(refusals)).unwrap_or_default();
    let mut files = Vec::new();
    for (path, item) in &entries {
        let Some(text) = item.text(refusals) else { continue };
        if let Err(fault) = harness::check(text) {
            refusals.refuse(Code::HarnessInvalid, item.path(), fault.to_string());
        }
        if let Some((file, _)) = entries.iter().find(|(other, _)| is_below(path, other)) {
            let message = format!("{} is a file, and nothing can lie in it", quote(file));
            refusals.refuse(Code::PathInvalid, item.path(), message);
        }
        files.push(((*path).to_owned(), text.to_owned()));
    }
    files
}

fn read_sandbox(
    item: &Item<'_>,
    project: Option<&Project>,
    settings: &Settings,
    refusals: &mut Refusals,
) -> Option<Dispatch> {
    let dispatch = dispatch::resolve_at(item.path(), Some(item.node()), project, settings, refusals)?;
    if let Some(Image::File(_)) = dispatch.block.overrides().image {
        let message =
            "a path would be opened on the worker's own disk: name the image by its registry reference";
        let path = item.path().field("overrides").field("image");
        refusals.refuse(Code::ImageNotPortable, &path, message);
    }
    Some(dispatch)
}

/// Rules between a profile and the rest of the executor.
fn check_joint(
    object: &Object<'_>,
    profile: Profile,
    program: &Program,
    timeout: Timeout,
    refusals: &mut Refusals,
) {
    let place = |field: &Field| object.item(field).map_or(&object.path, Item::path);
    if let Err(refusal) = check_timeout(profile, timeout, place(&TIMEOUT)) {
        refusals.add(refusal);
    }
    let posture = profile.posture();
    if posture.network == Network::Sealed && object.item(&MODEL).is_some() {
        let message = format!("`model` has no effect on {profile}: nothing is reachable from it; remove it");
        refusals.refuse(Code::RuleWithoutEffect, place(&MODEL), message);
    }
    match (posture.commands, program) {
        (Commands::Any, _) => {}
        (Commands::Allowlisted, Program::Agent(_)) => {
            let message = format!("{profile} runs only allowlisted commands; give `command` instead");
            refusals.refuse(Code::CommandNotAllowed, place(&AGENT), message);
        }
        (Commands::Allowlisted, Program::Command(argv)) => {
            if let Err(denied) = command::check(argv) {
                let message = format!("{denied}; {}", denied.hint());
                let refusal = Refusal::new(Code::CommandNotAllowed, place(&COMMAND), message);
                refusals.add(refusal.allowing(&command::ALLOWED_COMMANDS));
            }
        }
    }
}

pub(crate) fn read_list(item: &Item<'_>, refusals: &mut Refusals) -> Vec<String> {
    let items = item.list(refusals).unwrap_or_default();
    items.iter().filter_map(|item| item.text(refusals)).map(str::to_owned).collect()
}

pub(crate) fn read_map(object: &Object<'_>, field: &Field, refusals: &mut Refusals) -> Vec<(String, String)> {
    let entries = object.item(field).and_then(|item| item.map(refusals)).unwrap_or_default();
    let mut entry =
        |(key, item): &(&str, Item<'_>)| Some(((*key).to_owned(), item.text(refusals)?.to_owned()));
    entries.iter().filter_map(&mut entry).collect()
}

fn has_no_nul(text: &str) -> bool {
    !text.contains('\0')
}

fn is_env_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_model(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'/' | b'@' | b'-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// A path that stays below the directory it is resolved in, as far as its text can say.
fn is_inner_path(text: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    text.split('/').all(part) && !text.chars().any(char::is_control)
}
