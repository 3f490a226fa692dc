//! A checkout without its repository: a linked worktree and a submodule hold only the way to it, which leads out of what a job sees.
//! Said after a job that failed, because most jobs need no git.

use pond_sandbox::checkout::Checkout;
use pond_worker::path::quoted;

use super::finding::{Finding, Kind};
use super::verdict::Verdict;

pub(super) fn finding(checkout: &Checkout, verdict: &Verdict) -> Option<Finding> {
    let place = verdict.is_failure_of_its_own().then(|| checkout.repository_elsewhere())??;
    Some(Finding {
        kind: Kind::Command,
        code: "repository_elsewhere".to_owned(),
        what: format!("git found no repository: this checkout's lies in {}", quoted("", place.as_bytes())),
        count: 1,
        rule: "a job sees the checkout and nothing else of the host".to_owned(),
        advice: "if the job needs git, run it on a clone (git clone . ../clone), or on the tree that holds the repository"
            .to_owned(),
    })
}
