//! Answers of the commands that only decide: JSON or text on standard output, and the exit code that goes with it.

use std::io::{ErrorKind, Write, stderr, stdout};
use std::process::ExitCode;

use pond_policy::refusal::Refusals;
use pond_wire::contract;
use serde::Serialize;

use crate::failure::code_of;

/// pond refused or failed, and nothing ran.
pub(crate) const REFUSED: u8 = 125;

pub(crate) fn json(answer: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(answer) {
        Ok(text) => lines(&text),
        Err(_) => ExitCode::from(REFUSED),
    }
}

pub(crate) fn refused_json(refusals: Refusals) -> ExitCode {
    json(&contract::Refusals::from(refusals));
    ExitCode::from(REFUSED)
}

/// A reader that has seen enough is no failure; anything else that keeps the answer from its reader is.
pub(crate) fn lines(text: &str) -> ExitCode {
    let mut out = stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(REFUSED),
    }
}

/// A line for the person who watches. One who cannot be told keeps nothing from going on.
pub(crate) fn say(line: &str) {
    if let Err(_deaf) = writeln!(stderr().lock(), "{line}") {}
}

/// A refusal with every fault: an object for a machine, a line each for a person.
pub(crate) fn refused(refusals: Refusals, as_json: bool) -> ExitCode {
    if as_json {
        return refused_json(refusals);
    }
    say(&faults(refusals));
    ExitCode::from(REFUSED)
}

fn faults(refusals: Refusals) -> String {
    let list = refusals.into_list();
    let faults = if list.len() == 1 { "fault" } else { "faults" };
    let mut text = String::new();
    for refusal in &list {
        text += &format!("fault    {}  [{}]\n         {}\n", refusal.path, refusal.code, refusal.message);
        if !refusal.allowed.is_empty() {
            text += &format!("         allowed: {}\n", refusal.allowed.join(", "));
        }
    }
    text + &format!("refused: {} {faults}, nothing was run", list.len())
}

/// Columns as wide as their widest cell; the last is as long as it is. No cell can break out of its line.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows: Vec<[String; N]> = [header.map(str::to_owned)]
        .into_iter()
        .chain(rows.into_iter().map(|row| row.map(|cell| plain(&cell))))
        .collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One line, whatever names got into it: what a terminal would obey or reorder is shown by number.
pub(crate) fn plain(text: &str) -> String {
    let is_tricky = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_tricky(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// A failure before or instead of a result: words for a person, and for a program its code too.
pub(crate) fn failed(fault: &anyhow::Error, as_json: bool) -> ExitCode {
    if as_json {
        return failed_with(code_of(fault), fault, as_json);
    }
    say(&format!("pond: {}", plain(&format!("{fault:#}"))));
    ExitCode::from(REFUSED)
}

/// A failure whose advice has lines of its own, none of them from outside.
pub(crate) fn told(fault: &anyhow::Error) -> ExitCode {
    format!("pond: {fault:#}").lines().for_each(|line| say(&plain(line)));
    ExitCode::from(REFUSED)
}

/// The same for one that has a stable code.
pub(crate) fn failed_with(code: &str, fault: &anyhow::Error, as_json: bool) -> ExitCode {
    if as_json {
        json(&serde_json::json!({ "error": { "code": code, "message": format!("{fault:#}") } }));
    } else {
        say(&format!("pond: {} [{code}]", plain(&format!("{fault:#}"))));
    }
    ExitCode::from(REFUSED)
}
