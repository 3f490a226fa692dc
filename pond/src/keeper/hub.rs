//! What the threads of a keeper share: the sandbox's events, pid 1 while there is one, and who waits to hear what of it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pond_policy::life::{Event, Operation, State};
use pond_policy::sandboxes::Spec;
use pond_sandbox::native::{Serving, ServingFault};
use pond_sandbox::state::StateDir;
use pond_wire::jail::Report;
use rustix::event::{EventfdFlags, eventfd};

use super::journal::{Detail, Journal, JournalFault};
use super::place::Place;
use super::protocol::{Refusal, Status};
use crate::audit::Audit;

/// Programs and connections at the same time.
const MOST_EARS: usize = 512;

#[derive(Debug)]
pub(super) struct Hub {
    pub(super) place: Place,
    pub(super) spec: Spec,
    pub(super) state: StateDir,
    pub(super) audit: Audit,
    journal: Mutex<Journal>,
    serving: RwLock<Option<Serving>>,
    ears: Mutex<BTreeMap<u64, Arc<Ear>>>,
    number: AtomicU64,
    used: Mutex<Instant>,
    wish: Mutex<Option<Wish>>,
    /// Readable when there is a wish.
    bell: OwnedFd,
}

/// What somebody wants of the whole sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Stop,
    Delete,
}

/// Whoever waits for pid 1 to say something of one program or connection.
#[derive(Debug)]
pub(super) struct Ear {
    heard: Mutex<VecDeque<(Report, Vec<OwnedFd>)>>,
    /// Readable when there is something to hear.
    bell: OwnedFd,
    pub(super) is_cancelled: AtomicBool,
    is_program: bool,
}

impl Ear {
    fn new(is_program: bool) -> std::io::Result<Self> {
        let bell = bell()?;
        Ok(Self { heard: Mutex::default(), bell, is_cancelled: AtomicBool::new(false), is_program })
    }

    fn tell(&self, report: Report, descriptors: Vec<OwnedFd>) {
        lock(&self.heard).push_back((report, descriptors));
        ring(&self.bell);
    }

