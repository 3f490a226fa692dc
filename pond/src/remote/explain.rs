//! `pond explain RUN` for a run of a control plane: for every stage that waits or did not succeed why, by which code, and what to
//! do about it; and how the run stands with its budgets.

use std::process::ExitCode;

use pond_policy::reason::Cause;
use pond_policy::run::Budget;
use pond_wire::api::{BudgetView, Outcome, RunView, StageState, StageView};
use serde::Serialize;

use super::{state_of_run, state_of_stage, view};
use crate::client::{self, ServerArgs};
use crate::output;

/// What there is to say about a run.
#[derive(Debug, Serialize)]
struct Explanation {
    run: String,
    state: &'static str,
    /// Why the whole run is being ended, or was.
    ended_by: Option<Why>,
    stages: Vec<Explained>,
    budgets: Vec<BudgetView>,
}

#[derive(Debug, Serialize)]
struct Explained {
    stage: String,
    state: &'static str,
    why: Why,
    /// Results of it that did not verify, and were not believed.
    rejected: usize,
}

#[derive(Debug, Serialize)]
struct Why {
    /// Stable; docs/troubleshooting.md lists it.
    code: String,
    sentence: String,
    advice: &'static str,
}

/// Names of local runs begin with a digit.
pub(crate) fn is_remote(run: &str) -> bool {
    run.starts_with('r')
}

pub(crate) fn main(run: &str, server: &ServerArgs, json: bool) -> ExitCode {
    client::ask(server, json, async |server| {
        let explanation = Explanation::of(view(server, run).await?);
        Ok(if json { output::json(&explanation) } else { output::lines(&explanation.text()) })
    })
}

impl Explanation {
    fn of(view: RunView) -> Self {
        let RunView { run, stages, budgets, .. } = view;
        let ended_by = run.cancel.map(|why| Why::new(run.cancel_code.unwrap_or_default(), why));
        let stages = stages.into_iter().filter(|stage| !stage.reason.is_empty()).map(Explained::of).collect();
        Self { run: run.id, state: state_of_run(run.state), ended_by, stages, budgets }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", output::plain(&self.run), self.state)];
        if let Some(why) = &self.ended_by {
            lines.push(format!("\nthe run: {}", output::plain(&why.sentence)));
            lines.extend(why.lines());
        }
        // What ended the run ended its stages; it is said once.
        let of_run = self.ended_by.as_ref().map(|why| &why.sentence);
        for stage in self.stages.iter().filter(|stage| Some(&stage.why.sentence) != of_run) {
            let what = format!("{} {}: {}", stage.stage, stage.state, stage.why.sentence);
            lines.push(format!("\n{}", output::plain(&what)));
            lines.extend(stage.why.lines());
            if stage.rejected > 0 {
                lines.push(format!("    not believed  {} results did not verify", stage.rejected));
            }
        }
        if lines.len() == 1 {
            lines.push("nothing waits, and nothing was refused or went wrong".to_owned());
        }
        lines.push(String::new());
        let header = ["BUDGET", "LIMIT", "USED", "SET ASIDE", "UNIT"];
        lines.push(output::table(header, self.budgets.iter().map(row)));
        lines.join("\n")
    }
}

impl Explained {
    fn of(stage: StageView) -> Self {
        let rejected = stage.results.iter().filter(|result| result.outcome == Outcome::Rejected).count();
        let why = match stage.state {
            StageState::Succeeded => {
                Why { code: stage.code, sentence: stage.reason, advice: "nothing to do" }
            }
            StageState::Queued
            | StageState::Leased
            | StageState::Running
            | StageState::Verifying
            | StageState::Failed
            | StageState::Cancelled
            | StageState::Refused => Why::new(stage.code, stage.reason),
        };
        Self { stage: stage.name, state: state_of_stage(stage.state), why, rejected }
    }
}

impl Why {
    fn new(code: String, sentence: String) -> Self {
        let advice = advice(&code);
        Self { code, sentence, advice }
    }

    fn lines(&self) -> [String; 2] {
        [format!("    why       {}", output::plain(&self.code)), format!("    what now  {}", self.advice)]
    }
}

fn row(budget: &BudgetView) -> [String; 5] {
    [
        budget.budget.clone(),
        budget.limit.to_string(),
        budget.used.to_string(),
        budget.set_aside.to_string(),
        budget.unit.clone(),
    ]
}

/// The smallest change that would help.
fn advice(code: &str) -> &'static str {
    if let Some(cause) = Cause::from_name(code) {
        return of_cause(cause);
    }
    match Budget::ALL.iter().find(|budget| budget.code() == code) {
        Some(budget) => of_budget(*budget),
        None => {
            "the result was not believed; look at the worker (`pond worker ls`) and at docs/troubleshooting.md"
        }
    }
}

