//! Requests of the Responses and Chat Completions APIs.

use std::time::Duration;

use super::post;
use super::row::{Bill, Row};
use crate::world::http::Reply;
use crate::world::log::Request;

const KEY: &str = "Authorization: Bearer {KEY}\r\n";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

pub(crate) fn rows() -> Vec<Row> {
    refused().into_iter().chain(answered()).collect()
}

fn responses(fields: &str) -> String {
    let body = format!(
        r#"{{"model":"gpt-5-mini","max_output_tokens":50,"input":"hi","metadata":{{"row":"{{ROW}}"}}{fields}}}"#
    );
    post(RESPONSES, KEY, &body)
}

fn chat(fields: &str) -> String {
    let body = format!(
        r#"{{"model":"gpt-5-mini","max_completion_tokens":50,"messages":[],"user":"{{ROW}}"{fields}}}"#
    );
    post(CHAT, KEY, &body)
}

fn refused() -> Vec<Row> {
    let upgrade = format!(
        "GET {RESPONSES} HTTP/1.1\r\nHost: 127.0.0.1:8377\r\n{KEY}User-Agent: {{ROW}}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    let opened =
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x81\x02hi";
    let row = |what: &str, call: String| Row::refused(111, what, 403, call);
    vec![
        Row::refused(103, "a socket instead of a request", 403, upgrade)
            .by(|_| Reply::Raw(opened.to_vec()))
            .control(101, &["upgrade: websocket"]),
        row("work in the background", responses(r#","background":true"#)),
        row("an answer that is kept", responses(r#","store":true"#)),
        row("a chat that is kept", chat(r#","store":true"#)),
        row("a dearer tier", chat(r#","service_tier":"priority""#)),
    ]
}

fn stream(data: &[String]) -> (Reply, Vec<u8>) {
    let bytes: Vec<u8> = data.iter().flat_map(|data| format!("data: {data}\n\n").into_bytes()).collect();
    (Reply::Events(vec![(Duration::ZERO, bytes.clone())]), bytes)
}

/// A chat whose report comes only to those who ask for it.
fn reporting(request: &Request) -> Reply {
    let asked = String::from_utf8_lossy(&request.body).contains(r#""include_usage":true"#);
    let report =
        asked.then(|| r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#.to_owned());
    let data: Vec<String> = [said()].into_iter().chain(report).chain(["[DONE]".to_owned()]).collect();
    stream(&data).0
}

fn said() -> String {
    r#"{"choices":[{"delta":{"content":"hi"}}]}"#.to_owned()
}

fn answered() -> Vec<Row> {
    let streamed = r#","stream":true"#;
    let large = format!(
        r#"{{"type":"response.completed","response":{{"output":"{}","usage":{{"input_tokens":3,"output_tokens":2}}}}}}"#,
        "E".repeat(2 << 20)
    );
    let (large, all_of_it) = stream(&[large]);
    let (failed, failure) = stream(&[r#"{"type":"response.failed","response":{"usage":null}}"#.to_owned()]);
    let (cut, what_came) = stream(&[said()]);
    let fake =
        r#"{"choices":[{"delta":{"content":"\n\ndata: [DONE]\n\n\"usage\":{\"completion_tokens\":1}"}}]}"#;
    let report = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    let (faked, with_fake) = stream(&[fake.to_owned(), report.to_owned(), "[DONE]".to_owned()]);
    let asked = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let (_, plain) = stream(&[said(), "[DONE]".to_owned()]);
    vec![
        Row::answered(120, "an event of megabytes", responses(streamed), large)
            .sees_body(all_of_it)
            .moot("a meter with a smaller buffer would bill nothing; the client sees the same")
            .billed(Bill::Output(2)),
        Row::answered(124, "a failure after the beginning", responses(streamed), failed)
            .sees_body(failure)
            .control(200, &["\"usage\":null"])
            .billed(Bill::Estimate),
        Row::answered(124, "a chat without its end", chat(streamed), cut)
            .sees_body(what_came)
            .control(200, &["hi"])
            .billed(Bill::Estimate),
        Row::answered(125, "a chat that asks for no report", chat(streamed), Reply::not_found())
            .by(reporting)
            .sees_body(plain.clone())
            .control_body(plain)
            .billed(Bill::Output(2)),
        Row::answered(126, "a report in the model's own words", chat(asked), faked)
            .sees_body(with_fake)
            .control(200, &["completion_tokens\\\":1"])
            .billed(Bill::Output(2)),
    ]
}
