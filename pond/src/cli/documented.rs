//! Every command and every flag that a document or an advice names is one: whoever follows it gets no usage error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// Flags of other programs that documents show by themselves.
const FOREIGN: [&str; 4] = ["--check", "--max-old-space-size", "--network", "--runsc"];
/// Processes of pond's own, which nobody types.
const INTERNAL: [&str; 2] = ["pond job", "pond waiter"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The documents of a user, and the code that tells people what to do.
fn texts() -> Vec<(PathBuf, String)> {
    let guides = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let guides = guides.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let others = ["README.md", "pond/src/remote/explain.rs"].map(|name| root().join(name));
    guides.chain(others).map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// What stands between backticks on one line, and what is typed at a prompt.
fn spans(text: &str) -> Vec<String> {
    let inline = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
    inline.chain(typed).map(|span| span.replace("\\|", "|")).collect()
}

fn has(command: &Command, flag: &str) -> bool {
    let name = flag.trim_start_matches('-');
    name == "help" || name == "version" || command.get_arguments().any(|known| known.get_long() == Some(name))
}

/// A flag without its value and whatever ends the sentence around it.
fn flag_of(word: &str) -> Option<&str> {
    let word = word.trim_start_matches(['[', '(']);
    let end = word.find(|char: char| !char.is_ascii_lowercase() && char != '-').unwrap_or(word.len());
    word.get(..end).filter(|flag| flag.starts_with("--") && flag.len() > 2)
}

/// What of a line that begins with `pond` is not pond's.
fn unknown(line: &str) -> Option<String> {
    let mut commands = vec![Cli::command()];
    for word in line.split(' ').skip(1).take_while(|word| *word != "--" && *word != "|") {
        if let Some(flag) = flag_of(word) {
            let is_known = commands.iter().any(|command| has(command, flag));
            if !is_known {
                return Some(flag.to_owned());
            }
            continue;
        }
        let is_name = word.chars().all(|char| char.is_ascii_lowercase() || char == '|');
        let wanted = commands.iter().any(Command::has_subcommands);
        if !is_name || !wanted || word.is_empty() {
            continue;
        }
        let found = |name: &str| commands.iter().find_map(|command| command.find_subcommand(name)).cloned();
        let next: Option<Vec<Command>> = word.split('|').map(found).collect();
        match next {
            Some(next) => commands = next,
            None => return Some(word.to_owned()),
        }
    }
    None
}

fn every_flag(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|known| known.get_long()).map(|name| format!("--{name}"));
    own.chain(command.get_subcommands().flat_map(every_flag)).collect()
}

#[test]
fn what_documents_and_advice_name_is_there() {
    let flags = every_flag(&Cli::command());
    let (mut faults, mut seen) = (Vec::new(), 0_usize);
    for (path, text) in texts() {
        for span in spans(&text) {
            let fault = match flag_of(&span) {
                Some(flag) => (!flags.contains(flag) && !FOREIGN.contains(&flag)).then(|| flag.to_owned()),
                None if INTERNAL.contains(&span.as_str()) => continue,
                None if span.starts_with("pond ") => unknown(&span),
                None => continue,
            };
            seen += 1;
            faults.extend(fault.map(|fault| format!("{}: {fault} in `{span}`", path.display())));
        }
    }
    assert!(faults.is_empty() && seen > 200, "{seen}: {faults:#?}");
}

#[test]
fn what_is_not_there_is_noticed() {
    assert_eq!(unknown("pond run --profile p -- tool --flag"), None);
    assert_eq!(unknown("pond worker token --tier byo"), None);
    assert_eq!(unknown("pond worker run --slots 4"), Some("--slots".to_owned()));
    assert_eq!(unknown("pond worker runs"), Some("runs".to_owned()));
    assert_eq!(unknown("pond sandbox create|exec|forget"), Some("create|exec|forget".to_owned()));
}
