//! `pond apply`: puts the result of a run into its checkout, all of it or nothing.
//!
//! Nothing is applied that a person would want to see first: files that tools on this machine act on, links out of the tree,
//! incomplete results and changes that the patch does not show each need a flag of their own. Names are printed as git quotes them, so none can forge a line.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_worker::apply::{
    Accept, Applied, ApplyOptions, ApplyRefused, Conflict, ConflictKind, Recovered, apply, recover,
    unfinished,
};
use pond_worker::collect::{Category, Change, Delta, Flag, Record, Rejected};
use pond_worker::path::{RelPath, quoted};
use serde::Serialize;

use crate::output::{self, REFUSED};
use crate::runs;

/// Put the changes of a run into its checkout: all of them, and only onto the files the job worked on.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The run; without it, the newest one on the checkout.
    run: Option<String>,
    /// The checkout to change; without it, the one the run was on (and with no run named, the current directory).
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
    /// Also apply files that tools on this machine act on by themselves: hooks, CI, editor and build files.
    #[arg(long)]
    flagged: bool,
    /// Also apply symbolic links that lead out of the tree or into git metadata.
    #[arg(long)]
    yes_links: bool,
    /// Apply what there is of a result from which entries were left out.
    #[arg(long)]
    incomplete: bool,
    /// Also apply changes that were too large for the patch, so that nobody has read them there.
    #[arg(long)]
    with_omitted: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was done, or why nothing was.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Outcome {
    Applied { run: String, checkout: String, recovered: Recovered, changes: Vec<Change> },
    Refused { run: String, checkout: String, recovered: Recovered, reason: Reason, message: String },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    Flagged(Vec<Flag>),
    Links(Vec<Flag>),
    Incomplete(Vec<Rejected>),
    Omitted(Vec<RelPath>),
    Conflicts(Vec<Conflict>),
}

pub(crate) fn main(args: &ApplyArgs) -> ExitCode {
    match run(args) {
        Ok(outcome) => report(&outcome, args.json),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn run(args: &ApplyArgs) -> anyhow::Result<Outcome> {
    let state = runs::state()?;
    let (info, directory, checkout) = match (&args.run, &args.checkout) {
        (Some(run), Some(path)) => {
            let (info, directory) = runs::named(&state, run)?;
            (info, directory, Checkout::open(path)?)
        }
        (Some(run), None) => {
            let (info, directory) = runs::named(&state, run)?;
            let checkout = Checkout::open(Path::new(&info.checkout))?;
            (info, directory, checkout)
        }
        (None, path) => {
            let checkout = Checkout::open(path.as_deref().unwrap_or(Path::new(".")))?;
            let (info, directory) = runs::latest_of(&state, &checkout.named.path)?;
            (info, directory, checkout)
        }
    };
    let (run, place) = (info.run.as_str().to_owned(), checkout.named.path.clone());
    let directory = File::open(&directory).with_context(|| format!("opening {}", directory.display()))?;
    // A person's Ctrl-C or a shutdown must not leave half of a result; the descriptor holds them off to the end.
    let _held_off = pond_sys::signal::interrupts()?;
    recover_others(&state, &run, &checkout)?;
    let recovered = recover(directory.as_fd(), checkout.as_fd())?;
    let record = Record::load(directory.as_fd()).context("this run has no result to apply")?;
    let refused = |reason: Reason| {
        let message = reason.message();
        let (run, checkout) = (run.clone(), place.clone());
        Ok(Outcome::Refused { run, checkout, recovered, reason, message })
    };
    if let Some(reason) = unwanted(&record, args) {
        return refused(reason);
    }
    // What was refused above by name must not pass here by another way in.
    let accept = |asked: bool| if asked { Accept::Yes } else { Accept::No };
    let options =
        ApplyOptions { escaping_links: accept(args.yes_links), incomplete: accept(args.incomplete) };
    match apply(directory.as_fd(), checkout.as_fd(), options) {
        Ok(Applied { .. }) => {
            Ok(Outcome::Applied { run, checkout: place, recovered, changes: record.changes })
        }
        Err(ApplyRefused::Conflicts(conflicts)) => refused(Reason::Conflicts(conflicts)),
        Err(fault) => Err(fault.into()),
    }
}

/// Undoes what a killed apply of any other run left in this checkout: nothing may be built on half of a result.
fn recover_others(state: &StateDir, run: &str, checkout: &Checkout) -> anyhow::Result<()> {
    for name in runs::names(state)?.iter().map(JobName::as_str).filter(|name| *name != run) {
        let directory = match File::open(state.runs().join(name)) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.with_context(|| format!("opening the directory of {name}"))?,
        };
        let asked = || format!("looking for an unfinished apply of {name}");
        if unfinished(directory.as_fd(), checkout.as_fd()).with_context(asked)? {
            recover(directory.as_fd(), checkout.as_fd()).with_context(asked)?;
            say(&format!("an apply of {name} to this checkout was cut short; it is undone or complete now"));
        }
    }
    Ok(())
}

/// What of this result needs a flag that was not given.
fn unwanted(record: &Record, args: &ApplyArgs) -> Option<Reason> {
    let is_link = |flag: &&Flag| matches!(flag.category, Category::LinkOutside | Category::LinkIntoGit);
    let (links, flagged): (Vec<&Flag>, Vec<&Flag>) = record.flagged.iter().partition(is_link);
    let cloned = |flags: Vec<&Flag>| flags.into_iter().cloned().collect::<Vec<_>>();
    if !args.incomplete && !record.rejected.is_empty() {
        Some(Reason::Incomplete(record.rejected.clone()))
    } else if !args.with_omitted && !record.patch_omitted.is_empty() {
        Some(Reason::Omitted(record.patch_omitted.clone()))
    } else if !args.yes_links && !links.is_empty() {
        Some(Reason::Links(cloned(links)))
    } else if !args.flagged && !flagged.is_empty() {
        Some(Reason::Flagged(cloned(flagged)))
    } else {
        None
    }
}

impl Reason {
    fn message(&self) -> String {
        match self {
            Self::Flagged(_) => "look at these files first; --flagged applies them as well",
            Self::Links(_) => {
                "these links lead out of the tree or into git metadata; --yes-links accepts them"
            }
            Self::Incomplete(_) => "these entries could not be collected; --incomplete applies the rest",
            Self::Omitted(_) => "the patch does not show these changes; --with-omitted applies them as well",
            Self::Conflicts(_) => "these files are no longer what the job worked on; nothing was changed",
        }
        .to_owned()
    }

    fn lines(&self) -> Vec<String> {
        let flags = |list: &[Flag]| {
            list.iter().map(|flag| format!("{}: {}", flag.path, flag.category.why())).collect()
        };
        match self {
            Self::Flagged(list) | Self::Links(list) => flags(list),
            Self::Incomplete(list) => {
                list.iter().map(|entry| format!("{}: {}", entry.path, entry.reason)).collect()
            }
            Self::Omitted(list) => {
                list.iter().map(|path| format!("{path}: changed, and too large for the patch")).collect()
            }
            Self::Conflicts(list) => {
                list.iter().map(|found| format!("{}: {}", found.path, what(found.kind))).collect()
            }
        }
    }
}

fn what(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::Missing => "is gone",
        ConflictKind::Exists => "is there already",
        ConflictKind::Differs => "has changed",
        ConflictKind::ParentNotADirectory => "lies below something that is not a directory",
        ConflictKind::ChangedMeanwhile => "changed while the job ran",
    }
}

