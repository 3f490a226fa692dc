//! What goes on while somebody looks: events as they are written down, output as it arrives, the result as it came.
//!
//! A follower reads the store and waits for the bell; he holds no transaction while he waits, and who goes away is noticed at the
//! next look. HOSTILE BYTES in output and result: passed on, never read.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use pond_seal::result::Stream;
use pond_wire::api::{self, TREE_TYPE};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::call::{Call, millis};
use super::problem::Refused;
use super::run::stage;
use crate::plane::Plane;
use crate::store::{Action, Event, Fault, JobId, Place, RunId, RunState, StageId, StageView};

/// Events or pieces that are read at once.
const AT_ONCE: u32 = 16;
const MANY: u32 = 1000;
/// Looks without news after which a follower hears that the connection stands: some 15 seconds.
const QUIET: u32 = 30;

type Out = mpsc::Sender<Result<Bytes, Fault>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    stream: Option<String>,
    offset: Option<u64>,
    #[serde(default)]
    follow: bool,
}

/// Server-sent events, from after the one the client saw last, until the run is over and all of it was told.
pub(super) async fn events(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let bad = || Refused::parameter("Last-Event-ID: not an id of this stream");
    let last = call.parts.headers.get("last-event-id");
    let read = |value: &HeaderValue| value.to_str().ok().and_then(Place::parse).ok_or_else(bad);
    let place = last.map(read).transpose()?.unwrap_or_default();
    let view = call.store().run(&run).await?.ok_or_else(Refused::not_found)?;
    let names = view.stages.into_iter().map(|stage| (stage.id, stage.name)).collect();
    let plane = Arc::clone(call.plane());
    Ok(stream("text/event-stream", |out| async move { tell(&plane, &run, place, &names, &out).await }))
}

async fn tell(
    plane: &Plane,
    run: &RunId,
    mut place: Place,
    names: &HashMap<StageId, String>,
    out: &Out,
) -> Result<(), Fault> {
    let mut bell = plane.bell.listen();
    let (mut ended, mut quiet) = (false, 0);
    loop {
        loop {
            let events = plane.store.events(run, place, AT_ONCE).await?;
            let Some(last) = events.last() else { break };
            place = last.place;
            ended |= last.action == Action::RunEnded;
            quiet = 0;
            let text: String = events.iter().map(|event| told(event, names)).collect();
            if out.send(Ok(text.into())).await.is_err() {
                return Ok(());
            }
        }
        // On Postgres an event may be seen later than the state it tells of: the last one is waited for.
        if ended || is_behind(plane, run, place).await? {
            return Ok(());
        }
        bell.wait().await;
        quiet += 1;
        if quiet >= QUIET && out.send(Ok(Bytes::from_static(b":\n\n"))).await.is_ok() {
            quiet = 0;
        }
        if out.is_closed() {
            return Ok(());
        }
    }
}

/// Whether whoever stands at `place` has the end of the run behind him.
async fn is_behind(plane: &Plane, run: &RunId, place: Place) -> Result<bool, Fault> {
    let active = plane.store.run(run).await?.is_some_and(|view| view.run.state == RunState::Active);
    if active || place == Place::default() {
        return Ok(false);
    }
    let mut at = Place::default();
    loop {
        let events = plane.store.events(run, at, MANY).await?;
        let Some(last) = events.last() else { return Ok(false) };
        if events.iter().any(|event| event.action == Action::RunEnded && event.place <= place) {
            return Ok(true);
        }
        at = last.place;
    }
}

fn told(event: &Event, names: &HashMap<StageId, String>) -> String {
    let data = api::Event {
        at: millis(event.at),
        action: event.action.name().to_owned(),
        stage: event.stage.as_ref().and_then(|id| names.get(id)).cloned(),
        detail: serde_json::from_str(&event.detail).unwrap_or(Value::Null),
    };
    // JSON on one line: serde_json writes no line breaks.
    let data = serde_json::to_string(&data).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.place, event.action.name())
}

pub(super) async fn logs(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let query: LogQuery = call.query()?;
    let unknown = || Refused::parameter("stream: stdout, stderr or terminal");
    let chosen = query.stream.as_deref().map_or(Some(Stream::Stdout), Stream::from_name);
    let chosen = chosen.filter(|stream| *stream != Stream::Result).ok_or_else(unknown)?;
    let stage = stage(call, &run).await?;
    let reader =
        Reader { run, stage: stage.id, stream: chosen, offset: query.offset.unwrap_or(0), epoch: None };
    let (plane, follow) = (Arc::clone(call.plane()), query.follow);
    Ok(stream("application/octet-stream", move |out| async move { reader.copy(&plane, follow, &out).await }))
}

