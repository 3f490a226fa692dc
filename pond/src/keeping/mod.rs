//! The sandboxes of this machine, for the control plane in the same process: what it asks for through its trait becomes calls of
//! keepers, which are processes of their own and outlive this one.
//!
//! Zone: host. Whose a sandbox is lies beside it (`owner.rs`), not in its document, which its owner wrote. Every call is made on a
//! thread that may wait, and looks at the sandbox anew: nothing is remembered here that a keeper or the disk knows better.

mod files;
mod owner;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pond_control::keeper::{Answer, KeepFault, Keeper, Kept, Output, Wanted};
use pond_policy::life::{Operation, State};
use pond_policy::sandboxes::{SandboxId, Share};
use pond_policy::settings::Settings;
use pond_sandbox::state::StateDir;
use pond_wire::api::{ExecView, NewExec, SandboxEvent};
use tokio::sync::Mutex;

use crate::keeper::client::{Call, Starting};
use crate::keeper::converge::{self, Seen};
use crate::keeper::journal::{Detail, Journal};
use crate::keeper::place::PlaceFault;
use crate::keeper::protocol::{self, Refusal, Request};
use crate::keeper::{Order, Told};
use owner::Owners;

/// How often those that nobody asks about are looked at: a lost keeper, a time that is up.
const SETTLE: Duration = Duration::from_secs(30);
const STACK: usize = 128 << 10;
/// How long whoever asked for an end waits for its beginning: two seconds.
const LOOKS: u32 = 200;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Keepers on this machine, below one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Here {
    place: Arc<Place>,
    /// Held while an id is given: two who ask for the same one come one after the other.
    giving: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct Place {
    state: StateDir,
    owners: Owners,
    settings: Settings,
    shares: Vec<Share>,
}

impl Here {
    pub(crate) fn open(state: &Path, settings: Settings, shares: Vec<Share>) -> anyhow::Result<Self> {
        let owners = Owners::open(state)?;
        let place = Place { state: StateDir::open(state)?, owners, settings, shares };
        Ok(Self { place: Arc::new(place), giving: Arc::default() })
    }

    /// For as long as the control plane runs: what time alone brings about.
    pub(crate) async fn settle(self) {
        loop {
            if let Err(fault) = self.work(|place| place.all().map(drop)).await {
                tracing::warn!(fault = &fault as &dyn std::error::Error, "sandboxes were not looked at");
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn work<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Place) -> Result<T, KeepFault> + Send + 'static,
    ) -> Result<T, KeepFault> {
        let place = Arc::clone(&self.place);
        let done = tokio::task::spawn_blocking(move || act(&place)).await;
        done.map_err(|fault| KeepFault::Failed(Box::new(fault)))?
    }

    fn with<'a, T: Send + 'static>(
        &'a self,
        id: &SandboxId,
        act: impl FnOnce(&Place, Seen) -> Result<T, KeepFault> + Send + 'static,
    ) -> Answer<'a, T> {
        let id = id.clone();
        Box::pin(self.work(move |place| {
            let seen = place.seen(&id)?;
            act(place, seen)
        }))
    }
}

impl Place {
    fn seen(&self, id: &SandboxId) -> Result<Seen, KeepFault> {
        Ok(converge::named(&self.state, id.as_str(), &self.settings)?)
    }

    fn all(&self) -> Result<Vec<Seen>, KeepFault> {
        converge::all(&self.state, &self.settings).map_err(broken)
    }

    fn kept(&self, id: &SandboxId) -> Result<Kept, KeepFault> {
        self.shown(&self.seen(id)?)
    }

    /// As it is once its keeper has begun with what it took on, or a moment later.
    fn moved(&self, id: &SandboxId, from: State) -> Result<Kept, KeepFault> {
        for _ in 0..LOOKS {
            let seen = self.seen(id)?;
            if seen.state != from || from.is_terminal() {
                return self.shown(&seen);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        self.kept(id)
    }

    fn shown(&self, seen: &Seen) -> Result<Kept, KeepFault> {
        let view = view::sandbox(seen, &self.settings)?;
        Ok(Kept { view, own: self.owners.of(&seen.place) })
    }

    fn create(&self, wanted: &Wanted) -> Result<Kept, KeepFault> {
        match self.seen(&wanted.id) {
            Ok(seen) => return Err(KeepFault::Taken(Box::new(self.shown(&seen)?))),
            Err(KeepFault::Unknown) => {}
            Err(fault) => return Err(fault),
        }
        let document = String::from_utf8(wanted.document.clone()).map_err(failed)?;
        self.owners.write(&wanted.id, document.as_bytes(), &wanted.own).map_err(failed)?;
        start(&Order::Create { id: wanted.id.to_string(), document })?;
        self.kept(&wanted.id)
    }

    fn resume(&self, id: &SandboxId) -> Result<Kept, KeepFault> {
        let seen = self.seen(id)?;
        converge::permit(&seen, Operation::Resume)?;
        start(&Order::Resume { id: id.to_string() })?;
        self.kept(id)
    }

    fn delete(&self, seen: &Seen) -> Result<(), KeepFault> {
        match (seen.state, seen.is_kept) {
            (State::Deleting | State::Deleted, _) => Ok(()),
            (State::Pending | State::Ready, true) => ask(seen, &Request::Delete).map(drop),
            (State::Stopped | State::Failed, _) | (State::Pending | State::Ready, false) => {
                let lock = seen.place.lock_soon()?;
                let lock = lock.ok_or_else(|| KeepFault::Busy("somebody else has it in hand".to_owned()))?;
                let mut journal = Journal::open(seen.place.directory()).map_err(PlaceFault::from)?;
                Ok(converge::delete(
                    &seen.place,
                    &lock,
                    &mut journal,
                    Detail::because("asked", "somebody removed it"),
                )?)
            }
        }
    }
}

/// Starts a keeper and lets it go on by itself once it has taken the sandbox on.
fn start(order: &Order) -> Result<(), KeepFault> {
    let mut starting = Starting::start().map_err(broken)?;
    starting.order(order).map_err(broken)?;
    let told = starting.hear().map_err(broken)?;
    // Whoever started a process hears of its end, or it stays as one that nobody asked about.
    let reap = move || if let Err(_nobody_waits) = starting.await_end() {};
    std::thread::Builder::new().stack_size(STACK).name("keeper-end".into()).spawn(reap).map_err(failed)?;
    match told {
        Told::Accepted { .. } | Told::Ready { .. } => Ok(()),
        Told::Refused(refusal) => Err(refusal.into()),
    }
}

/// One question to the keeper of a sandbox.
fn ask(seen: &Seen, request: &Request) -> Result<protocol::Answer, KeepFault> {
    let gone = |fault: std::io::Error| KeepFault::Busy(format!("its keeper does not answer: {fault}"));
    let mut call = Call::open(seen.place.directory()).map_err(gone)?;
    call.say(request).map_err(gone)?;
    match call.answer().map_err(broken)? {
        protocol::Answer::Refused(refusal) => Err(refusal.into()),
        answer @ (protocol::Answer::Status(_)
        | protocol::Answer::Began { .. }
        | protocol::Answer::Ended(_)
        | protocol::Answer::Copied { .. }
        | protocol::Answer::Done) => Ok(answer),
    }
}

fn failed(fault: impl std::error::Error + Send + Sync + 'static) -> KeepFault {
    KeepFault::Failed(Box::new(fault))
}

fn broken(fault: anyhow::Error) -> KeepFault {
    match fault.downcast::<Refusal>() {
        Ok(refusal) => refusal.into(),
        Err(fault) => KeepFault::Failed(fault.into()),
    }
}

impl From<Refusal> for KeepFault {
    fn from(refusal: Refusal) -> Self {
        match refusal.code.as_str() {
            "sandbox_wrong_state" => Self::WrongState(refusal.message),
            "sandbox_unknown" => Self::Unknown,
            "sandbox_lost" | "sandbox_busy" => Self::Busy(refusal.message),
            _ => Self::Impossible(format!("{} [{}]", refusal.message, refusal.code)),
        }
    }
}

impl From<PlaceFault> for KeepFault {
    fn from(fault: PlaceFault) -> Self {
        match fault {
            PlaceFault::NoSuch(_) | PlaceFault::Id(_) => Self::Unknown,
            PlaceFault::Taken(_) | PlaceFault::Io { .. } | PlaceFault::Journal(_) => failed(fault),
        }
    }
}

impl Keeper for Here {
    fn shares(&self) -> &[Share] {
        &self.place.shares
    }

    fn create(&self, wanted: Wanted) -> Answer<'_, Kept> {
        Box::pin(async move {
            let giving = self.giving.lock().await;
            let made = self.work(move |place| place.create(&wanted)).await;
            std::mem::drop(giving);
            made
        })
    }

    fn show<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        self.with(id, |place, seen| place.shown(&seen))
    }

    fn list(&self) -> Answer<'_, Vec<Kept>> {
        Box::pin(self.work(|place| {
            let all = place.all()?;
            all.iter().map(|seen| place.shown(seen)).collect()
        }))
    }

    fn stop<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        let again = id.clone();
        self.with(id, move |place, seen| {
            converge::permit(&seen, Operation::Stop)?;
            ask(&seen, &Request::Stop)?;
            place.moved(&again, seen.state)
        })
    }

    fn resume<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        let id = id.clone();
        Box::pin(self.work(move |place| place.resume(&id)))
    }

    fn delete<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        let again = id.clone();
        self.with(id, move |place, seen| {
            place.delete(&seen)?;
            place.moved(&again, seen.state)
        })
    }

    fn events<'a>(&'a self, id: &'a SandboxId, after: u64, most: usize) -> Answer<'a, Vec<SandboxEvent>> {
        self.with(id, move |_, seen| view::events(&seen, after, most))
    }

    fn start<'a>(&'a self, id: &'a SandboxId, exec: &'a NewExec) -> Answer<'a, ExecView> {
        let wanted = protocol::Exec {
            argv: exec.command.clone(),
            env: exec.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            cwd: exec.cwd.clone(),
            terminal: None,
            input: false,
            detach: true,
            timeout_seconds: exec.timeout_seconds.map(u64::from),
        };
        self.with(id, move |_, seen| {
            converge::permit(&seen, Operation::Exec)?;
            let protocol::Answer::Began { exec } = ask(&seen, &Request::Exec(wanted))? else {
                return Err(KeepFault::Busy("its keeper does not say whether it began".to_owned()));
            };
            view::exec(&seen, exec)
        })
    }

    fn exec<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView> {
        self.with(id, move |_, seen| view::exec(&seen, exec))
    }

    fn cancel<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView> {
        self.with(id, move |_, seen| {
            if view::exec(&seen, exec)?.ended_at.is_none() && seen.is_kept {
                ask(&seen, &Request::Cancel { exec })?;
            }
            view::exec(&seen, exec)
        })
    }

    fn output<'a>(&'a self, id: &'a SandboxId, from: Output, most: usize) -> Answer<'a, Vec<u8>> {
        self.with(id, move |_, seen| view::output(&seen, from, most))
    }

    fn read<'a>(&'a self, id: &'a SandboxId, path: &'a str, most: usize) -> Answer<'a, Vec<u8>> {
        let path = path.to_owned();
        self.with(id, move |place, seen| {
            converge::permit(&seen, Operation::Copy)?;
            files::read(place.owners.desk(), &seen, &path, most)
        })
    }

    fn write<'a>(&'a self, id: &'a SandboxId, path: &'a str, bytes: Vec<u8>) -> Answer<'a, ()> {
        let path = path.to_owned();
        self.with(id, move |place, seen| {
            converge::permit(&seen, Operation::Copy)?;
            files::write(place.owners.desk(), &seen, &path, &bytes)
        })
    }
}
