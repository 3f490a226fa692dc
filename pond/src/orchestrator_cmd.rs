//! `pond orchestrator`: holds the polls of workers and passes their calls on to a control plane. It keeps nothing, opens nothing and
//! decides nothing that counts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use pond_control::listen::serve;
use pond_orchestrator::serve::{Upstream, router};
use pond_orchestrator::{Bounds, FeedFault, Link, Relay, follow_there};
use tokio::net::TcpListener;
use zeroize::Zeroizing;

use crate::output::{self, REFUSED};
use crate::serve::listen::ListenArgs;
use crate::serve::runtime;
use crate::signals::SetAside;
use crate::worker_cmd::serve::log;
use crate::{input, settings};

const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7576);
const TOKEN: &str = "POND_RELAY_TOKEN";
const MOST_TOKEN: usize = 256;
/// What waits at most; the control plane tells again what found no room.
pub(crate) const BOUNDS: Bounds = Bounds { intents: 10_000, intents_per_project: 2_000, waiting: 10_000 };

/// Hold the polls of workers, and pass their calls on to a control plane.
#[derive(Debug, Args)]
pub(crate) struct OrchestratorArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// The control plane: https://HOST or https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    control: String,
    /// The certificate authorities the control plane is checked with, as PEM, instead of the public ones.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A file with the token of kind `relay`; else it is read from POND_RELAY_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) fn main(args: &OrchestratorArgs) -> ExitCode {
    let served = SetAside::new().and_then(|signals| runtime()?.block_on(run(args, signals)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            output::say(&format!("pond orchestrator: {fault:#}"));
            ExitCode::from(REFUSED)
        }
    }
}

async fn run(args: &OrchestratorArgs, signals: SetAside) -> anyhow::Result<()> {
    let signals = signals.listen()?;
    let transport = args.listen.transport(USUAL)?;
    let token = token(args)?;
    let ca_pem = args.ca_file.as_deref().map(text).transpose()?;
    let link = Arc::new(Link::new(&args.control, ca_pem.as_deref().map(String::as_str))?);
    let address = args.listen.address(USUAL);
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let relay = Arc::new(Relay::new(BOUNDS));
    let (following, to) = (Arc::clone(&relay), Arc::clone(&link));
    let feed = tokio::spawn(async move {
        let report = |fault: &FeedFault| log("feed_ended", &[("error", &pond_worker::because(fault))]);
        follow_there(&following, &to, &token, report).await;
    });
    log("listening", &[("address", &listener.local_addr()?)]);
    serve(listener, transport, router(Upstream::There(link), relay), signals.next()).await;
    feed.abort();
    Ok(())
}

fn token(args: &OrchestratorArgs) -> anyhow::Result<Zeroizing<String>> {
    let text = match &args.token_file {
        Some(file) => text(file)?,
        None => {
            let bytes =
                settings::secret(TOKEN).with_context(|| format!("give --token-file, or set {TOKEN}"))?;
            Zeroizing::new(String::from_utf8(bytes.to_vec()).with_context(|| format!("{TOKEN} is not text"))?)
        }
    };
    let token = Zeroizing::new(text.trim().to_owned());
    if token.is_empty() || token.len() > MOST_TOKEN {
        bail!("the token is empty or too long");
    }
    Ok(token)
}

fn text(file: impl AsRef<std::path::Path>) -> anyhow::Result<Zeroizing<String>> {
    let file = file.as_ref();
    let bytes = input::from_trusted_file(file).map_err(|refusal| anyhow::anyhow!(refusal.message))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not text", file.display()))?;
    Ok(Zeroizing::new(text))
}
