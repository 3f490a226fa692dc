//! `pond up`: control plane, orchestrator and one worker, in one process, for one machine.
//!
//! The worker is like any other: it enrolled with a token, its keys are pinned, and it speaks the protocol, over a listener of its
//! own that nobody else needs to reach. Sandboxes that last have keepers of their own, which outlive it (`keeping`). What it holds lies apart from the control plane's state, and its jobs and their sandboxes
//! are processes of their own. The first signal lets jobs end; the second gives them up.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pond_control::listen::{self, Transport};
use pond_control::plane::Plane;
use pond_control::store::{Actor, Grant, WorkerId, WorkerState};
use pond_policy::sandboxes::Share;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use pond_seal::enroll::JoinToken;
use pond_worker::daemon::{Daemon, Phase, Place, Session, Spare, look, run};
use pond_worker::link::Link;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::client::address::Address;
use crate::client::tokens;
use crate::keeping::Here;
use crate::run::OWN_EXECUTABLE;
use crate::serve::{self, ServeArgs, Serving};
use crate::signals::SetAside;
use crate::worker_cmd::join::enroll_as;
use crate::worker_cmd::membership::Membership;
use crate::worker_cmd::serve::{log, phases, working};
use crate::{output, settings};

/// How long the token of this machine's own worker is good: it is used at once.
const JOINING: Duration = Duration::from_secs(60);

/// Run everything on this machine: control plane, orchestrator and a worker.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// How many jobs at once; as many as this machine has processors.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// A file or directory of this machine that sandboxes asked for through the API may have, read-only; by its absolute path.
    #[arg(long = "share", value_name = "PATH")]
    shares: Vec<String>,
    /// The same, and they may change it.
    #[arg(long = "share-writable", value_name = "PATH")]
    writable_shares: Vec<String>,
}

impl UpArgs {
    fn shares(&self) -> Vec<Share> {
        let share = |writable| move |path: &String| Share { path: path.clone(), writable };
        self.shares.iter().map(share(false)).chain(self.writable_shares.iter().map(share(true))).collect()
    }
}

pub(crate) fn main(args: &UpArgs) -> ExitCode {
    let up = SetAside::new().and_then(|signals| serve::runtime()?.block_on(up(args, signals)));
    match up {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => output::failed(&fault, args.serve.json),
    }
}

async fn up(args: &UpArgs, signals: SetAside) -> anyhow::Result<()> {
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let place = Place::open(&state)?;
    let _alone = place.take()?;
    let phase = phases(signals)?;
    let serving = Serving::begin(&args.serve).await?;
    keep_token(&state, &serving)?;
    serving.announce(args.serve.json).await?;
    let plane = Arc::clone(&serving.plane);
    let inside = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
    let inside = inside.context("listening for this machine's own worker")?;
    let address = format!("http://{}", inside.local_addr().context("asking where it listens")?);
    let here = Here::open(&state, plane.settings, args.shares())?;
    let settling = tokio::spawn(here.clone().settle());
    let doors = serving.doors(Some(Arc::new(here)));
    let (end_inside, inside_ended) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel::<()>();
    let own = tokio::spawn(listen::serve(inside, Transport::Plain, doors.clone(), gone(inside_ended)));
    let others = tokio::spawn(serving.serve(doors, gone(ended)));
    let worked = work(args, &plane, place, &address, phase).await;
    for end in [end_inside, end] {
        // Whoever listened may have ended by itself.
        if end.send(()).is_err() {}
    }
    settling.abort();
    own.await.context("the listener of this machine's own worker")?;
    others.await.context("the control plane")?;
    worked
}

/// The worker, until it is told to end and its jobs are over.
async fn work(
    args: &UpArgs,
    plane: &Plane,
    place: Place,
    address: &str,
    phase: tokio::sync::watch::Receiver<Phase>,
) -> anyhow::Result<()> {
    let capabilities = look(Path::new(OWN_EXECUTABLE)).await?;
    let session = member(plane, &place, address, &capabilities).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let daemon = Daemon {
        session,
        place,
        settings: plane.settings,
        executable: PathBuf::from(OWN_EXECUTABLE),
        slots: args.jobs.map_or(cores, usize::from),
        log,
        changed: Notify::new(),
        spare: Spare::default(),
    };
    working(&daemon.session.worker, &capabilities);
    run(Arc::new(daemon), capabilities, phase).await;
    Ok(())
}

/// This machine as a worker of this control plane: as before, or enrolled now.
async fn member(
    plane: &Plane,
    place: &Place,
    address: &str,
    capabilities: &[String],
) -> anyhow::Result<Session> {
    let ours = plane.key.public();
    if place.membership().exists() {
        let session = Membership::session(place)?;
        if session.control != ours {
            bail!(
                "this machine is a worker of another control plane: {} says whose. Run `pond worker run` for that one, or set \
                 POND_STATE_DIR to another directory",
                place.membership().display()
            );
        }
        if is_known(plane, &session.worker).await? {
            return Ok(Session { link: Link::new(address, None)?, ..session });
        }
        // The store forgot it, or somebody revoked it: the keys are worth nothing, and new ones take their place.
        std::fs::remove_file(place.membership()).context("leaving an earlier membership")?;
    }
    let token = JoinToken::issue(&ours).context("making a token for this machine")?;
    let expires_at = plane.now().plus(JOINING);
    let grant = Grant { tier: Tier::Trusted, tenant: None, tags: &[], expires_at };
    let hash = Digest::try_from(token.hash().to_string()).context("the token's hash")?;
    let issued = plane.store.issue_enrollment(&hash, grant, &Actor::System, plane.now()).await;
    issued.context("granting this machine a place among the workers")?;
    enroll_as(place, address, None, &token, capabilities.to_vec()).await?;
    Membership::session(place)
}

async fn is_known(plane: &Plane, worker: &str) -> anyhow::Result<bool> {
    let Some(id) = WorkerId::parse(worker) else { return Ok(false) };
    let known = plane.store.worker(&id).await.context("asking for this machine's worker")?;
    Ok(known.is_some_and(|view| view.state != WorkerState::Revoked))
}

/// `pond submit` and its like find the token without being told.
fn keep_token(state: &Path, serving: &Serving) -> anyhow::Result<()> {
    let Some(token) = serving.first_token() else { return Ok(()) };
    let address = Address::parse(&serving.address);
    let address = address.with_context(|| format!("{} is no address of a server", serving.address))?;
    tokens::keep(state, &address, &token)?;
    Ok(())
}

async fn gone(end: oneshot::Receiver<()>) {
    // Sent or dropped, it is over.
    if end.await.is_err() {}
}
