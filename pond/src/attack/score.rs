//! The score card: what each probe met inside, what its control met, and what follows. Pure.

use std::fmt::Write as _;

use pond_sandbox::native::Ending;
use pond_wire::jail::Step;
use pond_worker::neutral::Neutraliser;
use pond_worker::supervise::Stop;
use rustix::io::Errno;
use serde::Serialize;

use super::case::{Control, Evidence, Probe, Stage};
use super::probe::Outcome;
use super::sandbox::Seen;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "why")]
pub(crate) enum Verdict {
    Held,
    Breached(String),
    Broken(String),
    NoControl(String),
    /// Otherwise than native, as listed with a reason.
    Differs(&'static str),
}

impl Verdict {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Breached(_) => "BREACHED",
            Self::Broken(_) => "BROKEN PROBE",
            Self::NoControl(_) => "no control",
            Self::Differs(_) => "differs",
        }
    }
}

/// What a probe met inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) outcome: Option<Outcome>,
    /// What the backend says that shows the attack held.
    pub(crate) evidence: Option<String>,
}

/// One probe, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) what: &'static str,
    pub(crate) probe: &'static str,
    pub(crate) expect: &'static str,
    pub(crate) inside: String,
    pub(crate) control: String,
    pub(crate) verdict: Verdict,
}

/// Facts of the caller that explain a control's failure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) is_root: bool,
    pub(crate) capabilities: rustix::thread::CapabilitySet,
}

pub(crate) fn judge(probe: &Probe, met: &Met, control: Option<Outcome>, caller: Caller) -> Verdict {
    match (inside(probe, met), compare(probe, control, caller)) {
        (breached @ Verdict::Breached(_), _) => breached,
        (Verdict::Held, control) => control,
        // What this host cannot show unconfined it cannot show inside either.
        (_, excused @ Verdict::NoControl(_)) if met.outcome.is_some() => excused,
        (other, _) => other,
    }
}

fn inside(probe: &Probe, met: &Met) -> Verdict {
    if met.evidence.is_some() {
        return Verdict::Held;
    }
    match met.outcome {
        Some(Outcome::Succeeded) => Verdict::Breached("the attempt worked inside the sandbox".to_owned()),
        Some(Outcome::Failed { errno }) if probe.expect.errno(errno) => Verdict::Held,
        Some(Outcome::Killed { signal }) if probe.expect.signal(signal) => Verdict::Held,
        Some(other) => {
            Verdict::Broken(format!("inside it met something that is no refusal: {}", words(Some(other))))
        }
        None => Verdict::Broken("the probe said nothing inside".to_owned()),
    }
}

fn compare(probe: &Probe, control: Option<Outcome>, caller: Caller) -> Verdict {
    let unconfined = match probe.control {
        Control::None(why) => return Verdict::NoControl(why.to_owned()),
        Control::Attempt(unconfined) => unconfined,
    };
    let errno = match control {
        Some(Outcome::Succeeded) => return Verdict::Held,
        Some(Outcome::Failed { errno }) => Errno::from_raw_os_error(errno),
        Some(Outcome::Killed { .. } | Outcome::Hung) | None => {
            return Verdict::Broken(format!("unconfined it did not work: {}", words(control)));
        }
    };
    let refused = [Errno::PERM, Errno::ACCESS].contains(&errno);
    if let Some(power) = unconfined.needs.filter(|power| refused && !caller.capabilities.contains(power.set))
    {
        return Verdict::NoControl(format!("the caller has no {}", power.name));
    }
    if let Some((_, why)) = unconfined.excuses.iter().find(|(excused, _)| *excused == errno) {
        return Verdict::NoControl((*why).to_owned());
    }
    if errno == Errno::NOSYS {
        return Verdict::NoControl("this kernel has no such call".to_owned());
    }
    if refused && !caller.is_root {
        return Verdict::NoControl("only root can show it unconfined".to_owned());
    }
    Verdict::Broken(format!("unconfined it failed too: {}", words(control)))
}

/// What a kernel cannot refuse it counts on top of a limit: a few pages.
const FORCED_BYTES: u64 = 1 << 20;

