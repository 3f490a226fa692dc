//! Agent command lines from checkout to patch: the model is called through the broker, a file is written with the agent's own
//! tool, the patch holds it, and the real key is nowhere but upstream.
//!
//! `agent.py` stands for five of them, with the requests they were seen to send; Claude Code comes in person too.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::broker::REAL_KEY;
use crate::rules::files_below;
use crate::world::log::Request;
use crate::world::models::{ANTHROPIC, GEMINI, OPENAI};
use crate::world::sides::tool;
use crate::world::turns::{self, DONE, FILE, TEXT};
use crate::world::{Done, Plan, World, source};

/// As `xtask/src/test/packages.rs` installs it.
const CLAUDE_CODE: &str = "claude-code-2.1.87";

/// An agent, the model it is given, and what it hears when it asks for more than the broker serves.
pub(crate) struct Row {
    agent: &'static str,
    api: &'static str,
    host: &'static str,
    id: &'static str,
    key_header: &'static str,
    pub(crate) aside: &'static [u16],
}

pub(crate) const CLAUDE: Row = Row {
    agent: "claude",
    api: "anthropic",
    host: ANTHROPIC,
    id: "claude-sonnet-4-5",
    key_header: "x-api-key",
    aside: &[200, 403, 403],
};

pub(crate) fn world(row: &Row) -> World {
    let handlers = [(row.host.to_owned(), turns::worker())].into();
    let world = World::new(Plan { handlers, ..Plan::default() });
    let (ca, Row { api, host, id, .. }) = (world.authority.certificate(), row);
    let model = format!("[model.main]\napi = {api:?}\nupstream = \"https://{host}\"\nca_file = {ca:?}\n");
    let file = format!("{model}credential = \"env:REAL_KEY\"\nmodels = [{id:?}]\n");
    std::fs::write(world.operator_file(), file).unwrap();
    world
}

fn run(world: &World, command: &[&str]) -> Done {
    let words = [&["run", "--quiet", "--model", "main", "--max-cost-cents", "200", "--"], command].concat();
    let mut pond = world.pond(&words);
    pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY);
    Done::of(pond.output().unwrap())
}

/// The loop is closed: the patch holds the file and nothing else, and the model's host saw the real key in its place and
/// in no other, while nothing that pond wrote holds it.
fn check(world: &World, row: &Row, done: &Done) -> Vec<Request> {
    let (agent, files) = (row.agent, files_below(&world.state().join("runs")));
    let holds = |content: &[u8]| content.windows(REAL_KEY.len()).any(|window| window == REAL_KEY.as_bytes());
    let holders: Vec<&String> =
        files.iter().filter(|(_, content)| holds(content)).map(|(name, _)| name).collect();
    assert_eq!(holders, Vec::<&String>::new(), "{agent}: these hold the key");
    assert!(!holds(done.stdout.as_bytes()) && !holds(done.stderr.as_bytes()), "{agent}: {done:?}");
    let patch = files.iter().find(|(name, _)| name.ends_with("/changes.patch"));
    let patch = patch.map(|(_, content)| String::from_utf8_lossy(content).into_owned()).unwrap_or_default();
    let changed: Vec<&str> = patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
    assert_eq!(changed, [FILE], "{agent}: {patch} {done:?}");
    assert!(patch.ends_with(&format!("+{TEXT}")), "{agent}: {patch}");
    check_upstream(world, row)
}

/// What the model's host was asked, each time with the key where it belongs and nowhere else.
pub(crate) fn check_upstream(world: &World, row: &Row) -> Vec<Request> {
    let agent = row.agent;
    let holds = |content: &[u8]| content.windows(REAL_KEY.len()).any(|window| window == REAL_KEY.as_bytes());
    let requests: Vec<Request> =
        world.log.requests().into_iter().filter(|request| request.host == row.host).collect();
    for request in &requests {
        let keys: Vec<(String, &str)> = request
            .headers
            .iter()
            .filter(|(_, value)| value.contains(REAL_KEY))
            .map(|(name, value)| (name.to_lowercase(), value.trim_start_matches("Bearer ")))
            .collect();
        assert_eq!(keys, [(row.key_header.to_owned(), REAL_KEY)], "{agent}: {}", request.target);
        assert!(!holds(&request.body), "{agent}: {}", request.target);
    }
    requests
}

fn fake(row: &Row) {
    let world = world(row);
    let program = world.project().join(row.agent);
    world.write(row.agent, source("agent.py"));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let done = run(&world, &[&format!("./{}", row.agent), "write a file"]);
    let told: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let expected = json!({ "said": DONE, "aside": row.aside, "telemetry": "403", "key_in": [] });
    assert_eq!((done.code, told), (0, expected), "{}: {done:?}", row.agent);
    let requests = check(&world, row, &done);
    let turns =
        requests.iter().filter(|request| String::from_utf8_lossy(&request.body).contains("write a file"));
    assert!(turns.count() >= 2, "{}: a question and a report: {requests:?}", row.agent);
}

#[test]
fn as_claude_code() {
    fake(&CLAUDE);
}

#[test]
fn as_codex() {
    fake(&Row {
        agent: "codex",
        api: "openai",
        host: OPENAI,
        id: "gpt-5.6-sol",
        key_header: "authorization",
        aside: &[200, 403, 403],
    });
}

#[test]
fn as_gemini_cli() {
    fake(&Row {
        agent: "gemini",
        api: "gemini",
        host: GEMINI,
        id: "gemini-2.5-pro",
        key_header: "x-goog-api-key",
        aside: &[200, 403],
    });
}

#[test]
fn as_opencode() {
    fake(&Row {
        agent: "opencode",
        api: "openai-chat",
        host: OPENAI,
        id: "gpt-4o-mini",
        key_header: "authorization",
        aside: &[200, 403],
    });
}

#[test]
fn as_aider() {
    fake(&Row {
        agent: "aider",
        api: "gemini",
        host: GEMINI,
        id: "gemini-2.5-pro",
        key_header: "x-goog-api-key",
        aside: &[],
    });
}

/// Unmodified, from npm; a copy of it lies in the checkout, under an ignore rule.
#[test]
fn claude_code_itself() {
    let installed = installed(CLAUDE_CODE);
    let world = world(&CLAUDE);
    world.write(".gitignore", "/agent/\n");
    let copied = tool("cp").arg("--recursive").arg(installed).arg(world.project().join("agent")).output();
    assert!(copied.as_ref().unwrap().status.success(), "{copied:?}");
    let done = run(&world, &["agent/node_modules/.bin/claude", "-p", "write a file"]);
    assert_eq!((done.code, done.stdout.trim()), (0, DONE), "{done:?}");
    let requests = check(&world, &CLAUDE, &done);
    let turns = requests.iter().filter(|request| request.target == "/v1/messages?beta=true");
    assert_eq!(turns.count(), 2, "{requests:?}");
}

fn installed(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/xtask").join(name);
    assert!(place.join("node_modules/.bin").exists(), "run `cargo xtask test --only packages` first");
    place
}
