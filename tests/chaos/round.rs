//! One round: the plan is carried out, everybody is made well again, and when all is over the site is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::log::{Entry, violations};
use crate::plan::{Act, Plan, Whom, Work};
use crate::residue::{below, jobs, residue};
use crate::server::Server;
use crate::site::{PATIENCE, Role, Site, WORKERS, send};
use crate::work::{document, output, source};
use crate::{http, lossy};

/// Why a stage may fail here: its own exit code, the time, or what was done to those who ran it.
const EXCUSES: [&str; 5] = [
    "exited with code 3",
    "its time was up",
    "too many workers were lost on it",
    "the worker could not run it: ",
    "ended by signal",
];

/// Longer than a lease, and shorter than a result that is held back is late.
const LIMBO: Duration = Duration::from_millis(7000);

/// Runs that the control plane said it has.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeMap<String, (String, Work)>>);

pub(crate) struct Played<'a> {
    site: &'a mut Site,
    acknowledged: Arc<Acknowledged>,
    submitting: Vec<JoinHandle<()>>,
    keys: u64,
    /// Names of jobs that were seen to run on each worker.
    seen: [BTreeSet<String>; WORKERS],
    /// A source that stays until a run uses it.
    source: Value,
    stopped: Vec<Pid>,
}

/// What a site has been through.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    pub(crate) runs: usize,
    pub(crate) succeeded: usize,
    pub(crate) lost: usize,
    /// Why stages failed.
    excuses: BTreeMap<String, usize>,
    /// In all rounds, each from its beginning.
    played: Duration,
    until_ends: Duration,
    until_swept: Duration,
}

