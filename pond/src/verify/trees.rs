//! A tree somebody holds, compared with what a verified run found or left at every path it changed.

use std::os::fd::AsFd;
use std::path::Path;

use pond_sandbox::checkout::Checkout;
use pond_worker::collect::{Side, differing};

use super::check::{Checks, Failure};
use super::files::{Beside, none};

pub(super) fn check(beside: &Beside<'_>, side: Side, tree: &Path, checks: &mut Checks) {
    let (name, code) = match side {
        Side::Before => ("input", "input_mismatch"),
        Side::After => ("output", "output_mismatch"),
    };
    checks.step(format!("{name} {}", tree.display()), compare(beside, side, tree, code));
}

fn compare(beside: &Beside<'_>, side: Side, tree: &Path, code: &'static str) -> Result<(), Failure> {
    let record = beside.changes()?;
    let opened = Checkout::open(tree).map_err(|fault| Failure::of("tree_unreadable", &fault))?;
    let found = differing(opened.as_fd(), &record.changes, side);
    none(&found.map_err(|fault| Failure::of("tree_unreadable", &fault))?, code, "differs")
}
