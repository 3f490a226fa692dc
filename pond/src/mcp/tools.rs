//! The six tools, and the calls of the API each of them is.
//!
//! Invariants: arguments are read whole and strictly; output is bounded, and says so where it was cut; a program is waited for as
//! long as its own time limit, and then ended.

use std::collections::BTreeMap;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use http::Method;
use pond_wire::api::{self, ExecState, MOST_FILE_BYTES, OutputStream, SandboxState};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::body::Content;
use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;

/// What of each stream a tool's result holds.
const MOST_OUTPUT: usize = 64 << 10;
/// How long a program may take that nobody gave a limit; clients give up on a tool some time.
const USUAL_SECONDS: u32 = 120;
pub(super) const MOST_SECONDS: u32 = 3600;
/// How long a new sandbox is waited for.
const UNTIL_READY: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const USUAL_PROFILE: &str = "untrusted-code-internet";

/// A tool's result, or why there is none, in words for who called it.
type Outcome = Result<Value, String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    id: Option<String>,
    profile: Option<String>,
    document: Option<Value>,
    project: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    sandbox: String,
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    sandbox: String,
    path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    sandbox: String,
    path: String,
    text: Option<String>,
    base64: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    cursor: Option<String>,
    label: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    sandbox: String,
}

/// What the tool of this name says; nothing if there is none.
pub(super) async fn call(server: &Server, name: &str, arguments: Value) -> Option<Outcome> {
    Some(match name {
        "create" => create(server, arguments).await,
        "exec" => exec(server, arguments).await,
        "read_file" => read_file(server, arguments).await,
        "write_file" => write_file(server, arguments).await,
        "list" => list(server, arguments).await,
        "delete" => delete(server, arguments).await,
        _ => return None,
    })
}

pub(super) fn arguments<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|fault| format!("the arguments are not this tool's: {fault}"))
}

async fn create(server: &Server, given: Value) -> Outcome {
    let Create { id, profile, document, project } = arguments(given)?;
    let document = match (document, profile) {
        (Some(_), Some(_)) => return Err("give document or profile, not both".to_owned()),
        (Some(Value::String(text)), None) if id.is_none() => Value::String(text),
        (Some(Value::Object(mut fields)), None) => {
            fields.extend(id.map(|id| ("id".to_owned(), Value::from(id))));
            Value::Object(fields)
        }
        (Some(_), None) => return Err("document: an object, or text without a separate id".to_owned()),
        (None, profile) => {
            let profile = profile.unwrap_or_else(|| USUAL_PROFILE.to_owned());
            let mut fields = json!({"sandbox": {"profile": profile}});
            if let (Some(fields), Some(id)) = (fields.as_object_mut(), id) {
                fields.insert("id".to_owned(), id.into());
            }
            fields
        }
    };
    let mut body = json!({"document": document});
    if let (Some(fields), Some(project)) = (body.as_object_mut(), project) {
        fields.insert("project".to_owned(), project.into());
    }
    let made: api::SandboxView = send(server, Method::POST, Target::new(&["sandboxes"]), Some(&body)).await?;
    let view = wait(server, made, |state| !state.is_moving()).await?;
    match view.state {
        SandboxState::Ready => shown(&view),
        SandboxState::Pending
        | SandboxState::Stopped
        | SandboxState::Failed
        | SandboxState::Deleting
        | SandboxState::Deleted => {
            Err(format!("the sandbox {} is {}: {}", view.id, view.state.name(), view.reason))
        }
    }
}

/// The sandbox once it is where it should be, or as it is when that takes too long.
async fn wait(
    server: &Server,
    mut view: api::SandboxView,
    is_there: fn(SandboxState) -> bool,
) -> Result<api::SandboxView, String> {
    let waiting = async {
        while !is_there(view.state) {
            tokio::time::sleep(LOOK_AGAIN).await;
            view = get(server, Target::new(&["sandboxes", &view.id])).await?;
        }
        Ok::<(), String>(())
    };
    match tokio::time::timeout(UNTIL_READY, waiting).await {
        Ok(waited) => waited?,
        Err(_late) => {}
    }
    Ok(view)
}

