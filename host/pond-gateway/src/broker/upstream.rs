//! The connection to a model: TLS over a stream that the gateway's own checked dial made, HTTP/1.1, kept alive. A request
//! is sent again only when the client library says that no byte of the first try left.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pond_policy::egress::Port;
use pond_policy::model::UpstreamHost;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::strict::{HeadDue, StrictHeads};

const MOST_IDLE: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// A model may think this long before its first byte.
const ANSWER_TIME: Duration = Duration::from_secs(600);
const MOST_HEADERS: usize = 100;
const READ_BUFFER: usize = 64 << 10;

/// Where the gateway is asked to connect to. `private`: the operator allows an address that is not public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: UpstreamHost,
    pub port: Port,
    pub private: bool,
}

/// A connection being made by the gateway's checked path: one resolution, every address judged, the judged one dialled.
pub type Dialing = Pin<Box<dyn Future<Output = Result<TcpStream, DialFault>> + Send>>;
pub type Connect = Arc<dyn Fn(Target) -> Dialing + Send + Sync>;

#[derive(Debug, Error)]
pub enum DialFault {
    /// The address was judged and refused; the text is safe to show.
    #[error("{0}")]
    Denied(String),
    #[error("the model's host did not resolve")]
    Dns,
    #[error("connecting to the model failed")]
    Failed(#[source] std::io::Error),
    #[error("connecting to the model took too long")]
    Late,
}

#[derive(Debug, Error)]
pub(super) enum SendFault {
    #[error(transparent)]
    Dial(DialFault),
    #[error("the model's certificate or TLS was not accepted")]
    Tls(#[source] std::io::Error),
    #[error("the connection to the model was closed before the request was sent")]
    NotSent(#[source] hyper::Error),
    #[error("the model's answer was broken")]
    Broken(#[source] hyper::Error),
    #[error("the model did not answer in time")]
    Late,
}

impl SendFault {
    /// Whether the provider may have seen the request, and may charge for it.
    pub(super) const fn may_be_billed(&self) -> bool {
        match self {
            Self::Dial(_) | Self::Tls(_) | Self::NotSent(_) => false,
            Self::Broken(_) | Self::Late => true,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Dial(_) => "upstream_unreachable",
            Self::Tls(_) => "upstream_tls",
            Self::NotSent(_) | Self::Broken(_) => "upstream_broken",
            Self::Late => "upstream_late",
        }
    }

    pub(super) const fn status(&self) -> u16 {
        match self {
            Self::Late | Self::Dial(DialFault::Late) => 504,
            Self::Dial(DialFault::Denied(_) | DialFault::Dns | DialFault::Failed(_))
            | Self::Tls(_)
            | Self::NotSent(_)
            | Self::Broken(_) => 502,
        }
    }
}

/// One model's connections.
pub(super) struct Upstream {
    target: Target,
    name: ServerName<'static>,
    tls: TlsConnector,
    connect: Connect,
    idle: Mutex<Vec<(Line, Instant)>>,
}

/// One connection; dropping it closes it.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    head_due: HeadDue,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The connection of an answer that is still being read.
pub(super) struct Lease<'u> {
    upstream: &'u Upstream,
    line: Line,
}

impl Lease<'_> {
    /// The answer was read to its end: the connection may serve again.
    pub(super) fn done(self) {
        let mut idle = self.upstream.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push((self.line, Instant::now()));
        }
    }
}

impl Upstream {
    pub(super) fn new(
        target: Target,
        name: ServerName<'static>,
        tls: TlsConnector,
        connect: Connect,
    ) -> Self {
        Self { target, name, tls, connect, idle: Mutex::new(Vec::new()) }
    }

    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease<'_>), SendFault> {
        let deadline = Instant::now() + ANSWER_TIME;
        let mut request = request;
        while let Some(line) = self.take_idle() {
            match self.try_line(line, request, deadline).await {
                Err((SendFault::NotSent(_), Some(unsent))) => request = unsent,
                Err((fault, _)) => return Err(fault),
                Ok(answer) => return Ok(answer),
            }
        }
        let line = self.open().await?;
        self.try_line(line, request, deadline).await.map_err(|(fault, _)| fault)
    }

    fn take_idle(&self) -> Option<Line> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(line, since)| line.sender.is_ready() && since.elapsed() < IDLE_TIME);
        idle.pop().map(|(line, _)| line)
    }

    async fn try_line(
        &self,
        mut line: Line,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<(Response<Incoming>, Lease<'_>), (SendFault, Option<Request<Full<Bytes>>>)> {
        line.head_due.expect();
        match tokio::time::timeout_at(deadline, line.sender.try_send_request(request)).await {
            Err(_) => Err((SendFault::Late, None)),
            Ok(Ok(response)) => Ok((response, Lease { upstream: self, line })),
            Ok(Err(mut fault)) => match fault.take_message() {
                Some(unsent) => Err((SendFault::NotSent(fault.into_error()), Some(unsent))),
                None => Err((SendFault::Broken(fault.into_error()), None)),
            },
        }
    }

    async fn open(&self) -> Result<Line, SendFault> {
        let stream = (self.connect)(self.target.clone()).await.map_err(SendFault::Dial)?;
        stream.set_nodelay(true).map_err(|error| SendFault::Dial(DialFault::Failed(error)))?;
        let handshake = self.tls.connect(self.name.clone(), stream);
        let stream = tokio::time::timeout(HANDSHAKE_TIME, handshake)
            .await
            .map_err(|_| SendFault::Dial(DialFault::Late))?
            .map_err(SendFault::Tls)?;
        let (stream, head_due) = StrictHeads::new(stream);
        let (sender, connection) = http1::Builder::new()
            .max_headers(MOST_HEADERS)
            .max_buf_size(READ_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(SendFault::NotSent)?;
        // Its errors also reach whoever waits for the answer.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Line { sender, driver, head_due })
    }
}
