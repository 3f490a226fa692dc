//! `pond policy`: the contract, on its own. Nothing is run and nothing but the document and two settings is read.

use std::process::ExitCode;

use pond_policy::dispatch;
use pond_policy::name::Project;
use pond_policy::node::Node;
use pond_policy::path::Path;
use pond_policy::profile::Profile;
use pond_policy::refusal::Refusals;
use pond_policy::sandbox;
use pond_policy::settings::Settings;
use pond_wire::{contract, schema};
use serde::Serialize;

use crate::cli::{Resolve, SchemaOf};
use crate::{input, output, settings};

#[derive(Serialize)]
struct Profiles {
    profiles: Vec<contract::Profile>,
}

pub(crate) fn profiles(json: bool) -> ExitCode {
    let profiles = Profile::ALL.iter().copied().map(contract::Profile::from).collect();
    if json { output::json(&Profiles { profiles }) } else { output::lines(&table()) }
}

pub(crate) fn schema(of: SchemaOf) -> ExitCode {
    match of {
        SchemaOf::Run => output::json(&schema::run_document()),
        SchemaOf::Sandbox => output::json(&schema::sandbox_document()),
        SchemaOf::RunResult => output::json(&pond_seal::result::schema()),
    }
}

pub(crate) fn resolve(args: &Resolve) -> ExitCode {
    match answer(args) {
        Ok(code) => code,
        Err(refusals) => output::refused_json(refusals),
    }
}

fn answer(args: &Resolve) -> Result<ExitCode, Refusals> {
    let settings = settings::sandbox()?;
    let document = input::document(&args.file)?;
    let (path, block) = block(&document);
    if args.worker {
        let policy = sandbox::resolve_at(&path, Some(block), &settings)?;
        return Ok(output::json(&contract::SandboxPolicy::from(&policy)));
    }
    let dispatch = resolve_for(args.project.as_deref(), &path, block, &settings)?;
    Ok(output::json(&contract::Dispatch::from(&dispatch)))
}

/// The block itself, or the value of the one key `sandbox`.
fn block(document: &Node) -> (Path, &Node) {
    if let Node::Map(entries) = document
        && let [(key, block)] = entries.as_slice()
        && key == "sandbox"
    {
        return (Path::root().key(0, key), block);
    }
    (Path::root(), document)
}

/// A bad project name does not hide the faults of the block.
fn resolve_for(
    project: Option<&str>,
    path: &Path,
    block: &Node,
    settings: &Settings,
) -> Result<dispatch::Dispatch, Refusals> {
    let mut refusals = Refusals::default();
    let project = match project.map(|name| Project::parse(name, &Path::root().field("--project"))).transpose()
    {
        Ok(project) => project,
        Err(refusal) => {
            refusals.add(refusal);
            refusals.append(sandbox::resolve_at(path, Some(block), settings).err().unwrap_or_default());
            return refusals.finish(None);
        }
    };
    let dispatch = dispatch::resolve_at(path, Some(block), project.as_ref(), settings, &mut refusals);
    refusals.finish(dispatch)
}

fn table() -> String {
    let header =
        ["PROFILE", "ALIAS", "FILES", "NETWORK", "COMMANDS", "TIER", "MEMORY", "CPUS", "PIDS", "TMP", "TIME"];
    let rows: Vec<[String; 11]> = [header.map(str::to_owned)]
        .into_iter()
        .chain(Profile::ALL.iter().map(|profile| row(*profile)))
        .collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let line = |row: &[String; 11]| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(profile: Profile) -> [String; 11] {
    let posture = profile.posture();
    let limits = profile.limits();
    let [memory, cpus, pids, tmpfs] = match limits {
        Some(limits) => [
            limits.memory.to_string(),
            limits.cpus.to_string(),
            limits.pids.to_string(),
            limits.tmpfs.to_string(),
        ],
        None => ["-"; 4].map(str::to_owned),
    };
    [
        profile.name().to_owned(),
        profile.alias().to_owned(),
        posture.filesystem.to_string(),
        posture.network.to_string(),
        posture.commands.to_string(),
        profile.default_tier().to_string(),
        memory,
        cpus,
        pids,
        tmpfs,
        profile.time().default.to_string(),
    ]
}
