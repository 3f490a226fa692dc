//! `pond keeper`: the process that keeps one sandbox that lasts. Nobody starts it by hand: its order comes on standard input from
//! whoever asked for the sandbox, and it goes on when that one leaves.
//!
//! Zone: host. It holds the sandbox's lock, its events, pid 1's lifeline, the gateway and a socket at which it is called. When it dies
//! the kernel ends the sandbox's processes, and its disk stays: whoever looks next (`converge.rs`) sees a stopped sandbox.
//! No keeper exists for a sandbox that is stopped; one process waits for all of those until they are to be deleted (`waiter.rs`).

mod beside;
pub(crate) mod client;
pub(crate) mod converge;
mod copy;
mod desk;
pub(crate) mod exec;
mod hub;
mod ingress;
pub(crate) mod journal;
mod patience;
pub(crate) mod place;
mod ports;
pub(crate) mod protocol;
mod raise;
mod serve;
pub(crate) mod waiter;

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use pond_policy::life::{Event, Operation, State};
use pond_policy::sandboxes::Spec;
use pond_sandbox::state::StateDir;
use serde::{Deserialize, Serialize};

use crate::output::REFUSED;
use crate::run::Begun;
use crate::{runs, settings};
use hub::Hub;
use journal::{Detail, Journal};
use place::{Lock, Place, PlaceFault};
use protocol::{Kind, Refusal};

/// The word that chooses this role.
pub(crate) const NAME: &str = "keeper";

/// What a keeper is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Make a sandbox under this name from this document, which is JSON.
    Create { id: String, document: String },
    /// Start a stopped one again.
    Resume { id: String },
}

/// What a keeper says to whoever started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Told {
    /// It is written down, and will come to be or fail; whoever asked may leave.
    Accepted { id: String, sequence: u64 },
    /// It takes programs.
    Ready { sequence: u64 },
    /// Nothing was made, or nothing of it is left.
    Refused(Refusal),
}

pub(crate) fn main(launcher: Begun) -> ExitCode {
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(REFUSED) };
    let mut asker = UnixStream::from(socket);
    match accept(&mut asker) {
        Err(refusal) => {
            if let Err(_gone) = protocol::say(&mut asker, &Told::Refused(refusal)) {}
            ExitCode::from(REFUSED)
        }
        Ok(None) => ExitCode::from(REFUSED),
        Ok(Some(accepted)) => serve::keep(accepted, asker, launcher),
    }
}

/// A sandbox that is written down, and what is to become of it.
struct Accepted {
    hub: Arc<Hub>,
    listeners: Vec<(TcpListener, u16)>,
    lock: Lock,
    is_new: bool,
}

/// Nothing when nobody says what to do.
fn accept(asker: &mut UnixStream) -> Result<Option<Accepted>, Refusal> {
    let failed = |fault: anyhow::Error| Refusal::new("sandbox_failed", format!("{fault:#}"));
    let order = match protocol::read_frame(asker).map_err(|fault| failed(fault.into()))? {
        Some((Kind::Say, text)) => serde_json::from_slice(&text).map_err(|fault| failed(fault.into()))?,
        Some(_) | None => return Ok(None),
    };
    // Of its own: keys that interrupt whoever asked are not for it.
    if let Err(_leads_one_already) = rustix::process::setsid() {}
    if let Err(_as_many_as_there_are) = raise_descriptors() {}
    let state = runs::state().map_err(failed)?;
    let accepted = match order {
        Order::Create { id, document } => create(state, &id, &document)?,
        Order::Resume { id } => resume(state, &id)?,
    };
    Ok(Some(accepted))
}

/// A program holds seven descriptors of its keeper, and hundreds may run at the same time.
fn raise_descriptors() -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 8192;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let enough = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    match current {
        Some(current) if current < enough => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(enough), maximum })
        }
        Some(_) | None => Ok(()),
    }
}

fn create(state: StateDir, id: &str, document: &str) -> Result<Accepted, Refusal> {
    let spec = decided(document.as_bytes())?;
    ingress::check(&spec, &state)?;
    let listeners = ports::bind(&spec.ports)?;
    let (place, lock, journal) = Place::create(&state, id, document).map_err(refused)?;
    let hub = hub(place, spec, state, journal)?;
    Ok(Accepted { hub, listeners, lock, is_new: true })
}

fn resume(state: StateDir, id: &str) -> Result<Accepted, Refusal> {
    let settings =
        settings::sandbox().map_err(|_| Refusal::new("settings_invalid", "this host's settings"))?;
    let seen = converge::named(&state, id, &settings).map_err(refused)?;
    converge::permit(&seen, Operation::Resume)?;
    let spec = decided(&seen.place.document().map_err(refused)?)?;
    let listeners = ports::bind(&spec.ports)?;
    let lock = seen.place.lock_soon().map_err(refused)?;
    let Some(lock) = lock else { return Err(Refusal::wrong_state(State::Pending, Operation::Resume)) };
    let mut journal = Journal::open(seen.place.directory()).map_err(|fault| refused(fault.into()))?;
    let resumed = journal.append(Event::Resuming, Detail::default());
    resumed.map_err(|_| Refusal::wrong_state(journal.state(), Operation::Resume))?;
    let hub = hub(seen.place, spec, state, journal)?;
    Ok(Accepted { hub, listeners, lock, is_new: false })
}

fn hub(place: Place, spec: Spec, state: StateDir, journal: Journal) -> Result<Arc<Hub>, Refusal> {
    let made = Hub::new(place, spec, state, journal).context("keeping the sandbox");
    made.map(Arc::new).map_err(|fault| Refusal::new("sandbox_failed", format!("{fault:#}")))
}

/// Decided again by who enforces it, under this host's own settings.
fn decided(document: &[u8]) -> Result<Spec, Refusal> {
    let settings =
        settings::sandbox().map_err(|_| Refusal::new("settings_invalid", "this host's settings"))?;
    converge::read(document, &settings)
        .map_err(|fault| Refusal::new("sandbox_document_refused", format!("{fault:#}")))
}

fn refused(fault: PlaceFault) -> Refusal {
    let code = fault.code();
    Refusal::new(code, format!("{:#}", anyhow::Error::from(fault)))
}
