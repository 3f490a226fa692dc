//! A listener: connections accepted, bounded in number and patience, spoken to over HTTP/1.1, with TLS or without.
//!
//! TRUSTED, facing anybody. Who is slow to say what he wants is let go; who is being answered when the end comes may be answered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::Peer;

/// Connections at once.
const MOST_CONNECTIONS: usize = 1024;
/// How long a client may take for its handshake, and for the head of each request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long those who are being answered when the end comes may still take.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// What the head of a request may have.
const MOST_HEAD: usize = 32 << 10;
/// After a failed accept; the usual cause is that there are too many open files.
const BREATH: Duration = Duration::from_millis(50);

/// What connections are spoken to with.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a TLS key")]
pub enum Transport {
    Plain,
    Tls(Arc<rustls::ServerConfig>),
}

/// Serves until `end`, and then until nobody is being answered any more or the last words take too long.
pub async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: Router,
    end: impl Future<Output = ()>,
) {
    let (graceful, slots) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    let mut end = std::pin::pin!(end);
    loop {
        let slot = tokio::select! {
            () = &mut end => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let accepted = tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(fault) => {
                tracing::warn!(fault = &fault as &dyn std::error::Error, "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let (transport, router, watcher) = (transport.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            connected(stream, peer, transport, router, watcher).await;
            std::mem::drop(slot);
        });
    }
    std::mem::drop(listener);
    if tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await.is_err() {
        tracing::info!("some were still being answered");
    }
}

async fn connected(
    stream: TcpStream,
    peer: SocketAddr,
    transport: Transport,
    router: Router,
    watcher: Watcher,
) {
    // Small answers go out at once; where it cannot be set they go out a little later.
    if let Err(fault) = stream.set_nodelay(true) {
        tracing::debug!(fault = &fault as &dyn std::error::Error, "no TCP_NODELAY");
    }
    match transport {
        Transport::Plain => speak(stream, peer, router, watcher).await,
        Transport::Tls(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(PATIENCE, handshake).await {
                Ok(Ok(stream)) => speak(stream, peer, router, watcher).await,
                Ok(Err(fault)) => tracing::debug!(fault = &fault as &dyn std::error::Error, "no TLS"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    watcher: Watcher,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        let mut router = router.clone();
        async move {
            let answered = tower::Service::call(&mut router, request.map(Body::new)).await;
            answered.map_err(|never: Infallible| never)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(fault) = watcher.watch(connection).await {
        tracing::debug!(fault = &fault as &dyn std::error::Error, "a connection ended");
    }
}