async fn exec(server: &Server, given: Value) -> Outcome {
    let Exec { sandbox, command, env, cwd, timeout_seconds } = arguments(given)?;
    let seconds = timeout_seconds.unwrap_or(USUAL_SECONDS);
    if !(1..=MOST_SECONDS).contains(&seconds) {
        return Err(format!("timeout_seconds: 1 to {MOST_SECONDS}"));
    }
    let body = api::NewExec { command, env, cwd, timeout_seconds: Some(seconds) };
    let execs = Target::new(&["sandboxes", &sandbox, "execs"]);
    let mut view: api::ExecView = send(server, Method::POST, execs, Some(&body)).await?;
    let number = view.id.to_string();
    let at = || Target::new(&["sandboxes", &sandbox, "execs", &number]);
    while view.state == ExecState::Running {
        tokio::time::sleep(LOOK_AGAIN).await;
        view = get(server, at()).await?;
    }
    let mut said = json!({"exec": view.id, "exit_code": view.exit_code, "ended_by": view.ended_by});
    for (stream, bytes) in
        [(OutputStream::Stdout, view.stdout_bytes), (OutputStream::Stderr, view.stderr_bytes)]
    {
        let name = match stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        let (text, cut) = output(server, &sandbox, &number, name, bytes).await?;
        if let Some(fields) = said.as_object_mut() {
            fields.insert(name.to_owned(), text.into());
            fields.insert(format!("{name}_truncated"), (cut || view.truncated).into());
        }
    }
    Ok(said)
}

/// The end of a stream, which says how it came out, and whether something is missing before it.
async fn output(
    server: &Server,
    sandbox: &str,
    exec: &str,
    stream: &str,
    bytes: u64,
) -> Result<(String, bool), String> {
    let skipped = bytes.saturating_sub(u64::try_from(MOST_OUTPUT).unwrap_or(u64::MAX));
    let target = Target::new(&["sandboxes", sandbox, "execs", exec, "output"]);
    let target = target.with("stream", stream).with("offset", &skipped.to_string());
    let read = server.bytes(Call::get(target), MOST_OUTPUT).await.map_err(|fault| told(&fault))?;
    Ok((String::from_utf8_lossy(&read).into_owned(), skipped > 0))
}

async fn read_file(server: &Server, given: Value) -> Outcome {
    let ReadFile { sandbox, path } = arguments(given)?;
    let target = Target::new(&["sandboxes", &sandbox, "files"]).with("path", &path);
    let bytes = server.bytes(Call::get(target), MOST_FILE_BYTES).await.map_err(|fault| told(&fault))?;
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) => json!({"text": text}),
        Err(_) => json!({"base64": Base64::encode_string(&bytes)}),
    })
}

async fn write_file(server: &Server, given: Value) -> Outcome {
    let WriteFile { sandbox, path, text, base64 } = arguments(given)?;
    let bytes = match (text, base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(coded)) => {
            Base64::decode_vec(&coded).map_err(|_| "base64: not base64 with padding".to_owned())?
        }
        (Some(_), Some(_)) | (None, None) => return Err("give text or base64".to_owned()),
    };
    let count = bytes.len();
    let target = Target::new(&["sandboxes", &sandbox, "files"]).with("path", &path);
    let call = Call::new(Method::PUT, target, Content::Bytes(bytes));
    server.done(call).await.map_err(|fault| told(&fault))?;
    Ok(json!({"bytes": count}))
}

async fn list(server: &Server, given: Value) -> Outcome {
    let List { cursor, label } = arguments(given)?;
    let target =
        Target::new(&["sandboxes"]).maybe("cursor", cursor.as_deref()).maybe("label", label.as_deref());
    let page: api::SandboxPage = get(server, target).await?;
    shown(&page)
}

async fn delete(server: &Server, given: Value) -> Outcome {
    let Delete { sandbox } = arguments(given)?;
    let view: api::SandboxView =
        send(server, Method::DELETE, Target::new(&["sandboxes", &sandbox]), None::<&()>).await?;
    shown(&wait(server, view, |state| state == SandboxState::Deleted).await?)
}

async fn get<T: DeserializeOwned>(server: &Server, target: Target) -> Result<T, String> {
    server.json(Call::get(target)).await.map_err(|fault| told(&fault))
}

async fn send<T: DeserializeOwned>(
    server: &Server,
    method: Method,
    target: Target,
    body: Option<&impl serde::Serialize>,
) -> Result<T, String> {
    let content = match body {
        None => Content::Nothing,
        Some(body) => Content::json(body).map_err(|fault| fault.to_string())?,
    };
    server.json(Call::new(method, target, content)).await.map_err(|fault| told(&fault))
}

fn shown(value: &impl serde::Serialize) -> Outcome {
    serde_json::to_value(value).map_err(|fault| fault.to_string())
}

/// A fault with its code, and every fault of a document.
fn told(fault: &ClientFault) -> String {
    let mut words = format!("{fault} [{}]", fault.code());
    if let ClientFault::Problem(problem) = fault {
        for fault in &problem.faults {
            words += &format!("\n{}: {} [{}]", fault.path, fault.message, fault.code);
            if !fault.allowed.is_empty() {
                words += &format!(" allowed: {}", fault.allowed.join(", "));
            }
        }
    }
    words
}
