//! `pond serve`: the control plane. It opens or makes its state, binds, and serves until it is told to end.
//!
//! TRUSTED, and the only process that reads everything. Invariants: it listens beyond this machine with TLS or by explicit word
//! only; the first admin token is printed once, to standard output, and nowhere else; what is logged is a line of JSON on
//! standard error, and holds no secret.

pub(crate) mod listen;
mod log;
pub(crate) mod state;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use clap::Args;
use pond_control::listen::{Transport, serve as speak};
use pond_control::plane::Plane;
use pond_control::{api, protocol, ticker};
use pond_orchestrator::{Bounds, Relay, follow_here};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::output;
use listen::ListenArgs;

/// What the orchestrator in this process holds at most. What does not fit is announced again.
const HELD: Bounds = Bounds { intents: 10_000, intents_per_project: 2_000, waiting: 1_000 };

/// Where a control plane listens unless told otherwise.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7575);

/// Run the control plane.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
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
    let transport = args.listen.transport(USUAL)?;
    let asked = args.listen.address(USUAL);
    let scheme = match transport {
        Transport::Plain => "http",
        Transport::Tls(_) => "https",
    };
    let listener = TcpListener::bind(asked).await;
    let listener = listener.with_context(|| format!("listening at {asked}"))?;
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
    speak(listener, transport, doors(&plane), told_to_end()?).await;
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
        .merge(protocol::feed::router(Arc::clone(plane)))
        .fallback(api::nothing_here)
        .method_not_allowed_fallback(api::wrong_method)
}

async fn tick(plane: Arc<Plane>) {
    let report = |fault: &pond_control::store::Fault| {
        tracing::error!(fault = fault as &dyn std::error::Error, "a round of the clock failed");
    };
    ticker::run(plane, ticker::Pace::default(), report).await;
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
