//! A tree somebody holds, compared with what a verified run found or left at every path it changed, and with all that it began with
//! where the statement names that.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use pond_sandbox::checkout::Checkout;
use pond_seal::Digest;
use pond_worker::collect::{Side, differing};
use pond_worker::pack::pack;

use super::check::{Checks, Failure};
use super::files::{Beside, none};

pub(super) fn check(beside: &Beside<'_>, side: Side, tree: &Path, checks: &mut Checks) {
    let (name, code) = match side {
        Side::Before => ("input", "input_mismatch"),
        Side::After => ("output", "output_mismatch"),
    };
    checks.step(format!("{name} {}", tree.display()), compare(beside, side, tree, code));
    if let (Side::Before, Some(stated)) = (side, beside.statement.result.input.tree_sha256) {
        checks.step(format!("input {}, every file of it", tree.display()), whole(stated, tree, code));
    }
}

/// The tree as a job is given it, by the one digest that names all of it.
fn whole(stated: Digest, tree: &Path, code: &'static str) -> Result<(), Failure> {
    let opened = Checkout::open(tree).map_err(|fault| Failure::of("tree_unreadable", &fault))?;
    let packed = pack(&opened, io::sink()).map_err(|fault| Failure::of("tree_unreadable", &fault))?;
    match packed.input == stated {
        true => Ok(()),
        false => Err(Failure::new(
            code,
            format!("its digest is {}, and the job began with {stated}", packed.input),
        )),
    }
}

fn compare(beside: &Beside<'_>, side: Side, tree: &Path, code: &'static str) -> Result<(), Failure> {
    let record = beside.changes()?;
    let opened = Checkout::open(tree).map_err(|fault| Failure::of("tree_unreadable", &fault))?;
    let found = differing(opened.as_fd(), &record.changes, side);
    none(&found.map_err(|fault| Failure::of("tree_unreadable", &fault))?, code, "differs")
}
