//! `pond doctor`: what this host can enforce, layer by layer, found out by doing it.
//!
//! Each layer is tried in a process that is thrown away, on files made for the purpose. Then a whole job runs through every backend:
//! if it runs and is where it should be, that backend is here, whatever the rows above say.

mod backends;
mod layers;
mod weak;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::output;

use backends::Backends;

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    #[serde(flatten)]
    backends: Backends,
}

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    let backends = match backends::look() {
        Ok(backends) => backends,
        Err(fault) => return output::failed(&fault, args.json),
    };
    let [job, internet] = backends.native();
    let native = matches!(job, State::Ok { .. });
    let mut layers = layers::examine();
    layers.extend(weak::examine());
    layers.push(Row { layer: "internet posture", state: internet });
    layers.push(Row { layer: "a whole job", state: job });
    let report = Report { native, layers, backends };
    let printed = if args.json { output::json(&report) } else { output::lines(&text(&report)) };
    match printed {
        ExitCode::SUCCESS if !native => ExitCode::FAILURE,
        other => other,
    }
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.layers.iter().map(line).collect();
    let backends = report.backends.lines();
    lines.extend(backends.iter().map(|line| spelled(&line.name, line.state, &line.detail, &line.remedy)));
    lines.push(format!("this host offers {}", report.backends.offered()));
    lines.push(if report.native {
        "the native backend can run jobs here".to_owned()
    } else {
        "the native backend cannot run jobs here".to_owned()
    });
    lines.join("\n")
}

fn line(row: &Row) -> String {
    let (state, detail, remedy) = match &row.state {
        State::Ok { detail } => ("ok", detail, ""),
        State::NotNeeded { detail } => ("-", detail, ""),
        State::Weak { detail, remedy } => ("weak", detail, remedy.as_str()),
        State::Missing { detail, remedy } => ("MISSING", detail, remedy.as_str()),
    };
    spelled(row.layer, state, detail, remedy)
}

fn spelled(name: &str, state: &str, detail: &str, remedy: &str) -> String {
    let first = format!("{name:<22} {state:<8} {detail}");
    let indent = format!("\n{:<31} to get it: ", "");
    let remedy = if remedy.is_empty() { String::new() } else { indent + remedy };
    first.trim_end().to_owned() + &remedy
}
