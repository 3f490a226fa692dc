//! Changes of the rules of one run, from the request to the answer: judged, written down, handed to the gateway, answered.
//!
//! Invariants: one change at a time; none takes effect that is not in both records; the rules kept here are those the gateway
//! said it holds.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use pond_policy::backend::Backend;
use pond_policy::profile::Profile;
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_wire::change::{Answer, Change};
use pond_worker::gateway::Gateway;
use serde::Serialize;

use super::desk::{Desk, Visitor};
use super::record::{Kept, Record};
use super::rules::Rules;
use crate::audit::{Audit, Command, Fate};

#[derive(Debug)]
pub(super) struct Counter {
    desk: Desk,
    rules: Rules,
    auditor: Auditor,
    asked: Option<Asked>,
}

/// A change on its way to the gateway and back.
#[derive(Debug)]
struct Asked {
    visitor: Visitor,
    change: Change,
    rules: Rules,
    notes: Vec<String>,
}

/// A line of the run's network record.
#[derive(Debug, Serialize)]
#[serde(rename = "change", rename_all = "snake_case")]
pub(super) struct Line<'a> {
    change: Told<'a>,
}

#[derive(Debug, Serialize)]
struct Told<'a> {
    /// Who asked for it.
    uid: u32,
    allow: &'a [String],
    deny: &'a [String],
}

/// Who tells the audit log of this machine.
#[derive(Debug)]
pub(crate) struct Auditor {
    audit: Audit,
    job: JobName,
    profile: &'static str,
    backend: &'static str,
}

impl Auditor {
    pub(crate) fn new(
        state: &StateDir,
        job: &JobName,
        profile: Profile,
        backend: Backend,
    ) -> anyhow::Result<Self> {
        let (profile, backend) = (profile.name(), backend.name());
        Ok(Self { audit: Audit::open(state)?, job: job.clone(), profile, backend })
    }

    /// One line per rule, as if each had been asked for alone.
    fn note(&self, change: &Change) -> anyhow::Result<()> {
        let words = |verb: &str, rule: &String| ["pond".to_owned(), verb.to_owned(), rule.clone()];
        let allow = change.allow.iter().map(|rule| words("allow", rule));
        for argv in allow.chain(change.deny.iter().map(|rule| words("deny", rule))) {
            let command = Command { argv: &argv, profile: self.profile, backend: self.backend };
            let (id, elapsed) = (self.job.as_str(), Duration::ZERO);
            self.audit.append(&command, &Fate::Ran { id, returncode: 0, elapsed, timed_out: false })?;
        }
        Ok(())
    }
}

impl Counter {
    pub(super) fn new(desk: Desk, rules: Rules, auditor: Auditor) -> Self {
        Self { desk, rules, auditor, asked: None }
    }

    /// Readable when the next one may be heard.
    pub(super) fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.asked.is_none().then(|| self.desk.as_fd())
    }

    /// Hears whoever waits. What is refused is answered at once, the rest when the gateway has answered.
    pub(super) fn hear(&mut self, gateway: &Gateway, record: &mut Record) {
        let Some((visitor, change)) = self.desk.visitor() else { return };
        let (rules, notes) = match self.rules.change(&change) {
            Ok(next) => next,
            Err(fault) => return visitor.tell(&refused(fault.code(), fault.to_string())),
        };
        let told = Told { uid: visitor.uid, allow: &change.allow, deny: &change.deny };
        let kept = record.change(&Line { change: told });
        // A full record is no reason to leave a way open that somebody wants closed; the audit log still has it.
        let may_go_on = match kept {
            Ok(Kept::Written) => true,
            Ok(Kept::NoRoom) => change.allow.is_empty(),
            Ok(Kept::Lost) | Err(_) => false,
        };
        if !may_go_on || self.auditor.note(&change).is_err() {
            let message = "the change could not be written down, so it was not made";
            return visitor.tell(&refused("not_recorded", message.to_owned()));
        }
        match gateway.rules(rules.reach()) {
            Ok(()) => self.asked = Some(Asked { visitor, change, rules, notes }),
            Err(fault) => visitor.tell(&refused("gateway_gone", fault.to_string())),
        }
    }

    /// The gateway holds the new rules; what changed.
    pub(super) fn replaced(&mut self) -> Option<Change> {
        let Asked { visitor, change, rules, notes } = self.asked.take()?;
        self.rules = rules;
        visitor.tell(&Answer::Changed { notes });
        Some(change)
    }

    pub(super) fn not_replaced(&mut self, reason: &str) {
        if let Some(asked) = self.asked.take() {
            asked.visitor.tell(&refused("gateway_refused", reason.to_owned()));
        }
    }
}

fn refused(code: &str, message: String) -> Answer {
    Answer::Refused { code: code.to_owned(), message }
}
