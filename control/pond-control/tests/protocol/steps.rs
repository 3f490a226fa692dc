//! A control plane whose clock is set forward and back while everything else goes wrong too: answers get lost, requests come again,
//! the process starts anew, workers forget what they had. In any order, from a seed: every stage ends once, results are their
//! holder's, and when the clock is right again all work gets done.

use std::sync::atomic::{AtomicI64, Ordering};

use pond_control::store::{Actor, Moment, RunId, RunState, WorkerId, WorkerState};
use pond_control::ticker::{Hearing, Pace, tick};
use pond_policy::settings::Settings;
use pond_seal::offer::Offer;
use pond_wire::orch::Declined;
use proptest::prelude::*;

use super::whole::finished;
use super::worker::{Sent, Worker, deliver};
use super::world::{World, block_on, clock, plain, project};

/// How far the control plane's clock is off.
static OFF: AtomicI64 = AtomicI64::new(0);

fn stepped() -> Moment {
    Moment(clock().0 + OFF.load(Ordering::Relaxed))
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Submit,
    Take,
    /// Takes a job, and never hears of it.
    TakeUnheard,
    Beat,
    Finish,
    GiveBack,
    Forget,
    Again,
    Step,
    Tick,
    Restart,
    Cancel,
}

const ACTS: [Act; 12] = [
    Act::Submit,
    Act::Take,
    Act::TakeUnheard,
    Act::Beat,
    Act::Finish,
    Act::GiveBack,
    Act::Forget,
    Act::Again,
    Act::Step,
    Act::Tick,
    Act::Restart,
    Act::Cancel,
];
const STEPS: [i64; 8] = [-3_600_000, -100_000, -61_000, -1000, 1000, 61_000, 100_000, 3_600_000];

struct Play {
    world: World,
    workers: [Worker; 2],
    held: [Option<Offer>; 2],
    sent: Vec<Sent>,
    runs: Vec<RunId>,
    hearing: Hearing,
}

impl Play {
    async fn act(&mut self, (act, who, which): (Act, usize, usize)) {
        let (worker, held) = (&mut self.workers[who], &mut self.held[who]);
        match act {
            Act::Submit => self.runs.push(self.world.submit(&plain()).await),
            Act::Take if held.is_none() => {
                // A clock that is too far off refuses everybody, until it is set right.
                let offer = worker.poll().await.ok().flatten();
                if let Some(offer) = offer {
                    *held = worker.acknowledge(&offer).await.is_ok().then_some(offer);
                }
            }
            Act::TakeUnheard => {
                let sent = worker.polling().0;
                deliver(worker.at, &sent).await;
                self.sent.push(sent);
            }
            Act::Beat => {
                if let Some(offer) = held {
                    worker.heartbeat(offer, 0).await.map(drop).unwrap_or_default();
                }
            }
            Act::Finish => {
                if let Some(offer) = held.take() {
                    self.finish(who, &offer).await;
                }
            }
            Act::GiveBack => {
                if let Some(offer) = held.take() {
                    worker.decline(&offer, Declined::GivenBack {}).await.unwrap_or_default();
                }
            }
            Act::Forget => *held = None,
            Act::Again => {
                if let Some(sent) = self.sent.get(which % self.sent.len().max(1)) {
                    deliver(worker.at, sent).await;
                }
            }
            Act::Step => {
                OFF.fetch_add(STEPS[which % STEPS.len()], Ordering::Relaxed);
            }
            Act::Tick => self.tick().await,
            Act::Restart => self.restart().await,
            Act::Cancel => {
                if let Some(run) = self.runs.get(which % self.runs.len().max(1)) {
                    self.world.plane.store.cancel(run, "enough", &Actor::System, stepped()).await.unwrap();
                }
            }
            Act::Take => {}
        }
    }

    /// Everything an honest worker says at the end; the last of it is remembered by who is in between.
    async fn finish(&mut self, who: usize, offer: &Offer) {
        let worker = &mut self.workers[who];
        // Output under a lease that is over is refused, and then there is nothing to complete.
        let goes_on = pond_wire::orch::Verdict::Continue {
            lease_seconds: 60,
            lent_microcents: 0,
            lent_egress_bytes: 2,
        };
        if worker.heartbeat(offer, 0).await != Ok(goes_on) {
            return;
        }
        let envelope = finished(worker, offer).await;
        let sent = worker.signed(pond_wire::orch::Route::Complete, &worker.completion(offer, envelope)).0;
        deliver(worker.at, &sent).await;
        self.sent.push(sent);
    }

