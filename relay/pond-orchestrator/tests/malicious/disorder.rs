//! Any sequence of acts of an orchestrator that keeps everything it ever saw: it delivers, drops, repeats, misdelivers and
//! damages what it likes, in any order. Whatever it does, a worker begins what the control plane granted it and nothing else.

use pond_wire::orch::Route;
use proptest::prelude::*;

use crate::{Play, Sent, play};

const JOBS: [&str; 3] = ["j-trusted", "j-byo", "j-any"];

#[derive(Debug, Clone, Copy)]
enum Act {
    WorkerPolls,
    WorkerAsks,
    WorkerPrints,
    WorkerCompletes,
    /// Some poll, presented for some job.
    Grant,
    /// Some call, presented on the route it was made for, or on another.
    Call,
    /// Some reply to some worker, as an offer or as a release.
    Offer,
    Release,
    /// A copy of some message with a bit changed.
    Damage,
}

const ACTS: [Act; 9] = [
    Act::WorkerPolls,
    Act::WorkerAsks,
    Act::WorkerPrints,
    Act::WorkerCompletes,
    Act::Grant,
    Act::Call,
    Act::Offer,
    Act::Release,
    Act::Damage,
];

/// Everything it ever saw.
#[derive(Default)]
struct Memory {
    calls: Vec<Sent>,
    replies: Vec<Vec<u8>>,
}

/// From the newest: most sequences then get somewhere.
fn recent<T>(list: &[T], which: usize) -> Option<&T> {
    list.get(list.len().checked_sub(1 + which % list.len().max(1))?)
}

fn act(play: &mut Play, memory: &mut Memory, act: Act, who: usize, which: usize) {
    let who = who % play.workers.len();
    let Play { control, workers } = play;
    match act {
        Act::WorkerPolls => memory.calls.push(workers[who].poll()),
        Act::WorkerAsks => memory.calls.extend(workers[who].ask_secret()),
        Act::WorkerPrints => memory.calls.extend(workers[who].chunk(b"output")),
        Act::WorkerCompletes => memory.calls.extend(workers[who].complete("done")),
        Act::Grant => {
            if let Some(call) = recent(&memory.calls, which / JOBS.len()) {
                memory.replies.extend(control.grant(JOBS[which % JOBS.len()], call));
            }
        }
        Act::Call => {
            let routes = [Route::Seal, Route::Chunks, Route::Complete];
            if let Some(call) = recent(&memory.calls, which / 4) {
                let route = routes.get(which % 4).copied().unwrap_or(call.route);
                memory.replies.extend(control.call(route, call));
            }
        }
        Act::Offer => {
            if let Some(reply) = recent(&memory.replies, which) {
                workers[who].offered(reply).unwrap_or_default();
            }
        }
        Act::Release => {
            if let Some(reply) = recent(&memory.replies, which) {
                workers[who].released(reply).unwrap_or_default();
            }
        }
        Act::Damage => {
            if let Some(mut call) = recent(&memory.calls, which).cloned() {
                let at = which % call.body.len();
                call.body[at] ^= 1;
                memory.calls.push(call);
            }
            if let Some(mut reply) = recent(&memory.replies, which).cloned() {
                let at = which % reply.len();
                reply[at] ^= 1;
                memory.replies.push(reply);
            }
        }
    }
}

fn check(play: &Play) -> Result<(), TestCaseError> {
    for worker in &play.workers {
        let mut begun: Vec<(&str, u64)> = Vec::new();
        for offer in &worker.began {
            let row = &play.control.jobs[&offer.job];
            prop_assert_eq!(&offer.worker, &worker.name);
            prop_assert_eq!(offer.tenant.as_str(), row.project.as_str());
            prop_assert!(
                worker.name == "w0" || offer.tenant == "acme",
                "{} saw {}",
                worker.name,
                offer.tenant
            );
            prop_assert!(offer.lease_epoch <= row.epoch, "a lease nobody gave");
            let lease = (offer.job.as_str(), offer.lease_epoch);
            prop_assert!(!begun.contains(&lease), "{:?} was begun twice", lease);
            begun.push(lease);
        }
        for (job, secret) in &worker.opened {
            prop_assert_eq!(secret, &play.control.jobs[job].secret, "{}", job);
        }
    }
    for (name, row) in &play.control.jobs {
        let printed = "output".repeat(row.kept.len() / 6);
        prop_assert_eq!(&row.kept, printed.as_bytes(), "the log of {}", name);
        if let Some(result) = &row.result {
            let holder = &row.offer.as_ref().unwrap().worker;
            let worker = play.workers.iter().find(|worker| worker.name == *holder).unwrap();
            prop_assert!(worker.said.contains(result), "a result of {} nobody signed", name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_sequence_of_acts_gains_anything(steps in proptest::collection::vec((0..ACTS.len(), 0..2_usize, 0..12_usize), 20..120)) {
        let (mut play, mut memory) = (play(), Memory::default());
        let mut results = [None, None, None];
        for (what, who, which) in steps {
            act(&mut play, &mut memory, ACTS[what], who, which);
            check(&play)?;
            for (kept, job) in results.iter_mut().zip(JOBS) {
                let now = play.control.jobs[job].result.clone();
                prop_assert!(kept.is_none() || *kept == now, "a result of {} was replaced", job);
                *kept = now;
            }
        }
    }
}
