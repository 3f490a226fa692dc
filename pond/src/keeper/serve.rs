//! The life of a keeper: brings its sandbox up, stays with it, brings it up again when something of it dies, and leaves a stopped
//! sandbox or none.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pond_policy::life::{Event, Operation, State};
use pond_policy::operator::Operator;
use pond_sandbox::native::Serving;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::hub::{Hub, Wish};
use super::journal::{Detail, JournalFault};
use super::patience::{Patience, STABLE};
use super::protocol::{self, Answer, Kind, Refusal, Request};
use super::raise::{Ground, Up};
use super::{Accepted, Told, copy, desk, exec, ports, waiter};
use crate::output::REFUSED;
use crate::run::{self, Begun};
use crate::{operator, settings};

const STACK: usize = 256 << 10;
/// Threads that wait for callers while nobody calls.
const SPARE: usize = 2;
/// How long a keeper that cannot hear anybody waits before it tries again.
pub(super) const BREATH: Duration = Duration::from_millis(20);

/// Why a sandbox that ran runs no more.
enum Why {
    Wished(Wish),
    Idle,
    Crashed(&'static str),
}

/// To the end of the sandbox, or until it is stopped.
pub(super) fn keep(accepted: Accepted, mut asker: UnixStream, launcher: Begun) -> ExitCode {
    let Accepted { hub, listeners, lock, is_new } = accepted;
    let told = Told::Accepted { id: hub.place.id().to_owned(), sequence: hub.sequence() };
    if let Err(_gone) = protocol::say(&mut asker, &told) {}
    let kept = Keeper { hub: &hub, asker: Some(asker), is_new }.run(launcher, listeners);
    if let Err(_nobody_calls_any_more) = desk::close(hub.place.directory()) {}
    let cleared = match hub.now() {
        State::Deleting => remove(&hub, &lock),
        State::Failed => hub.place.clear(&lock).map_err(anyhow::Error::from),
        State::Pending | State::Ready | State::Stopped | State::Deleted => Ok(()),
    };
    drop(lock);
    if [State::Stopped, State::Failed].contains(&hub.now())
        && hub.spec.cleanup_ttl.duration().is_some()
        && let Err(_until_the_next_look) = waiter::ensure(&hub.state)
    {}
    match kept.and(cleared) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_whoever_looks_next_settles_it) => ExitCode::from(REFUSED),
    }
}

fn remove(hub: &Hub, lock: &super::Lock) -> anyhow::Result<()> {
    hub.place.clear(lock)?;
    hub.note(Event::Deleted, Detail::default())?;
    Ok(())
}

struct Keeper<'a> {
    hub: &'a Arc<Hub>,
    /// Whoever waits for it to be ready.
    asker: Option<UnixStream>,
    is_new: bool,
}

