//! Polls that are held open until a job fits, their time is over, or the worker is gone.
//!
//! A poll that ends, however it ends, leaves nothing behind: its place in the queue goes with it, and a job it was given and
//! did not take goes to the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pond_policy::capability::{Capability, Requirement};
use pond_policy::name::{Name, Project};
use pond_policy::tags::Tag;
use pond_wire::feed::Told;
use pond_wire::orch::Id;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::matcher::{Applicant, Asked, Bounds, Full, Intent, Matcher, Pairing, Ticket};

/// The matcher, and who hears of its pairings.
#[derive(Debug)]
pub struct Relay(Mutex<Held>);

#[derive(Debug)]
struct Held {
    matcher: Matcher,
    open: BTreeMap<Ticket, oneshot::Sender<Intent>>,
    /// What the control plane told of its workers: tags, and what they said last.
    workers: HashMap<Id, (Vec<Tag>, Vec<Capability>)>,
}

/// Workers that are remembered.
const MOST_WORKERS: usize = 100_000;

impl Relay {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Mutex::new(Held {
            matcher: Matcher::new(bounds),
            open: BTreeMap::new(),
            workers: HashMap::new(),
        }))
    }

    /// A job waits for a worker; if one waits for it, it is on its way.
    pub fn announce(&self, intent: Intent) -> Result<(), Full> {
        let mut held = self.held();
        let pairing = held.matcher.announce(intent)?;
        held.deliver(pairing);
        Ok(())
    }

    /// What the control plane tells. A job that finds no room is told again.
    pub fn hear(&self, told: Told) {
        match told {
            Told::Job { job, project, capability, tags, avoid } => {
                if let Some(Ok(())) =
                    intent((job, avoid), project, capability, &tags).map(|intent| self.announce(intent))
                {
                }
            }
            Told::JobGone { job } => self.withdraw(&job),
            Told::Worker { worker, tags, capabilities } => {
                let tags = tags.iter().filter_map(|tag| Tag::parse(tag)).collect();
                let mut held = self.held();
                if held.workers.len() < MOST_WORKERS || held.workers.contains_key(&worker) {
                    held.workers.insert(worker, (tags, parsed(&capabilities)));
                }
            }
            Told::WorkerGone { worker } => {
                self.held().workers.remove(&worker);
            }
            Told::Still {} => {}
        }
    }

    /// Everything that was told is forgotten: whoever tells begins again.
    pub fn start_over(&self) {
        let mut held = self.held();
        held.matcher.forget_jobs();
        held.workers.clear();
    }

    /// A worker that asks, if the control plane told of it and knows what it says it can enforce. Whoever is news to the
    /// control plane speaks to it first.
    #[must_use]
    pub fn applicant(&self, worker: &Id, capabilities: &[String]) -> Option<Applicant> {
        let capabilities = parsed(capabilities);
        let held = self.held();
        let (tags, known) = held.workers.get(worker)?;
        let same = known.len() == capabilities.len() && known.iter().all(|one| capabilities.contains(one));
        same.then(|| Applicant { worker: worker.clone(), tags: tags.clone(), capabilities })
    }

    pub fn withdraw(&self, job: &Id) {
        self.held().matcher.withdraw(job);
    }

    /// A job this worker may have, if one comes within `wait`. What follows is between worker and control plane: the caller
    /// has the control plane grant it, and passes the signed answer on unread.
    pub async fn poll(&self, applicant: Applicant, wait: Duration) -> Result<Option<Intent>, Full> {
        let mut seat = {
            let mut held = self.held();
            if let Some(before) = held.matcher.seat_of(&applicant.worker) {
                held.open.remove(&before);
            }
            let ticket = match held.matcher.ask(applicant)? {
                Asked::Given(intent) => return Ok(Some(intent)),
                Asked::Waits(ticket) => ticket,
            };
            let (sender, receiver) = oneshot::channel();
            held.open.insert(ticket, sender);
            Seat { relay: self, ticket, receiver }
        };
        let given = timeout(wait, &mut seat.receiver).await;
        Ok(given.ok().and_then(Result::ok))
    }

    /// How many jobs and workers wait.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let held = self.held();
        (held.matcher.queued(), held.matcher.waiting())
    }

    /// Nothing in here can stop half-way, so what a thread that panicked left behind is whole.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Hands a job to the poll it was paired with; if that is gone, to the next that fits.
    fn deliver(&mut self, mut pairing: Option<Pairing>) {
        while let Some(Pairing { ticket, intent, .. }) = pairing {
            let sent = match self.open.remove(&ticket) {
                Some(sender) => sender.send(intent),
                None => Err(intent),
            };
            pairing = sent.err().and_then(|intent| self.matcher.give_back(intent));
        }
    }
}

fn parsed(capabilities: &[String]) -> Vec<Capability> {
    let mut parsed: Vec<Capability> = Vec::new();
    for capability in capabilities.iter().filter_map(|text| Capability::parse(text)) {
        if !parsed.contains(&capability) {
            parsed.push(capability);
        }
    }
    parsed
}

