//! HTTP/1.1 to the control plane, over TLS or, on this machine, without. Connections are kept and used again; a request is never sent
//! twice, because it passes once. Every wait is bounded.
//!
//! What comes back is passed on unread.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const MOST_IDLE: usize = 64;
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// From the request to the head of the answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);

type Sender = SendRequest<Full<Bytes>>;

#[derive(Debug, thiserror::Error)]
pub enum LinkFault {
    #[error(
        "{0:?} is no address of a control plane: write https://HOST or https://HOST:PORT, without a path"
    )]
    Address(String),
    #[error("{0} would be spoken to in the clear; only this very machine is: write https://")]
    Clear(String),
    #[error("the certificate authorities cannot be read as PEM")]
    Authorities,
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    #[error("connecting to the control plane")]
    Connect(#[source] std::io::Error),
    #[error("the control plane did not answer in time")]
    Late,
    #[error("the connection to the control plane broke")]
    Broken(#[source] hyper::Error),
}

/// Why there is no answer; with the request, if no byte of it had left.
struct Unsent(LinkFault, Option<Request<Full<Bytes>>>);

/// Where the control plane is, and the connections to it.
#[derive(Debug)]
pub struct Link {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<Tls>,
    idle: Mutex<Vec<Sender>>,
}

struct Tls(TlsConnector, ServerName<'static>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.1)
    }
}

impl Link {
    /// `ca_pem` replaces the built-in authorities: whoever has their own trusts no others.
    pub fn new(url: &str, ca_pem: Option<&str>) -> Result<Self, LinkFault> {
        let address = || LinkFault::Address(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| address())?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(_) | None => return Err(address()),
        };
        let (Some(authority), "/" | "", None) = (uri.authority(), uri.path(), uri.query()) else {
            return Err(address());
        };
        if authority.as_str().contains('@') {
            return Err(address());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if !is_tls && !is_here(&host) {
            return Err(LinkFault::Clear(host));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let name = || ServerName::try_from(host.clone()).map_err(|_| address());
        let tls = if is_tls { Some(Tls(connector(ca_pem)?, name()?)) } else { None };
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| address())?;
        Ok(Self { host, port, authority, tls, idle: Mutex::default() })
    }

    /// Sends a request whose address is a path. The body of the answer is passed on as it comes.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Bytes>,
    ) -> Result<Response<Body>, LinkFault> {
        request.headers_mut().insert(HOST, self.authority.clone());
        let mut request = request.map(Full::new);
        while let Some(sender) = self.take_idle() {
            match self.speak(sender, request).await {
                Ok(response) => return Ok(response),
                Err(Unsent(_, Some(unsent))) => request = unsent,
                Err(Unsent(fault, None)) => return Err(fault),
            }
        }
        let sender = timeout(CONNECT_TIME, self.open()).await.map_err(|_| LinkFault::Late)??;
        self.speak(sender, request).await.map_err(|Unsent(fault, _)| fault)
    }

    async fn speak(
        self: &Arc<Self>,
        mut sender: Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, Unsent> {
        let response = match timeout(ANSWER_TIME, sender.try_send_request(request)).await {
            Err(_) => return Err(Unsent(LinkFault::Late, None)),
            Ok(Err(mut fault)) => {
                let unsent = fault.take_message();
                return Err(Unsent(LinkFault::Broken(fault.into_error()), unsent));
            }
            Ok(Ok(response)) => response,
        };
        let link = Arc::clone(self);
        Ok(response.map(|incoming| Body::new(Passing { incoming, line: Some((sender, link)) })))
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Sender::is_ready);
        idle.pop()
    }

    async fn open(&self) -> Result<Sender, LinkFault> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(LinkFault::Connect)?;
        stream.set_nodelay(true).map_err(LinkFault::Connect)?;
        match &self.tls {
            None => line(stream).await,
            Some(Tls(tls, name)) => {
                line(tls.connect(name.clone(), stream).await.map_err(LinkFault::Connect)?).await
            }
        }
    }
}

async fn line(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, LinkFault> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(LinkFault::Broken)?;
    // It ends with its sender; its errors reach whoever waits for the answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// The body of an answer. Read to its end, its connection serves again.
struct Passing {
    incoming: Incoming,
    line: Option<(Sender, Arc<Link>)>,
}

impl hyper::body::Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if frame.is_none() {
            self.done();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.incoming.size_hint()
    }
}

impl Passing {
    fn done(&mut self) {
        if let Some((sender, link)) = self.line.take() {
            let mut idle = link.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                idle.push(sender);
            }
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // Whoever reads by length does not ask for the frame after the last.
        if self.incoming.is_end_stream() {
            self.done();
        }
    }
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn connector(ca_pem: Option<&str>) -> Result<TlsConnector, LinkFault> {
    let mut roots = RootCertStore::empty();
    match ca_pem {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| LinkFault::Authorities)?;
                roots.add(certificate).map_err(|_| LinkFault::Authorities)?;
            }
        }
    }
    if roots.is_empty() {
        return Err(LinkFault::Authorities);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(LinkFault::Tls)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