impl Keeper<'_> {
    fn run(mut self, launcher: Begun, listeners: Vec<(std::net::TcpListener, u16)>) -> anyhow::Result<()> {
        let called = desk::open(self.hub.place.directory())?;
        answer_calls(self.hub, called)?;
        ports::serve(self.hub, listeners)?;
        let operator = operator::load().map_err(|_| anyhow::anyhow!("this host's pond.toml"));
        let operator = match operator {
            Ok(operator) => operator,
            Err(fault) => return self.failed(&fault),
        };
        let mut launcher = Some(launcher);
        let mut patience = Patience::new();
        loop {
            let raised = self.raise(&operator, launcher.take().unwrap_or_else(run::launcher));
            let mut up = match raised {
                Ok(up) => up,
                Err(fault) if self.hub.has_started() && patience.is_tried() => {
                    if !self.try_again(&mut patience, &format!("{fault:#}"))? {
                        return Ok(());
                    }
                    continue;
                }
                Err(fault) => return self.failed(&fault),
            };
            self.is_new = false;
            let since = Instant::now();
            self.ready()?;
            up.accompany(self.hub);
            let why = self.stay(&up)?;
            patience.stayed_up(since.elapsed());
            let taken_down = match self.hub.withdraw() {
                Some(serving) => up.take_down(serving, &self.hub.place.image()),
                None => Ok(()),
            };
            match why {
                Why::Wished(Wish::Stop) => {
                    self.hub.note(Event::Stopped, Detail::because("asked", "somebody stopped it"))?;
                    return taken_down;
                }
                Why::Wished(Wish::Delete) => {
                    self.hub.note(Event::Deleting, Detail::because("asked", "somebody removed it"))?;
                    return taken_down;
                }
                Why::Idle => {
                    self.hub.note(Event::Stopped, Detail::because("idle", "nobody used it"))?;
                    return taken_down;
                }
                Why::Crashed(what) => {
                    self.hub.note(Event::Crashed, Detail::because("crashed", what))?;
                    taken_down?;
                    if !self.try_again(&mut patience, what)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn raise(&self, operator: &Operator, launcher: Begun) -> anyhow::Result<Up> {
        let resolvers = settings::resolvers().map_err(|_| anyhow::anyhow!("this host's name servers"))?;
        let ground = Ground {
            place: &self.hub.place,
            spec: &self.hub.spec,
            state: &self.hub.state,
            operator,
            resolvers: &resolvers,
            is_new: self.is_new,
        };
        let (up, serving) = ground.raise(launcher)?;
        self.hub.serve(serving);
        Ok(up)
    }

    fn ready(&mut self) -> Result<(), JournalFault> {
        self.hub.note(Event::Started, Detail::default())?;
        if let Some(mut asker) = self.asker.take() {
            let told = Told::Ready { sequence: self.hub.sequence() };
            if let Err(_gone) = protocol::say(&mut asker, &told) {}
        }
        Ok(())
    }

    /// It could not be made, or not be started again.
    fn failed(&mut self, fault: &anyhow::Error) -> anyhow::Result<()> {
        let (event, code) = match self.hub.has_started() {
            false => (Event::CreateFailed, "sandbox_failed"),
            true => (Event::ResumeFailed, "resume_failed"),
        };
        let message = format!("{fault:#}");
        self.hub.note(event, Detail::because(code, message.clone()))?;
        if let Some(mut asker) = self.asker.take() {
            let told = Told::Refused(Refusal::new(code, message));
            if let Err(_gone) = protocol::say(&mut asker, &told) {}
        }
        Ok(())
    }

    /// Whether a sandbox that crashed may be started once more, after a pause in which somebody may say no.
    fn try_again(&self, patience: &mut Patience, why: &str) -> anyhow::Result<bool> {
        let Some(pause) = patience.again(Instant::now()) else {
            let reason = format!("it did not stay up for {} s: {why}", STABLE.as_secs());
            self.hub.note(Event::Stopped, Detail::because("crash_loop", reason))?;
            return Ok(false);
        };
        let left = Timespec::try_from(pause)?;
        match poll(&mut [PollFd::from_borrowed_fd(self.hub.bell(), PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match self.hub.wished() {
            None => Ok(true),
            Some(Wish::Stop) => {
                self.hub.note(Event::Stopped, Detail::because("asked", "somebody stopped it"))?;
                Ok(false)
            }
            Some(Wish::Delete) => {
                self.hub.note(Event::Deleting, Detail::because("asked", "somebody removed it"))?;
                Ok(false)
            }
        }
    }

    /// While it runs.
    fn stay(&self, up: &Up) -> anyhow::Result<Why> {
        let hub = self.hub;
        let pid_one = hub.ask(|serving: &Serving| Ok(serving.as_fd().try_clone_to_owned()))??;
        loop {
            let mut fds = vec![
                PollFd::new(&pid_one, PollFlags::IN),
                PollFd::from_borrowed_fd(hub.bell(), PollFlags::IN),
            ];
            fds.extend(up.gateway_end().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
            // No later than this, and by then somebody may have used it.
            let left = hub.idle_left().map(|left| left + Duration::from_millis(1));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, left.as_ref()) {
                Err(Errno::INTR) => continue,
                ready => drop(ready?),
            }
            let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
            let (said, wished, gateway) =
                (ready.next() == Some(true), ready.next() == Some(true), ready.next() == Some(true));
            if said && !hub.pass_on().unwrap_or(false) {
                return Ok(Why::Crashed("pid 1 of the sandbox ended"));
            }
            if wished && let Some(wish) = hub.wished() {
                return Ok(Why::Wished(wish));
            }
            if gateway {
                return Ok(Why::Crashed("the sandbox's gateway ended"));
            }
            if hub.idle_left().is_some_and(|left| left.is_zero()) {
                return Ok(Why::Idle);
            }
        }
    }
}

/// Hears callers from now on. One who waits for them answers himself, and sees first that somebody else waits then: a caller finds
/// somebody there, and is not made to wait for a thread to be born.
fn answer_calls(hub: &Arc<Hub>, called: OwnedFd) -> std::io::Result<()> {
    let waiting = Waiting { hub: Arc::clone(hub), called: Arc::new(called), idle: Arc::default() };
    (0..SPARE).try_for_each(|_| waiting.clone().start())
}

/// Threads that wait for callers.
#[derive(Clone)]
struct Waiting {
    hub: Arc<Hub>,
    called: Arc<OwnedFd>,
    idle: Arc<AtomicUsize>,
}

impl Waiting {
    fn start(self) -> std::io::Result<()> {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let idle = Arc::clone(&self.idle);
        let thread = std::thread::Builder::new().stack_size(STACK).name("calls".to_owned());
        let started = thread.spawn(move || self.serve()).map(drop);
        if started.is_err() {
            idle.fetch_sub(1, Ordering::SeqCst);
        }
        started
    }

    fn serve(self) {
        loop {
            let visitor = match desk::visitor(&self.called) {
                Ok(Some(visitor)) => visitor,
                Ok(None) => continue,
                // Out of descriptors or of memory; programs that end give theirs back.
                Err(_for_now) => {
                    std::thread::sleep(BREATH);
                    continue;
                }
            };
            // Without a thread to be had, the next caller waits for this one.
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1
                && let Err(_busy) = self.clone().start()
            {}
            answer(&self.hub, visitor);
            if self.idle.fetch_add(1, Ordering::SeqCst) >= SPARE {
                break;
            }
        }
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer(hub: &Arc<Hub>, mut caller: UnixStream) {
    const PATIENCE: Duration = Duration::from_secs(10);
    if caller.set_read_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    let Ok((request, descriptors)) = hear(&caller) else { return };
    let answer = match request {
        Request::Status => Answer::Status(hub.status()),
        Request::Exec(wanted) => {
            if caller.set_read_timeout(None).is_ok() {
                exec::exec(hub, wanted, caller);
            }
            return;
        }
        Request::Cancel { exec } => done(hub.cancel(exec)),
        Request::Stop => done(end(hub, Operation::Stop, Wish::Stop)),
        Request::Delete => done(end(hub, Operation::Delete, Wish::Delete)),
        Request::CopyIn { target } => copied(hub, copy::bring_in(hub, &target, descriptors)),
        Request::CopyOut { source, name, most } => {
            copied(hub, copy::take_out(hub, (&source, &name), most, descriptors))
        }
    };
    if let Err(_gone) = protocol::say(&mut caller, &answer) {}
}

fn copied(hub: &Hub, done: Result<copy::Done, Refusal>) -> Answer {
    match done {
        Err(refusal) => Answer::Refused(refusal),
        Ok(done) => {
            if let Err(_over) = hub.note(Event::Copied, Detail::default()) {}
            Answer::Copied { entries: done.entries, bytes: done.bytes, skipped: done.skipped }
        }
    }
}

fn done(result: Result<(), Refusal>) -> Answer {
    result.map_or_else(Answer::Refused, |()| Answer::Done)
}

/// Asked for, and done soon: the events say when.
fn end(hub: &Hub, operation: Operation, wish: Wish) -> Result<(), Refusal> {
    hub.permit(operation)?;
    hub.wish(wish);
    Ok(())
}

/// The request, and the descriptors that came with it.
fn hear(caller: &UnixStream) -> std::io::Result<(Request, Vec<OwnedFd>)> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    // Descriptors arrive with the first byte, and nothing after the request may be taken from what follows it.
    let mut first = [0];
    let (length, descriptors) = pond_sys::socket::receive(caller.as_fd(), &mut first)?;
    let mut rest = std::io::Read::chain(first.get(..length).unwrap_or_default(), caller);
    match protocol::read_frame(&mut rest)? {
        Some((Kind::Say, text)) => Ok((serde_json::from_slice(&text).map_err(|_| invalid())?, descriptors)),
        Some(_) | None => Err(invalid()),
    }
}
