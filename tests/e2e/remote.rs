//! Commands against a control plane that lies, fails, or goes away in the middle: what they say, how they exit, and what they never
//! send. The real one is tried in `serving.rs`.

pub(crate) mod scripted;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Done, World};
use scripted::{Answer, Asked, Scripted, answer, broken_off, problem};

const TOKEN: &str = "pond_api_0123456789abcdef0123456789abcdef_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const DOCUMENT: &str = "project: acme\nstages: []\n";

fn pond(world: &World, url: &str, arguments: &[&str]) -> Command {
    let mut command = world.pond(arguments);
    command.env("POND_URL", url).env("POND_TOKEN", TOKEN);
    command
}

fn run(world: &World, server: &Scripted, arguments: &[&str]) -> Done {
    Done::of(pond(world, &server.url(), arguments).output().unwrap())
}

fn error(done: &Done) -> Value {
    assert_eq!(done.code, 125, "{done:?}");
    let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    value["error"].clone()
}

fn lines(server: &Scripted) -> Vec<String> {
    server.asked().into_iter().map(|asked| asked.line).collect()
}

#[test]
fn nobody_answers() {
    let world = World::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let done = Done::of(pond(&world, &url, &["show", "r1"]).output().unwrap());
    let expected = format!(
        "pond: nothing answers at {url}: start a control plane with `pond up` or `pond serve`, or set POND_URL to the address of one [server_unreachable]\n"
    );
    assert_eq!(done, Done { code: 125, stdout: String::new(), stderr: expected });
    let done = Done::of(pond(&world, &url, &["show", "r1", "--json"]).output().unwrap());
    assert_eq!(error(&done)["code"], "server_unreachable");
}

