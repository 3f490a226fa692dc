//! The protocol over HTTP ("streamable HTTP", without streams: every answer is one JSON object, and there are no sessions).
//!
//! Invariants: it listens on an address of this machine's own, and no other; every request brings a token of the API, with which and
//! nothing else its tools are called; a page of a browser (it sends its origin) that is not of this machine is refused, and so is a
//! request whose host is another name, which is how a name elsewhere is led here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::Method;
use pond_control::listen::{self, Transport};
use serde_json::Value;
use tokio::net::TcpListener;

use super::rpc;
use crate::client::ServerArgs;
use crate::client::address::Address;
use crate::client::server::Server;
use crate::client::tokens;
use crate::output;
use crate::serve::runtime;
use crate::signals::SetAside;

const MOST_BODY: usize = 32 << 20;
const JSON: &str = "application/json";

/// Where tools are called.
#[derive(Debug)]
struct Upstream {
    address: Address,
    ca_file: Option<PathBuf>,
}

pub(super) fn main(address: SocketAddr, server: &ServerArgs) -> ExitCode {
    let served = SetAside::new().and_then(|signals| runtime()?.block_on(serve(address, server, signals)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => output::failed(&fault, false),
    }
}

async fn serve(address: SocketAddr, server: &ServerArgs, signals: SetAside) -> anyhow::Result<()> {
    let signals = signals.listen()?;
    if !address.ip().to_canonical().is_loopback() {
        bail!("{address} can be reached from other machines; serve MCP on 127.0.0.1 or [::1]");
    }
    let upstream = Arc::new(Upstream { address: server.address()?, ca_file: server.ca_file() });
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    let at = listener.local_addr().context("asking where it listens")?;
    output::lines(&format!("http://{at}/mcp"));
    let serve = move |request: Request| answer(Arc::clone(&upstream), request);
    listen::serve(listener, Transport::Plain, Router::new().route("/mcp", any(serve)), signals.next()).await;
    Ok(())
}

async fn answer(upstream: Arc<Upstream>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(why) = stranger(&parts.headers) {
        return refused(StatusCode::FORBIDDEN, why);
    }
    if parts.method != Method::POST {
        // No stream to open, no session to end.
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")]).into_response();
    }
    let Some(server) = server_of(&upstream, &parts.headers) else {
        let mut response = refused(StatusCode::UNAUTHORIZED, "send Authorization: Bearer pond_api_…");
        response.headers_mut().insert(WWW_AUTHENTICATE, axum::http::HeaderValue::from_static("Bearer"));
        return response;
    };
    let is_json = |media: &str| media.split(';').next().map(str::trim) == Some(JSON);
    if header(&parts.headers, CONTENT_TYPE).is_none_or(|media| !is_json(media)) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json");
    }
    let known = |version: &str| rpc::VERSIONS.contains(&version);
    if header(&parts.headers, HeaderName::from_static("mcp-protocol-version"))
        .is_some_and(|version| !known(version))
    {
        return refused(StatusCode::BAD_REQUEST, "a version of the protocol that is not known here");
    }
    let Ok(bytes) = to_bytes(body, MOST_BODY).await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "the message is larger than any that is taken");
    };
    match rpc::answer(&server, &bytes).await {
        Some(answer) => json(StatusCode::OK, &answer),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// Why a request is not for this server: it comes from a page elsewhere, or was led here under another name.
fn stranger(headers: &HeaderMap) -> Option<&'static str> {
    let here = |authority: &str| {
        let host = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let host = host.map_or(authority, |(host, _)| host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    };
    let origin_here = |origin: &str| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(here)
    };
    if headers.contains_key(ORIGIN) && !header(headers, ORIGIN).is_some_and(origin_here) {
        return Some("the page that sends this is not of this machine");
    }
    if !header(headers, HOST).is_some_and(here) {
        return Some("this server is called by the name of this machine only: localhost, 127.0.0.1 or [::1]");
    }
    None
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next()?, values.next());
    second.is_none().then(|| first.to_str().ok()).flatten()
}

/// The API, as who brought this token sees it.
fn server_of(upstream: &Upstream, headers: &HeaderMap) -> Option<Server> {
    let token = tokens::parse(header(headers, AUTHORIZATION)?.strip_prefix("Bearer ")?).ok()?;
    Server::new(upstream.address.clone(), token, upstream.ca_file.as_deref()).ok()
}

fn refused(status: StatusCode, why: &str) -> Response {
    json(status, &rpc::not_allowed(why))
}

fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, JSON)], Body::from(value.to_string())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pairs: &[(HeaderName, &str)]) -> bool {
        let headers: HeaderMap =
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        stranger(&headers).is_none()
    }

    #[test]
    fn only_this_machine_s_names_and_pages_are_heard() {
        for host in ["127.0.0.1:8000", "localhost", "localhost:1", "[::1]:8000", "127.0.0.2"] {
            assert!(judged(&[(HOST, host)]), "{host}");
            assert!(judged(&[(HOST, host), (ORIGIN, "http://localhost:3000")]));
        }
        for host in
            ["evil.example", "evil.example:8000", "10.0.0.1", "localhost.evil.example", "127.0.0.1.nip.io"]
        {
            assert!(!judged(&[(HOST, host)]), "{host}");
        }
        for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example", "file://"] {
            assert!(!judged(&[(HOST, "localhost"), (ORIGIN, origin)]), "{origin}");
        }
        assert!(!judged(&[]));
        assert!(!judged(&[(HOST, "localhost"), (HOST, "evil.example")]));
    }
}
