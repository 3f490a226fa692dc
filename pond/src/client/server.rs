//! One control plane, as a client of its API sees it: requests with a token, answers with a bound.
//!
//! Trust zone: a person's terminal. The server is believed as far as its token goes, and no further: an answer is bounded, its
//! text is shown escaped, and files of a result are checked against what a worker signed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::address::{Address, Scheme};
use super::body::{Content, Sent};
use super::fault::{ClientFault, Problem};
use super::target::Target;
use super::tls;

const CONNECT: Duration = Duration::from_secs(15);
/// Until the head of an answer is there, and between two pieces of one that has an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// What goes out piece by piece takes as long as it takes; the server has limits of its own.
const UPLOAD: Duration = Duration::from_secs(4 * 3600);
const MOST_ANSWER_BYTES: usize = 16 << 20;
const MOST_PROBLEM_BYTES: usize = 1 << 20;

pub(crate) struct Server {
    pub(crate) address: Address,
    token: Zeroizing<String>,
    tls: Option<TlsConnector>,
}

/// A request. The token is added when it is sent.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) target: Target,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) content: Content,
}

impl Call {
    pub(crate) fn get(target: Target) -> Self {
        Self { method: Method::GET, target, headers: Vec::new(), content: Content::Nothing }
    }

    pub(crate) fn new(method: Method, target: Target, content: Content) -> Self {
        Self { method, target, headers: Vec::new(), content }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An answer that is read piece by piece.
#[derive(Debug)]
pub(crate) struct Answer {
    address: Address,
    body: Incoming,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(
        address: Address,
        token: Zeroizing<String>,
        ca_file: Option<&Path>,
    ) -> Result<Self, ClientFault> {
        let tls = match address.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(TlsConnector::from(Arc::new(tls::config(ca_file)?))),
        };
        Ok(Self { address, token, tls })
    }

    /// A JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientFault> {
        let bytes = self.bytes(call, MOST_ANSWER_BYTES).await?;
        serde_json::from_slice(&bytes).map_err(|fault| self.unreadable(&fault.to_string()))
    }

    /// An answer whose success is all there is to know.
    pub(crate) async fn done(&self, call: Call) -> Result<(), ClientFault> {
        self.bytes(call, MOST_ANSWER_BYTES).await.map(drop)
    }

    /// An answer of so many bytes at most.
    pub(crate) async fn bytes(&self, call: Call, most: usize) -> Result<Bytes, ClientFault> {
        let body = self.send(call).await?.into_body();
        self.collect(body, most).await
    }

    /// An answer that is read piece by piece, without an end to its size or its time.
    pub(crate) async fn stream(&self, call: Call) -> Result<Answer, ClientFault> {
        let body = self.send(call).await?.into_body();
        Ok(Answer { address: self.address.clone(), body })
    }

    /// An answer of success; any other is the problem it tells of.
    async fn send(&self, call: Call) -> Result<Response<Incoming>, ClientFault> {
        let patience = match call.content {
            Content::Nothing | Content::Json(_) | Content::Document(_) | Content::Bytes(_) => PATIENCE,
            Content::Stream(_) => UPLOAD,
        };
        let answered = tokio::time::timeout(patience, self.exchange(call)).await;
        let answer = answered.unwrap_or(Err(self.late(patience)))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = self.collect(answer.into_body(), MOST_PROBLEM_BYTES).await.unwrap_or_default();
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let problem = problem.filter(|problem| !problem.code.is_empty());
        let problem = problem.unwrap_or_else(|| Problem::of_status(status.as_u16()));
        Err(ClientFault::Problem(Problem { status: status.as_u16(), ..problem }))
    }

    async fn exchange(&self, call: Call) -> Result<Response<Incoming>, ClientFault> {
        let request = self.request(call)?;
        let stream = self.connect().await?;
        let name = self.address.host.clone();
        match &self.tls {
            None => self.talk(stream, request).await,
            Some(tls) => {
                let failed = |source| ClientFault::Connect { address: self.address.clone(), source };
                let name =
                    ServerName::try_from(name).map_err(|fault| failed(std::io::Error::other(fault)))?;
                let secured = tokio::time::timeout(CONNECT, tls.connect(name, stream)).await;
                let secured = secured.map_err(|_| self.late(CONNECT))?.map_err(failed)?;
                self.talk(secured, request).await
            }
        }
    }

    async fn connect(&self) -> Result<TcpStream, ClientFault> {
        let place = (self.address.host.as_str(), self.address.port);
        let connected = tokio::time::timeout(CONNECT, TcpStream::connect(place)).await;
        let stream = match connected {
            Err(_) => return Err(self.late(CONNECT)),
            Ok(Err(fault)) if fault.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(ClientFault::Nobody(self.address.clone()));
            }
            Ok(Err(source)) => return Err(ClientFault::Connect { address: self.address.clone(), source }),
            Ok(Ok(stream)) => stream,
        };
        // A request is one write; waiting for more would only delay it.
        stream.set_nodelay(true).map_err(ClientFault::Prepare)?;
        Ok(stream)
    }

    async fn talk<S>(&self, stream: S, request: Request<Sent>) -> Result<Response<Incoming>, ClientFault>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let talk = |source| ClientFault::Talk { address: self.address.clone(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
        // Its failure is the failure of the request it carries.
        tokio::spawn(async move { drop(connection.await) });
        sender.send_request(request).await.map_err(talk)
    }

    fn request(&self, call: Call) -> Result<Request<Sent>, ClientFault> {
        let bearer = Zeroizing::new(format!("Bearer {}", self.token.as_str()));
        let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| ClientFault::Token)?;
        bearer.set_sensitive(true);
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.target.as_str())
            .header(header::HOST, self.address.authority())
            .header(header::USER_AGENT, concat!("pond/", env!("CARGO_PKG_VERSION")))
            .header(header::AUTHORIZATION, bearer);
        if let Some(kind) = call.content.kind() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        request.body(Sent::from(call.content)).map_err(ClientFault::Request)
    }

    async fn collect(&self, body: Incoming, most: usize) -> Result<Bytes, ClientFault> {
        let collected = tokio::time::timeout(PATIENCE, Limited::new(body, most).collect()).await;
        let collected = collected.map_err(|_| self.late(PATIENCE))?;
        collected
            .map(http_body_util::Collected::to_bytes)
            .map_err(|fault| self.unreadable(&fault.to_string()))
    }

    fn late(&self, waited: Duration) -> ClientFault {
        ClientFault::Late { address: self.address.clone(), seconds: waited.as_secs() }
    }

    pub(crate) fn unreadable(&self, reason: &str) -> ClientFault {
        ClientFault::Answer { address: self.address.clone(), reason: reason.to_owned() }
    }
}

impl Answer {
    /// The next piece; nothing at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientFault> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(source)) => return Err(ClientFault::Talk { address: self.address.clone(), source }),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}
