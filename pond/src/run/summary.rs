//! What is said once a run is over: one value, printed for a person or for a machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use pond_sandbox::container::Isolation;
use pond_worker::collect::{Caps, Moved, Reason, Rejected};
use serde::Serialize;

use super::base::BaseSummary;
use super::finding::Finding;
use super::gather::{Output, ResultSummary};
use super::outlet::Delivered;
use super::statement::StatementSummary;
use super::traffic::NetworkSummary;
use super::verdict::{Shortfall, Verdict};
use crate::output;

/// A person reads so many lines of what was refused; `pond explain` has the rest.
const SHOWN_FINDINGS: usize = 8;

/// And so many names in one line; `--json` has the rest.
const SHOWN_NAMES: usize = 8;

/// And so many digits of a commit.
const SHORT_COMMIT: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) run: String,
    pub(crate) command: Vec<String>,
    pub(crate) profile: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) exit_code: u8,
    #[serde(rename = "elapsed_ms", serialize_with = "millis")]
    pub(crate) elapsed: Duration,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) memory: Allowed,
    pub(crate) processes: Allowed,
    pub(crate) output_bytes: u64,
    #[serde(skip)]
    pub(super) shown: Delivered,
    /// What did not reach its place, and why. The run itself is complete.
    pub(crate) undelivered: Vec<String>,
    /// What the job wanted and did not get.
    pub(crate) findings: Vec<Finding>,
    pub(crate) base: BaseSummary,
    pub(crate) result: Output,
    pub(crate) network: NetworkSummary,
    /// What was seen of a container's kernel before the job began.
    pub(crate) isolation: Option<Isolation>,
    pub(crate) statement: StatementSummary,
    pub(crate) directory: PathBuf,
}

/// A limit as it was asked for, and as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Allowed {
    asked: u64,
    /// Smaller where a control group around pond allows less.
    pub(super) effective: u64,
}

impl Allowed {
    pub(super) fn new(asked: u64, around: Option<u64>) -> Self {
        Self { asked, effective: around.unwrap_or(asked).min(asked) }
    }
}

