//! What happened, told once to the host as it happens and once more in sum. Zone: host; names in it come from the job.
//!
//! Invariants: an allowed connection waits until its record has a place in the outbox; refusals never wait, and a flood of
//! them is counted instead of told, so neither the queue, the table nor the host's log grows with what a job asks for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pond_policy::egress::{Denial, HostName};
use pond_wire::gateway::{
    Approval, Door, Event, HostTotals, Lookup, ModelCall, ModelOutcome, ModelTotals, Refusal, Refused,
    Totals, Tunnel,
};

use crate::outbox::{Gone, Outbox};

/// Refusals told one by one before they are counted, and how often one more may be told.
const BURST: u32 = 64;
const REFILL: Duration = Duration::from_secs(1);
/// Hosts with figures of their own. A refused host finds a place only in the first half: nonsense cannot crowd out
/// what was allowed.
pub(crate) const MAX_HOSTS: usize = 512;
const MAX_REFUSED_HOSTS: usize = MAX_HOSTS / 2;
/// Reasons that are told apart for one host; further ones count as the first of their code.
const MAX_REASONS: usize = 8;

/// The job's record book.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    job: Arc<str>,
    outbox: Outbox,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct Book {
    hosts: HashMap<String, HostTotals>,
    /// By the operator's name; the order holds a few.
    models: BTreeMap<Option<String>, ModelTotals>,
    totals: Totals,
    untold_refusals: u64,
    tokens: u32,
    refilled: Instant,
}

impl Ledger {
    pub(crate) fn new(job: &str, outbox: Outbox) -> Self {
        let book = Book {
            hosts: HashMap::new(),
            models: BTreeMap::new(),
            totals: Totals::default(),
            untold_refusals: 0,
            tokens: BURST,
            refilled: Instant::now(),
        };
        Self { job: job.into(), outbox, book: Arc::new(Mutex::new(book)) }
    }

    pub(crate) fn job(&self) -> &str {
        &self.job
    }

    /// Records a refusal; never waits.
    pub(crate) fn refused(&self, door: Door, denial: &Denial) {
        let mut book = self.book();
        book.count_refusal(denial);
        let told =
            book.take_token() && self.outbox.try_put(&Event::Refused(self.refusal(door, denial))).is_ok();
        if !told {
            book.untold_refusals += 1;
        }
    }

    fn refusal(&self, door: Door, denial: &Denial) -> Refused {
        Refused {
            job: self.job.to_string(),
            door,
            target: denial.host().to_owned(),
            code: denial.code().name().to_owned(),
            rule: denial.rule().map(ToString::to_string),
            address: denial.address(),
            hint: denial.hint().to_owned(),
        }
    }

    /// Records that a name of the job's choosing leaves as a query; waits for a place in the queue.
    pub(crate) async fn looked_up(&self, name: &HostName) -> Result<(), Gone> {
        self.book().totals.lookups += 1;
        self.tell(Event::Looked(Lookup { job: self.job.to_string(), host: name.to_string() })).await
    }

    /// Records a tunnel before its first byte; waits for a place in the queue.
    pub(crate) async fn opened(&self, approval: &Approval) -> Result<(), Gone> {
        self.book().count_approval(approval);
        self.tell(Event::Opened(approval.clone())).await
    }

    pub(crate) async fn closed(&self, tunnel: Tunnel) -> Result<(), Gone> {
        self.book().count_bytes(&tunnel);
        self.tell(Event::Closed(tunnel)).await
    }

    /// Records a request to a model; never waits. One that finds no place in the queue is still in the
    /// sums: a refusal among the refusals, a call that may be billed on its own.
    pub(crate) fn model(&self, call: ModelCall) {
        let mut book = self.book();
        book.count_call(&call);
        book.totals.model_calls += 1;
        book.totals.spent_microcents = book.totals.spent_microcents.saturating_add(call.cost_microcents);
        match call.outcome {
            ModelOutcome::Refused(_) => {
                book.totals.model_refusals += 1;
                let told = book.take_token() && self.outbox.try_put(&Event::Model(call)).is_ok();
                book.untold_refusals += u64::from(!told);
            }
            ModelOutcome::Served | ModelOutcome::Failed(_) | ModelOutcome::Cut | ModelOutcome::ClientLeft => {
                let told = self.outbox.try_put(&Event::Model(call)).is_ok();
                book.totals.model_untold += u64::from(!told);
            }
        }
    }

    /// A call waits for more money; never waits itself. One that is not heard is refused in the end.
    pub(crate) fn short(&self, least_microcents: u64, most_microcents: u64) {
        if let Err(_full) = self.outbox.try_put(&Event::Short { least_microcents, most_microcents }) {}
    }

