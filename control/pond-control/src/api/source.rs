//! A source arrives: a packed tree, read, hashed and encrypted piece by piece, and kept as ciphertext only.
//!
//! HOSTILE BYTES. The tree's own caps end a stream that is too much before anything of it is kept; what is not finished leaves no
//! file. The work is done on a thread of its own, a few pieces ahead of it wait, and the sender waits for them.

pub(crate) mod intake;

use std::io;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body_util::BodyExt as _;
use pond_policy::name::{Name, Project};
use pond_wire::api::{self, ProblemCode};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::call::{Call, created};
use super::problem::Refused;
use crate::plane::Plane;
use crate::store::{BundleFault, Fault, Moment, NewBundle};
use intake::{Intake, IntakeFault, Packed};

/// How long a sender may pause.
const PAUSE: Duration = Duration::from_secs(30);
/// For all of it: whoever sends a byte now and then takes the place of others.
const LONGEST: Duration = Duration::from_secs(3600);
/// Pieces that wait for the thread.
const AHEAD: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    project: String,
}

pub(super) async fn send(call: &Call, body: Body) -> Result<Response, Refused> {
    let whose: Whose = call.query()?;
    let named = Name::parse(&whose.project).map(Project::from);
    let project = call.allowed(named.ok_or_else(|| Refused::parameter("project: not the name of one"))?)?;
    call.media_type()?;
    let most = intake::MOST_STREAM;
    if call.declared()?.is_some_and(|declared| declared > most) {
        return Err(Refused::new(ProblemCode::BodyTooLarge, format!("at most {most} bytes")));
    }
    let unknown = || Refused::new(ProblemCode::ProjectUnknown, format!("there is no project {project}"));
    call.store().project(&project).await?.ok_or_else(unknown)?;
    let busy = || Refused::after(ProblemCode::Unavailable, "too many sources arrive at once", 5);
    let _slot = call.api.uploads.try_acquire().map_err(|_| busy())?;
    let packed = receive(&call.plane().files, body).await?;
    let bundle = NewBundle {
        project: &project,
        place: packed.place(),
        digest: packed.ciphertext,
        input: packed.input,
        size: packed.size,
        key: packed.key.expose(),
    };
    let stored = call.store().store_bundle(bundle, &call.caller.actor, call.now()).await;
    let id = stored.map_err(|fault| match fault {
        BundleFault::Store(fault) => fault.into(),
        BundleFault::Vault(_) | BundleFault::Token | BundleFault::Stale => Refused::internal(&fault),
    })?;
    let (bytes, entries, input) = (packed.bytes, packed.entries, packed.input);
    packed.keep();
    Ok(created(&api::SourceReply { source: id.to_string(), input_sha256: input.to_string(), bytes, entries }))
}

/// Removes what a control plane that was killed had begun to receive.
pub fn forget_unfinished(files: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(files)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(intake::UNFINISHED.as_bytes()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes sources made before `before` that no run works on. How many that were.
pub(crate) async fn forget_unused(plane: &Plane, before: Moment) -> Result<usize, Fault> {
    let places = plane.store.forget_bundles(before).await?;
    for place in &places {
        if let Err(fault) = std::fs::remove_file(plane.files.join(place)) {
            tracing::error!(fault = &fault as &dyn std::error::Error, place, "a source was left behind");
        }
    }
    Ok(places.len())
}

async fn receive(files: &Path, body: Body) -> Result<Packed, Refused> {
    let (pieces, mut arriving) = mpsc::channel::<Bytes>(AHEAD);
    let files = files.to_owned();
    let work = tokio::task::spawn_blocking(move || {
        let mut intake = Intake::begin(&files)?;
        while let Some(piece) = arriving.blocking_recv() {
            intake.push(&piece)?;
        }
        intake.finish()
    });
    let late = |_| Err(Refused::new(ProblemCode::RequestTimeout, "the source did not arrive in an hour"));
    let sent = tokio::time::timeout(LONGEST, pass_on(body, pieces)).await.unwrap_or_else(late);
    // The thread has ended, or ends with the last piece: what it says comes first, because it stopped the sender.
    let worked = work.await.map_err(|fault| Refused::internal(&fault))?;
    match (sent, worked) {
        (Err(refused), Ok(_) | Err(IntakeFault::Cut)) => Err(refused),
        (_, worked) => worked.map_err(refused),
    }
}

/// Until the body ends, or nobody takes what arrives.
async fn pass_on(mut body: Body, pieces: mpsc::Sender<Bytes>) -> Result<(), Refused> {
    loop {
        let late = |_| Refused::new(ProblemCode::RequestTimeout, "nothing arrived for 30 seconds");
        let Some(frame) = tokio::time::timeout(PAUSE, body.frame()).await.map_err(late)? else {
            return Ok(());
        };
        let frame = frame.map_err(|_| Refused::new(ProblemCode::Malformed, "the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if pieces.send(data).await.is_err() {
            return Ok(());
        }
    }
}

fn refused(fault: IntakeFault) -> Refused {
    match &fault {
        IntakeFault::TooLarge(most) => {
            Refused::new(ProblemCode::BodyTooLarge, format!("at most {most} bytes"))
        }
        IntakeFault::Stream(why) => Refused::new(ProblemCode::SourceInvalid, why.to_string()),
        IntakeFault::Tree(why) => Refused::new(ProblemCode::SourceInvalid, why.to_string()),
        IntakeFault::Kind | IntakeFault::Names | IntakeFault::Cut => {
            Refused::new(ProblemCode::SourceInvalid, fault.to_string())
        }
        IntakeFault::File(why) if why.kind() == std::io::ErrorKind::StorageFull => {
            tracing::error!(fault = &fault as &dyn std::error::Error, "no room for a source");
            Refused::after(ProblemCode::Unavailable, "there is no room for it now", 10)
        }
        IntakeFault::File(_) | IntakeFault::Random(_) | IntakeFault::Key(_) => Refused::internal(&fault),
    }
}
