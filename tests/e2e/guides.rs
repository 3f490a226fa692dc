//! What the guides show is what pond says: every block marked `<!-- tested -->` is run as it is written, one guide after the
//! other, each in a project of its own with the files that the guide names and `docs/examples`.
//!
//! A line of the guide that is `…` alone stands for any number of lines, and `…` in a line for anything. Names of runs, times,
//! sizes and places differ from one run to the next and are not compared.

use std::path::{Path, PathBuf};

use crate::support::World;

const GUIDES: [&str; 5] =
    ["sandbox-a-run.md", "run-document.md", "configuration.md", "budgets.md", "verify.md"];
const TESTED: &str = "<!-- tested -->";
/// Before a block that is a file of the guide's project.
const FILE: &str = "<!-- file: ";
/// Printed before each command's output.
const MARK: &str = "@@@@@@";

/// One command and what the guide says it prints.
#[derive(Debug, Default)]
struct Shown {
    command: String,
    output: Vec<String>,
}

#[derive(Debug, Default)]
struct Guide {
    files: Vec<(String, String)>,
    /// Commands of one block share a shell.
    blocks: Vec<Vec<Shown>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(text: &str) -> Guide {
    let (mut guide, mut lines) = (Guide::default(), text.lines());
    while let Some(line) = lines.next() {
        let name = line.strip_prefix(FILE).and_then(|rest| rest.strip_suffix(" -->"));
        if line != TESTED && name.is_none() {
            continue;
        }
        let fence = lines.next().unwrap();
        assert!(fence.starts_with("```"), "a mark stands before a block: {fence}");
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match name {
            Some(name) => guide.files.push((name.to_owned(), body.join("\n") + "\n")),
            None => guide.blocks.push(commands(&body)),
        }
    }
    guide
}

fn commands(body: &[&str]) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for line in body {
        match line.strip_prefix("$ ") {
            Some(command) => shown.push(Shown { command: command.to_owned(), ..Shown::default() }),
            None => shown.last_mut().unwrap().output.push((*line).to_owned()),
        }
    }
    shown
}

/// A name pond gave, a place or a figure is any other.
fn plain(line: &str) -> String {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &str| ["ms", "s", "KiB", "MiB"].contains(&word.trim_end_matches(','));
    let plain = |at: usize| {
        let word = words[at];
        let (before, after) = (at.checked_sub(1).map_or("", |at| words[at]), words.get(at + 1));
        let lengths: Vec<usize> = word.trim_end_matches([',', ':']).split('-').map(str::len).collect();
        match word {
            _ if lengths == [8, 6, 9] => "RUN",
            word if word.starts_with('/') => "PLACE",
            word if is_number(word) && after.is_some_and(|after| is_unit(after)) => "N",
            word if is_unit(word) && is_number(before) => "UNIT",
            word => word,
        }
    };
    (0..words.len()).map(plain).collect::<Vec<_>>().join(" ")
}

fn fits(shown: &str, said: &str) -> bool {
    let (shown, said) = (plain(shown), plain(said));
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = said.strip_prefix(first) else { return false };
    let mut is_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        is_open = part.is_empty();
    }
    rest.is_empty() || is_open
}

/// Whether these lines are what is shown.
fn match_lines(shown: &[String], said: &[&str]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((line, later)) if line.trim() == "…" => {
            (0..=said.len()).any(|skipped| match_lines(later, &said[skipped..]))
        }
        Some((line, later)) => {
            said.split_first().is_some_and(|(first, rest)| fits(line, first) && match_lines(later, rest))
        }
    }
}

/// Each command's own lines, with the exit code of the one before it in `$?`.
fn script(block: &[Shown]) -> String {
    let pond = Path::new(env!("CARGO_BIN_EXE_pond")).parent().unwrap().display().to_string();
    let mut script = format!("PATH={pond}:$PATH; exec 2>&1; status=0\n");
    for Shown { command, .. } in block {
        script += &format!("echo {MARK}; (exit $status); {command}\nstatus=$?\n");
    }
    script
}

#[test]
fn the_guides_say_what_pond_says() {
    for name in GUIDES {
        let guide = read(&std::fs::read_to_string(root().join("docs").join(name)).unwrap());
        assert!(!guide.blocks.is_empty(), "{name} shows nothing that is tried");
        let world = World::new();
        let copied =
            world.host_shell(&format!("mkdir docs && cp -r {}/docs/examples docs/", root().display()));
        assert_eq!(copied.code, 0, "{copied:?}");
        guide.files.iter().for_each(|(file, content)| world.write(file, content));
        for block in guide.blocks {
            let said = world.host_shell(&script(&block)).stdout;
            let parts: Vec<&str> = said.split(&format!("{MARK}\n")).skip(1).collect();
            assert_eq!(parts.len(), block.len(), "{name}: {said}");
            for (shown, said) in block.iter().zip(parts) {
                let lines: Vec<&str> = said.lines().collect();
                let (command, output) = (&shown.command, shown.output.join("\n"));
                assert!(
                    match_lines(&shown.output, &lines),
                    "{name}: $ {command}\nthe guide shows:\n{output}\npond says:\n{said}"
                );
            }
        }
    }
}

#[test]
fn only_what_may_differ_is_not_compared() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same = |guide: &str, said: &str| match_lines(&shown(guide), &said.lines().collect::<Vec<_>>());
    assert!(same("a … c", "a b c") && same("a …", "a b c") && !same("a … c", "a b d"));
    assert!(same("a\n…\nd", "a\nb\nc\nd") && same("…", "") && !same("a\n…\nd", "a\nb\nc"));
    assert!(same("exit 0 · 3 ms · /a/b", "exit 0 · 4.5 ms · /c") && !same("exit 0 · 3 ms", "exit 1 · 3 ms"));
    assert!(same("applied 20261115-232317-02da733d5", "applied 20261116-000000-000000000"));
    assert!(!same("a", "a\nb") && !same("a\nb", "a"));
}
