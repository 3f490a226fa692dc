//! One confined run, from its record to its summary. The record comes first and goes last: when it is closed, everything worth
//! keeping is in the run's directory; when something fails on the way, it is abandoned with all that was made.

use std::cell::OnceCell;
use std::io::{IsTerminal, Stdin};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use pond_policy::quote::quote;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::container::Mismatch;
use pond_sandbox::native::cgroup::Around;
use pond_sandbox::native::{Begun, Job, Remains, abandon};
use pond_sandbox::provider::Provider;
use pond_sandbox::record::{JobName, Live};
use pond_sandbox::state::StateDir;
use pond_wire::jail::{Console, Duty};
use pond_worker::collect::{Above, Wanted, head_commit};
use pond_worker::supervise::{Bounds, Ended, Stop, Wiring, supervise};

use super::base::{Base, BaseSummary};
use super::counter::Auditor;
use super::export::{self, Out};
use super::finding::{Finding, disk_room, findings};
use super::gather::{Output, gather};
use super::git::Lent;
use super::listener::Daemon;
use super::outlet::{Delivered, Patience};
use super::pace::{self, Pace};
use super::request::{Asker, Manner, View};
use super::sink::{Audience, Sinks};
use super::statement::{self, Facts, StatementSummary};
use super::summary::{Allowed, Summary};
use super::traffic::NetworkSummary;
use super::verdict::{Shortfall, Verdict};
use super::{Request, disk_rate, egress, elsewhere, foreign, new_name, terminal};
use crate::failure::Failure;
use crate::output;
use crate::runs::{self, RunInfo};

/// More output than any build writes for a person to read; past it the job is printing to fill a disk.
const OUTPUT_BYTES: u64 = 256 << 20;

/// What a control plane keeps of a job's output.
const GIVEN_OUT_BYTES: u64 = 64 << 20;

/// A conversation may go on for days, and a terminal takes no more than a person can watch; only its log is bounded.
fn output_bytes(request: &Request<'_>) -> u64 {
    match (request.console, request.commission()) {
        (Console::Pipes, None) => OUTPUT_BYTES,
        (Console::Pipes, Some(commission)) => GIVEN_OUT_BYTES.min(commission.output_bytes),
        (Console::Terminal { .. }, _) => u64::MAX,
    }
}

pub(super) fn run(
    provider: &mut Provider,
    request: &Request<'_>,
    checkout: &Checkout,
) -> anyhow::Result<(JobName, Summary)> {
    let started = runs::now();
    let record = provider.reserve(new_name(started)?)?;
    let id = record.job().clone();
    let attempt = Attempt { request, checkout, record: &record, started };
    match attempt.carry_out(provider) {
        Ok(summary) => {
            record.close()?;
            Ok((id, summary))
        }
        Err(fault) => {
            // A container's kernel is judged before its job may begin.
            if fault.chain().any(|cause| cause.is::<Mismatch>()) {
                request.begun.take();
            }
            let left = abandon(provider.state(), record).err().map(|left| left.to_string());
            let has_begun = request.begun.borrow().is_some();
            Err(broken_off(fault, has_begun, left.as_deref()))
        }
    }
}

/// A run that is not kept: whether a job is lost with it, and what of it is still there.
fn broken_off(fault: anyhow::Error, has_begun: bool, left: Option<&str>) -> anyhow::Error {
    let left = left.map(|left| match format!("{fault:#}").contains(left) {
        // An engine that is gone ends the run and keeps pond from clearing up, for one reason.
        true => "what is left of it goes with the next start".to_owned(),
        false => format!("{left}; the next start tries again"),
    });
    let lost = has_begun.then(|| "the job had begun, and what it changed is lost".to_owned());
    let said: Vec<String> = lost.into_iter().chain(left).collect();
    if said.is_empty() { fault } else { fault.context(said.join("; ")) }
}

/// What was seen of a job while it ran.
struct Seen {
    ended: Ended,
    shown: Delivered,
    network: NetworkSummary,
    /// Readable when somebody wants pond to stop.
    interrupt: Option<OwnedFd>,
}

