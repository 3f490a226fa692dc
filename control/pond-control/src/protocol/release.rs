//! What only the holder of a lease opens: credentials and the keys of bundles, each sealed to its pinned key for this job and
//! this lease. Without a pinned key there is a refusal, before the secret is read.

use std::fs::File;
use std::io::Read;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pond_policy::name::Name;
use pond_seal::Secret;
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::seal::{Release, Subject};
use pond_wire::orch::{Blob, Code, Redeem, RedeemReply, Seal, SealReply, Version};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::gate::Caller;
use super::grant::Granted;
use super::hold::current;
use super::poll::is_running;
use super::problem::Problem;
use crate::plane::Plane;
use crate::store::{Action, CredentialFault, Held, Lease, Moment, Redeemed};

/// What follows the first line of a redeemed bundle.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.pond.bundle");
const PIECE: usize = 64 << 10;
/// Pieces read ahead of a worker that is slow.
const AHEAD: usize = 4;

/// A lease that may be given secrets, with everything they are bound to.
struct Holder<'a> {
    caller: &'a Caller,
    lease: Lease,
    held: Held,
    granted: Granted,
}

pub(super) async fn seal(
    plane: &Plane,
    caller: &Caller,
    body: &Seal,
    now: Moment,
) -> Result<SealReply, Problem> {
    let holder = Holder::of(plane, caller, &body.lease, now).await?;
    let name = body.credential.as_str();
    let sealed = match holder.credential(plane, name, now).await? {
        Ok(secret) => holder.seal(plane, &secret, Subject::Credential(name.to_owned())),
        Err(code) => Err(code),
    };
    match sealed {
        Ok(release) => Ok(SealReply::Released(release)),
        Err(code) => {
            let detail = json!({"job": holder.lease.job.as_str(), "code": code});
            plane.store.note((&caller.actor(), Action::CredentialRefused), name, detail, now).await?;
            refused(code)
        }
    }
}

/// The reply is one line of JSON, then the ciphertext.
pub(super) async fn redeem(
    plane: &Plane,
    caller: &Caller,
    body: &Redeem,
    now: Moment,
) -> Result<Response, Problem> {
    let holder = Holder::of(plane, caller, &body.lease, now).await?;
    let token = Bearer::parse(&body.token).ok().filter(|token| token.kind() == Kind::Bundle);
    let token =
        token.ok_or_else(|| Problem::new(StatusCode::GONE, "bundle_token", "not a bundle's token"))?;
    if caller.seal_key.is_none() {
        return Ok(bundle(Body::from(first_line(refused("no_pinned_key")?, 0)?)));
    }
    let redeemed = plane.store.redeem_bundle(&token.stored().sha256, &holder.lease, now).await?;
    let Redeemed { place, size, key, .. } = redeemed;
    let released = holder.seal(plane, &Secret::new(key.to_vec()), Subject::BundleKey);
    let released = released.map_err(Problem::internal)?;
    let path = plane.files.join(place);
    let file = File::open(path).map_err(|_| Problem::internal("bundle_missing"))?;
    let line = first_line(SealReply::Released(released), size)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    sender.try_send(Ok(Bytes::from(line))).map_err(|_| Problem::unavailable())?;
    tokio::task::spawn_blocking(move || pour(file, size, &sender));
    Ok(bundle(Body::from_stream(ReceiverStream::new(receiver))))
}

impl<'a> Holder<'a> {
    async fn of(
        plane: &Plane,
        caller: &'a Caller,
        named: &pond_wire::orch::Lease,
        now: Moment,
    ) -> Result<Self, Problem> {
        let (lease, held) = current(plane, caller, named, now).await?;
        is_running(&held)?;
        let granted = Granted::judge(plane, &held, &caller.worker.have)
            .map_err(|withheld| Problem::new(StatusCode::FORBIDDEN, "withheld", withheld.to_string()))?;
        Ok(Self { caller, lease, held, granted })
    }

    /// A value, or the code of why not. Names the offer does not have are not looked up.
    async fn credential(
        &self,
        plane: &Plane,
        name: &str,
        now: Moment,
    ) -> Result<Result<Secret, &'static str>, Problem> {
        if !self.granted.credentials.iter().any(|offered| offered == name) {
            return Ok(Err("credential_not_offered"));
        }
        if self.caller.seal_key.is_none() {
            return Ok(Err("no_pinned_key"));
        }
        let Some(name) = Name::parse(name) else { return Ok(Err("credential_not_offered")) };
        let (actor, lease) = (self.caller.actor(), Some(&self.lease));
        let value = plane.store.release_credential(&self.held.project, &name, (&actor, lease), now).await?;
        Ok(value.map(|value| Secret::new(value.to_vec())).ok_or("credential_unknown"))
    }

    fn seal<const MOST: usize>(
        &self,
        plane: &Plane,
        secret: &Secret,
        subject: Subject,
    ) -> Result<Blob<MOST>, &'static str> {
        let worker = &self.caller.worker;
        let key = self.caller.seal_key.as_ref().ok_or("no_pinned_key")?;
        let context = self.granted.seal_context(&self.held, (&self.lease, worker), key, subject);
        let release =
            Release::issue(secret, Some(key), &context, &plane.key).map_err(|fault| fault.code())?;
        Blob::new(release.as_bytes().to_vec()).map_err(|_| "secret_too_large")
    }
}

fn refused(code: &str) -> Result<SealReply, Problem> {
    let code = Code::try_from(code.to_owned()).map_err(|_| Problem::internal("message_encoding"))?;
    Ok(SealReply::Refused(code))
}

fn first_line(key: SealReply, bytes: u64) -> Result<Vec<u8>, Problem> {
    let reply = RedeemReply { version: Version, key, bytes };
    let mut line = serde_json::to_vec(&reply).map_err(|_| Problem::internal("message_encoding"))?;
    line.push(b'\n');
    Ok(line)
}

fn bundle(body: Body) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response()
}

/// Sends exactly what was stored; a file that is shorter, or a worker that is gone, ends the reply early, which the reader sees.
fn pour(file: File, size: u64, to: &mpsc::Sender<std::io::Result<Bytes>>) {
    let mut rest = file.take(size);
    loop {
        let mut piece = vec![0; PIECE];
        let read = match rest.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => read,
            Err(fault) => {
                if let Err(_gone) = to.blocking_send(Err(fault)) {}
                return;
            }
        };
        piece.truncate(read);
        if to.blocking_send(Ok(Bytes::from(piece))).is_err() {
            return;
        }
    }
}

impl From<CredentialFault> for Problem {
    fn from(fault: CredentialFault) -> Self {
        match fault {
            CredentialFault::Store(fault) => fault.into(),
            CredentialFault::Vault(_) => Self::internal("vault"),
        }
    }
}
