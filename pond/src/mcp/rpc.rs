//! JSON-RPC 2.0 as the Model Context Protocol uses it: one message in, at most one out.
//!
//! Invariants: whatever comes in ends in an answer, a silence that the protocol asks for, or an error with a code; a version that is
//! not known is answered with the newest that is; nothing of a message is repeated but its id and the names it uses.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{catalogue, tools};
use crate::client::server::Server;
use crate::output::plain;

/// Versions of the protocol this speaks, newest first. They differ in nothing that is used here.
pub(super) const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

const INSTRUCTIONS: &str = "Sandboxes that last, confined: full permission inside, none outside. Create one, run programs in it with \
                            exec, move files with read_file and write_file, delete it when done. The host's network is never \
                            reachable from a sandbox.";

/// A message, as far as it matters. What an answer of ours was answered with is none of our business.
#[derive(Debug, Deserialize)]
struct Message {
    jsonrpc: Option<String>,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Called {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

/// What is said to a message; nothing to a notification.
pub(super) async fn answer(server: &Server, bytes: &[u8]) -> Option<Value> {
    let message: Message = match serde_json::from_slice::<Value>(bytes) {
        Err(_) => return Some(failed(&Value::Null, PARSE_ERROR, "not JSON")),
        Ok(value) => match serde_json::from_value(value) {
            Err(_) => {
                return Some(failed(
                    &Value::Null,
                    INVALID_REQUEST,
                    "not a message of JSON-RPC 2.0; batches are not taken",
                ));
            }
            Ok(message) => message,
        },
    };
    let good_id = message.id.as_ref().is_none_or(|id| id.is_string() || id.is_i64() || id.is_u64());
    if message.jsonrpc.as_deref() != Some("2.0") || !good_id {
        return Some(failed(&Value::Null, INVALID_REQUEST, "not a message of JSON-RPC 2.0"));
    }
    // Without an id it is a notification, without a method an answer: neither is answered.
    let (id, method) = (message.id?, message.method?);
    Some(match method.as_str() {
        "initialize" => done(&id, initialized(message.params.as_ref())),
        "ping" => done(&id, json!({})),
        "tools/list" => done(&id, json!({"tools": catalogue::tools()})),
        "tools/call" => call(server, &id, message.params).await,
        other => failed(&id, METHOD_NOT_FOUND, &format!("no method {}", shown(other))),
    })
}

async fn call(server: &Server, id: &Value, params: Option<Value>) -> Value {
    let called: Result<Called, _> = serde_json::from_value(params.unwrap_or(Value::Null));
    let Ok(Called { name, arguments }) = called else {
        return failed(id, INVALID_PARAMS, "tools/call takes name and arguments");
    };
    match tools::call(server, &name, arguments.unwrap_or_else(|| json!({}))).await {
        None => failed(id, INVALID_PARAMS, &format!("no tool {}", shown(&name))),
        Some(Ok(result)) => done(id, said(&result, false)),
        Some(Err(why)) => done(id, said(&Value::String(why), true)),
    }
}

/// A tool's result: text for a model that reads, the value itself for a program.
fn said(result: &Value, is_error: bool) -> Value {
    let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
    let mut said = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
    if let (Some(fields), true) = (said.as_object_mut(), result.is_object()) {
        fields.insert("structuredContent".to_owned(), result.clone());
    }
    said
}

fn initialized(params: Option<&Value>) -> Value {
    let asked = params.and_then(|params| params.get("protocolVersion")).and_then(Value::as_str);
    let version = VERSIONS.iter().find(|version| Some(**version) == asked).or(VERSIONS.first());
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "pond", "version": env!("CARGO_PKG_VERSION")},
        "instructions": INSTRUCTIONS,
    })
}

fn done(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn failed(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn shown(name: &str) -> String {
    plain(&name.chars().take(64).collect::<String>())
}

/// What somebody hears who brought no good token.
pub(super) fn not_allowed(why: &str) -> Value {
    failed(&Value::Null, INVALID_REQUEST, why)
}

#[cfg(test)]
mod tests {
    //! What is said to each kind of message, without a server: none of these gets so far.
    use super::*;
    use crate::client::address::Address;

    fn ask(message: &str) -> Option<Value> {
        let server =
            Server::new(Address::parse("http://127.0.0.1:1").unwrap(), String::new().into(), None).unwrap();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(answer(&server, message.as_bytes()))
    }

    #[test]
    fn a_known_version_is_spoken_and_another_is_answered_with_the_newest() {
        let version = |asked: &str| {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked}});
            ask(&message.to_string()).unwrap()["result"]["protocolVersion"].as_str().unwrap().to_owned()
        };
        for known in VERSIONS {
            assert_eq!(version(known), known);
        }
        assert_eq!(version("1999-01-01"), VERSIONS[0]);
    }

    #[test]
    fn notifications_and_answers_are_not_answered() {
        for message in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            assert_eq!(ask(message), None, "{message}");
        }
    }

    #[test]
    fn what_is_no_message_is_an_error_with_a_code() {
        for (message, code) in [
            ("{", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            ("1", INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#, METHOD_NOT_FOUND),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, INVALID_PARAMS),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}"#, INVALID_PARAMS),
        ] {
            assert_eq!(ask(message).unwrap()["error"]["code"], code, "{message}");
        }
        let odd = ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\u001b[2J\"}").unwrap().to_string();
        assert!(!odd.contains("u001b["), "{odd}");
    }

    #[test]
    fn arguments_are_held_to_the_tool_s_own() {
        let bad = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"sandbox":"a","command":["x"],"root":true}}}"#;
        let reply = ask(bad).unwrap();
        assert_eq!(reply["result"]["isError"], true, "{reply}");
    }
}
