//! Credentials go in and are named; none comes out. And the vault's key, which is changed here.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use axum::body::Body;
use axum::response::Response;
use pond_policy::name::Project;
use pond_seal::vault::{KeyRing, RingFault};
use pond_wire::api::{self, ProblemCode};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::call::{Call, gone, millis, object, ok};
use super::problem::Refused;
use super::run::named;
use crate::plane::Plane;
use crate::store::Stranger;

const MOST_VALUE: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum VaultFileFault {
    #[error("reading or writing the vault's file")]
    File(#[from] std::io::Error),
    #[error("the vault's file")]
    Ring(#[from] RingFault),
    #[error("the vault's file does not have the key that values are under here")]
    Foreign,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    project: Option<String>,
}

pub(super) async fn list(call: &Call) -> Result<Response, Refused> {
    let project = whose(call)?;
    let credentials = call.store().credentials(project.as_ref()).await?;
    let view = |credential: &crate::store::Credential| api::CredentialView {
        name: credential.name.to_string(),
        project: credential.project.as_ref().map(Project::to_string),
        kid: credential.kid.to_string(),
        changed_at: millis(credential.changed_at),
    };
    Ok(ok(&api::Credentials { credentials: credentials.iter().map(view).collect() }))
}

pub(super) async fn set(call: &Call, body: Body) -> Result<Response, Refused> {
    let (project, name) = (whose(call)?, call.name("name")?);
    let bytes = Zeroizing::new(call.body(body).await?);
    // What was wrong with the body is not repeated: it holds a secret.
    let malformed = || Refused::new(ProblemCode::Malformed, "the body is not {\"value\": \"…\"}");
    let body: api::SetCredential = object(&bytes).map_err(|_| malformed())?;
    let value = Zeroizing::new(body.value.into_inner());
    if !(1..=MOST_VALUE).contains(&value.len()) {
        return Err(Refused::new(ProblemCode::Malformed, format!("a value has 1 to {MOST_VALUE} bytes")));
    }
    if let Some(project) = &project {
        let unknown = || Refused::new(ProblemCode::ProjectUnknown, format!("there is no project {project}"));
        call.store().project(project).await?.ok_or_else(unknown)?;
    }
    let actor = &call.caller.actor;
    call.store().set_credential(project.as_ref(), &name, value.as_bytes(), actor, call.now()).await?;
    Ok(gone())
}

pub(super) async fn remove(call: &Call) -> Result<Response, Refused> {
    let (project, name) = (whose(call)?, call.name("name")?);
    let actor = &call.caller.actor;
    let removed = call.store().remove_credential(project.as_ref(), &name, actor, call.now()).await?;
    if removed { Ok(gone()) } else { Err(Refused::not_found()) }
}

/// The project in the query. What is everybody's is not for a token of one project, which then means its own.
fn whose(call: &Call) -> Result<Option<Project>, Refused> {
    let whose: Whose = call.query()?;
    named(call, whose.project.as_deref())
}

/// The file has the new key before any record is under it, and the old ones until none is. The one that was active until now stays until
/// the next time: somebody may be writing a value under it at this moment, here or in another control plane.
pub(super) async fn rotate(call: &Call) -> Result<Response, Refused> {
    let _alone = call.api.rotation.lock().await;
    let file = &call.plane().vault;
    let failed = |fault: VaultFileFault| Refused::internal(&fault);
    let mut ring = read(file).map_err(failed)?;
    // Before there is a new key: one that is of no use would stay in the file for every try.
    if let Some(stranger) = call.store().stranger(&ring).await? {
        return Err(foreign(&stranger));
    }
    let before = ring.active();
    let kid = ring.rotate().map_err(|fault| failed(fault.into()))?;
    write(file, &ring).map_err(failed)?;
    let again = read(file).map_err(failed)?;
    let rotated = call.store().rotate(again, &call.caller.actor, call.now()).await?;
    let unused: Vec<_> = ring.kids().filter(|kid| !rotated.records.contains_key(kid)).collect();
    for old in unused.into_iter().filter(|old| *old != kid && *old != before) {
        ring.forget(old, 0).map_err(|fault| failed(fault.into()))?;
    }
    write(file, &ring).map_err(failed)?;
    let records = rotated.records.iter().map(|(kid, count)| (kid.to_string(), *count)).collect();
    Ok(ok(&api::Rotated { kid: kid.to_string(), rewrapped: rotated.rewrapped, records }))
}

fn foreign(stranger: &Stranger) -> Refused {
    let detail = format!(
        "{stranger}: another control plane with a vault of its own sealed it; give this one that key too, as a line at the end of \
         control/vault.keys, or remove what it sealed (`pond secret rm`, or set the secret again)"
    );
    Refused::new(ProblemCode::VaultKeyMissing, detail)
}

/// Another control plane, or its operator, may have given the vault a new key: it is taken over, unless the file does not have the
/// key that values are under here. Whether it was.
pub fn renew_vault(plane: &Plane) -> Result<bool, VaultFileFault> {
    let ring = match read(&plane.vault) {
        Err(VaultFileFault::File(fault)) if fault.kind() == ErrorKind::NotFound => return Ok(false),
        ring => ring?,
    };
    plane.store.renew_ring(ring).ok_or(VaultFileFault::Foreign)
}

fn read(file: &Path) -> Result<KeyRing, VaultFileFault> {
    let text = Zeroizing::new(std::fs::read_to_string(file)?);
    Ok(KeyRing::parse(&text)?)
}

/// All of it or nothing, and on disk before this returns.
fn write(file: &Path, ring: &KeyRing) -> Result<(), VaultFileFault> {
    let beside = file.with_extension("new");
    match std::fs::remove_file(&beside) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => return Err(fault.into()),
        _ => {}
    }
    let mut new = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    new.write_all(ring.to_text().as_bytes())?;
    new.sync_all()?;
    std::fs::rename(&beside, file)?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    Ok(std::fs::File::open(directory)?.sync_all()?)
}