    async fn tick(&mut self) {
        let (now, pace) = (stepped(), Pace::default());
        self.hearing = self.hearing.at(now, pace.every);
        tick(&self.world.plane, pace, self.hearing.since(), now).await.unwrap();
    }

    async fn restart(&mut self) {
        self.world.restart(Settings::default()).await;
        self.hearing = Hearing::begin(stepped());
        for worker in &mut self.workers {
            worker.at = self.world.at;
        }
    }

    /// The clock is right again, and stays so: whatever is left gets done.
    async fn settle(&mut self) {
        OFF.store(0, Ordering::Relaxed);
        self.restart().await;
        self.tick().await;
        for round in 0..200 {
            // From here on time passes: a lease that nobody holds is over after a minute of it.
            OFF.fetch_add(61_000, Ordering::Relaxed);
            self.tick().await;
            OFF.store(0, Ordering::Relaxed);
            for who in 0..self.workers.len() {
                let id = WorkerId::parse(&self.workers[who].name).unwrap();
                let view = self.world.plane.store.worker(&id).await.unwrap().unwrap();
                if view.state == WorkerState::Quarantined {
                    self.world.plane.store.release(&id, &Actor::System, clock()).await.unwrap();
                }
                let offer = self.workers[who].poll().await.unwrap();
                if let Some(offer) = offer {
                    self.workers[who].acknowledge(&offer).await.unwrap();
                    self.finish(who, &offer).await;
                }
            }
            if self.open().await == 0 {
                return;
            }
            assert!(round < 199, "{} runs are still open", self.open().await);
        }
    }

    async fn open(&self) -> usize {
        let mut open = 0;
        for run in &self.runs {
            let view = self.world.plane.store.run(run).await.unwrap().unwrap();
            open += usize::from(view.run.state == RunState::Active);
        }
        open
    }

    async fn judge(&self) {
        let log = self.world.plane.store.audit(None, Default::default(), 10_000).await.unwrap();
        for run in &self.runs {
            let view = self.world.plane.store.run(run).await.unwrap().unwrap();
            let stage = &view.stages[0];
            let of_stage = |action: &str| {
                log.iter()
                    .filter(|entry| entry.subject == stage.id.as_str() && entry.action.name() == action)
                    .collect::<Vec<_>>()
            };
            assert_eq!(of_stage("stage.ended").len(), 1, "{run}");
            assert!(of_stage("result.rejected").is_empty(), "{run}");
            let accepted = of_stage("result.accepted");
            assert!(accepted.len() <= 1, "{run}: {accepted:?}");
            let Some(accepted) = accepted.first() else { continue };
            let detail = |entry: &pond_control::store::AuditEntry| {
                serde_json::from_str::<serde_json::Value>(&entry.detail).unwrap()
            };
            let leased = of_stage("stage.leased");
            let last = leased.iter().max_by_key(|entry| detail(entry)["epoch"].as_u64()).unwrap();
            assert_eq!(
                (&accepted.actor, &detail(accepted)["epoch"]),
                (&last.actor, &detail(last)["epoch"]),
                "{run}: the result of a lease that is over"
            );
            assert_eq!(
                of_stage("stage.requeued").len() + 1,
                leased.len(),
                "{run}: a result after it was taken back"
            );
        }
    }
}

async fn play(steps: Vec<(usize, usize, usize)>) {
    OFF.store(0, Ordering::Relaxed);
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", directory.path().join("pond.db").display());
    let world = World::open_at(address, directory.path().into(), Settings::default(), stepped).await;
    world.plane.store.create_project(&project("acme"), &Actor::System, clock()).await.unwrap();
    let workers = [world.worker().await, world.worker().await];
    let hearing = Hearing::begin(stepped());
    let (sent, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        runs.push(world.submit(&plain()).await);
    }
    let mut play = Play { world, workers, held: [None, None], sent, runs, hearing };
    for (act, who, which) in steps {
        play.act((ACTS[act], who, which)).await;
    }
    play.settle().await;
    play.judge().await;
    play.world.plane.store.close().await;
}

fn rounds() -> u32 {
    let told = std::env::var("POND_CHAOS_ROUNDS").ok();
    told.map_or(12, |text| text.parse().unwrap_or_else(|fault| panic!("POND_CHAOS_ROUNDS={text}: {fault}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds()))]

    #[test]
    fn no_clock_breaks_a_promise(steps in proptest::collection::vec((0..ACTS.len(), 0..2_usize, 0..40_usize), 20..60)) {
        block_on(play(steps));
    }
}
