//! `pond serve`: the control plane. It opens or makes its state, binds, and serves until it is told to end.
//!
//! TRUSTED, and the only process that reads everything. Invariants: it listens beyond this machine with TLS or by explicit word
//! only; the first admin token is printed once, to standard output, and nowhere else; what is logged is a line of JSON on
//! standard error, and holds no secret.

mod log;
pub(crate) mod state;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use clap::Args;
use pond_control::plane::Plane;
use pond_control::{api, listen, protocol, ticker};
use pond_orchestrator::{Bounds, Relay, follow_here};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::output;

/// What the orchestrator in this process holds at most. What does not fit is announced again.
const HELD: Bounds = Bounds { intents: 10_000, intents_per_project: 2_000, waiting: 1_000 };

/// Run the control plane.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7575")]
    listen: SocketAddr,
    /// The certificate chain to show, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS: every token that is sent can be read on the way.
    #[arg(long)]
    insecure_public: bool,
    /// Say where it listens as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: &ServeArgs) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime");
    match runtime.and_then(|runtime| runtime.block_on(serve(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => output::failed(&fault, args.json),
    }
}

async fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    log::to_stderr()?;
    let transport = transport(args)?;
    let scheme = match transport {
        listen::Transport::Plain => "http",
        listen::Transport::Tls(_) => "https",
    };
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("listening at {}", args.listen))?;
    let address = format!("{scheme}://{}", listener.local_addr().context("asking where it listens")?);
    let opened = state::open().await?;
    let plane = Arc::new(opened.plane);
    let token = state::first_token(&plane).await?;
    let shown = token.as_ref().map(|token| token.to_text());
    if !announce(&address, shown.as_ref().map(|text| text.as_str()), args.json) {
        state::take_back(&plane, token.as_ref()).await?;
        bail!("standard output could not be written to");
    }
    tracing::info!(address, "listening");
    let ticking = tokio::spawn(tick(Arc::clone(&plane)));
    listen::serve(listener, transport, doors(&plane), told_to_end()?).await;
    ticking.abort();
    plane.store.close().await;
    tracing::info!("ended");
    Ok(())
}

/// Everything a control plane serves: people, and workers with an orchestrator between that lives in this process.
pub(crate) fn doors(plane: &Arc<Plane>) -> Router {
    let relay = Arc::new(Relay::new(HELD));
    let (feed, hearing) = (protocol::feed::follow(Arc::clone(plane)), Arc::clone(&relay));
    tokio::spawn(async move { follow_here(&hearing, feed).await });
    let upstream = pond_orchestrator::serve::Upstream::Here(protocol::router(Arc::clone(plane)));
    api::router(Arc::clone(plane), api::Rates::default())
        .merge(pond_orchestrator::serve::router(upstream, relay))
        .fallback(api::nothing_here)
        .method_not_allowed_fallback(api::wrong_method)
}

async fn tick(plane: Arc<Plane>) {
    let report = |fault: &pond_control::store::Fault| {
        tracing::error!(fault = fault as &dyn std::error::Error, "a round of the clock failed");
    };
    ticker::run(plane, ticker::Pace::default(), report).await;
}

/// What is spoken; a refusal where that would show tokens to the network.
fn transport(args: &ServeArgs) -> anyhow::Result<listen::Transport> {
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        return tls::config(cert, key).map(|config| listen::Transport::Tls(Arc::new(config)));
    }
    if !args.listen.ip().to_canonical().is_loopback() && !args.insecure_public {
        bail!(
            "{} can be reached from other machines: give --tls-cert and --tls-key, or, behind a proxy that has TLS, --insecure-public",
            args.listen
        );
    }
    Ok(listen::Transport::Plain)
}

/// The one place where the first token is shown.
fn announce(address: &str, token: Option<&str>, as_json: bool) -> bool {
    if as_json {
        return output::lines(&json!({"listening": address, "admin_token": token}).to_string())
            == ExitCode::SUCCESS;
    }
    let mut text = format!("pond serves at {address}");
    if let Some(token) = token {
        text += &format!("\nThe first admin token, shown this once: {token}");
    }
    output::lines(&text) == ExitCode::SUCCESS
}

fn told_to_end() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
