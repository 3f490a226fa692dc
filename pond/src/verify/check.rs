//! What was checked and what came of it: one line each, and a verdict.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use pond_seal::key::PublicKey;
use pond_seal::result::{Log, Outcome, Output};
use pond_seal::statement::Statement;
use serde::Serialize;

use crate::output::{self, REFUSED, plain};
use crate::proof::STATEMENT;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Checks(Vec<Check>);

#[derive(Debug, Serialize)]
struct Check {
    check: String,
    #[serde(flatten)]
    outcome: Came,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Came {
    Holds,
    Fails(Failure),
}

/// Why a check failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// Stable; docs/verify.md lists it.
    code: &'static str,
    reason: String,
}

impl Failure {
    pub(crate) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// With everything the error rests on.
    pub(crate) fn of(code: &'static str, fault: &(dyn Error + 'static)) -> Self {
        let mut reason = fault.to_string();
        let mut cause = fault.source();
        while let Some(source) = cause {
            reason += &format!(": {source}");
            cause = source.source();
        }
        Self { code, reason }
    }
}

impl Checks {
    /// Whether anything was checked, and all of it held.
    pub(crate) fn hold(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|check| matches!(check.outcome, Came::Holds))
    }

    /// One for each check.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().map(Check::line).collect()
    }

    /// Notes the outcome, and hands on what a check that held brought.
    pub(crate) fn step<T>(&mut self, check: impl Into<String>, outcome: Result<T, Failure>) -> Option<T> {
        let check = check.into();
        match outcome {
            Ok(value) => {
                self.0.push(Check { check, outcome: Came::Holds });
                Some(value)
            }
            Err(failure) => {
                self.0.push(Check { check, outcome: Came::Fails(failure) });
                None
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Verified,
    /// The statement holds; nobody asked about its files.
    StatementVerified,
    Refused,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    verdict: Verdict,
    file: String,
    key_id: String,
    /// What the statement says, once its signature held.
    run: Option<String>,
    subject_sha256: Option<String>,
    #[serde(skip)]
    says: Vec<String>,
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(
        file: &Path,
        key: &PublicKey,
        statement: Option<&Statement>,
        alone: bool,
        Checks(checks): Checks,
    ) -> Self {
        let holds = statement.is_some() && checks.iter().all(|check| matches!(check.outcome, Came::Holds));
        let verdict = match (holds, alone) {
            (false, _) => Verdict::Refused,
            (true, false) => Verdict::Verified,
            (true, true) => Verdict::StatementVerified,
        };
        Self {
            verdict,
            file: file.display().to_string(),
            key_id: key.id().to_string(),
            run: statement.map(|statement| statement.result.job.id.clone()),
            subject_sha256: statement.map(|statement| statement.subject.to_string()),
            says: statement.map(says).unwrap_or_default(),
            checks,
        }
    }

    pub(crate) fn holds(&self) -> bool {
        match self.verdict {
            Verdict::Verified | Verdict::StatementVerified => true,
            Verdict::Refused => false,
        }
    }

    /// Something its reader should know, which no check rests on.
    pub(super) fn saying(mut self, line: Option<&str>) -> Self {
        self.says.extend(line.map(str::to_owned));
        self
    }

    /// The same of a directory that has another name by now.
    pub(crate) fn at(mut self, directory: &Path) -> Self {
        self.file = directory.join(STATEMENT).display().to_string();
        self
    }

    pub(crate) fn print(&self, json: bool) -> ExitCode {
        let printed = if json { output::json(self) } else { output::lines(&self.text()) };
        match self.verdict {
            Verdict::Verified | Verdict::StatementVerified => printed,
            Verdict::Refused => ExitCode::from(REFUSED),
        }
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> = self.checks.iter().map(Check::line).collect();
        lines.extend(self.says.iter().map(|text| format!("says     {text}")));
        let key = &self.key_id;
        lines.push(match self.verdict {
            Verdict::Verified => {
                format!("verified: {} is of key {key}, and its files are the ones it names", self.file)
            }
            Verdict::StatementVerified => {
                format!("verified: {} is of key {key}; its files were not looked at", self.file)
            }
            Verdict::Refused => {
                let failed =
                    self.checks.iter().filter(|check| matches!(check.outcome, Came::Fails(_))).count();
                format!("REFUSED: {failed} of {} checks failed for {}", self.checks.len(), self.file)
            }
        });
        lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    }
}

impl Check {
    fn line(&self) -> String {
        match &self.outcome {
            Came::Holds => format!("holds    {}", self.check),
            Came::Fails(Failure { code, reason }) => format!("FAILS    {} [{code}]: {reason}", self.check),
        }
    }
}

/// The heart of a statement in a few words; the file has the rest.
fn says(statement: &Statement) -> Vec<String> {
    let result = &statement.result;
    let ended = match &result.outcome {
        Outcome::Exited { code } => format!("exit {code}"),
        Outcome::Signaled { signal } => format!("killed by signal {signal}"),
        Outcome::TimedOut {} => "killed: time limit".to_owned(),
        Outcome::Killed { limit } => format!("killed: limit of {limit:?}").to_lowercase(),
        Outcome::Interrupted {} => "interrupted".to_owned(),
    };
    let output = match &result.output {
        Output::Nothing {} => "no output".to_owned(),
        Output::NotCollected {} => "output not collected".to_owned(),
        Output::Collected { changed, .. } => format!("{changed} changed"),
    };
    let (profile, backend) = (&result.policy.profile, &result.backend.name);
    let mut lines = vec![
        format!("run {}, {ended}, {output}, {profile} on {backend}", result.job.id),
        format!("from {} to {}", result.started_on.as_str(), result.finished_on.as_str()),
    ];
    let cut = |log: &&Log| log.truncated;
    lines.extend(result.logs.iter().filter(cut).map(|log| format!("{} is not complete", log.stream.file())));
    if result.residue.control_groups_left > 0 {
        lines.push("something of the job was left on the host".to_owned());
    }
    lines
}
