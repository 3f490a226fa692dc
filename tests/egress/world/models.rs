//! Model providers as far as a client can tell: each answers the calls of its API with JSON or an event stream, and the log
//! holds every header it was sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::Reply;
use super::log::Request;
use super::servers::Handler;

pub(crate) const ANTHROPIC: &str = "api.anthropic.com";
pub(crate) const OPENAI: &str = "api.openai.com";
pub(crate) const GEMINI: &str = "generativelanguage.googleapis.com";

/// Between two events of a stream.
const PACE: Duration = Duration::from_millis(20);

/// All three providers, each saying `hello`, with these token counts.
pub(crate) fn providers(input: u64, output: u64) -> HashMap<String, Handler> {
    let handler = |work: fn(&Request, u64, u64) -> Reply| -> Handler {
        Arc::new(move |request: &Request| work(request, input, output))
    };
    HashMap::from([
        (ANTHROPIC.to_owned(), handler(anthropic)),
        (OPENAI.to_owned(), handler(openai)),
        (GEMINI.to_owned(), handler(gemini)),
    ])
}

fn streams(request: &Request) -> bool {
    serde_json::from_slice::<Value>(&request.body).is_ok_and(|body| body["stream"] == true)
}

pub(super) fn json_reply(body: &Value) -> Reply {
    Reply::ok("application/json", body.to_string())
}

/// Events with a name each, as a stream.
pub(super) fn named(events: &[Value]) -> Reply {
    let text =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    Reply::Events(events.iter().map(|event| (PACE, text(event).into_bytes())).collect())
}

pub(super) fn unnamed(events: &[Value], last: &str) -> Reply {
    let texts = events.iter().map(|event| format!("data: {event}\n\n")).chain([last.to_owned()]);
    Reply::Events(texts.map(|text| (PACE, text.into_bytes())).collect())
}

fn anthropic(request: &Request, input: u64, output: u64) -> Reply {
    let usage = json!({ "input_tokens": input, "output_tokens": output });
    match request.target.split('?').next() {
        Some("/v1/messages") if streams(request) => named(&[
            json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant",
                "content": [], "usage": { "input_tokens": input, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "hello" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": usage }),
            json!({ "type": "message_stop" }),
        ]),
        Some("/v1/messages") => json_reply(&json!({ "id": "msg_1", "type": "message", "role": "assistant",
            "content": [{ "type": "text", "text": "hello" }], "stop_reason": "end_turn", "usage": usage })),
        Some("/v1/messages/count_tokens") => json_reply(&json!({ "input_tokens": input })),
        _ => Reply::not_found(),
    }
}

fn openai(request: &Request, input: u64, output: u64) -> Reply {
    let response = json!({ "id": "resp_1", "object": "response", "status": "completed",
        "usage": { "input_tokens": input, "output_tokens": output, "total_tokens": input + output } });
    let usage =
        json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
    match request.target.as_str() {
        "/v1/responses" if streams(request) => named(&[
            json!({ "type": "response.created", "response": { "id": "resp_1" } }),
            json!({ "type": "response.output_text.delta", "delta": "hello" }),
            json!({ "type": "response.completed", "response": response }),
        ]),
        "/v1/responses" => json_reply(&response),
        "/v1/chat/completions" if streams(request) => unnamed(
            &[
                json!({ "choices": [{ "index": 0, "delta": { "content": "hello" } }], "usage": null }),
                json!({ "choices": [], "usage": usage }),
            ],
            "data: [DONE]\n\n",
        ),
        "/v1/chat/completions" => json_reply(
            &json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": "hello" } }], "usage": usage }),
        ),
        _ => Reply::not_found(),
    }
}

fn gemini(request: &Request, input: u64, output: u64) -> Reply {
    let chunk = json!({ "candidates": [{ "content": { "parts": [{ "text": "hello" }], "role": "model" } }],
        "usageMetadata": { "promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output } });
    if request.target.contains(":streamGenerateContent") {
        return unnamed(&[chunk.clone(), chunk], "");
    }
    if request.target.contains(":generateContent") { json_reply(&chunk) } else { Reply::not_found() }
}
