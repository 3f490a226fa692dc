//! `pond gc`: sweeps what killed runs left, and removes old runs. A run that has its record is never touched.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind::NotFound;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pond_sandbox::native::Swept;
use pond_sandbox::record;
use pond_sandbox::state::StateDir;
use pond_worker::apply::{Unfinished, all_unfinished};
use serde::Serialize;

use super::{RunInfo, clean_up, names, now, state};
use crate::keeper::{converge, waiter};
use crate::output;

const KEPT: usize = 50;

/// Clean up after killed runs and remove old ones. Without flags the newest 50 stay.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Keep at least so many of the newest runs.
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Remove only runs that started longer ago than this, such as 12h or 30d.
    #[arg(long, value_name = "TIME")]
    older_than: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Collected {
    /// Jobs whose owner had died.
    swept: Vec<String>,
    /// Killed runs whose container waits for its engine.
    waiting: Vec<String>,
    removed: Vec<String>,
    kept: usize,
    /// Sandboxes that last and were looked at: those whose keeper was killed are stopped now, those whose time was up are gone.
    sandboxes: usize,
}

pub(crate) fn main(args: &GcArgs) -> ExitCode {
    match collect(args) {
        Ok(done) if args.json => output::json(&done),
        Ok(done) => {
            for run in &done.waiting {
                output::say(&format!(
                    "pond: the container of {run} waits for its engine, which does not answer"
                ));
            }
            let (swept, removed) = (done.swept.len(), done.removed.len());
            output::lines(&format!("{swept} swept, {removed} removed, {} kept", done.kept))
        }
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn collect(args: &GcArgs) -> anyhow::Result<Collected> {
    let least = args.older_than.as_deref().map(span).transpose()?;
    // With an age alone, the age decides.
    let keep = args.keep.unwrap_or(if least.is_some() { 0 } else { KEPT });
    let state = state()?;
    let Swept { jobs: swept, waiting, stuck: _told } = clean_up(&state)?;
    let settings = crate::settings::sandbox().unwrap_or_default();
    let sandboxes = converge::all(&state, &settings)?;
    waiter::ensure_for(&state, &sandboxes);
    let sandboxes = sandboxes.len();
    let mut done = Collected { swept, waiting, sandboxes, ..Collected::default() };
    for name in candidates(&state)? {
        let directory = state.runs().join(&name);
        let goes = match RunInfo::load(&directory) {
            // Whatever it holds may be somebody's only copy.
            Err(fault) => {
                output::say(&format!(
                    "pond: warning: {} is kept: {}",
                    name,
                    output::plain(&format!("{fault:#}"))
                ));
                false
            }
            Ok(None) => true,
            Ok(Some(_)) if done.kept < keep || is_needed(&name, &directory)? => false,
            Ok(Some(info)) => least.is_none_or(|least| info.age(now()).is_some_and(|age| age > least)),
        };
        if goes {
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("removing {}", directory.display()))?;
            done.removed.push(name);
        } else {
            done.kept += 1;
        }
    }
    Ok(done)
}

/// An apply of this run was cut short, and what undoes it is in the run's directory. Where its checkout is gone, there is nothing
/// left to undo.
fn is_needed(name: &str, directory: &Path) -> anyhow::Result<bool> {
    let opened = File::open(directory).with_context(|| format!("opening {}", directory.display()))?;
    let unfinished = match all_unfinished(opened.as_fd()) {
        Ok(unfinished) => unfinished,
        Err(fault) => {
            let fault = anyhow::Error::from(fault);
            output::say(&format!("pond: warning: {name} is kept: {}", output::plain(&format!("{fault:#}"))));
            return Ok(true);
        }
    };
    for Unfinished { place, staging } in &unfinished {
        let gone =
            |place: &String| Path::new(place).symlink_metadata().is_err_and(|fault| fault.kind() == NotFound);
        match place.as_ref().filter(|place| gone(place)) {
            Some(place) => output::say(&output::plain(&format!(
                "pond: an apply of {name} to {place} was cut short, and that directory is gone; if it was only moved, {staging} in it \
                 holds the files as they were"
            ))),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Run directories without a record. The records are read second: whatever began since then has one or is not listed.
fn candidates(state: &StateDir) -> anyhow::Result<Vec<String>> {
    let listed = names(state)?;
    let live: BTreeSet<String> = record::recorded(state)?.into_iter().map(String::from).collect();
    Ok(listed.into_iter().map(String::from).filter(|name| !live.contains(name)).collect())
}

fn span(text: &str) -> anyhow::Result<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let whole = found.filter(|(digits, _)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    let seconds = whole.and_then(|(digits, unit)| digits.parse::<u64>().ok()?.checked_mul(unit));
    match seconds {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => {
            bail!("--older-than {text:?}: write a number with one unit of s, m, h, d, such as 12h or 30d")
        }
    }
}