/// What the backend's own reports and counters show, where a probe's word is not enough.
pub(crate) fn evidence(stage: &Stage, seen: &Seen) -> Option<String> {
    let usage = &seen.ended.over.usage;
    let positive = |count: Option<u64>| count.is_some_and(|count| count > 0);
    let (is_shown, text) = match stage.evidence {
        Evidence::Attempt => (false, String::new()),
        Evidence::OutOfMemory => (positive(usage.oom_kills), "killed at the memory limit".to_owned()),
        Evidence::ForksRefused => (positive(usage.pids_denied), "refused at the process limit".to_owned()),
        Evidence::Throttled => {
            (positive(usage.cpu_throttled_periods), "held back at the processor limit".to_owned())
        }
        Evidence::MemoryWithinLimit => {
            let most = seen.memory_limit.saturating_add(FORCED_BYTES);
            let within = usage.memory_peak_bytes.is_some_and(|peak| peak <= most);
            (within || positive(usage.oom_kills), "stayed within the memory limit".to_owned())
        }
        Evidence::TimedOut => {
            (seen.ended.stop == Some(Stop::TimedOut), "killed at the time limit".to_owned())
        }
        Evidence::TooMuchOutput => {
            (seen.ended.stop == Some(Stop::TooMuchOutput), "killed at the output limit".to_owned())
        }
        Evidence::Exited(code) => {
            let ended = matches!(seen.ended.over.ending, Ending::Exited { code: real, .. } if real == code);
            (ended && seen.ended.stop.is_none(), format!("ended by itself with {code}"))
        }
        Evidence::NotExecuted => {
            let refused = matches!(seen.ended.over.ending, Ending::NotLaunched { step: Step::Exec, .. });
            (refused, "reported as not executed".to_owned())
        }
        Evidence::Shown(passes) => (passes(&shown(&seen.output)), "shown without harm".to_owned()),
        Evidence::Result(passes) => {
            (seen.collected.as_ref().is_some_and(passes), "collected without harm".to_owned())
        }
    };
    is_shown.then_some(text)
}

/// A job's output as a person's terminal gets it.
fn shown(output: &[u8]) -> String {
    let (mut neutraliser, mut text) = (Neutraliser::new(), String::new());
    neutraliser.push(output, &mut text);
    neutraliser.finish(&mut text);
    text
}

pub(crate) fn control_words(probe: &Probe, control: Option<Outcome>) -> String {
    match probe.control {
        Control::Attempt(_) => words(control),
        Control::None(_) => "not tried".to_owned(),
    }
}

pub(crate) fn words(outcome: Option<Outcome>) -> String {
    match outcome {
        None => "no answer".to_owned(),
        Some(Outcome::Succeeded) => "succeeded".to_owned(),
        Some(Outcome::Failed { errno }) => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            text.split(" (os error").next().unwrap_or_default().to_lowercase()
        }
        Some(Outcome::Killed { signal }) => format!("killed by signal {signal}"),
        Some(Outcome::Hung) => "never came back".to_owned(),
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) held: usize,
    pub(crate) breached: usize,
    pub(crate) broken: usize,
    pub(crate) without_control: usize,
    pub(crate) differing: usize,
}

impl Count {
    pub(crate) fn of(rows: &[Row], residue: &[String]) -> Self {
        let mut count = Self { breached: residue.len(), ..Self::default() };
        for row in rows {
            match row.verdict {
                Verdict::Held => count.held += 1,
                Verdict::Breached(_) => count.breached += 1,
                Verdict::Broken(_) => count.broken += 1,
                Verdict::NoControl(_) => count.without_control += 1,
                Verdict::Differs(_) => count.differing += 1,
            }
        }
        count
    }

    pub(crate) fn passes(self) -> bool {
        self.breached == 0 && self.broken == 0
    }

    /// Each number with its name.
    pub(crate) fn parts(self) -> [(&'static str, usize); 5] {
        [
            ("held", self.held),
            ("breached", self.breached),
            ("broken probes", self.broken),
            ("without control", self.without_control),
            ("differing", self.differing),
        ]
    }

    pub(crate) fn line(self) -> String {
        self.parts().map(|(name, number)| format!("{number} {name}")).join(", ")
    }
}

/// The card for a person.
pub(crate) fn card(rows: &[Row], residue: &[String]) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in rows {
        if row.case != last {
            line(&mut text, &format!("{}  {}", row.case, row.what));
            last = row.case;
        }
        let verdict = match &row.verdict {
            Verdict::Held => "held".to_owned(),
            Verdict::Breached(why) => format!("BREACHED: {why}"),
            Verdict::Broken(why) => format!("BROKEN PROBE: {why}"),
            Verdict::NoControl(why) => format!("no control here: {why}"),
            Verdict::Differs(why) => format!("differs: {why}"),
        };
        line(
            &mut text,
            &format!(
                "     {:<26} inside: {:<40} unconfined: {:<40} {verdict}",
                row.probe, row.inside, row.control
            ),
        );
    }
    for left in residue {
        line(&mut text, &format!("host canary  BREACHED: {left}"));
    }
    line(&mut text, &Count::of(rows, residue).line());
    text
}

pub(super) fn line(text: &mut String, what: &str) {
    // Writing to a String cannot fail.
    if writeln!(text, "{}", what.trim_end()).is_err() {}
}

#[cfg(test)]
mod tests;
