//! HTTP/1.1 to one server, over TLS or, to this machine only, without. Connections are kept and used again; a request is sent
//! again only when no byte of it had left. Every wait is bounded, and so is every reply that is read whole.
//!
//! HOSTILE INPUT: what answers may be anybody's orchestrator. Nothing here follows a redirect or believes a length.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

const MOST_IDLE: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(10);
const MOST_HEADERS: usize = 64;
const READ_BUFFER: usize = 64 << 10;

/// What a request carries: bytes, or a stream of them.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

#[derive(Debug, thiserror::Error)]
pub enum LinkFault {
    #[error("{0:?} is no address of a server: write https://HOST or https://HOST:PORT, without a path")]
    Address(String),
    #[error("{0} would be spoken to in the clear; only this very machine is: write https://")]
    Clear(String),
    #[error("the certificate authorities cannot be read as PEM")]
    Authorities,
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    #[error("connecting to {to}")]
    Connect { to: String, source: io::Error },
    #[error("the request cannot be written")]
    Request(#[from] http::Error),
    #[error("the connection was closed before the request was sent")]
    NotSent(#[source] hyper::Error),
    #[error("the answer was broken off")]
    Broken(#[source] hyper::Error),
    #[error("the server did not answer in time")]
    Late,
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
}

/// Where a server is, and the connections to it.
pub struct Link {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<(Line, Instant)>>,
}

/// One connection; dropping it closes it.
struct Line {
    sender: SendRequest<Body>,
    driver: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Bytes as what a request carries.
#[must_use]
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
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
        let tls = match is_tls {
            true => Some((connector(ca_pem)?, ServerName::try_from(host.clone()).map_err(|_| address())?)),
            false => None,
        };
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| address())?;
        Ok(Self { host, port, authority, tls, idle: Mutex::new(Vec::new()) })
    }

    /// Sends a request whose address is a path; its answer must begin within `patience`.
    pub async fn send(&self, request: Request<Body>, patience: Duration) -> Result<Reply<'_>, LinkFault> {
        let deadline = Instant::now() + patience;
        let mut request = request;
        request.headers_mut().insert(HOST, self.authority.clone());
        while let Some(line) = self.take_idle() {
            match self.try_line(line, request, deadline).await {
                Err((LinkFault::NotSent(_), Some(unsent))) => request = unsent,
                Err((fault, _)) => return Err(fault),
                Ok(reply) => return Ok(reply),
            }
        }
        let line = timeout_at(deadline, self.open()).await.map_err(|_| LinkFault::Late)??;
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
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Reply<'_>, (LinkFault, Option<Request<Body>>)> {
        match timeout_at(deadline, line.sender.try_send_request(request)).await {
            Err(_) => Err((LinkFault::Late, None)),
            Ok(Ok(response)) => Ok(Reply { link: self, line, response }),
            Ok(Err(mut fault)) => match fault.take_message() {
                Some(unsent) => Err((LinkFault::NotSent(fault.into_error()), Some(unsent))),
                None => Err((LinkFault::Broken(fault.into_error()), None)),
            },
        }
    }

    async fn open(&self) -> Result<Line, LinkFault> {
        let failed = |source| LinkFault::Connect { to: format!("{}:{}", self.host, self.port), source };
        let late = |_| failed(io::ErrorKind::TimedOut.into());
        let dialled = timeout(CONNECT_TIME, TcpStream::connect((self.host.as_str(), self.port))).await;
        let stream = dialled.map_err(late)?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &self.tls {
            None => line(stream).await,
            Some((tls, name)) => {
                let shaken = timeout(CONNECT_TIME, tls.connect(name.clone(), stream)).await;
                line(shaken.map_err(late)?.map_err(failed)?).await
            }
        }
    }
}

async fn line(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Line, LinkFault> {
    let mut http = http1::Builder::new();
    http.max_headers(MOST_HEADERS).max_buf_size(READ_BUFFER);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(LinkFault::NotSent)?;
    // Its errors also reach whoever waits for the answer.
    let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok(Line { sender, driver })
}

/// An answer whose body is still to be read.
pub struct Reply<'l> {
    link: &'l Link,
    line: Line,
    response: Response<Incoming>,
}

impl Reply<'_> {
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next bytes of the body; nothing at its end.
    pub async fn piece(&mut self, patience: Duration) -> Result<Option<Bytes>, LinkFault> {
        loop {
            let frame = timeout(patience, self.response.body_mut().frame()).await;
            match frame.map_err(|_| LinkFault::Late)? {
                None => return Ok(None),
                Some(frame) => match frame.map_err(LinkFault::Broken)?.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    /// The whole body, of at most so many bytes.
    pub async fn bytes(mut self, most: usize, patience: Duration) -> Result<Vec<u8>, LinkFault> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(patience).await? {
            if bytes.len() + piece.len() > most {
                return Err(LinkFault::TooLarge(most));
            }
            bytes.extend_from_slice(&piece);
        }
        self.done();
        Ok(bytes)
    }

    /// The body was read to its end: the connection may serve again.
    pub fn done(self) {
        let mut idle = self.link.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push((self.line, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({}:{})", self.host, self.port)
    }
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({})", self.status())
    }
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn connector(ca_pem: Option<&str>) -> Result<TlsConnector, LinkFault> {
    let roots = match ca_pem {
        None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
        Some(pem) => authorities(pem).filter(|roots| !roots.is_empty()).ok_or(LinkFault::Authorities)?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(LinkFault::Tls)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(pem: &str) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.ok()?).ok()?;
    }
    Some(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Link::new(url, None).unwrap_err().to_string()
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for here in
            ["http://127.0.0.1:8080", "http://[::1]:8080/", "http://localhost:1", "https://pond.acme.com"]
        {
            assert!(Link::new(here, None).is_ok(), "{here}");
        }
        for there in ["http://10.0.0.1:80", "http://pond.acme.com", "http://localhost.evil.com"] {
            assert!(refused(there).contains("in the clear"), "{there}");
        }
        for none in
            ["pond.acme.com", "ftp://a", "https://a/b", "https://a?b", "https://u:p@a", "", "https://"]
        {
            assert!(refused(none).contains("no address of a server"), "{none}");
        }
        assert!(matches!(Link::new("https://a", Some("no pem")), Err(LinkFault::Authorities)));
    }
}
