//! `pond runs`: the runs of this machine, newest first.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pond_policy::command::audit_form;
use serde::Serialize;

use super::{RunInfo, names, now, state};
use crate::output;
use crate::run::Verdict;

/// List the runs of this machine, newest first.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    run: String,
    verdict: Verdict,
    /// The first three words.
    command: String,
    checkout: String,
    started: String,
    age_seconds: Option<u64>,
    changed: Option<usize>,
}

pub(crate) fn main(args: &RunsArgs) -> ExitCode {
    match rows() {
        Ok(rows) if args.json => output::json(&rows),
        Ok(rows) if rows.is_empty() => output::lines("no runs"),
        Ok(rows) => output::lines(&table(&rows)),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn rows() -> anyhow::Result<Vec<Row>> {
    let (state, now) = (state()?, now());
    let mut rows = Vec::new();
    for name in names(&state)? {
        let info = match RunInfo::load(&state.runs().join(name.as_str())) {
            Ok(Some(info)) => info,
            Ok(None) => continue,
            Err(fault) => {
                output::say(&format!("pond: warning: {}", output::plain(&format!("{fault:#}"))));
                continue;
            }
        };
        let age_seconds = info.age(now).map(|age| age.as_secs());
        let command = audit_form(&info.command);
        let RunInfo { verdict, checkout, started, changed, .. } = info;
        rows.push(Row { run: name.into(), verdict, command, checkout, started, age_seconds, changed });
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> String {
    let mut lines =
        vec![format!("{:<25}  {:>5}  {:>7}  {:<22}  COMMAND", "RUN", "AGE", "CHANGED", "VERDICT")];
    lines.extend(rows.iter().map(|row| {
        let age = row.age_seconds.map_or_else(|| "?".to_owned(), |age| brief(Duration::from_secs(age)));
        let changed = row.changed.map_or_else(|| "-".to_owned(), |count| count.to_string());
        format!("{:<25}  {age:>5}  {changed:>7}  {:<22}  {}", row.run, row.verdict.sentence(), row.command)
    }));
    lines.join("\n")
}

fn brief(age: Duration) -> String {
    match age.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
