//! What must hold, read from the audit log alone: every stage ends once, every job's result is its last holder's, and an honest
//! site never has a result that does not verify.
//!
//! On Postgres two entries about the same job may change places, so what is compared are numbers, not neighbours.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) subject: String,
    pub(crate) detail: Value,
}

#[derive(Debug, Default)]
struct Job {
    stage: String,
    /// Who held it under which number.
    leases: BTreeMap<u64, String>,
    returned: u64,
    /// Who said what came of it, under which number.
    results: Vec<(u64, String)>,
}

#[derive(Debug, Default)]
struct Ends {
    stages: BTreeMap<String, u64>,
    runs: BTreeMap<String, u64>,
    submitted: BTreeMap<String, u64>,
}

impl Entry {
    pub(crate) fn read(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Self {
            actor: text("actor"),
            action: text("action"),
            subject: text("subject"),
            detail: entry["detail"].clone(),
        }
    }
}

/// Everything that is not as it must be, once all is over.
pub(crate) fn violations(log: &[Entry]) -> Vec<String> {
    let (mut jobs, mut ends) = (BTreeMap::<String, Job>::new(), Ends::default());
    let mut wrong = Vec::new();
    for entry in log {
        let job = entry.detail["job"].as_str().unwrap_or_default().to_owned();
        let epoch = entry.detail["epoch"].as_u64().unwrap_or_default();
        match entry.action.as_str() {
            "run.submitted" => *ends.submitted.entry(entry.subject.clone()).or_default() += 1,
            "run.ended" => *ends.runs.entry(entry.subject.clone()).or_default() += 1,
            "stage.ended" => *ends.stages.entry(entry.subject.clone()).or_default() += 1,
            "stage.queued" => jobs.entry(job).or_default().stage = entry.subject.clone(),
            "stage.leased" => {
                let leases = &mut jobs.entry(job.clone()).or_default().leases;
                if leases.insert(epoch, entry.actor.clone()).is_some() {
                    wrong.push(format!("{job} was given out twice under {epoch}"));
                }
            }
            "stage.requeued" => jobs.entry(job).or_default().returned += 1,
            "result.accepted" => {
                jobs.entry(job).or_default().results.push((epoch, entry.actor.clone()));
            }
            "result.rejected" => wrong.push(format!("a result that does not verify: {entry:?}")),
            "credential.released" | "bundle.redeemed" => wrong.extend(held(&jobs, entry, &job, epoch)),
            _ => {}
        }
    }
    for (id, job) in &jobs {
        wrong.extend(job.violations(id));
    }
    wrong.extend(ends.violations(&jobs));
    wrong
}

/// What was given out went to who held the job.
fn held(jobs: &BTreeMap<String, Job>, entry: &Entry, job: &str, epoch: u64) -> Option<String> {
    if job.is_empty() || epoch == 0 {
        return None;
    }
    let holder = jobs.get(job).and_then(|job| job.leases.get(&epoch));
    (holder != Some(&entry.actor)).then(|| format!("given to who did not hold the job: {entry:?}"))
}

impl Job {
    fn violations(&self, id: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let given = u64::try_from(self.leases.len()).unwrap();
        let last = self.leases.last_key_value();
        match self.results.as_slice() {
            [] if self.returned > given => wrong.push(format!("{id} came back more often than it went out")),
            [] => {}
            [(epoch, who)] => {
                if last != Some((epoch, who)) {
                    wrong.push(format!(
                        "{id}: the result of {who} under {epoch} is not its holder's: {last:?}"
                    ));
                }
                if self.returned + 1 != given {
                    wrong.push(format!("{id} has a result after it was taken back: {self:?}"));
                }
            }
            several => wrong.push(format!("{id} has several results: {several:?}")),
        }
        if self.stage.is_empty() {
            wrong.push(format!("{id} was never queued"));
        }
        wrong
    }
}

impl Ends {
    fn violations(&self, jobs: &BTreeMap<String, Job>) -> Vec<String> {
        let once = |what: &str, counts: &BTreeMap<String, u64>| {
            let several = counts.iter().filter(|(_, count)| **count != 1);
            several.map(|(id, count)| format!("{what} {id} {count} times")).collect::<Vec<_>>()
        };
        let mut wrong = [
            once("submitted", &self.submitted),
            once("ended run", &self.runs),
            once("ended stage", &self.stages),
        ]
        .concat();
        let stages: BTreeSet<&String> = jobs.values().map(|job| &job.stage).collect();
        let open = stages.into_iter().filter(|stage| !self.stages.contains_key(*stage));
        wrong.extend(open.map(|stage| format!("stage {stage} never ended")));
        let open = self.submitted.keys().filter(|run| !self.runs.contains_key(*run));
        wrong.extend(open.map(|run| format!("run {run} never ended")));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(actor: &str, action: &str, subject: &str, detail: Value) -> Entry {
        let [actor, action, subject] = [actor, action, subject].map(str::to_owned);
        Entry { actor, action, subject, detail }
    }

    /// A job that was lost once and then done.
    fn good() -> Vec<Entry> {
        let lease = |who: &str, epoch: u64| {
            entry(who, "stage.leased", "s", json!({"job": "j", "worker": who, "epoch": epoch}))
        };
        vec![
            entry("t", "run.submitted", "r", json!({})),
            entry("system", "stage.queued", "s", json!({"job": "j", "attempt": 1})),
            lease("w1", 1),
            entry("system", "stage.requeued", "s", json!({"job": "j", "why": "the lease lapsed"})),
            lease("w2", 2),
            entry("w2", "result.accepted", "s", json!({"job": "j", "epoch": 2, "outcome": "succeeded"})),
            entry("w2", "stage.ended", "s", json!({"state": "succeeded"})),
            entry("system", "run.ended", "r", json!({"state": "succeeded"})),
        ]
    }

    #[test]
    fn a_log_is_good_and_each_thing_that_may_be_wrong_is_found() {
        assert_eq!(violations(&good()), Vec::<String>::new());
        let result = |who: &str, epoch: u64| {
            entry(who, "result.accepted", "s", json!({"job": "j", "epoch": epoch, "outcome": "succeeded"}))
        };
        let changed = |change: &dyn Fn(&mut Vec<Entry>)| {
            let mut log = good();
            change(&mut log);
            violations(&log)
        };
        for (found, what) in [
            (changed(&|log| log[5] = result("w1", 1)), "a result of a lease that is over"),
            (changed(&|log| log[5] = result("w1", 2)), "a result of somebody else"),
            (changed(&|log| log.push(result("w2", 2))), "two results"),
            (changed(&|log| drop(log.remove(4))), "a result after the job was taken back"),
            (changed(&|log| log.push(log[6].clone())), "a stage that ended twice"),
            (changed(&|log| drop(log.remove(6))), "a stage that did not end"),
            (changed(&|log| drop(log.remove(7))), "a run that did not end"),
            (changed(&|log| log.push(log[0].clone())), "a run that was submitted twice"),
            (changed(&|log| log.push(log[4].clone())), "a lease that was given out twice"),
            (
                changed(&|log| log.push(entry("w2", "result.rejected", "s", json!({})))),
                "a result that does not verify",
            ),
            (
                changed(&|log| {
                    log.push(entry("w1", "credential.released", "c", json!({"job": "j", "epoch": 2})))
                }),
                "a secret for somebody else",
            ),
        ] {
            assert!(!found.is_empty(), "{what}");
        }
    }
}