/// What there is to tell besides how it ended.
struct Told {
    shown: Delivered,
    base: BaseSummary,
    result: Output,
    network: NetworkSummary,
    statement: StatementSummary,
    findings: Vec<Finding>,
    undelivered: Vec<String>,
    shortfall: Option<Shortfall>,
}

/// What did not get from the person to the job, or from the job to the person.
fn undelivered(shown: Delivered, input_fault: Option<&std::io::Error>) -> Vec<String> {
    let output = match shown {
        Delivered::Failed(errno) => Some(format!("the job's output, of which the log has all: {errno}")),
        Delivered::All | Delivered::NotAll => None,
    };
    let input =
        input_fault.map(|fault| format!("the rest of the job's input, which ended early for it: {fault}"));
    output.into_iter().chain(input).collect()
}

struct Attempt<'a> {
    request: &'a Request<'a>,
    checkout: &'a Checkout,
    record: &'a Live,
    started: Timestamp,
}

impl Attempt<'_> {
    fn not_started(&self, verdict: &Verdict) -> anyhow::Error {
        let program = quote(self.request.argv.first().map_or("", String::as_str));
        Failure::NotStarted.because(format!("{program} {}", verdict.sentence()))
    }

    fn carry_out(&self, provider: &mut Provider) -> anyhow::Result<Summary> {
        let begun = provider.begin(self.record, self.request.policy)?;
        // Everything up to the launch happens while a native launcher makes namespaces and a disk.
        crate::runs::clean_up(provider.state())?;
        let directory = provider.state().runs().join(self.record.job().as_str());
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("making {}", directory.display()))?;
        let mut out = self
            .request
            .out
            .map(|path| Out::create(path, provider.state(), self.record.job()))
            .transpose()?;
        let base = match self.request.view {
            View::Snapshot => Base::snapshot(self.checkout, &directory)?,
            View::Live => Base::live(self.checkout)?,
        };
        let prepared = statement::prepare(self.request, &directory, provider.state());
        let Seen { mut ended, shown, network, interrupt } =
            self.watch(provider, begun, base.checkout(), &directory)?;
        let verdict = Verdict::of(&ended, &base.checkout().named.path);
        let mut findings = findings(self.request.policy, &ended, &verdict, disk_room(&ended), &network);
        if let Verdict::NotLaunched { .. } = verdict {
            self.request.begun.take();
            return Err(self.not_started(&verdict));
        }
        let declared = &self.request.artifacts;
        let wanted = Wanted { ignored: self.request.ignored, artifacts: declared };
        let above = Above::find(self.checkout.as_fd());
        let head = head_commit(base.checkout().as_fd(), above.as_ref());
        let pace = Pace::new(interrupt.as_ref().map(AsFd::as_fd), self.is_quiet())?;
        let (gathered, _leaving) = gather(&mut ended, &base, above, &wanted, &directory, &pace)?;
        pace.finish();
        findings.extend(gathered.finding());
        findings.extend(self.of_the_checkout(&verdict));
        let mut undelivered = undelivered(shown, ended.input_fault.as_ref());
        let artifacts = match export::artifacts(&directory, gathered.record(), declared, out.as_ref()) {
            // They are the run's as well, whatever became of the place they were wanted in.
            Err(fault) if out.is_some() => {
                undelivered.extend(out.take().map(|out| out.failed(&fault)));
                export::artifacts(&directory, gathered.record(), declared, None)?
            }
            copied => copied?,
        };
        let base = base.finish(gathered.record())?;
        if self.request.commission().is_some() {
            export::result_tree(&directory)?;
        }
        self.leave_container(provider.state(), &mut ended)?;
        // Init has had the time of all that to go; what is said from here on is said of a host without it.
        ended.over.remains.take().map(Remains::remove).transpose()?;
        let around = provider.around();
        let facts = Facts {
            request: self.request,
            record: self.record,
            started: self.started,
            ended: &ended,
            verdict: &verdict,
            gathered: &gathered,
            base: &base,
            head,
            network: &network,
            around,
            groups: provider.groups(),
            disk_rate: disk_rate::said(self.request.disk_rate, provider),
            directory: &directory,
        };
        let statement = statement::state(&facts, prepared);
        let result = gathered.summary(&directory, artifacts);
        let shortfall = gathered.shortfall();
        let told = Told { shown, base, result, network, statement, findings, undelivered, shortfall };
        let mut summary = self.summarise(&ended, around, verdict, told, directory);
        // With this the run is complete, and whoever was to get a copy of it can do no harm to it.
        self.info(&summary).save(&summary.directory)?;
        if let Some(mut out) = out
            && let Err(fault) = out.fill(&summary.directory, &summary)
        {
            summary.fell_short(out.failed(&fault));
        }
        Ok(summary)
    }

    /// What about the checkout itself may be why a job failed.
    fn of_the_checkout(&self, verdict: &Verdict) -> impl Iterator<Item = Finding> {
        let foreign = foreign::finding(self.request, self.checkout, verdict);
        foreign.into_iter().chain(elsewhere::finding(self.checkout, verdict))
    }

    /// A container that its engine does not remove is nobody's result, and the next start's to remove.
    fn leave_container(&self, state: &StateDir, ended: &mut Ended) -> anyhow::Result<()> {
        let Some(fault) = ended.over.left.take() else { return Ok(()) };
        self.record.bequeath(state)?;
        let fault = output::plain(&format!("{:#}", anyhow::Error::from(fault)));
        output::say(&format!(
            "pond: warning: the job is over and its container is still there, which the next start removes: {fault}"
        ));
        Ok(())
    }

    /// Launches the job and stays with it to its end.
    fn watch(
        &self,
        provider: &mut Provider,
        begun: Option<Begun>,
        checkout: &Checkout,
        directory: &Path,
    ) -> anyhow::Result<Seen> {
        let Request { argv, policy, env, home, tools, console, .. } = self.request;
        let id = self.record.job().as_str();
        let way_out = match self.request.way_out.take() {
            None => None,
            Some((plan, model)) => {
                egress::start(plan, id, self.request.resolvers.to_vec(), model, Lent::default(), directory)?
            }
        };
        let job = Job {
            record: self.record,
            policy,
            checkout,
            argv,
            env,
            exhibits: &[],
            tools,
            console: *console,
            doors: way_out.as_ref().map_or(&[], |way_out| &way_out.doors),
            home,
            mounts: &[],
            filesystem: None,
            duty: Duty::Once,
        };
        let mut running = provider.launch(begun, &job)?;
        provider.retire();
        if let Some(way_out) = &way_out {
            way_out.open(&mut running)?;
        }
        self.request.begun.replace(Some(self.record.job().clone()));
        let mut sinks = Sinks::open(directory, *console, self.audience())?;
        let (stdin, signals) = (std::io::stdin(), OnceCell::new());
        let (interrupt, input) = self.ends(&signals, &stdin)?;
        let person = terminal::take(*console, stdin.as_fd())?;
        // A thread started before the signals were set aside would take them.
        let auditor =
            Auditor::new(provider.state(), self.record.job(), policy.profile(), self.request.backend)?;
        let daemon = self.request.commission().map(|given| Daemon::of(given.wires)).transpose()?;
        let watched = way_out.map(|way_out| way_out.listen(directory, auditor, daemon)).transpose()?;
        let wiring = Wiring {
            input: input.filter(|input| person.is_some() || !input.is_terminal()),
            interrupt: Some(interrupt),
            terminal: person.as_ref(),
            rooms: &sinks.rooms()?,
        };
        let bounds = Bounds { wall: policy.timeout().duration(), output_bytes: output_bytes(self.request) };
        let ended = supervise(running, wiring, bounds, |stream, bytes| sinks.take(stream, bytes));
        let patience = match (&ended, self.request.asker) {
            (Ok(_), Asker::ControlPlane(_)) => Patience::UntilTaken,
            (Ok(Ended { stop: None, .. }), Asker::Person) => Patience::UntilInterrupted(interrupt),
            (Ok(Ended { stop: Some(_), .. }), Asker::Person) | (Err(_), _) => Patience::Short,
        };
        // Whatever happened, the terminal is whole again before anything is said on it.
        let shown = sinks.finish(patience);
        drop(person);
        let ended = ended?;
        let network = match watched {
            None => NetworkSummary::Closed,
            Some(watched) => NetworkSummary::Gateway(watched.finish()?),
        };
        let interrupt = match self.request.asker {
            Asker::Person => {
                if let Some(Stop::Interrupted) = ended.stop {
                    pace::forget(interrupt);
                }
                Some(interrupt.try_clone_to_owned()?)
            }
            // A daemon that ends a job wants its result so far.
            Asker::ControlPlane(_) => None,
        };
        Ok(Seen { ended, shown, network, interrupt })
    }

    /// Nobody watches a job that was given out, but its daemon.
    fn is_quiet(&self) -> bool {
        self.request.commission().is_some() || self.request.manner == Manner::Quiet
    }

    fn audience(&self) -> Audience<'_> {
        match (self.request.commission(), self.request.manner) {
            (Some(commission), _) => Audience::Daemon(commission.wires),
            (None, Manner::Json) => Audience::Nobody,
            (None, Manner::Summary | Manner::Quiet) => Audience::Person,
        }
    }

    /// What ends the job before its time, and what it reads: signals to us and our own input, or whoever gave it out and
    /// nothing.
    fn ends<'b>(
        &'b self,
        signals: &'b OnceCell<OwnedFd>,
        stdin: &'b Stdin,
    ) -> anyhow::Result<(BorrowedFd<'b>, Option<BorrowedFd<'b>>)> {
        match self.request.commission() {
            Some(commission) => Ok((commission.wires.socket.as_fd(), None)),
            None => {
                let interrupts = pond_sys::signal::interrupts()?;
                Ok((signals.get_or_init(|| interrupts).as_fd(), Some(stdin.as_fd())))
            }
        }
    }

    fn summarise(
        &self,
        ended: &Ended,
        around: Around,
        verdict: Verdict,
        told: Told,
        directory: PathBuf,
    ) -> Summary {
        let limits = self.request.policy.limits();
        let (memory, processes) = limits.map_or((0, 0), |limits| (limits.memory.bytes(), limits.pids.get()));
        Summary {
            run: self.record.job().as_str().to_owned(),
            command: self.request.argv.to_vec(),
            profile: self.request.policy.profile().name(),
            backend: self.request.backend.name(),
            exit_code: verdict.code_with(match told.undelivered.as_slice() {
                [] => told.shortfall,
                [..] => Some(Shortfall::Failed),
            }),
            verdict,
            elapsed: ended.elapsed,
            memory: Allowed::new(memory, around.memory_bytes),
            processes: Allowed::new(processes, around.pids),
            peak_memory_bytes: ended.over.usage.memory_peak_bytes,
            output_bytes: ended.output_bytes,
            shown: told.shown,
            undelivered: told.undelivered,
            findings: told.findings,
            base: told.base,
            result: told.result,
            network: told.network,
            isolation: ended.over.isolation.clone(),
            statement: told.statement,
            directory,
        }
    }

    fn info(&self, summary: &Summary) -> RunInfo {
        let changed = match &summary.result {
            Output::Collected(result) => Some(result.changed),
            Output::Nothing | Output::NotCollected { .. } => None,
        };
        RunInfo {
            run: self.record.job().clone(),
            command: summary.command.clone(),
            checkout: self.checkout.named.path.clone(),
            profile: summary.profile.to_owned(),
            verdict: summary.verdict.clone(),
            started: self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            elapsed_ms: u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX),
            changed,
            findings: summary.findings.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is said of a run that broke off.
    use super::*;

    #[test]
    fn a_run_that_broke_off_says_once_why_and_what_is_lost() {
        let said = |has_begun, left| {
            let fault = anyhow::anyhow!("Connection refused").context("no engine");
            format!("{:#}", broken_off(fault, has_begun, left))
        };
        assert_eq!(said(false, None), "no engine: Connection refused");
        assert_eq!(
            said(true, Some("no engine")),
            "the job had begun, and what it changed is lost; what is left of it goes with the next start: no engine: Connection \
             refused"
        );
        assert_eq!(
            said(false, Some("a full disk")),
            "a full disk; the next start tries again: no engine: Connection refused"
        );
    }
}