#[test]
fn a_token_goes_to_its_own_server_alone() {
    let world = World::new();
    let [ours, other] =
        [(); 2].map(|()| Scripted::new(|_| answer(200, "application/json", r#"{"runs":[],"next":null}"#)));
    let with = |url: &str, arguments: &[&str], typed: &str| {
        let mut command = pond(&world, url, arguments);
        let child = command
            .env_remove("POND_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        Done::of(child.wait_with_output().unwrap())
    };
    let kept = with(&ours.url(), &["token", "save"], &format!("{TOKEN}\n"));
    assert_eq!(kept.code, 0, "{kept:?}");
    assert!(!format!("{kept:?}").contains(TOKEN), "{kept:?}");
    let listed = with(&ours.url(), &["runs"], "");
    assert_eq!((listed.code, listed.stdout.as_str()), (0, "no runs\n"), "{listed:?}");
    assert_eq!(ours.asked()[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    let elsewhere = with(&other.url(), &["runs"], "");
    assert!(elsewhere.code == 125 && elsewhere.stderr.contains("[no_token]"), "{elsewhere:?}");
    assert_eq!(other.asked(), Vec::<Asked>::new());
    let plain = Done::of(
        world.pond(&["runs", "--server", "http://192.0.2.1:7575"]).env("POND_TOKEN", TOKEN).output().unwrap(),
    );
    assert!(plain.code == 125 && plain.stderr.contains("[plain_http]"), "{plain:?}");
}

#[test]
fn what_the_server_refuses_is_told_whole_and_harmless() {
    let world = World::new();
    let cases = [
        (
            401,
            json!({ "code": "unauthenticated", "title": "No", "detail": "the token is unknown" }),
            "unauthenticated",
            "POND_TOKEN",
        ),
        (
            404,
            json!({ "code": "not_found", "title": "There is nothing here", "detail": "no run r1" }),
            "not_found",
            "no run r1",
        ),
        (
            422,
            json!({ "code": "key_reused", "title": "\u{1b}]52;c;eA==\u{7}\nforged" }),
            "key_reused",
            "\\u{1b}]52;c;eA==\\u{7}\\nforged",
        ),
    ];
    for (status, body, code, says) in cases {
        let shown = body.clone();
        let server = Scripted::new(move |_| problem(status, &shown));
        let done = run(&world, &server, &["show", "r1"]);
        assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
        assert!(done.stderr.contains(says) && done.stderr.ends_with(&format!("[{code}]\n")), "{done:?}");
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
        let told = error(&run(&world, &server, &["show", "r1", "--json"]));
        assert_eq!((told["code"].as_str(), told["status"].as_u64()), (Some(code), Some(status.into())));
    }
}

#[test]
fn what_is_no_answer_of_pond() {
    let world = World::new();
    let huge = || {
        let body = "x".repeat(17 << 20);
        answer(200, "application/json", format!("\"{body}\""))
    };
    type Case = (fn() -> Answer, &'static str);
    let cases: [Case; 5] = [
        (|| answer(200, "text/html", "<html>"), "answer_unreadable"),
        (|| answer(200, "application/json", "{}"), "answer_unreadable"),
        (|| answer(502, "text/html", "<html>"), "unexpected_status"),
        (|| b"SSH-2.0-OpenSSH\r\n".to_vec(), "server_gone"),
        (huge, "answer_unreadable"),
    ];
    for (script, code) in cases {
        let server = Scripted::new(move |_| script());
        let done = run(&world, &server, &["show", "r1", "--json"]);
        assert_eq!(error(&done)["code"], code, "{done:?}");
    }
}

#[test]
fn a_refused_document_sends_nothing_else() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let faults = json!([
        { "code": "missing_field", "path": "stages[0].executor", "message": "give it", "allowed": [] },
        { "code": "unknown_profile", "path": "stages[1]", "message": "no such profile", "allowed": ["review", "sealed"] },
    ]);
    let server = Scripted::new(move |_| {
        problem(
            422,
            &json!({ "code": "document_refused", "title": "x", "detail": "2 faults", "faults": faults }),
        )
    });
    let done = run(&world, &server, &["submit", "run.yaml"]);
    let expected = "fault    stages[0].executor  [missing_field]\n         give it\n\
                    fault    stages[1]  [unknown_profile]\n         no such profile\n         allowed: review, sealed\n\
                    refused: 2 faults, nothing was run\n";
    assert_eq!(done, Done { code: 125, stdout: String::new(), stderr: expected.to_owned() });
    assert_eq!(lines(&server), ["POST /v1/preflight HTTP/1.1"]);
    assert_eq!(String::from_utf8_lossy(&server.asked()[0].body), DOCUMENT);
    let told = error(&run(&world, &server, &["submit", "run.yaml", "--json"]));
    assert_eq!(told["faults"].as_array().map(Vec::len), Some(2));
}

/// Everything a submission asks, with a source of this hash.
fn accepting(asked: &Asked, sha256: &str) -> Answer {
    match asked.line.as_str() {
        "POST /v1/preflight HTTP/1.1" => {
            scripted::json(&json!({ "project": "acme", "stages": [], "warnings": [] }))
        }
        "POST /v1/sources?project=acme HTTP/1.1" => scripted::json(&json!({
            "source": "s1", "input_sha256": sha256, "bytes": asked.body.len(), "entries": 1,
        })),
        "POST /v1/runs HTTP/1.1" => scripted::json(&json!({ "run": "r1", "warnings": [] })),
        other => panic!("{other}"),
    }
}

#[test]
fn the_source_that_was_sent_is_the_one_that_is_kept() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let server = Scripted::new(|asked| accepting(asked, &"0".repeat(64)));
    let done = run(&world, &server, &["submit", "run.yaml"]);
    assert!(
        done.code == 125 && done.stderr.contains("another source than the one that was sent"),
        "{done:?}"
    );
    assert!(!lines(&server).iter().any(|line| line.contains("/v1/runs")), "{:?}", lines(&server));
    let sent = server.asked().into_iter().find(|asked| asked.line.contains("sources")).unwrap();
    assert!(String::from_utf8_lossy(&sent.body).contains(DOCUMENT), "the tree is in the request");
    let server = Scripted::new(|asked| accepting(asked, ""));
    let done = run(&world, &server, &["submit", "run.yaml", "--no-source"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "r1\n"), "{done:?}");
    assert_eq!(lines(&server), ["POST /v1/preflight HTTP/1.1", "POST /v1/runs HTTP/1.1"]);
    assert!(server.asked()[1].header("idempotency-key").is_some_and(|key| key.len() >= 16));
}

#[test]
fn a_source_with_keys_in_it_stays_here() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let server = Scripted::new(|asked| accepting(asked, ""));
    let above = world.project().parent().unwrap().display().to_string();
    let done = run(&world, &server, &["submit", "run.yaml", "--source", &above]);
    assert_eq!(done.code, 125, "{done:?}");
    assert!(!lines(&server).iter().any(|line| line.contains("sources")), "{done:?}: {:?}", lines(&server));
}

#[test]
fn a_source_that_is_too_large_is_refused_in_the_servers_words() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let server = Scripted::new(|asked| match asked.line.contains("sources") {
        true => problem(
            413,
            &json!({ "code": "body_too_large", "title": "x", "detail": "a source has at most 10 bytes" }),
        ),
        false => accepting(asked, ""),
    });
    let done = run(&world, &server, &["submit", "run.yaml"]);
    assert!(
        done.code == 125 && done.stderr.contains("a source has at most 10 bytes [body_too_large]"),
        "{done:?}"
    );
}

#[test]
fn an_answer_that_was_lost_makes_no_second_run() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let tries = AtomicUsize::new(0);
    let server = Scripted::new(move |asked| {
        if asked.line.contains("/v1/runs") && tries.fetch_add(1, Ordering::SeqCst) < 2 {
            return Vec::new();
        }
        accepting(asked, "")
    });
    let done = run(&world, &server, &["submit", "run.yaml", "--no-source"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "r1\n"), "{done:?}");
    let submitted: Vec<Asked> =
        server.asked().into_iter().filter(|asked| asked.line.contains("/v1/runs")).collect();
    assert_eq!(submitted.len(), 3);
    assert!(
        submitted
            .iter()
            .all(|asked| asked.header("idempotency-key") == submitted[0].header("idempotency-key"))
    );
    assert!(submitted.iter().all(|asked| asked.body == submitted[0].body));
}

#[test]
fn who_waits_to_submit_is_told_what_for() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let tries = AtomicUsize::new(0);
    let server = Scripted::new(move |asked| {
        if asked.line.contains("/v1/runs") && tries.fetch_add(1, Ordering::SeqCst) < 5 {
            let body = json!({"status": 503, "code": "unavailable", "detail": "the store is out of reach"});
            return problem(503, &body);
        }
        accepting(asked, "")
    });
    let done = run(&world, &server, &["submit", "run.yaml", "--no-source"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "r1\n"), "{done:?}");
    let said = "pond: the run is not taken yet: the store is out of reach [unavailable]; asking again, for ten minutes\n";
    assert_eq!(done.stderr.matches(said).count(), 1, "{done:?}");
}

fn event(id: u64, action: &str, stage: Option<&str>, detail: &Value) -> String {
    let data = json!({ "at": 1, "action": action, "stage": stage, "detail": detail });
    format!("id: {id}\ndata: {data}\n\n")
}

/// A run that fails with 7, whose events and output break off once each.
fn breaking(asked: &Asked) -> Answer {
    let target = asked.line.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let kind = "text/event-stream";
    match path {
        "/v1/preflight" | "/v1/runs" => accepting(asked, ""),
        "/v1/runs/r1/events" => match asked.header("last-event-id") {
            None => broken_off(kind, &[&event(3, "stage.running", Some("build"), &json!({}))]),
            Some("3") => {
                let ended =
                    event(4, "stage.ended", Some("build"), &json!({ "state": "failed", "reason": "exit 7" }));
                answer(200, kind, ended + &event(5, "run.ended", None, &json!({ "state": "failed" })))
            }
            Some(other) => panic!("{other}"),
        },
        "/v1/runs/r1/stages/build/logs" if query.contains("stream=stderr") => answer(200, "text/plain", ""),
        "/v1/runs/r1/stages/build/logs" if query.contains("offset=0") => {
            broken_off("text/plain", &["one\n", "tw"])
        }
        "/v1/runs/r1/stages/build/logs" if query.contains("offset=6") => answer(200, "text/plain", "o\n"),
        "/v1/runs/r1" => scripted::json(&failed()),
        // {"predicate":{"exitCode":7}}
        "/v1/runs/r1/stages/build/statement" => {
            scripted::json(&json!({ "payload": "eyJwcmVkaWNhdGUiOnsiZXhpdENvZGUiOjd9fQ==" }))
        }
        other => panic!("{other}?{query}"),
    }
}

fn failed() -> Value {
    let result = json!({ "job": "j1", "worker": "w1", "attempt": 1, "epoch": 1, "outcome": "failed",
        "statement_sha256": "0".repeat(64), "at": 2000, "standing": "single", "differs": [] });
    let stage = json!({ "id": "s1", "name": "build", "state": "failed", "reason": "exit 7", "code": "exit_code", "job": null, "ended_at": 2000,
        "results": [result] });
    json!({ "run": { "id": "r1", "project": "acme", "state": "failed", "cancel": null, "cancel_code": null, "open_stages": 0,
        "created_at": 500, "ended_at": 2000 }, "source": null, "stages": [stage], "budgets": [] })
}

#[test]
fn a_run_is_followed_over_broken_connections() {
    let world = World::new();
    world.write("run.yaml", DOCUMENT);
    let server = Scripted::new(breaking);
    let done = run(&world, &server, &["submit", "run.yaml", "--no-source", "--follow"]);
    let expected = "pond: run r1\npond: build runs\npond: build failed: exit 7\npond: r1 failed · 1.5 s\n\
                    pond: build failed: exit 7\npond: to have what it made: pond fetch r1 --out DIR\n";
    assert_eq!(done, Done { code: 7, stdout: "one\ntwo\n".to_owned(), stderr: expected.to_owned() });
    let done = run(&world, &server, &["logs", "-f", "r1"]);
    assert_eq!(done, Done { code: 0, stdout: "one\ntwo\n".to_owned(), stderr: String::new() });
    let done = run(&world, &server, &["submit", "run.yaml", "--no-source", "--follow", "--json"]);
    let told: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    assert_eq!((done.code, &told["exit_code"], &told["stages"]), (7, &json!(7), &failed()["stages"]));
}

#[test]
fn what_had_ended_is_not_said_to_be_cancelled() {
    let world = World::new();
    let server = Scripted::new(|_| scripted::json(&failed()));
    let done = run(&world, &server, &["cancel", "r1"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "r1 had ended before: failed\n"), "{done:?}");
}

#[test]
fn a_waiting_stage_says_why() {
    let world = World::new();
    let why = "no worker offers sandbox.gvisor in pool:trusted";
    let mut waiting = failed();
    waiting["run"]["state"] = json!("active");
    waiting["stages"][0] = json!({ "id": "s1", "name": "build", "state": "queued", "reason": why, "code": "no_worker", "ended_at": null,
        "job": { "id": "j1", "attempt": 1, "worker": null, "epoch": 0 }, "results": [] });
    let server = Scripted::new(move |_| scripted::json(&waiting));
    let done = run(&world, &server, &["show", "r1"]);
    assert_eq!(done.code, 0, "{done:?}");
    let row: Vec<&str> = done
        .stdout
        .lines()
        .last()
        .unwrap()
        .split("  ")
        .filter(|cell| !cell.is_empty())
        .map(str::trim)
        .collect();
    assert_eq!(row, ["build", "queued", "1", "-", &format!("{why} [no_worker]")], "{done:?}");
    let done = run(&world, &server, &["explain", "r1"]);
    let told = format!("build queued: {why}\n    why       no_worker\n");
    assert!(done.code == 0 && done.stdout.contains(&told), "{done:?}");
}

#[test]
fn a_secret_is_neither_argument_nor_answer() {
    let world = World::new();
    let server = Scripted::new(|_| answer(204, "text/plain", ""));
    let mut child = pond(&world, &server.url(), &["secret", "set", "api-key", "--project", "acme"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hunter2-of-acme\n").unwrap();
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(
        done,
        Done { code: 0, stdout: "api-key is stored for project acme\n".to_owned(), stderr: String::new() }
    );
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "PUT /v1/credentials/api-key?project=acme HTTP/1.1");
    assert_eq!(serde_json::from_slice::<Value>(&asked.body).unwrap(), json!({ "value": "hunter2-of-acme" }));
    for argument in ["hunter2-of-acme", "--value=hunter2-of-acme"] {
        let done = run(&world, &server, &["secret", "set", "api-key", argument]);
        assert_eq!(done.code, 125, "a value is no argument: {done:?}");
    }
    let nothing = run(&world, &server, &["secret", "set", "api-key"]);
    assert!(nothing.code == 125 && nothing.stderr.contains("nothing came"), "{nothing:?}");
}

/// A name that would lead elsewhere is a name all the same.
#[test]
fn names_do_not_lead_elsewhere() {
    let world = World::new();
    let server = Scripted::new(|_| problem(404, &json!({ "code": "not_found", "title": "x" })));
    run(&world, &server, &["show", "../../v1/tokens?x"]);
    run(&world, &server, &["logs", "r1", ".."]);
    let asked = lines(&server);
    assert_eq!(asked[0], "GET /v1/runs/..%2F..%2Fv1%2Ftokens%3Fx HTTP/1.1");
    assert!(
        asked[1..].iter().all(|line| line.starts_with("GET /v1/runs/r1/stages/%2E%2E/logs?stream=std")),
        "{asked:?}"
    );
}
