//! The operator's file, read once at the start of a command. It names models and rules, so a file that somebody else
//! could have written is refused; a checkout's own is never looked at.

use std::io::ErrorKind;
use std::path::Path;

use pond_policy::operator::Operator;
use pond_policy::quote::quote;
use pond_policy::refusal::Refusals;
use pond_wire::decode::decode_toml;

use crate::input;
use crate::settings::{OperatorFile, operator_file};

/// What the file says; nothing in particular where there is none. A file that is there and cannot be read is a refusal.
pub(crate) fn load() -> Result<Operator, Refusals> {
    match operator_file() {
        OperatorFile::Told(path) => read(&path),
        OperatorFile::Usual(Some(path)) if !is_absent(&path) => read(&path),
        OperatorFile::Usual(_) => Ok(Operator::default()),
    }
}

/// A place that the caller cannot even look into holds no file of his.
fn is_absent(path: &Path) -> bool {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
    path.symlink_metadata().is_err_and(|fault| absent.contains(&fault.kind()))
}

fn read(path: &Path) -> Result<Operator, Refusals> {
    let bytes = input::from_trusted_file(path)?;
    decode_toml(&bytes).and_then(|node| Operator::read(&node)).map_err(|refusals| of_file(refusals, path))
}

/// Whoever reads the fault wrote a command, and not necessarily this file.
fn of_file(refusals: Refusals, file: &Path) -> Refusals {
    let mut named = Refusals::default();
    for mut refusal in refusals.into_list() {
        refusal.message += &format!(" (in {})", quote(&file.to_string_lossy()));
        named.add(refusal);
    }
    named
}