    /// Records what is still set aside for model calls when there is nobody left to end them.
    pub(crate) fn unsettled(&self, microcents: u64) {
        let mut book = self.book();
        book.totals.spent_microcents = book.totals.spent_microcents.saturating_add(microcents);
        book.totals.model_untold += u64::from(microcents > 0);
    }

    /// Waits for a place in the queue.
    pub(crate) async fn tell(&self, event: Event) -> Result<(), Gone> {
        self.outbox.put(&event).await
    }

    /// What was counted instead of told since the last call.
    pub(crate) fn take_flood(&self) -> Option<Event> {
        let refusals = std::mem::take(&mut self.book().untold_refusals);
        (refusals > 0).then_some(Event::Flood { refusals })
    }

    /// The sum of the job: every host in alphabetical order, every model, then the totals.
    pub(crate) fn summary(&self) -> Vec<Event> {
        let book = self.book();
        let mut hosts: Vec<HostTotals> = book.hosts.values().cloned().collect();
        hosts.sort_by(|one, other| one.target.cmp(&other.target));
        let models = book.models.values().cloned().map(Event::ModelTotals);
        hosts.into_iter().map(Event::Host).chain(models).chain([Event::Summary(book.totals)]).collect()
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn take_token(&mut self) -> bool {
        let periods = self.refilled.elapsed().as_secs() / REFILL.as_secs();
        if periods > 0 {
            self.tokens = self.tokens.saturating_add(u32::try_from(periods).unwrap_or(BURST)).min(BURST);
            self.refilled = Instant::now();
        }
        let had = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        had
    }

    fn host(&mut self, target: &str, bound: usize) -> Option<&mut HostTotals> {
        if !self.hosts.contains_key(target) {
            if self.hosts.len() >= bound {
                self.totals.untold += 1;
                return None;
            }
            let refusals = Vec::new();
            let host =
                HostTotals { target: target.to_owned(), allowed: 0, bytes_up: 0, bytes_down: 0, refusals };
            self.hosts.insert(target.to_owned(), host);
        }
        self.hosts.get_mut(target)
    }

    fn count_refusal(&mut self, denial: &Denial) {
        self.totals.refused += 1;
        let (code, hint) = (denial.code().name(), denial.hint());
        let Some(host) = self.host(denial.host(), MAX_REFUSED_HOSTS) else { return };
        let is_full = host.refusals.len() >= MAX_REASONS;
        let is_same = |refusal: &&mut Refusal| refusal.code == code && (is_full || refusal.hint == hint);
        match host.refusals.iter_mut().find(is_same) {
            Some(refusal) => refusal.count += 1,
            None => host.refusals.push(Refusal {
                code: code.to_owned(),
                count: 1,
                rule: denial.rule().map(ToString::to_string),
                hint: hint.to_owned(),
            }),
        }
    }

    fn count_call(&mut self, call: &ModelCall) {
        let model = call.model.clone();
        let sums =
            self.models.entry(model.clone()).or_insert(ModelTotals { model, ..ModelTotals::default() });
        sums.calls += 1;
        for (sum, part) in [
            (&mut sums.input_tokens, call.input_tokens),
            (&mut sums.cached_tokens, call.cached_tokens),
            (&mut sums.output_tokens, call.output_tokens),
            (&mut sums.cost_microcents, call.cost_microcents),
        ] {
            *sum = sum.saturating_add(part);
        }
        let Some(code) = call.outcome.code().map(str::to_owned) else { return };
        let hint = call.reason.clone().unwrap_or_default();
        match sums.refusals.iter_mut().find(|refusal| refusal.code == code) {
            Some(refusal) => (refusal.count, refusal.hint) = (refusal.count + 1, hint),
            None => sums.refusals.push(Refusal { code, count: 1, rule: None, hint }),
        }
    }

    fn count_approval(&mut self, approval: &Approval) {
        self.totals.allowed += 1;
        if let Some(host) = self.host(&target(approval), MAX_HOSTS) {
            host.allowed += 1;
        }
    }

    fn count_bytes(&mut self, tunnel: &Tunnel) {
        self.totals.bytes_up += tunnel.bytes_up;
        self.totals.bytes_down += tunnel.bytes_down;
        if let Some(host) = self.hosts.get_mut(&target(&tunnel.approval)) {
            host.bytes_up += tunnel.bytes_up;
            host.bytes_down += tunnel.bytes_down;
        }
    }
}

fn target(approval: &Approval) -> String {
    format!("{}:{}", approval.host, approval.port)
}

#[cfg(test)]
mod tests;
