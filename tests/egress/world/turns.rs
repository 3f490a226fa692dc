//! A model that works: asked for anything by an agent, it has it write one file with the agent's own tool, and says that
//! all is done once the agent reports back. Each API answers as an event stream, as the providers do.

use std::sync::Arc;

use serde_json::{Value, json};

use super::http::Reply;
use super::log::Request;
use super::models::{json_reply, named, unnamed};
use super::servers::Handler;

/// What the model writes, and where.
pub(crate) const FILE: &str = "made.txt";
pub(crate) const TEXT: &str = "made by the model\n";
/// What it says in the end.
pub(crate) const DONE: &str = "All done.";

/// Whichever API it is asked in.
pub(crate) fn worker() -> Handler {
    Arc::new(|request: &Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let path = request.target.split('?').next().unwrap_or_default();
        match path {
            "/v1/messages" => messages(&body),
            "/v1/responses" => responses(&body),
            "/v1/chat/completions" => chat(&body),
            "/v1/messages/count_tokens" => json_reply(&json!({ "input_tokens": 500 })),
            "/v1/models" => json_reply(&json!({ "object": "list", "data": [] })),
            _ if path.ends_with(":streamGenerateContent") => gemini(&body),
            _ if path.ends_with(":countTokens") => json_reply(&json!({ "totalTokens": 500 })),
            _ => Reply::not_found(),
        }
    })
}

fn arguments(path: &str) -> Value {
    json!({ path: format!("/workspace/{FILE}"), "content": TEXT })
}

fn messages(body: &Value) -> Reply {
    let reported = body["messages"].to_string().contains("\"tool_result\"");
    let block = match reported {
        true => json!({ "type": "text", "text": "" }),
        false => json!({ "type": "tool_use", "id": "toolu_1", "name": "Write", "input": {} }),
    };
    let delta = match reported {
        true => json!({ "type": "text_delta", "text": DONE }),
        false => json!({ "type": "input_json_delta", "partial_json": arguments("file_path").to_string() }),
    };
    let reason = if reported { "end_turn" } else { "tool_use" };
    named(&[
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant",
            "model": body["model"], "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": 100, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop" }),
    ])
}

fn responses(body: &Value) -> Reply {
    let reported = body["input"].to_string().contains("\"custom_tool_call_output\"");
    let patch = format!("*** Begin Patch\n*** Add File: {FILE}\n+{TEXT}*** End Patch\n");
    let call = json!({ "type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "apply_patch",
        "input": patch, "status": "completed" });
    let message = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": DONE, "annotations": [] }] });
    let item = if reported { message } else { call };
    let kind = if reported { "response.output_text.delta" } else { "response.custom_tool_call_input.delta" };
    let delta = if reported { DONE } else { patch.as_str() };
    let usage = json!({ "input_tokens": 100, "output_tokens": 20, "total_tokens": 120 });
    named(&[
        json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress" } }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": { "type": item["type"] } }),
        json!({ "type": kind, "output_index": 0, "delta": delta }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": "resp_1", "status": "completed",
            "output": [item], "usage": usage } }),
    ])
}

fn chat(body: &Value) -> Reply {
    let reported = body["messages"].to_string().contains("\"role\":\"tool\"");
    let chunk = |delta: Value, end: Option<&str>| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] });
    let call = |part: Value| chunk(json!({ "tool_calls": [part] }), None);
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 } });
    let chunks = match reported {
        true => {
            vec![chunk(json!({ "role": "assistant", "content": DONE }), None), chunk(json!({}), Some("stop"))]
        }
        false => vec![
            call(
                json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "write", "arguments": "" } }),
            ),
            call(json!({ "index": 0, "function": { "arguments": arguments("filePath").to_string() } })),
            chunk(json!({}), Some("tool_calls")),
        ],
    };
    unnamed(&[chunks, vec![usage]].concat(), "data: [DONE]\n\n")
}

/// To an agent that has no tools, the file is a block of text.
fn gemini(body: &Value) -> Reply {
    let contents = body["contents"].to_string();
    let part = match (
        body.get("tools"),
        contents.contains("\"functionResponse\"") || contents.contains("SEARCH"),
    ) {
        (_, true) => json!({ "text": DONE }),
        (Some(_), false) => {
            json!({ "functionCall": { "name": "write_file", "args": arguments("file_path") } })
        }
        (None, false) => {
            json!({ "text": format!("{FILE}\n```\n<<<<<<< SEARCH\n=======\n{TEXT}>>>>>>> REPLACE\n```\n") })
        }
    };
    let usage = json!({ "promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120 });
    unnamed(
        &[
            json!({ "candidates": [{ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 }],
            "usageMetadata": usage }),
        ],
        "",
    )
}
