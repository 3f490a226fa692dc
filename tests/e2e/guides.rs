//! What the guides show is what pond says: every block marked `<!-- tested -->` is run as it is written, one guide after the
//! other, each in a project of its own with the files that the guide names and `docs/examples`, all of it in one shell.
//!
//! A line of the guide that is `…` alone stands for any number of lines, and `…` in a line for anything. Names of runs, times,
//! sizes and places differ from one run to the next and are not compared. In a block of `sh` every line has to succeed, whatever it
//! says. Some guides need something that runs: a control plane, whose address, token and newest run stand where the guide has
//! `http://127.0.0.1:7575`, `pond_api_…` and `RUN` or `run_…`; or an engine of the test's own.

use std::path::{Path, PathBuf};

use crate::containers::daemon::Daemon;
use crate::serving::Serving;
use crate::support::World;

const GUIDES: [&str; 4] = ["sandbox-a-run.md", "run-document.md", "configuration.md", "verify.md"];
/// Where `pond up` runs.
const SERVED: [&str; 9] = [
    "runs.md",
    "api.md",
    "secrets.md",
    "audit.md",
    "mcp.md",
    "workers.md",
    "budgets.md",
    "metrics.md",
    "sandboxes.md",
];
/// What is stored as a secret there.
const KEY: &str = "sk-nothing-0123456789";
const TESTED: &str = "<!-- tested -->";
/// Before a block that is a file of the guide's project.
const FILE: &str = "<!-- file: ";
/// Printed before each command's output.
const MARK: &str = "@@@@@@";
/// Printed after it, before its exit code.
const CODE: &str = "@@exit@@";

/// One command and what the guide says it prints.
#[derive(Debug, Default)]
struct Shown {
    command: String,
    /// Nothing where only its success counts.
    output: Option<Vec<String>>,
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
            None if fence == "```sh" => guide.blocks.push(lines_of(&body)),
            None => guide.blocks.push(commands(&body)),
        }
    }
    guide
}

/// A session: what is typed, perhaps on several lines, and what is said.
fn commands(body: &[&str]) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for line in body {
        match (line.strip_prefix("$ "), shown.last_mut()) {
            (Some(command), _) => {
                shown.push(Shown { command: command.to_owned(), output: Some(Vec::new()) });
            }
            (None, Some(last)) if last.command.ends_with(['|', '\\']) => {
                last.command += &format!("\n{line}");
            }
            (None, last) => last.unwrap().output.as_mut().unwrap().push((*line).to_owned()),
        }
    }
    shown
}

/// A script, line by line.
fn lines_of(body: &[&str]) -> Vec<Shown> {
    let typed = body.iter().filter(|line| !line.trim().is_empty());
    typed.map(|line| Shown { command: (*line).to_owned(), output: None }).collect()
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

/// Each command's own lines, with the exit code of the one before it in `$?`, and what it exited with.
fn script(guide: &Guide, before: &str) -> String {
    let pond = Path::new(env!("CARGO_BIN_EXE_pond")).parent().unwrap().display().to_string();
    let mut script = format!("PATH={pond}:$PATH; exec 2>&1; status=0\n");
    for Shown { command, .. } in guide.blocks.iter().flatten() {
        script +=
            &format!("{before}\necho {MARK}; (exit $status); {command}\nstatus=$?; echo {CODE}$status\n");
    }
    script
}

/// Runs a guide by way of a shell in its project.
fn walk(name: &str, world: &World, before: &str, adapt: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let mut guide = read(&text);
    assert!(!guide.blocks.is_empty(), "{name} shows nothing that is tried");
    let copied = world.host_shell(&format!("mkdir docs && cp -r {}/docs/examples docs/", root().display()));
    assert_eq!(copied.code, 0, "{copied:?}");
    guide.files.iter().for_each(|(file, content)| world.write(file, content));
    for shown in guide.blocks.iter_mut().flatten() {
        shown.command = adapt(&shown.command);
    }
    let said = world.host_shell(&script(&guide, before)).stdout;
    let parts: Vec<&str> = said.split(&format!("{MARK}\n")).skip(1).collect();
    let shown: Vec<&Shown> = guide.blocks.iter().flatten().collect();
    assert_eq!(parts.len(), shown.len(), "{name}: {said}");
    for (shown, said) in shown.into_iter().zip(parts) {
        let (said, code) = said.trim_end().rsplit_once(CODE).unwrap();
        let (command, lines) = (&shown.command, said.lines().collect::<Vec<_>>());
        match &shown.output {
            None => assert_eq!(code, "0", "{name}: $ {command}\npond says:\n{said}"),
            Some(output) => assert!(
                match_lines(output, &lines),
                "{name}: $ {command}\nthe guide shows:\n{}\npond says:\n{said}",
                output.join("\n")
            ),
        }
    }
}

#[test]
fn the_guides_say_what_pond_says() {
    for name in GUIDES {
        walk(name, &World::new(), "", str::to_owned);
    }
}

/// The newest run, for whatever asks for one.
const NEWEST: &str = r#"RUN=$(pond runs --remote --json 2>/dev/null | grep -o 'run_[0-9a-f]*' | head -n 1)"#;

#[test]
fn the_guides_of_a_control_plane_say_what_pond_says() {
    for name in SERVED {
        let serving = Serving::start_in(World::new(), &["up"]);
        assert_eq!(serving.run(&["project", "create", "acme"]).code, 0);
        serving.world.write("key.txt", KEY);
        let before = format!("export POND_URL={} POND_TOKEN={}; {NEWEST}", serving.url, serving.token);
        let adapt = |command: &str| {
            let command = command.replace("http://127.0.0.1:7575", &serving.url);
            let command = command.replace("pond_api_…", &serving.token).replace("run_…", "$RUN");
            let words = command.split(' ').map(|word| if word == "RUN" { "$RUN" } else { word });
            words.collect::<Vec<_>>().join(" ")
        };
        walk(name, &serving.world, &before, adapt);
    }
}

#[test]
fn the_guide_to_containers_says_what_pond_says() {
    let (daemon, world) = (Daemon::start(), World::new());
    walk("containers.md", &world, &format!("export DOCKER_HOST={}", daemon.address()), str::to_owned);
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
