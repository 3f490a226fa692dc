//! Whoever reaches a control plane's port without being asked: slow, oversized, cut off, malformed, without a token, with somebody
//! else's. Each is told so as a problem with a code, within a bounded time, and each refusal is in the audit log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serving::Serving;

/// Longer than any patience of a server's, on any machine.
const BOUND: Duration = Duration::from_secs(120);

#[expect(clippy::disallowed_methods, reason = "a test dials the server it started")]
fn connect(serving: &Serving) -> TcpStream {
    let stream = TcpStream::connect(serving.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

/// Sends these bytes at once, then one of `rest` now and then, until the server has had enough; what it answered.
fn dribble(serving: &Serving, first: &str, rest: u8) -> String {
    let (mut stream, since) = (connect(serving), Instant::now());
    stream.write_all(first.as_bytes()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let answered = std::thread::spawn(move || {
        let mut answer = Vec::new();
        // A connection that is reset after its answer has answered all the same.
        reader.read_to_end(&mut answer).unwrap_or_default();
        String::from_utf8_lossy(&answer).into_owned()
    });
    while !answered.is_finished() && stream.write_all(&[rest]).is_ok() {
        assert!(since.elapsed() < BOUND, "still listening after {BOUND:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    answered.join().unwrap()
}

fn code(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(answer.contains("application/problem+json"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    let body: Value = serde_json::from_str(body.trim()).unwrap_or_else(|fault| panic!("{fault}: {answer}"));
    (status, body["code"].as_str().unwrap().to_owned())
}

fn send(serving: &Serving, request: &str, body: &[u8]) -> (u16, String) {
    let mut stream = connect(serving);
    stream.write_all(request.as_bytes()).unwrap();
    // Who is refused early is not read to the end.
    stream.write_all(body).unwrap_or_default();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap_or_default();
    code(&String::from_utf8_lossy(&answer))
}

/// Codes in the audit log, sorted.
fn written(serving: &Serving) -> Vec<(String, String)> {
    let bearer = &serving.token;
    let mut stream = connect(serving);
    let head = format!(
        "GET /v1/audit?limit=200 HTTP/1.1\r\nhost: pond\r\nconnection: close\r\nauthorization: Bearer {bearer}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let page: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let refused =
        page["entries"].as_array().unwrap().iter().filter(|entry| entry["action"] == "request.refused");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut codes: Vec<_> =
        refused.map(|entry| (text(&entry["subject"]), text(&entry["detail"]["code"]))).collect();
    codes.sort();
    codes
}

#[test]
fn who_dribbles_is_let_go_in_time() {
    let serving = Serving::start();
    let token = &serving.token;
    let api = format!(
        "POST /v1/preflight HTTP/1.1\r\nhost: pond\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 100000\r\n\r\n"
    );
    let (head, body, orch) = std::thread::scope(|scope| {
        let head = scope.spawn(|| dribble(&serving, "GET /healthz HTTP/1.1\r\nx: ", b'x'));
        let body = scope.spawn(|| dribble(&serving, &api, b' '));
        let orch = "POST /orch/poll HTTP/1.1\r\nhost: pond\r\ncontent-length: 60000\r\n\r\n";
        let orch = scope.spawn(|| dribble(&serving, orch, b' '));
        (head.join().unwrap(), body.join().unwrap(), orch.join().unwrap())
    });
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "no head, no answer: {head}");
    assert_eq!(code(&body), (408, "request_timeout".to_owned()));
    assert_eq!(code(&orch), (408, "body_late".to_owned()));
    let expected = [("/orch/poll", "body_late"), ("POST /v1/preflight", "request_timeout")];
    assert_eq!(written(&serving), expected.map(|(whom, code)| (whom.to_owned(), code.to_owned())));
}

#[test]
fn what_nobody_asked_for_is_refused_by_name_and_written_down() {
    let serving = Serving::start();
    let post = |path: &str, more: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: pond\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n"
        )
    };
    let get = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: pond\r\nconnection: close\r\n{more}\r\n")
    };
    let made = serving.json(&["token", "create", "--scope", "runs:read", "--project", "acme", "--json"]);
    let limited = format!("authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let json = format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", serving.token);
    let huge = vec![b' '; 3 << 20];
    let answers = [
        send(&serving, &post("/orch/poll", "", huge.len()), &huge),
        send(&serving, &post("/orch/poll", "", 2), b"{}"),
        send(&serving, &post("/orch/enroll", "", 1), b"{"),
        send(&serving, &post("/v1/runs", &json, huge.len()), &huge),
        send(&serving, &post("/v1/runs", &json, 1), b"{"),
        send(&serving, &get("/v1/runs", ""), b""),
        send(&serving, &get("/metrics", ""), b""),
        send(&serving, &get("/v1/workers", &limited), b""),
        send(&serving, &get("/v1/runs?project=other", &limited), b""),
        send(&serving, &get("/relay/feed", &limited), b""),
    ];
    let expected = [
        (413, "body_too_large"),
        (401, "request_head_malformed"),
        (400, "body_malformed"),
        (413, "body_too_large"),
        (400, "malformed"),
        (401, "unauthenticated"),
        (401, "unauthenticated"),
        (403, "scope_missing"),
        (403, "project_forbidden"),
        (401, "unauthenticated"),
    ];
    assert_eq!(answers, expected.map(|(status, code)| (status, code.to_owned())));
    let mut codes: Vec<String> = written(&serving).into_iter().map(|(_, code)| code).collect();
    let mut all = expected.map(|(_, code)| code.to_owned());
    codes.sort();
    all.sort();
    assert_eq!(codes, all);
}

/// One that is cut off in the middle of its body was no request, and leaves nothing.
#[test]
fn who_hangs_up_is_no_trouble() {
    let serving = Serving::start();
    for path in ["/v1/runs", "/orch/complete", "/v1/sources?project=acme"] {
        let mut stream = connect(&serving);
        let token = &serving.token;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: pond\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: 5000\r\n\r\n{{\"document\""
        );
        stream.write_all(head.as_bytes()).unwrap();
        drop(stream);
    }
    assert_eq!(serving.json(&["runs", "--json"]), Value::Array(Vec::new()));
}