fn verb(delta: &Delta) -> &'static str {
    match delta {
        Delta::Added { .. } => "added",
        Delta::Deleted { .. } => "deleted",
        Delta::Modified { .. } => "modified",
        Delta::ModeChanged { .. } => "mode changed",
        Delta::TypeChanged { .. } => "type changed",
    }
}

fn report(outcome: &Outcome, json: bool) -> ExitCode {
    let code = match outcome {
        Outcome::Applied { .. } => ExitCode::SUCCESS,
        Outcome::Refused { .. } => ExitCode::from(REFUSED),
    };
    let told = if json { output::json(outcome) } else { tell(outcome) };
    match outcome {
        Outcome::Applied { run, checkout, changes, .. } if told != ExitCode::SUCCESS => {
            // Nothing is undone for it: whoever asks again is told that there is nothing left to do.
            say(&format!(
                "{}, and that could not be written to standard output",
                applied(run, checkout, changes)
            ));
            told
        }
        Outcome::Applied { .. } | Outcome::Refused { .. } => code,
    }
}

/// For a person: the list of changes on standard output, everything else beside it.
fn tell(outcome: &Outcome) -> ExitCode {
    match outcome {
        Outcome::Applied { run, checkout, recovered, changes } => {
            said(*recovered);
            let lines: Vec<_> =
                changes.iter().map(|change| format!("{} {}", verb(&change.delta), change.path)).collect();
            let told = if lines.is_empty() { ExitCode::SUCCESS } else { output::lines(&lines.join("\n")) };
            if told == ExitCode::SUCCESS {
                say(&applied(run, checkout, changes));
            }
            told
        }
        Outcome::Refused { run, recovered, reason, message, .. } => {
            said(*recovered);
            for line in reason.lines() {
                say(&line);
            }
            say(&format!("{run} not applied: {message}"));
            ExitCode::SUCCESS
        }
    }
}

fn applied(run: &str, checkout: &str, changes: &[Change]) -> String {
    format!("{} of {run} applied to {}", changes.len(), quoted("", checkout.as_bytes()))
}

/// A line for a person, who may be gone.
fn say(line: &str) {
    output::say(&format!("pond: {line}"));
}

fn said(recovered: Recovered) {
    match recovered {
        Recovered::Nothing => {}
        Recovered::RolledBack => say("an earlier apply of this run was cut short; it is undone"),
        Recovered::Finished => say("an earlier apply of this run had finished; its traces are gone"),
    }
}