fn millis<S: serde::Serializer>(elapsed: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

impl Summary {
    /// One more thing that did not reach its place.
    pub(super) fn fell_short(&mut self, what: String) {
        self.undelivered.push(what);
        self.exit_code = self.verdict.code_with(Some(Shortfall::Failed));
    }

    /// A few lines for a person, each beginning with `pond:`. They come after everything the job said.
    pub(crate) fn lines(&self) -> String {
        let mut first = vec![self.verdict.sentence(), seconds(self.elapsed)];
        first.extend(self.peak_memory_bytes.map(|bytes| format!("{} peak", size(bytes))));
        first.push(format!("{} on {}", self.profile, self.backend));
        first.push(self.network.phrase());
        let mut text = format!("pond: {}\n", first.join(" · "));
        for said in self.network.lines() {
            line(&mut text, &said);
        }
        for finding in self.findings.iter().take(SHOWN_FINDINGS) {
            line(&mut text, &finding.line());
        }
        if self.findings.len() > SHOWN_FINDINGS {
            let more = self.findings.len() - SHOWN_FINDINGS;
            line(&mut text, &format!("and {more} more refusals: pond explain {}", self.run));
        }
        if self.memory.effective < self.memory.asked {
            let Allowed { asked, effective } = self.memory;
            let (effective, asked) = (size(effective), size(asked));
            line(
                &mut text,
                &format!("a control group around pond allows {effective} of the {asked} asked for"),
            );
        }
        if self.processes.effective < self.processes.asked {
            let Allowed { asked, effective } = self.processes;
            line(
                &mut text,
                &format!("a control group around pond allows {effective} of the {asked} processes"),
            );
        }
        match self.shown {
            Delivered::All | Delivered::Failed(_) => {}
            Delivered::NotAll => {
                let kept = self.directory.display();
                line(&mut text, &format!("nobody took all of the output; it is complete in {kept}"));
            }
        }
        match &self.base {
            BaseSummary::Live { changed_meanwhile: true } => line(
                &mut text,
                "the checkout changed while the job ran, which may have seen both states (--snapshot avoids that)",
            ),
            BaseSummary::Snapshot { skipped, skipped_names, .. } if *skipped > 0 => {
                let names = skipped_names.join(", ");
                line(&mut text, &format!("not in the snapshot: {skipped} special or unreadable: {names}"));
            }
            BaseSummary::Live { .. } | BaseSummary::Snapshot { .. } => {}
        }
        match &self.result {
            Output::Nothing => {}
            Output::Collected(result) => self.collected(&mut text, result),
            Output::NotCollected { reason, advice } => {
                line(&mut text, &format!("result not collected: {reason}"));
                line(&mut text, &format!("to get one: {advice}"));
            }
        }
        for what in &self.undelivered {
            line(&mut text, &format!("not delivered: {}", output::plain(what)));
        }
        if self.exit_code != self.verdict.code() {
            let (code, kept) = (self.exit_code, self.directory.display());
            line(&mut text, &format!("that is why pond exits with {code}; the run is kept in {kept}"));
        }
        match &self.statement {
            StatementSummary::Signed { .. } => {}
            StatementSummary::Unsigned { code, reason } => {
                line(&mut text, &format!("this run is not signed [{}]: {reason}", code.code()));
            }
        }
        text
    }

    fn collected(&self, text: &mut String, result: &ResultSummary) {
        match result.changed {
            0 => line(text, "no file changed"),
            count => {
                line(text, &format!("{} changed: {}", counted(count, "file"), result.patch.display()));
                line(text, &format!("to keep them: pond apply {}", self.run));
            }
        }
        if !result.patch_omitted.is_empty() {
            let names = listed(&result.patch_omitted, ToString::to_string);
            line(text, &format!("changed and too large for the patch, which does not show: {names}"));
        }
        if !result.changed_meanwhile.is_empty() {
            let names = listed(&result.changed_meanwhile, ToString::to_string);
            line(text, &format!("changed by the job and by somebody else, so not to be applied: {names}"));
        }
        if !result.commits.is_empty() {
            let names = listed(&result.commits, moved);
            line(
                text,
                &format!("committed in the copy, where commits stay; the patch has the files: {names}"),
            );
        }
        for left_out in &result.left_out {
            let paths = usize::try_from(left_out.paths).unwrap_or(usize::MAX);
            let what = counted(paths, "path");
            line(text, &format!("{what} left out by {} (--keep-ignored keeps them)", left_out.rules));
        }
        for flagged in &result.flagged {
            line(text, &format!("look first: {flagged}"));
        }
        if let Some(directory) = &result.artifacts.directory {
            let count = counted(result.artifacts.copied.len(), "artifact");
            line(text, &format!("{count}: {}", directory.display()));
        }
        for refused in result.artifacts.refused.iter().take(SHOWN_NAMES) {
            line(text, &format!("not taken as an artifact: {}", not_taken(refused)));
        }
        for missing in &result.artifacts.missing {
            line(text, &format!("the job made no artifact {missing}"));
        }
        if result.rejected > 0 {
            line(
                text,
                &format!(
                    "{} entries left out (devices, sockets, mounts, unreadable, too deep or too large)",
                    result.rejected
                ),
            );
        }
    }
}

/// What it is, and the cap where that is why.
fn not_taken(refused: &Rejected) -> String {
    let Rejected { path, reason } = refused;
    match reason {
        Reason::FileTooLarge => format!("{path} {reason}, {}", size(Caps::default().file_bytes)),
        Reason::Fifo
        | Reason::Socket
        | Reason::CharDevice
        | Reason::BlockDevice
        | Reason::UnknownType
        | Reason::Redirect
        | Reason::Metacopy
        | Reason::TooDeep
        | Reason::NameTooLong
        | Reason::PathTooLong
        | Reason::Unreadable
        | Reason::BaseUnusable
        | Reason::Reserved
        | Reason::Link => format!("{path} {reason}"),
    }
}

/// The first names, and how many more there are.
fn listed<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let mut names: Vec<String> = all.iter().take(SHOWN_NAMES).map(name).collect();
    if all.len() > SHOWN_NAMES {
        names.push(format!("and {} more", all.len() - SHOWN_NAMES));
    }
    names.join(", ")
}

/// As git says it: a branch without what all of them have in common, and short numbers.
fn moved(moved: &Moved) -> String {
    let short = |commit: &str| commit.chars().take(SHORT_COMMIT).collect::<String>();
    let name = output::plain(moved.reference.strip_prefix("refs/heads/").unwrap_or(&moved.reference));
    match &moved.from {
        Some(from) => format!("{name} {}..{}", short(from), short(&moved.to)),
        None => format!("{name} at {}", short(&moved.to)),
    }
}

pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn line(text: &mut String, what: &str) {
    // Writing to a String cannot fail.
    if writeln!(text, "pond: {what}").is_err() {}
}

fn seconds(elapsed: Duration) -> String {
    match elapsed.as_secs_f64() {
        short if short < 1.0 => format!("{:.1} ms", short * 1000.0),
        long => format!("{long:.1} s"),
    }
}

pub(super) fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < MIB { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes / MIB) }
}
