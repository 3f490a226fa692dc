//! `pond serve`: the control plane. It opens or makes its state, binds, and serves until it is told to end.
//!
//! TRUSTED, and the only process that reads everything. Invariants: it listens beyond this machine with TLS or by explicit word
//! only; the first admin token is printed once, to standard output, and nowhere else; what is logged is a line of JSON on
//! standard error, and holds no secret.

pub(crate) mod listen;
mod log;
pub(crate) mod state;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use clap::Args;
use pond_control::keeper::Keeper;
use pond_control::listen::Transport;
use pond_control::plane::Plane;
use pond_control::{api, protocol, ticker};
use pond_orchestrator::{Relay, follow_here};
use pond_seal::bearer::Bearer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use crate::orchestrator_cmd::BOUNDS;
use crate::output;
use crate::signals::SetAside;
use listen::ListenArgs;

const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7575);

/// Run the control plane.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Say where it listens as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn main(args: &ServeArgs) -> ExitCode {
    let served = SetAside::new().and_then(|signals| runtime()?.block_on(serve(args, signals)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => output::failed(&fault, args.json),
    }
}

pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}

async fn serve(args: &ServeArgs, signals: SetAside) -> anyhow::Result<()> {
    let signals = signals.listen()?;
    let serving = Serving::begin(args).await?;
    serving.announce(args.json).await?;
    let doors = serving.doors(None);
    serving.serve(doors, signals.next()).await;
    Ok(())
}

/// A control plane that is ready, and has said nothing yet.
pub(crate) struct Serving {
    pub(crate) plane: Arc<Plane>,
    pub(crate) address: String,
    pace: ticker::Pace,
    listener: TcpListener,
    transport: Transport,
    first_token: Option<Bearer>,
}

impl Serving {
    pub(crate) async fn begin(args: &ServeArgs) -> anyhow::Result<Self> {
        log::to_stderr()?;
        let transport = args.listen.transport(USUAL)?;
        let scheme = match transport {
            Transport::Plain => "http",
            Transport::Tls(_) => "https",
        };
        let wanted = args.listen.address(USUAL);
        let listener = TcpListener::bind(wanted).await.with_context(|| format!("listening at {wanted}"))?;
        let address = format!("{scheme}://{}", listener.local_addr().context("asking where it listens")?);
        let state::Opened { plane, pace } = state::open().await?;
        let plane = Arc::new(plane);
        let first_token = state::first_token(&plane).await?;
        Ok(Self { plane, address, pace, listener, transport, first_token })
    }

    /// Of a control plane that starts for the first time.
    pub(crate) fn first_token(&self) -> Option<Zeroizing<String>> {
        self.first_token.as_ref().map(Bearer::to_text)
    }

    /// The one place where the first token is shown. What nobody saw is taken back.
    pub(crate) async fn announce(&self, as_json: bool) -> anyhow::Result<()> {
        let token = self.first_token();
        if !announce(&self.address, token.as_ref().map(|text| text.as_str()), as_json) {
            state::take_back(&self.plane, self.first_token.as_ref()).await?;
            bail!("standard output could not be written to");
        }
        tracing::info!(address = self.address, "listening");
        Ok(())
    }

    /// Everything a control plane serves: people, and workers with an orchestrator between that lives in this process; and sandboxes,
    /// if somebody keeps them.
    pub(crate) fn doors(&self, keeper: Option<Arc<dyn Keeper>>) -> Router {
        let (plane, relay) = (&self.plane, Arc::new(Relay::new(BOUNDS)));
        let (feed, hearing) = (protocol::feed::follow(Arc::clone(plane)), Arc::clone(&relay));
        tokio::spawn(async move { follow_here(&hearing, feed).await });
        let upstream = pond_orchestrator::serve::Upstream::Here(protocol::router(Arc::clone(plane)));
        let workers = pond_orchestrator::serve::router(upstream, relay);
        api::router_with(Arc::clone(plane), api::Rates::default(), keeper)
            .merge(protocol::noting(Arc::clone(plane), workers))
            .merge(protocol::feed::router(Arc::clone(plane)))
            .fallback(api::nothing_here)
            .method_not_allowed_fallback(api::wrong_method)
    }

    pub(crate) async fn serve(self, doors: Router, end: impl Future<Output = ()>) {
        let ticking = tokio::spawn(tick(Arc::clone(&self.plane), self.pace));
        pond_control::listen::serve(self.listener, self.transport, doors, end).await;
        ticking.abort();
        self.plane.store.close().await;
        tracing::info!("ended");
    }
}

async fn tick(plane: Arc<Plane>, pace: ticker::Pace) {
    let report = |fault: &(dyn std::error::Error + 'static)| {
        tracing::error!(fault, "a round of the clock failed");
    };
    ticker::run(plane, pace, report).await;
}

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
