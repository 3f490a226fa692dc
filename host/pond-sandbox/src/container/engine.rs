//! One client of the Docker Engine API, over its Unix socket and nothing else.
//!
//! Zone: host. The engine is trusted with the host anyway, but its answers are bounded and every call has a deadline: a daemon
//! that hangs must not hang pond. Requests are typed; what an answer has beyond the fields named here is not looked at.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::ground::Found;
use super::request;

/// Longer than a loaded host takes to start a container; no call waits for a job.
const PATIENCE: Duration = Duration::from_secs(60);
const MAX_ANSWER_BYTES: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum EngineFault {
    #[error("preparing to talk to the container engine")]
    Runtime(#[source] io::Error),
    #[error("no container engine answers at {}; start it (systemctl start docker), or set DOCKER_HOST", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("{what}: asking who the container engine is")]
    Owner { what: &'static str, source: io::Error },
    #[error(
        "the socket {} belongs to a process of user {owner}; pond gives jobs only to an engine of root's or the caller's own",
        socket.display()
    )]
    Stranger { socket: PathBuf, owner: u32 },
    #[error("{what}: talking to the container engine")]
    Talk { what: &'static str, source: hyper::Error },
    #[error("{what}: the container engine did not answer within {} s", patience.as_secs())]
    Silent { what: &'static str, patience: Duration },
    #[error("{what}: the container engine says {status}: {message}")]
    Refused { what: &'static str, status: u16, message: String },
    #[error("{what}: an answer of the container engine cannot be read")]
    Answer { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// What is asked of the engine.
pub(super) struct Ask<'a> {
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Body,
}

pub(super) enum Body {
    Nothing,
    Json(Vec<u8>),
    Tar(Vec<u8>),
}

impl Body {
    pub(super) fn json(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::Json)
    }
}

#[derive(Debug)]
pub(super) struct Engine {
    socket: PathBuf,
    /// What requests are spelled for, as `/v1.41`.
    prefix: String,
    /// How long it may take over one answer.
    patience: Duration,
    runtime: Runtime,
}

impl Engine {
    pub(super) fn new(socket: &Path, prefix: &str) -> Result<Self, EngineFault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EngineFault::Runtime)?;
        Ok(Self { socket: socket.to_owned(), prefix: prefix.to_owned(), patience: PATIENCE, runtime })
    }

    /// The same client with other patience.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Another client of the same engine, for another thread.
    pub(super) fn again(&self) -> Result<Self, EngineFault> {
        Self::new(&self.socket, &self.prefix)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The answer, whatever its status.
    fn call(&self, ask: Ask<'_>) -> Result<(StatusCode, Vec<u8>), EngineFault> {
        let what = ask.what;
        let exchange = async {
            let answer = self.send(ask).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|source| EngineFault::Answer { what, source })?;
            Ok((status, body.to_bytes().to_vec()))
        };
        self.timed(what, exchange)
    }

    fn timed<T>(
        &self,
        what: &'static str,
        exchange: impl Future<Output = Result<T, EngineFault>>,
    ) -> Result<T, EngineFault> {
        let timed = async { tokio::time::timeout(self.patience, exchange).await };
        self.runtime.block_on(timed).unwrap_or(Err(EngineFault::Silent { what, patience: self.patience }))
    }

    async fn send(&self, ask: Ask<'_>) -> Result<Response<Incoming>, EngineFault> {
        let what = ask.what;
        let stream = tokio::net::UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| EngineFault::Connect { socket: self.socket.clone(), source })?;
        let owner = stream.peer_cred().map_err(|source| EngineFault::Owner { what, source })?.uid();
        if !is_trusted(owner, rustix::process::geteuid().as_raw()) {
            return Err(EngineFault::Stranger { socket: self.socket.clone(), owner });
        }
        let talk = |source| EngineFault::Talk { what, source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
        // Its failure is the failure of the request it carries.
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        sender.send_request(self.request(ask)?).await.map_err(talk)
    }

    fn request(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, EngineFault> {
        let (kind, bytes) = match ask.body {
            Body::Nothing => (None, Vec::new()),
            Body::Json(bytes) => (Some("application/json"), bytes),
            Body::Tar(bytes) => (Some("application/x-tar"), bytes),
        };
        let mut request = Request::builder()
            .method(ask.method)
            .uri(format!("{}{}", self.prefix, ask.path))
            .header(header::HOST, "engine");
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if ask.path.contains("/attach?") || ask.path.starts_with("/exec/") {
            request = request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "tcp");
        }
        let request = request.body(Full::new(Bytes::from(bytes)));
        request.map_err(|source| EngineFault::Answer { what: ask.what, source: source.into() })
    }

    /// The answer of a request that must succeed.
    pub(super) fn done(&self, ask: Ask<'_>) -> Result<Vec<u8>, EngineFault> {
        let what = ask.what;
        let (status, body) = self.call(ask)?;
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            Ok(body)
        } else {
            Err(refused(what, status, &body))
        }
    }

    pub(super) fn read<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, EngineFault> {
        let what = ask.what;
        let body = self.done(ask)?;
        serde_json::from_slice(&body).map_err(|source| EngineFault::Answer { what, source: source.into() })
    }

    /// Nothing when the engine has no such thing.
    pub(super) fn find<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<Option<T>, EngineFault> {
        match self.read(ask) {
            Err(EngineFault::Refused { status, .. }) if status == StatusCode::NOT_FOUND => Ok(None),
            Err(fault) => Err(fault),
            Ok(found) => Ok(Some(found)),
        }
    }

    /// What a container has at a path. Its last part is not followed.
    pub(super) fn stat(&self, container: &str, path: &str) -> Result<Found, EngineFault> {
        const STAT: &str = "x-docker-container-path-stat";
        let what = "looking into the image";
        let escaped: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/containers/{container}/archive?path={escaped}");
        let ask = Ask { what, method: Method::HEAD, path: &path, body: Body::Nothing };
        let exchange = async {
            let answer = self.send(ask).await?;
            Ok((answer.status(), answer.headers().get(STAT).cloned()))
        };
        let (status, stat) = self.timed(what, exchange)?;
        match stat {
            None if status == StatusCode::NOT_FOUND => Ok(Found::Nothing),
            Some(stat) if status.is_success() => {
                let stat =
                    stat.to_str().map_err(|source| EngineFault::Answer { what, source: source.into() })?;
                let stat = Base64::decode_vec(stat)
                    .map_err(|source| EngineFault::Answer { what, source: source.to_string().into() })?;
                let request::PathStat { mode, link_target } = serde_json::from_slice(&stat)
                    .map_err(|source| EngineFault::Answer { what, source: source.into() })?;
                Ok(Found::of(mode, link_target))
            }
            Some(_) | None => Err(refused(what, status, b"")),
        }
    }

    /// The container's streams as one socket, and what of them had already arrived.
    pub(super) fn attach(&self, container: &str) -> Result<(UnixStream, Vec<u8>), EngineFault> {
        let what = "connecting to the container's streams";
        let path = format!("/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1");
        self.hijack(Ask { what, method: Method::POST, path: &path, body: Body::Nothing })
    }

    /// Starts one more process in a running container, as this user; its streams are one socket.
    pub(super) fn execute(
        &self,
        container: &str,
        exec: &request::Exec,
    ) -> Result<(UnixStream, Vec<u8>), EngineFault> {
        let what = "starting a process in the container";
        let json = |value: Result<Body, serde_json::Error>| {
            value.map_err(|source| EngineFault::Answer { what, source: source.into() })
        };
        let path = format!("/containers/{container}/exec");
        let made = Ask { what, method: Method::POST, path: &path, body: json(Body::json(exec))? };
        let request::Executed { id } = self.read(made)?;
        let path = format!("/exec/{id}/start");
        let start = request::ExecStart { detach: false, tty: false };
        self.hijack(Ask { what, method: Method::POST, path: &path, body: json(Body::json(&start))? })
    }

    fn hijack(&self, ask: Ask<'_>) -> Result<(UnixStream, Vec<u8>), EngineFault> {
        let what = ask.what;
        let exchange = async {
            let answer = self.send(ask).await?;
            let status = answer.status();
            if status != StatusCode::SWITCHING_PROTOCOLS {
                return Err(refused(what, status, b""));
            }
            let upgraded =
                hyper::upgrade::on(answer).await.map_err(|source| EngineFault::Talk { what, source })?;
            let parts = upgraded.downcast::<TokioIo<tokio::net::UnixStream>>();
            let lost = || EngineFault::Refused { what, status: status.as_u16(), message: String::new() };
            let parts = parts.map_err(|_| lost())?;
            let stream = parts.io.into_inner().into_std().map_err(EngineFault::Runtime)?;
            Ok((stream, parts.read_buf.to_vec()))
        };
        self.timed(what, exchange)
    }
}

/// Whoever listens there is told everything about a job and could run it anywhere. By the kernel's word, at every connection:
/// owner and mode of the socket's name say nothing about who had it before.
fn is_trusted(owner: u32, caller: u32) -> bool {
    owner == 0 || owner == caller
}

/// The engine's own words, of which the first line says it.
fn refused(what: &'static str, status: StatusCode, body: &[u8]) -> EngineFault {
    const MOST: usize = 400;
    #[derive(serde::Deserialize)]
    struct Said {
        message: String,
    }
    let said = serde_json::from_slice::<Said>(body).map(|said| said.message).unwrap_or_default();
    let line = said.lines().next().unwrap_or_default();
    let message = line.chars().filter(|char| !char.is_control()).take(MOST).collect();
    EngineFault::Refused { what, status: status.as_u16(), message }
}