fn of_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::NeedsOthers => "wait for the stages it needs, or look at those",
        Cause::NeedsFailed => "look at the stage it needs",
        Cause::NeedsConflict => "let one of the stages need the other, or change different files",
        Cause::NeedsUnusable => "look at what the stages it needs made: pond fetch",
        Cause::NoWorker => {
            "join a worker that offers this (`pond worker token`, `pond worker join`), or ask for another backend or tier"
        }
        Cause::WorkersBusy => "wait; more workers, or more `--jobs` on one, would take it sooner",
        Cause::Cancelled => "submit it again if that was a mistake",
        Cause::ExitCode => "look at what it said: `pond logs RUN STAGE`",
        Cause::Signal => "look at what it said: `pond logs RUN STAGE`; pond itself sent no signal",
        Cause::TimedOut => "give the stage a longer `timeout`, up to its profile's",
        Cause::MemoryLimit => "give the sandbox more with `overrides: {memory: …}`",
        Cause::OutputLimit => "let it print less; a stage's output is kept up to 64 MiB a stream",
        Cause::Interrupted => "the worker was stopped; submit it again, or with `--retries`",
        Cause::Poisoned => "look at the workers that were lost: the job may be what ends them",
        Cause::Withheld => "the operator demands more than when it was submitted; preflight it again",
        Cause::OfferTooLarge => "shorten the stage: its files and variables go with the offer",
        Cause::Distrusted => {
            "look at the paths in which its results differ (`pond show RUN`); a build that is not reproducible needs `compare: exit`"
        }
        Cause::WorkerRefused => "look at the worker's log, and at `pond doctor` there",
    }
}

fn of_budget(budget: Budget) -> &'static str {
    match budget {
        Budget::WallClock => "ask for a longer budgets.wall_clock, up to the operator's POND_RUN_WALL_CLOCK",
        Budget::Cost => {
            "ask for more budgets.max_cost_cents, up to POND_RUN_MAX_COST_CENTS; stages at the same time each need room for their dearest call"
        }
        Budget::Output => {
            "print less, or ask for more budgets.max_output_bytes, up to POND_RUN_MAX_OUTPUT_BYTES"
        }
        Budget::Artifacts => {
            "keep less, or ask for more budgets.max_artifact_bytes, up to POND_RUN_MAX_ARTIFACT_BYTES"
        }
        Budget::Egress => {
            "download less, or ask for more budgets.max_egress_bytes, up to POND_RUN_MAX_EGRESS_BYTES"
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a person reads of a run that ended by a budget, and of one that waits.
    use pond_wire::api::{RunState, RunSummary};

    use super::*;

    fn stage(name: &str, state: StageState, code: &str, reason: &str) -> StageView {
        StageView {
            id: format!("s-{name}"),
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
            code: code.to_owned(),
            job: None,
            ended_at: None,
            results: Vec::new(),
        }
    }

    fn run(cancel: Option<(&str, &str)>, stages: Vec<StageView>) -> RunView {
        let budget = BudgetView {
            budget: "max_cost_cents".to_owned(),
            unit: "cents".to_owned(),
            limit: 10,
            used: 4,
            set_aside: 5,
        };
        RunView {
            run: RunSummary {
                id: "r1".to_owned(),
                project: "acme".to_owned(),
                state: RunState::Active,
                cancel: cancel.map(|(_, why)| why.to_owned()),
                cancel_code: cancel.map(|(code, _)| code.to_owned()),
                open_stages: 1,
                created_at: 0,
                ended_at: None,
            },
            source: None,
            stages,
            budgets: vec![budget],
        }
    }

    #[test]
    fn a_run_that_used_up_a_budget_says_so_once() {
        let why = "the run's max_cost_cents is 10 cents, and it came to 11";
        let stages = vec![
            stage("edit", StageState::Cancelled, "budget_cost", why),
            stage("test", StageState::Cancelled, "needs_failed", "needs edit, which was cancelled"),
        ];
        let text = Explanation::of(run(Some(("budget_cost", why)), stages)).text();
        let advice = of_budget(Budget::Cost);
        let expected = format!(
            "r1: active\n\nthe run: {why}\n    why       budget_cost\n    what now  {advice}\n\n\
             test cancelled: needs edit, which was cancelled\n    why       needs_failed\n    what now  look at the stage it needs\n\n"
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("max_cost_cents") && text.lines().count() == 12, "{text}");
    }

    #[test]
    fn one_that_waits_says_for_what() {
        let waits = stage("edit", StageState::Queued, "no_worker", "no worker offers sandbox.gvisor");
        let text = Explanation::of(run(None, vec![waits])).text();
        assert!(
            text.contains("edit queued: no worker offers sandbox.gvisor\n    why       no_worker\n"),
            "{text}"
        );
        let text = Explanation::of(run(None, Vec::new())).text();
        assert!(text.contains("nothing waits"), "{text}");
    }

    #[test]
    fn what_did_not_verify_is_said_with_its_code() {
        let failed = stage("edit", StageState::Failed, "statement_input", "the job worked on another tree");
        let explained = Explanation::of(run(None, vec![failed]));
        assert!(
            explained
                .text()
                .contains("    why       statement_input\n    what now  the result was not believed")
        );
        let json = serde_json::to_value(&explained).unwrap();
        assert_eq!(json["stages"][0]["why"]["code"], "statement_input");
    }
}