    pub(super) fn hear(&self) -> Option<(Report, Vec<OwnedFd>)> {
        let mut heard = lock(&self.heard);
        let next = heard.pop_front();
        if heard.is_empty() {
            silence(&self.bell);
        }
        next
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Hub {
    pub(super) fn new(place: Place, spec: Spec, state: StateDir, journal: Journal) -> anyhow::Result<Self> {
        let last = last_number(&place)?;
        Ok(Self {
            audit: Audit::open(&state)?,
            place,
            spec,
            state,
            journal: Mutex::new(journal),
            serving: RwLock::default(),
            ears: Mutex::default(),
            number: AtomicU64::new(last + 1),
            used: Mutex::new(Instant::now()),
            wish: Mutex::default(),
            bell: bell()?,
        })
    }

    pub(super) fn note(&self, event: Event, detail: Detail) -> Result<State, JournalFault> {
        lock(&self.journal).append(event, detail)
    }

    pub(super) fn now(&self) -> State {
        lock(&self.journal).state()
    }

    pub(super) fn sequence(&self) -> u64 {
        lock(&self.journal).sequence()
    }

    pub(super) fn has_started(&self) -> bool {
        lock(&self.journal).has_started()
    }

    pub(super) fn permit(&self, operation: Operation) -> Result<(), Refusal> {
        let state = self.now();
        state.permit(operation).map_err(|_| Refusal::wrong_state(state, operation))
    }

    pub(super) fn status(&self) -> Status {
        let journal = lock(&self.journal);
        let running = lock(&self.ears).iter().filter(|(_, ear)| ear.is_program).map(|(id, _)| *id).collect();
        Status {
            state: journal.state().name().to_owned(),
            sequence: journal.sequence(),
            keeper: std::process::id(),
            running,
            idle_seconds_left: self.idle_left().map(|left| left.as_secs()),
        }
    }

    /// Pid 1 takes requests from now on, or does so no more.
    pub(super) fn serve(&self, serving: Serving) {
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = Some(serving);
        self.touch();
    }

    /// Everybody who still waits hears that it is over.
    pub(super) fn withdraw(&self) -> Option<Serving> {
        let serving = self.serving.write().unwrap_or_else(PoisonError::into_inner).take();
        let usage = pond_wire::jail::Usage::default();
        for ear in lock(&self.ears).values() {
            ear.tell(Report::Signaled { signal: 9, usage }, Vec::new());
        }
        serving
    }

    pub(super) fn ask<T>(
        &self,
        act: impl FnOnce(&Serving) -> Result<T, ServingFault>,
    ) -> Result<T, ServingFault> {
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        act(serving.as_ref().ok_or(ServingFault::NotServing)?)
    }

    /// Takes one word of pid 1 and hands it on; false when it is gone.
    pub(super) fn pass_on(&self) -> Result<bool, ServingFault> {
        let Some((answer, descriptors)) = self.ask(Serving::hear)? else { return Ok(false) };
        let ear = lock(&self.ears).get(&answer.id).cloned();
        // Nobody waits for what ends after its caller went.
        if let Some(ear) = ear {
            ear.tell(answer.report, descriptors);
        }
        Ok(true)
    }

    pub(super) fn listen(&self, is_program: bool) -> Result<(u64, Arc<Ear>), Refusal> {
        let failed = |fault: std::io::Error| Refusal::new("sandbox_busy", fault.to_string());
        let ear = Arc::new(Ear::new(is_program).map_err(failed)?);
        let mut ears = lock(&self.ears);
        if ears.len() >= MOST_EARS {
            let message = format!("{MOST_EARS} programs and connections at the same time are the most");
            return Err(Refusal::new("sandbox_busy", message));
        }
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        ears.insert(number, Arc::clone(&ear));
        drop(ears);
        self.touch();
        Ok((number, ear))
    }

    pub(super) fn forget(&self, number: u64) {
        lock(&self.ears).remove(&number);
        // From now on the time counts in which nobody uses it. Whoever watches the time asks again when what he knows runs out.
        self.touch();
    }

    /// Ends a program; one that is over is none that could be ended.
    pub(super) fn cancel(&self, number: u64) -> Result<(), Refusal> {
        const KILL: u8 = 9;
        let ear = lock(&self.ears).get(&number).filter(|ear| ear.is_program).cloned();
        let Some(ear) = ear else {
            return Err(Refusal::new("exec_unknown", format!("no program {number} runs in this sandbox")));
        };
        ear.is_cancelled.store(true, Ordering::SeqCst);
        self.ask(|serving| serving.signal(number, KILL))
            .map_err(|fault| Refusal::new("sandbox_lost", fault.to_string()))
    }

    pub(super) fn wish(&self, wish: Wish) {
        let mut wished = lock(&self.wish);
        // Whoever wants it gone wants it stopped as well.
        if *wished != Some(Wish::Delete) {
            *wished = Some(wish);
        }
        ring(&self.bell);
    }

    pub(super) fn wished(&self) -> Option<Wish> {
        silence(&self.bell);
        lock(&self.wish).take()
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Until it is stopped because nobody uses it, all of it while somebody does; nothing where that is no reason.
    pub(super) fn idle_left(&self) -> Option<Duration> {
        let most = self.spec.idle_ttl.duration()?;
        Some(if self.is_used() { most } else { most.saturating_sub(lock(&self.used).elapsed()) })
    }

    fn is_used(&self) -> bool {
        !lock(&self.ears).is_empty()
    }
}

/// Numbers go on where they were before a stop.
fn last_number(place: &Place) -> std::io::Result<u64> {
    let mut last = 0;
    for entry in std::fs::read_dir(place.execs())? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.split('.').next()?.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    Ok(last)
}

/// A thread that panicked left something that is still whole: every change under these locks is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bell() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(bell: &OwnedFd) {
    if let Err(_full_is_loud_enough) = rustix::io::write(bell, &1u64.to_ne_bytes()) {}
}

fn silence(bell: &OwnedFd) {
    if let Err(_silent_already) = rustix::io::read(bell, &mut [0; size_of::<u64>()]) {}
}