impl<'a> Played<'a> {
    pub(crate) fn new(site: &'a mut Site) -> Self {
        let bearer = format!("Bearer {}", site.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", pond_wire::api::TREE_TYPE)];
        let call = ("POST", "/v1/sources?project=acme");
        let kept = http::ask(site.control_port(), call, &headers, &source()).unwrap();
        assert_eq!(kept.status, 201, "{kept:?}");
        Self {
            source: kept.json()["source"].clone(),
            site,
            acknowledged: Arc::default(),
            submitting: Vec::new(),
            keys: 0,
            seen: [const { BTreeSet::new() }; WORKERS],
            stopped: Vec::new(),
        }
    }

    /// Carries the plan out, and judges what came of it.
    pub(crate) fn play(&mut self, plan: &Plan, tally: &mut Tally) -> Vec<String> {
        let begun = Instant::now();
        for (at, act) in plan {
            while begun.elapsed() < Duration::from_millis(*at) {
                self.watch();
                thread::sleep(Duration::from_millis(10));
            }
            self.act(*act);
        }
        tally.played += begun.elapsed();
        self.make_well();
        self.submit(Work::Quick);
        for submitting in self.submitting.drain(..) {
            submitting.join().unwrap_or_else(|_| panic!("a submission was never acknowledged"));
        }
        self.wait_for_ends();
        tally.until_ends += begun.elapsed();
        for number in 0..WORKERS {
            self.site.restart_gently(Role::Worker(number));
        }
        let mut wrong = self.judge(tally);
        wrong.extend(self.left_behind());
        tally.until_swept += begun.elapsed();
        tally.rounds += 1;
        wrong
    }

    pub(crate) fn logs(&self) -> String {
        self.site.logs()
    }

    pub(crate) fn mishaps(&self) -> u64 {
        self.site.ways.iter().map(lossy::Lossy::mishaps).sum()
    }

    fn watch(&mut self) {
        for (number, seen) in self.seen.iter_mut().enumerate() {
            seen.extend(jobs(&self.site.state(Role::Worker(number))));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Submit(work) => self.submit(work),
            Act::Cancel(which) => self.cancel(which),
            Act::Kill(Whom::Process(role)) => self.site.kill(role),
            Act::Kill(Whom::Postgres) => self.postgres(Server::kill),
            Act::Kill(whom) => drop(self.hit(whom, Signal::KILL)),
            Act::Revive(Whom::Process(role)) => self.site.start(role),
            Act::Revive(Whom::Postgres) => self.postgres(revive),
            Act::Revive(Whom::JobOf(_) | Whom::GatewayOf(_)) => {}
            Act::Stop(whom) => {
                let hit = self.hit(whom, Signal::STOP);
                self.stopped.extend(hit);
            }
            Act::Continue(Whom::Process(role)) => self.site.signal(role, Signal::CONT),
            Act::Continue(Whom::Postgres) => self.postgres(|server| tell(server, Signal::CONT)),
            Act::Continue(_) => self.wake(),
            Act::Weather(way, percent) => self.site.ways[way].weather(percent),
            Act::FillDisk => fill(&self.site.state(Role::Control).join("ballast")),
            Act::FreeDisk => self.free(),
            Act::Limbo => self.limbo(),
        }
    }

    fn limbo(&mut self) {
        let (since, workers) = (Instant::now(), [Role::Worker(0), Role::Worker(1)]);
        self.site.ways[0].hold_a_result();
        while self.site.ways[0].waits_for_a_result() && since.elapsed() < LIMBO {
            self.watch();
            thread::sleep(Duration::from_millis(5));
        }
        if self.site.ways[0].let_results_pass() {
            return;
        }
        for role in workers {
            self.site.signal(role, Signal::STOP);
        }
        thread::sleep(LIMBO);
        for role in workers {
            self.site.signal(role, Signal::CONT);
        }
    }

    fn postgres(&mut self, what: impl FnOnce(&mut Server)) {
        if let Some(server) = &mut self.site.postgres {
            what(server);
        }
    }

    /// Sends a signal; whom it reached, if that is nobody of the site's own.
    fn hit(&mut self, whom: Whom, signal: Signal) -> Option<Pid> {
        let (worker, word) = match whom {
            Whom::Process(role) => {
                self.site.signal(role, signal);
                return None;
            }
            Whom::Postgres => {
                self.postgres(|server| tell(server, signal));
                return None;
            }
            Whom::JobOf(worker) => (worker, "job"),
            Whom::GatewayOf(worker) => (worker, pond_gateway::NAME),
        };
        let pid = *below(self.site.pid(Role::Worker(worker))?, word).first()?;
        // It may have ended meanwhile.
        kill_process(pid, signal).ok().map(|()| pid)
    }

    fn wake(&mut self) {
        for pid in self.stopped.drain(..) {
            kill_process(pid, Signal::CONT).unwrap_or_default();
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.site.state(Role::Control).join("ballast")).unwrap_or_default();
    }

    /// Submits until it is acknowledged, and then once more: that must be the same run.
    fn submit(&mut self, work: Work) {
        self.keys += 1;
        let mut body = json!({"document": document(work), "retries": 1});
        if work == Work::WithSource {
            body["source"] = self.source.clone();
        }
        let (key, port, token) =
            (format!("key-{}", self.keys), self.site.ways[2].port, self.site.token.clone());
        let acknowledged = Arc::clone(&self.acknowledged);
        self.submitting.push(thread::spawn(move || {
            for _ in 0..2 {
                let run = submitted(port, &token, &key, &body);
                let before = acknowledged.0.lock().unwrap().insert(key.clone(), (run.clone(), work));
                assert!(before.is_none_or(|(before, _)| before == run), "{key} became two runs");
            }
        }));
    }

    fn cancel(&self, which: u64) {
        let known = self.acknowledged.0.lock().unwrap();
        let run = known.values().rev().nth(usize::try_from(which).unwrap()).map(|(run, _)| run.clone());
        drop(known);
        if let Some(run) = run {
            let path = format!("/v1/runs/{run}/cancel");
            // What gets lost was not cancelled.
            self.site.ask(self.site.ways[2].port, "POST", &path, None).map(drop).unwrap_or_default();
        }
    }

    fn make_well(&mut self) {
        self.free();
        self.wake();
        for way in &self.site.ways {
            way.weather(0);
        }
        self.postgres(|server| {
            tell(server, Signal::CONT);
            revive(server);
        });
        for role in Role::ALL {
            self.site.signal(role, Signal::CONT);
            self.site.start(role);
        }
    }

    /// Every run, over; an operator lets workers work again that lost too much meanwhile.
    fn wait_for_ends(&mut self) {
        let since = Instant::now();
        loop {
            self.watch();
            let active = self.site.must("GET", "/v1/runs?state=active&limit=100", None).json();
            let open = active["runs"].as_array().map_or(0, Vec::len);
            if open == 0 {
                return;
            }
            let workers = self.site.must("GET", "/v1/workers", None).json();
            for worker in workers["workers"].as_array().unwrap() {
                if worker["state"] == "quarantined" {
                    let id = worker["id"].as_str().unwrap();
                    self.site.must("POST", &format!("/v1/workers/{id}/release"), None);
                }
            }
            assert!(since.elapsed() < PATIENCE, "waiting for {open} runs: {active}\n{}", self.site.logs());
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn judge(&self, tally: &mut Tally) -> Vec<String> {
        let log = self.log();
        let mut wrong = violations(&log);
        tally.lost = log.iter().filter(|entry| entry.action == "stage.requeued").count();
        let known = self.acknowledged.0.lock().unwrap();
        let submitted = log.iter().filter(|entry| entry.action == "run.submitted").count();
        if submitted != known.len() {
            wrong.push(format!("{} runs were acknowledged, and {submitted} are there", known.len()));
        }
        tally.runs = known.len();
        tally.succeeded = 0;
        tally.excuses.clear();
        for (key, (run, work)) in known.iter() {
            let view = self.site.must("GET", &format!("/v1/runs/{run}"), None);
            if view.status != 200 {
                wrong.push(format!("{key} was acknowledged as {run}, which is gone: {view:?}"));
                continue;
            }
            let view = view.json();
            tally.succeeded += usize::from(view["run"]["state"] == "succeeded");
            for stage in view["stages"].as_array().unwrap() {
                if stage["state"] == "failed" {
                    *tally.excuses.entry(stage["reason"].as_str().unwrap().to_owned()).or_default() += 1;
                }
                wrong.extend(self.stage(run, *work, stage));
            }
        }
        wrong.extend(
            self.site
                .ways
                .iter()
                .filter(|way| way.saw_a_secret())
                .map(|_| format!("{:?} was seen on the way", lossy::PLANTED)),
        );
        wrong
    }

    fn stage(&self, run: &str, work: Work, stage: &Value) -> Option<String> {
        let (state, reason) = (stage["state"].as_str().unwrap(), stage["reason"].as_str().unwrap());
        let excused = EXCUSES.iter().any(|excuse| reason.contains(excuse));
        match state {
            "succeeded" if work == Work::Fails => Some(format!("{run} succeeded, and cannot have: {stage}")),
            "succeeded" => {
                let name = stage["name"].as_str().unwrap();
                let path = format!("/v1/runs/{run}/stages/{name}/logs?stream=stdout");
                let said = self.site.must("GET", &path, None).body;
                (said != output(work, name))
                    .then(|| format!("{run} {name} said {} bytes of something else", said.len()))
            }
            "failed" if excused => None,
            "cancelled" => None,
            _ => Some(format!("{run} ended as it may not: {stage}")),
        }
    }

    /// The whole audit log.
    fn log(&self) -> Vec<Entry> {
        let (mut log, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let after = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
            let page = self.site.must("GET", &format!("/v1/audit?limit=200{after}"), None).json();
            log.extend(page["entries"].as_array().unwrap().iter().map(Entry::read));
            match page["next"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return log,
            }
        }
    }

    /// What is on the workers once the start of their daemons has swept.
    fn left_behind(&mut self) -> Vec<String> {
        let since = Instant::now();
        loop {
            let left: Vec<String> = (0..WORKERS)
                .flat_map(|number| {
                    let role = Role::Worker(number);
                    residue(&self.site.state(role), self.site.pid(role), &self.seen[number])
                })
                .collect();
            if left.is_empty() || since.elapsed() > PATIENCE {
                return left;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The run that this key is, once the control plane says so.
fn submitted(port: u16, token: &str, key: &str, body: &Value) -> String {
    let since = Instant::now();
    loop {
        let last = send(port, token, ("POST", "/v1/runs"), Some(key), Some(body));
        if let Ok(reply) = &last {
            match reply.status {
                200 | 201 => return reply.json()["run"].as_str().unwrap().to_owned(),
                429 | 503 => {}
                _ => panic!("{key} was refused: {} {}", reply.status, String::from_utf8_lossy(&reply.body)),
            }
        }
        assert!(since.elapsed() < PATIENCE, "submitting {key}: {last:?}");
        thread::sleep(Duration::from_millis(150));
    }
}

/// A signal to every process of a database.
fn tell(server: &mut Server, signal: Signal) {
    if let Some(process) = &server.process {
        kill_process_group(Pid::from_child(process), signal).unwrap();
    }
}

fn revive(server: &mut Server) {
    if server.process.is_none() {
        server.launch();
    }
}

/// Until nothing more fits.
fn fill(ballast: &std::path::Path) {
    let Ok(mut file) = File::create(ballast) else { return };
    for size in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
