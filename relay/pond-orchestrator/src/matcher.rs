//! Who gets which job: a value without clock or network.
//!
//! A worker that asks gets the oldest job it may have of the tenant that was served longest ago; a job that arrives goes to
//! the worker that has waited longest of those that may have it. A subset test on tags and capabilities decides, by pond-policy.

use std::collections::{BTreeMap, VecDeque};

use pond_policy::capability::{Capability, Requirement};
use pond_policy::name::Project;
use pond_policy::tags::{JobTags, Tag, may_receive};
use pond_wire::orch::Id;

/// A job that waits for a worker: all the orchestrator knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    pub job: Id,
    pub project: Project,
    /// `None` for unconfined work.
    pub capability: Option<Requirement>,
    pub tags: Vec<Tag>,
    /// Workers it does not go to.
    pub avoid: Vec<Id>,
}

/// A worker that asks for work, with the tags the control plane granted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    pub worker: Id,
    pub tags: Vec<Tag>,
    pub capabilities: Vec<Capability>,
}

/// One poll that is held open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A job and the poll it should be the answer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    pub ticket: Ticket,
    pub worker: Id,
    pub intent: Intent,
}

/// What became of a worker's question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Given(Intent),
    Waits(Ticket),
}

/// How much is held at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub intents: usize,
    pub intents_per_project: usize,
    pub waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("as many jobs wait as can be held; the control plane announces this one again")]
    Intents,
    #[error("as many jobs of this project wait as can be held")]
    Project,
    #[error("as many workers wait as can be held")]
    Waiting,
}

impl Full {
    /// Stable; the documents list it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Intents => "queue_full",
            Self::Project => "project_queue_full",
            Self::Waiting => "too_many_waiting",
        }
    }
}

#[derive(Debug)]
pub struct Matcher {
    bounds: Bounds,
    /// Oldest first, of each project.
    queued: BTreeMap<Project, VecDeque<Intent>>,
    /// The project served longest ago first. One for every queue, and no other.
    turns: VecDeque<Project>,
    /// Longest waiting first.
    waiting: VecDeque<(Ticket, Applicant)>,
    next_ticket: u64,
}

impl Applicant {
    fn may_have(&self, intent: &Intent) -> bool {
        let job = JobTags { required: &intent.tags, project: Some(&intent.project) };
        let capable = intent.capability.is_none_or(|wanted| wanted.satisfied_by(&self.capabilities));
        capable && may_receive(&self.tags, job).is_ok() && !intent.avoid.contains(&self.worker)
    }
}

impl Matcher {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let (queued, turns, waiting) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Self { bounds, queued, turns, waiting, next_ticket: 0 }
    }

    /// A job waits. Announced twice, it is held once, as it was announced last.
    pub fn announce(&mut self, intent: Intent) -> Result<Option<Pairing>, Full> {
        self.withdraw(&intent.job);
        let fits = self.waiting.iter().position(|(_, applicant)| applicant.may_have(&intent));
        if let Some((ticket, applicant)) = fits.and_then(|at| self.waiting.remove(at)) {
            return Ok(Some(Pairing { ticket, worker: applicant.worker, intent }));
        }
        self.room_for(&intent.project)?;
        self.queue(&intent.project).push_back(intent);
        Ok(None)
    }

    /// A worker asks: the job it gets, or its place in the queue.
    pub fn ask(&mut self, applicant: Applicant) -> Result<Asked, Full> {
        self.leave(self.seat_of(&applicant.worker));
        if let Some(intent) = self.take_for(&applicant) {
            return Ok(Asked::Given(intent));
        }
        if self.waiting.len() >= self.bounds.waiting {
            return Err(Full::Waiting);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.push_back((ticket, applicant));
        Ok(Asked::Waits(ticket))
    }

    /// Where a worker waits. It has one poll open: its next one ends that.
    #[must_use]
    pub fn seat_of(&self, worker: &Id) -> Option<Ticket> {
        self.waiting.iter().find(|(_, other)| other.worker == *worker).map(|(ticket, _)| *ticket)
    }

    /// A poll ended without work.
    pub fn leave(&mut self, ticket: Option<Ticket>) {
        self.waiting.retain(|(other, _)| Some(*other) != ticket);
    }

    /// A pairing came to nothing because the worker was gone: the job is the next one of its project again.
    pub fn give_back(&mut self, intent: Intent) -> Option<Pairing> {
        let fits = self.waiting.iter().position(|(_, applicant)| applicant.may_have(&intent));
        if let Some((ticket, applicant)) = fits.and_then(|at| self.waiting.remove(at)) {
            return Some(Pairing { ticket, worker: applicant.worker, intent });
        }
        self.queue(&intent.project).push_front(intent);
        None
    }

    /// A job no longer waits: it was cancelled, or somebody has it.
    pub fn withdraw(&mut self, job: &Id) {
        for queue in self.queued.values_mut() {
            queue.retain(|intent| intent.job != *job);
        }
        self.forget_empty();
    }

    /// No job waits, as far as anybody was told.
    pub fn forget_jobs(&mut self) {
        self.queued.clear();
        self.turns.clear();
    }

    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.values().map(VecDeque::len).sum()
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn take_for(&mut self, applicant: &Applicant) -> Option<Intent> {
        let fitting = |project: &Project| {
            let queue = self.queued.get(project)?;
            queue.iter().position(|intent| applicant.may_have(intent)).map(|at| (project.clone(), at))
        };
        let (turn, (project, at)) =
            self.turns.iter().enumerate().find_map(|(turn, project)| Some((turn, fitting(project)?)))?;
        let intent = self.queued.get_mut(&project)?.remove(at);
        self.turns.remove(turn);
        self.turns.push_back(project);
        self.forget_empty();
        intent
    }

    fn room_for(&self, project: &Project) -> Result<(), Full> {
        if self.queued() >= self.bounds.intents {
            return Err(Full::Intents);
        }
        let own = self.queued.get(project).map_or(0, VecDeque::len);
        if own < self.bounds.intents_per_project { Ok(()) } else { Err(Full::Project) }
    }

    fn queue(&mut self, project: &Project) -> &mut VecDeque<Intent> {
        if !self.queued.contains_key(project) {
            self.turns.push_back(project.clone());
        }
        self.queued.entry(project.clone()).or_default()
    }

    fn forget_empty(&mut self) {
        self.queued.retain(|_, queue| !queue.is_empty());
        self.turns.retain(|project| self.queued.contains_key(project));
    }
}

#[cfg(test)]
mod tests;
