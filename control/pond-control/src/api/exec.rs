//! Programs in sandboxes, and files into and out of them: bounded, written down, passed on.
//!
//! HOSTILE BYTES in output and files: passed on, never read. A follower asks the keeper again and again and holds nothing meanwhile.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use pond_policy::sandboxes::{SandboxId, check_exec};
use pond_wire::api::{self, ExecState, MOST_FILE_BYTES, OutputStream, SandboxState};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::call::{Call, created, gone, ok};
use super::problem::Refused;
use super::watch::stream;
use crate::keeper::{KeepFault, Keeper, Output};
use crate::store::Action;

/// How long a follower waits before it asks again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Looks without news after which a follower hears that the connection stands: some 15 seconds.
const QUIET: u32 = 75;
const PIECE: usize = 256 << 10;
const EVENTS_AT_ONCE: usize = 256;
/// Words of a command that the audit log has.
const WORDS: usize = 3;

type Out = mpsc::Sender<Result<Bytes, KeepFault>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputQuery {
    #[serde(default)]
    stream: OutputStream,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Where {
    path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    from_sequence: Option<u64>,
}

pub(super) async fn start(call: &Call, body: Body) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    let exec: api::NewExec = call.json(body).await?;
    let env = exec.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let checked = check_exec(&exec.command, env, exec.cwd.as_deref());
    checked.map_err(|refusals| Refused::of(api::Problem::refused(refusals)))?;
    let words: Vec<&String> = exec.command.iter().take(WORDS).collect();
    call.write_down(Action::SandboxExec, &kept, json!({"command": words})).await?;
    Ok(created(&call.keeper()?.start(&id, &exec).await?))
}

pub(super) async fn show(call: &Call) -> Result<Response, Refused> {
    let (id, _) = call.sandbox().await?;
    Ok(ok(&call.keeper()?.exec(&id, number(call)?).await?))
}

pub(super) async fn cancel(call: &Call) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    let exec = number(call)?;
    call.write_down(Action::SandboxExecCancelled, &kept, json!({"exec": exec})).await?;
    Ok(ok(&call.keeper()?.cancel(&id, exec).await?))
}

fn number(call: &Call) -> Result<u64, Refused> {
    call.param("exec", |text| text.parse().ok())
}

pub(super) async fn output(call: &Call) -> Result<Response, Refused> {
    let (id, _) = call.sandbox().await?;
    let query: OutputQuery = call.query()?;
    let from = Output { exec: number(call)?, stream: query.stream, offset: query.offset };
    let keeper = Arc::clone(call.keeper()?);
    // One that is not there is said before anything is sent.
    keeper.exec(&id, from.exec).await?;
    Ok(stream("application/octet-stream", move |out| copy(keeper, id, from, query.follow, out)))
}

async fn copy(
    keeper: Arc<dyn Keeper>,
    id: SandboxId,
    mut from: Output,
    follow: bool,
    out: Out,
) -> Result<(), KeepFault> {
    loop {
        // First whether it is over, then what there is.
        let over = keeper.exec(&id, from.exec).await?.state == ExecState::Ended;
        loop {
            let bytes = keeper.output(&id, from, PIECE).await?;
            if bytes.is_empty() {
                break;
            }
            from.offset = from.offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            if out.send(Ok(bytes.into())).await.is_err() {
                return Ok(());
            }
        }
        if over || !follow || out.is_closed() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub(super) async fn read(call: &Call) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    let path = place(call)?;
    call.write_down(Action::SandboxFileRead, &kept, json!({"path": path})).await?;
    let bytes = call.keeper()?.read(&id, &path, MOST_FILE_BYTES).await?;
    let media = (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok((StatusCode::OK, [media], bytes).into_response())
}

pub(super) async fn write(call: &Call, body: Body) -> Result<Response, Refused> {
    let (id, kept) = call.sandbox().await?;
    let path = place(call)?;
    let bytes = call.body(body).await?;
    let detail = json!({"path": path, "bytes": bytes.len()});
    call.write_down(Action::SandboxFileWritten, &kept, detail).await?;
    call.keeper()?.write(&id, &path, bytes).await?;
    Ok(gone())
}

/// A path inside, absolute and in one spelling; what is there is for the keeper to find out.
fn place(call: &Call) -> Result<String, Refused> {
    let Where { path } = call.query()?;
    let bad = || Refused::parameter("path: an absolute path without `.`, `..` or empty parts");
    let checked = check_exec(&["x".to_owned()], std::iter::empty(), Some(&path));
    checked.map_err(|_| bad()).and_then(|()| if path == "/" { Err(bad()) } else { Ok(path) })
}

/// Server-sent events, from after the one the client saw last, until the sandbox is deleted and all of it was told.
pub(super) async fn events(call: &Call) -> Result<Response, Refused> {
    let (id, _) = call.sandbox().await?;
    let From { from_sequence } = call.query()?;
    let bad = || Refused::parameter("Last-Event-ID: the number of an event");
    let last = call.parts.headers.get("last-event-id");
    let read =
        |value: &HeaderValue| value.to_str().ok().and_then(|text| text.parse::<u64>().ok()).ok_or_else(bad);
    let after = last.map(read).transpose()?.or(from_sequence).unwrap_or(0);
    let keeper = Arc::clone(call.keeper()?);
    Ok(stream("text/event-stream", move |out| tell(keeper, id, after, out)))
}

async fn tell(keeper: Arc<dyn Keeper>, id: SandboxId, mut after: u64, out: Out) -> Result<(), KeepFault> {
    let mut quiet = 0;
    loop {
        let events = keeper.events(&id, after, EVENTS_AT_ONCE).await?;
        let text: String = events.iter().map(told).collect();
        if let Some(last) = events.last() {
            (after, quiet) = (last.sequence, 0);
            if out.send(Ok(text.into())).await.is_err() || last.state == SandboxState::Deleted {
                return Ok(());
            }
            continue;
        }
        if keeper.show(&id).await?.view.state == SandboxState::Deleted {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        quiet += 1;
        if quiet >= QUIET && out.send(Ok(Bytes::from_static(b":\n\n"))).await.is_ok() {
            quiet = 0;
        }
        if out.is_closed() {
            return Ok(());
        }
    }
}

fn told(event: &api::SandboxEvent) -> String {
    // JSON on one line: serde_json writes no line breaks. The name of an event is pond's own.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.sequence, event.event)
}
