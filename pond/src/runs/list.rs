//! `pond runs`: the runs of this machine, newest first; or those of a control plane, if one is named.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pond_policy::command::audit_form;
use serde::Serialize;

use super::{RunInfo, names, now, state};
use crate::client::{self, ServerArgs};
use crate::output;
use crate::remote::list::{Wanted, list};
use crate::run::Verdict;

/// List runs, newest first: those of the control plane that POND_URL or --server names, else those of this machine.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Those of this machine, even if POND_URL names a control plane.
    #[arg(long, conflicts_with_all = ["remote", "server", "project", "state", "limit"])]
    local: bool,
    /// Those of the control plane, even if nothing names one: that of this machine.
    #[arg(long)]
    remote: bool,
    /// Of the control plane's, only those of this project.
    #[arg(long, value_name = "P")]
    project: Option<String>,
    /// Of the control plane's, only those in this state: active, succeeded, failed, cancelled, refused.
    #[arg(long, value_name = "STATE", value_parser = ["active", "succeeded", "failed", "cancelled", "refused"])]
    state: Option<String>,
    /// Of the control plane's, so many at most; 50 if nothing is said.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const LISTED: u32 = 50;

impl RunsArgs {
    /// What only a control plane can be asked for asks it.
    fn is_remote(&self) -> bool {
        let asks = self.remote || self.project.is_some() || self.state.is_some() || self.limit.is_some();
        !self.local && (asks || self.server.is_named())
    }
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
    if args.is_remote() {
        let (project, state) = (args.project.as_deref(), args.state.as_deref());
        let wanted = Wanted { project, state, limit: args.limit.unwrap_or(LISTED) };
        return client::ask(&args.server, args.json, async |server| list(server, &wanted, args.json).await);
    }
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

pub(crate) fn brief(age: Duration) -> String {
    match age.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