/// The tree of the last accepted result.
pub(super) async fn result(call: &Call) -> Result<Response, Refused> {
    let run = call.run().await?;
    let stage = stage(call, &run).await?;
    let last = call.store().results(&stage.id).await?.pop().ok_or_else(Refused::not_found)?;
    if call.store().log_at(&last.job, Stream::Result, 0, 1).await?.is_empty() {
        return Err(Refused::not_found());
    }
    let mut reader = Reader { run, stage: stage.id, stream: Stream::Result, offset: 0, epoch: None };
    let plane = Arc::clone(call.plane());
    Ok(stream(TREE_TYPE, move |out| async move { reader.drain(&plane, &last.job, &out).await.map(|_| ()) }))
}

/// Where somebody stands in a stage's output.
#[derive(Debug)]
struct Reader {
    run: RunId,
    stage: StageId,
    stream: Stream,
    offset: u64,
    epoch: Option<u64>,
}

impl Reader {
    async fn copy(mut self, plane: &Plane, follow: bool, out: &Out) -> Result<(), Fault> {
        let mut bell = plane.bell.listen();
        let mut reading: Option<JobId> = None;
        loop {
            // As with events: first whether it is over, then what there is.
            let stage = self.look(plane).await?;
            let over = stage.as_ref().is_none_or(|stage| stage.state.is_terminal());
            let job = self.job(plane, stage.as_ref()).await?;
            if reading.is_some() && job != reading {
                // Another try: its output begins anew.
                (self.offset, self.epoch) = (0, None);
            }
            if let Some(job) = &job
                && self.drain(plane, job, out).await?.is_gone()
            {
                return Ok(());
            }
            reading = job.or(reading);
            if over || !follow {
                return Ok(());
            }
            bell.wait().await;
            if out.is_closed() {
                return Ok(());
            }
        }
    }

    async fn look(&self, plane: &Plane) -> Result<Option<StageView>, Fault> {
        let view = plane.store.run(&self.run).await?;
        Ok(view.and_then(|view| view.stages.into_iter().find(|stage| stage.id == self.stage)))
    }

    /// The try that is under way, or the last that has a result, or else the last that a worker was given.
    async fn job(&self, plane: &Plane, stage: Option<&StageView>) -> Result<Option<JobId>, Fault> {
        let live = stage.and_then(|stage| stage.job.as_ref()).map(|job| job.id.clone());
        match live {
            Some(job) => Ok(Some(job)),
            None => match plane.store.results(&self.stage).await?.pop() {
                Some(result) => Ok(Some(result.job)),
                None => plane.store.last_job(&self.run, &self.stage).await,
            },
        }
    }

    /// Sends what there is now.
    async fn drain(&mut self, plane: &Plane, job: &JobId, out: &Out) -> Result<Listener, Fault> {
        loop {
            let mut parts = plane.store.log_at(job, self.stream, self.offset, AT_ONCE).await?;
            if let (Some(first), Some(epoch)) = (parts.first(), self.epoch)
                && first.epoch != epoch
            {
                // The lease was lost, and somebody else began anew.
                (self.offset, self.epoch) = (0, None);
                parts = plane.store.log_at(job, self.stream, 0, AT_ONCE).await?;
            }
            if parts.is_empty() {
                return Ok(Listener::There);
            }
            for part in parts {
                let skip = usize::try_from(self.offset.saturating_sub(part.offset)).unwrap_or(usize::MAX);
                let bytes = part.bytes.get(skip..).unwrap_or_default().to_vec();
                self.offset = self.offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
                self.epoch = Some(part.epoch);
                if out.send(Ok(bytes.into())).await.is_err() {
                    return Ok(Listener::Gone);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    There,
    Gone,
}

impl Listener {
    fn is_gone(self) -> bool {
        self == Self::Gone
    }
}

/// A response whose body is written while it is read. A fault breaks it off: a client never takes a part for the whole.
pub(super) fn stream<F, W>(
    media: &'static str,
    write: impl FnOnce(mpsc::Sender<Result<Bytes, F>>) -> W,
) -> Response
where
    F: std::error::Error + Send + Sync + 'static,
    W: Future<Output = Result<(), F>> + Send + 'static,
{
    let (out, body) = mpsc::channel(2);
    let failing = out.clone();
    let writing = write(out);
    tokio::spawn(async move {
        if let Err(fault) = writing.await {
            tracing::error!(fault = &fault as &(dyn std::error::Error + 'static), "a stream broke off");
            if failing.send(Err(fault)).await.is_err() {
                tracing::debug!("nobody was listening");
            }
        }
    });
    let media = (CONTENT_TYPE, HeaderValue::from_static(media));
    (StatusCode::OK, [media], Body::from_stream(ReceiverStream::new(body))).into_response()
}