/// A job as it was told; nothing where it names what this orchestrator does not know, which then nobody here may have.
fn intent(
    (job, avoid): (Id, Vec<Id>),
    project: Id,
    capability: Option<String>,
    tags: &[String],
) -> Option<Intent> {
    let capability = match capability {
        None => None,
        Some(text) => Some(Requirement::parse(&text)?),
    };
    let tags = tags.iter().map(|tag| Tag::parse(tag)).collect::<Option<Vec<_>>>()?;
    Some(Intent { job, project: Project::from(Name::parse(project.as_str())?), capability, tags, avoid })
}

/// A place in the queue, for as long as the poll lives.
struct Seat<'a> {
    relay: &'a Relay,
    ticket: Ticket,
    receiver: oneshot::Receiver<Intent>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut held = self.relay.held();
        held.matcher.leave(Some(self.ticket));
        held.open.remove(&self.ticket);
        // Given at the very moment the poll ended.
        if let Ok(intent) = self.receiver.try_recv() {
            let next = held.matcher.give_back(intent);
            held.deliver(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use pond_policy::capability::{Capability, Requirement};
    use pond_policy::name::Project;
    use pond_policy::path::Path;

    use super::*;

    const BOUNDS: Bounds = Bounds { intents: 8, intents_per_project: 8, waiting: 8 };
    /// Never waited for: tests end polls themselves.
    const LONG: Duration = Duration::from_secs(3600);

    fn id(text: &str) -> Id {
        Id::try_from(text.to_owned()).unwrap()
    }

    fn intent(job: &str) -> Intent {
        let project = Project::parse("acme", &Path::root()).unwrap();
        let capability = Requirement::parse("sandbox.*");
        Intent { job: id(job), project, capability, tags: Vec::new(), avoid: Vec::new() }
    }

    fn worker(name: &str) -> Applicant {
        let capabilities = vec![Capability::parse("sandbox.native").unwrap()];
        Applicant { worker: id(name), tags: Vec::new(), capabilities }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// What is given at once comes at once; the bound only keeps a failure from lasting an hour.
    async fn soon<F: Future>(what: &str, future: F) -> F::Output {
        timeout(Duration::from_secs(60), future)
            .await
            .unwrap_or_else(|_| panic!("waited a minute for {what}"))
    }

    fn once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_poll_waits_for_a_job_and_no_longer_than_it_said() {
        let relay = Relay::new(BOUNDS);
        runtime().block_on(async {
            let mut poll = pin!(relay.poll(worker("w1"), LONG));
            assert_eq!(once(poll.as_mut()), Poll::Pending);
            relay.announce(intent("j1")).unwrap();
            assert_eq!(soon("a job that was announced", poll).await, Ok(Some(intent("j1"))));
            assert_eq!(relay.poll(worker("w1"), Duration::ZERO).await, Ok(None));
            relay.announce(intent("j2")).unwrap();
            assert_eq!(relay.poll(worker("w1"), Duration::ZERO).await, Ok(Some(intent("j2"))));
        });
        assert_eq!(relay.waiting(), (0, 0));
        assert!(relay.held().open.is_empty());
    }

    #[test]
    fn a_worker_that_is_gone_keeps_no_job() {
        let relay = Relay::new(BOUNDS);
        runtime().block_on(async {
            let mut second = pin!(relay.poll(worker("w2"), LONG));
            {
                let mut first = pin!(relay.poll(worker("w1"), LONG));
                assert_eq!(once(first.as_mut()), Poll::Pending);
                assert_eq!(once(second.as_mut()), Poll::Pending);
                relay.announce(intent("j1")).unwrap();
                // The first was given the job and goes without having looked.
            }
            assert_eq!(soon("the job of who is gone", second).await, Ok(Some(intent("j1"))));
            {
                let mut third = pin!(relay.poll(worker("w3"), LONG));
                assert_eq!(once(third.as_mut()), Poll::Pending);
                relay.announce(intent("j2")).unwrap();
            }
        });
        assert_eq!(relay.waiting(), (1, 0), "the job waits again");
    }

    #[test]
    fn a_second_poll_of_a_worker_ends_the_first() {
        let relay = Relay::new(BOUNDS);
        runtime().block_on(async {
            let mut first = pin!(relay.poll(worker("w1"), LONG));
            assert_eq!(once(first.as_mut()), Poll::Pending);
            let mut second = pin!(relay.poll(worker("w1"), LONG));
            assert_eq!(once(second.as_mut()), Poll::Pending);
            assert_eq!(relay.waiting(), (0, 1));
            assert_eq!(soon("the end of the first poll", first).await, Ok(None));
            relay.announce(intent("j1")).unwrap();
            assert_eq!(soon("a job for the second", second).await, Ok(Some(intent("j1"))));
        });
    }
}
