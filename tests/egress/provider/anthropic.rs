//! Requests of the Messages API, and answers of a provider that is broken, hostile, careless or just odd.

use std::time::Duration;

use super::post;
use super::row::{Bill, Row};
use crate::broker::REAL_KEY;
use crate::world::http::Reply;
use crate::world::log::Request;

const KEY: &str = "x-api-key: {KEY}\r\n";

pub(crate) fn rows() -> Vec<Row> {
    [refused(), failed(), passed_on(), metered(), unmetered(), at_the_ceiling()]
        .into_iter()
        .flatten()
        .collect()
}

/// A request with these further fields.
fn ask(fields: &str) -> String {
    ask_with("", fields)
}

fn ask_with(headers: &str, fields: &str) -> String {
    let body = format!(
        r#"{{"model":"claude-haiku-4-5","max_tokens":50,"metadata":{{"user_id":"{{ROW}}"}}{fields},"messages":[]}}"#
    );
    post("/v1/messages", &format!("{KEY}{headers}"), &body)
}

fn stream() -> String {
    ask(r#","stream":true"#)
}

fn refused() -> Vec<Row> {
    let row = |case, what: &str, status, fields: &str| Row::refused(case, what, status, ask(fields));
    let deep = format!(r#","x":{}1{}"#, "[".repeat(10_000), "]".repeat(10_000));
    let with_mark = |call: String| call.replacen("{\"model\"", "\u{ef}\u{bb}\u{bf}{\"model\"", 1);
    vec![
        row(104, "a body over the cap", 413, r#","x":"{PAD}""#),
        row(106, "two models", 400, r#","model":"claude-haiku-4-5""#),
        row(106, "two limits", 400, r#","max_tokens":51"#),
        row(106, "depth", 400, &deep),
        row(106, "a number beyond numbers", 400, r#","x":1e999"#),
        row(106, "bytes that are no text", 400, ",\"x\":\"\u{ff}\""),
        Row::refused(106, "a byte order mark", 400, with_mark(ask(""))),
        row(111, "a dearer tier", 403, r#","service_tier":"priority""#),
        row(111, "a dearer speed", 403, r#","speed":"fast""#),
        row(111, "a dearer place", 403, r#","inference_geo":"us""#),
    ]
}

/// Answers of which nothing is passed on.
fn failed() -> Vec<Row> {
    let redirect = Reply::Whole {
        status: 307,
        headers: vec![("location", "https://evil.pondworld.net/take".to_owned())],
        body: Vec::new(),
    };
    let packed = Reply::Whole {
        status: 200,
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("content-encoding", "gzip".to_owned()),
        ],
        body: b"PACKED".to_vec(),
    };
    let broken = |what: &str, head: &str| {
        let reply = Reply::Raw(format!("{head}\r\n\r\nrelayed").into_bytes());
        Row::answered(118, what, ask(""), reply).sees(502, &[" pond: "], &["relayed"])
    };
    let many = format!("HTTP/1.1 200 OK{}", "\r\nx: y".repeat(200));
    vec![
        Row::answered(114, "a redirect", ask(""), redirect)
            .sees(502, &[" pond: "], &["evil"])
            .control(307, &["location: https://evil.pondworld.net/take"])
            .billed(Bill::Nothing),
        broken("status 099", "HTTP/1.1 099 Odd").control(99, &["relayed"]),
        broken("status 1000", "HTTP/1.1 1000 Odd").control(100, &["relayed"]),
        broken("a header with a NUL", "HTTP/1.1 200 OK\r\nx: a\0b").control(200, &["relayed"]),
        broken("a header with half a line end", "HTTP/1.1 200 OK\r\nx: a\rset-cookie: b")
            .control(200, &["relayed"]),
        broken("200 headers", &many).control(200, &["relayed"]),
        Row::answered(121, "an answer nobody asked to be packed", ask(""), packed)
            .sees(502, &[" pond: ", "upstream_encoded"], &["PACKED"])
            .control(200, &["PACKED"])
            .billed(Bill::Estimate),
    ]
}

/// Answers of which everything but secrets is passed on.
fn passed_on() -> Vec<Row> {
    let whole = |status, headers: &[(&'static str, &str)], body: &str| Reply::Whole {
        status,
        headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        body: body.as_bytes().to_vec(),
    };
    let echo = |request: &Request| {
        let key = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-api-key"));
        let key = key.map(|(_, value)| value.clone()).unwrap_or_default();
        let headers = vec![("content-type", "text/plain".to_owned()), ("request-id", key.clone())];
        Reply::Whole { status: 401, headers, body: format!("no such key: {key} or {}", &key[12..22]).into() }
    };
    let parts: Vec<&str> = (0..REAL_KEY.len() - 8).map(|start| &REAL_KEY[start..start + 8]).collect();
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let report = r#"{"usage":{"input_tokens":10,"output_tokens":5}}"#;
    let talkative = [
        ("content-type", "application/json"),
        ("set-cookie", "session=1"),
        ("anthropic-organization-id", "org"),
        ("retry-after", "7"),
        ("request-id", "req_1"),
    ];
    vec![
        Row::answered(115, "an error that quotes the key", ask(""), whole(401, &[], ""))
            .by(echo)
            .sees(401, &["no such key: ***"], &parts)
            .control(401, &[REAL_KEY])
            .billed(Bill::Nothing),
        Row::answered(116, "headers about the account", ask(""), whole(200, &talkative, report))
            .sees(200, &["retry-after: 7\r\n", "request-id: req_1\r\n", report], &["ookie", "organization"])
            .control(200, &["set-cookie: session=1", "anthropic-organization-id: org"])
            .billed(Bill::Output(5)),
        Row::answered(117, "an error, once and in its own words", ask(""), whole(529, &talkative, error))
            .sees(529, &[error], &["pond: "])
            .control(529, &[error])
            .billed(Bill::Nothing),
        Row::answered(131, "too many requests, relayed once", ask(""), whole(429, &talkative, error))
            .sees(429, &[error, "retry-after: 7\r\n"], &[])
            .control(429, &[error])
            .billed(Bill::Nothing),
    ]
}

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn delta(tokens: &str) -> String {
    format!(r#"{{"type":"message_delta","usage":{{"output_tokens":{tokens}}}}}"#)
}

fn events(data: &[&str]) -> Vec<u8> {
    data.iter().flat_map(|data| format!("data: {data}\n\n").into_bytes()).collect()
}

fn streamed(case: u8, what: &str, data: &[&str], bill: Bill) -> Row {
    let bytes = events(data);
    let reply = Reply::Events(vec![(Duration::ZERO, bytes.clone())]);
    Row::answered(case, what, stream(), reply).sees_body(bytes).billed(bill)
}

/// Streams with a report, however it is wrapped: the control is a meter that reads what it likes.
fn metered() -> Vec<Row> {
    let odd = format!(
        "event: message_start\r\ndata:{START}\r\n\r\n: ping\n\nevent: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\ndata: \"delta\":{{\"text\":\"h\u{e9}llo\"}}}}\n\ndata: {}\r\rdata: {STOP}\n\n",
        delta("7")
    );
    let odd = odd.into_bytes();
    let middle = odd.iter().position(|byte| *byte == 0xC3).unwrap() + 1;
    let pieces = [&odd[..9], &odd[9..middle], &odd[middle..]];
    let pieces = pieces.map(|piece| (Duration::from_millis(20), piece.to_vec())).to_vec();
    let fake = r#"{"type":"content_block_delta","usage":{"output_tokens":888},"delta":{"text":"\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":999999}}\n\ndata: [DONE]\n\n"}}"#;
    vec![
        Row::answered(119, "every legal spelling of a stream", stream(), Reply::Events(pieces))
            .sees_body(odd)
            .control(200, &["data:{\"type\":\"message_start\""])
            .billed(Bill::Output(7)),
        streamed(122, "counts that grow", &[START, &delta("5"), &delta("9"), STOP], Bill::Output(9))
            .control(200, &["\"output_tokens\":5}", "\"output_tokens\":9}"]),
        streamed(
            126,
            "a report in the model's own words",
            &[START, fake, &delta("5"), STOP],
            Bill::Output(5),
        )
        .control(200, &["999999", "\"output_tokens\":888"]),
        streamed(127, "counts that fall", &[START, &delta("50"), &delta("2"), STOP], Bill::Output(50))
            .control(200, &["\"output_tokens\":2}"]),
    ]
}

/// Calls without a report one could believe cost what they could have cost.
fn unmetered() -> Vec<Row> {
    let error = r#"{"type":"error","error":{"type":"overloaded_error"}}"#;
    let text = r#"{"type":"content_block_delta","delta":{"text":"shown"}}"#;
    let document = |what: &str, usage: &str| {
        let body = format!(r#"{{"usage":{usage}}}"#);
        Row::answered(127, what, ask(""), Reply::ok("application/json", body.clone()))
            .sees(200, &[&body], &[])
            .control(200, &[&body])
            .billed(Bill::Estimate)
    };
    let slow = Reply::Events((0..200).map(|_| (Duration::from_millis(50), events(&[START]))).collect());
    let leaving = ask_with("X-Leaves: now\r\n", r#","stream":true"#);
    vec![
        streamed(124, "no last event", &[START, text], Bill::Estimate).control(200, &["shown"]),
        streamed(124, "an error after the beginning", &[START, text, error], Bill::Estimate)
            .control(200, &["shown"]),
        document("a negative count", r#"{"input_tokens":10,"output_tokens":-5}"#),
        document("half a token", r#"{"input_tokens":10,"output_tokens":1.5}"#),
        document("a count in words", r#"{"input_tokens":10,"output_tokens":"12"}"#),
        document("a count beyond counting", r#"{"input_tokens":10,"output_tokens":9223372036854775808}"#),
        document("no count", "null"),
        Row::answered(123, "a client that leaves", leaving, slow)
            .moot("whoever leaves sees nothing either way")
            .billed(Bill::Estimate),
    ]
}

/// The last of a run, since nothing is left afterwards.
fn at_the_ceiling() -> Vec<Row> {
    let flood = format!(r#"{{"type":"content_block_delta","delta":{{"text":"{}"}}}}"#, "E".repeat(40_000));
    let data: Vec<&str> = [START].into_iter().chain([flood.as_str(); 20]).chain([STOP]).collect();
    let reply = Reply::Events(data.iter().map(|data| (Duration::ZERO, events(&[data]))).collect());
    vec![
        Row::answered(129, "a stream that goes on past the ceiling", stream(), reply)
            .sees(200, &["event: error\n", "permission_error"], &["message_stop"])
            .control(200, &["message_stop"])
            .billed(Bill::Estimate),
        Row::refused(130, "a request after that", 403, ask("")),
    ]
}
