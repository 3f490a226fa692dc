//! `pond doctor`: what this host can enforce, layer by layer, found out by doing it.
//!
//! Each layer is tried in a process that is thrown away, on files made for the purpose. The last row is a whole job through the real
//! backend: if that runs, the native backend runs here, whatever the rows above say.

mod layers;
mod weak;
mod whole;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::output;

/// Say what this host can enforce, and how to get what it cannot.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 jobs can run here; 1 they cannot.")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// One layer and what became of trying it.
#[derive(Debug, Serialize)]
struct Row {
    layer: &'static str,
    #[serde(flatten)]
    state: State,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
enum State {
    Ok {
        detail: String,
    },
    /// Another way is used here.
    NotNeeded {
        detail: String,
    },
    /// Jobs run, and this is not held on this host.
    Weak {
        detail: String,
        remedy: String,
    },
    Missing {
        detail: String,
        remedy: String,
    },
}

#[derive(Debug, Serialize)]
struct Report {
    native: bool,
    layers: Vec<Row>,
}

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    let mut layers = layers::examine();
    layers.extend(weak::examine());
    let job = whole::job();
    let native = matches!(job, State::Ok { .. });
    layers.push(Row { layer: "a whole job", state: job });
    let report = Report { native, layers };
    let printed = if args.json { output::json(&report) } else { output::lines(&text(&report)) };
    match printed {
        ExitCode::SUCCESS if !native => ExitCode::FAILURE,
        other => other,
    }
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.layers.iter().map(line).collect();
    lines.push(if report.native {
        "the native backend can run jobs here".to_owned()
    } else {
        "the native backend cannot run jobs here".to_owned()
    });
    lines.join("\n")
}

fn line(row: &Row) -> String {
    let (state, detail, remedy) = match &row.state {
        State::Ok { detail } => ("ok", detail, None),
        State::NotNeeded { detail } => ("-", detail, None),
        State::Weak { detail, remedy } => ("weak", detail, Some(remedy)),
        State::Missing { detail, remedy } => ("MISSING", detail, Some(remedy)),
    };
    let first = format!("{:<22} {state:<8} {detail}", row.layer);
    let remedy = remedy.filter(|text| !text.is_empty()).map(|text| format!("\n{:<31} to get it: {text}", ""));
    first.trim_end().to_owned() + &remedy.unwrap_or_default()
}
