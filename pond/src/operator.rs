//! The operator's file, read once at the start of a command. It names models and rules, so a file that somebody else
//! could have written is refused; a checkout's own is never looked at.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pond_policy::operator::Operator;
use pond_policy::path::Path as Place;
use pond_policy::quote::quote;
use pond_policy::refusal::{Code, Refusal, Refusals};
use pond_wire::decode::decode_toml;

use crate::input;
use crate::settings::{OperatorFile, operator_file};

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What the file says; nothing in particular where there is none.
pub(crate) fn load() -> Result<Operator, Refusals> {
    match operator_file() {
        OperatorFile::Told(path) => read(&path),
        OperatorFile::Usual(Some(path)) if path.exists() => read(&path),
        OperatorFile::Usual(_) => Ok(Operator::default()),
    }
}

fn read(path: &Path) -> Result<Operator, Refusals> {
    let bytes = input::from_file(path)?;
    is_safe(path)?;
    Operator::read(&decode_toml(&bytes)?)
}

fn is_safe(path: &Path) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal::new(Code::DocumentUnreadable, &Place::root(), message);
    let name = quote(&path.to_string_lossy());
    let metadata = path.metadata().map_err(|fault| refuse(format!("{name} cannot be looked at: {fault}")))?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    match own && metadata.mode() & WRITABLE_BY_OTHERS == 0 {
        true => Ok(()),
        false => Err(refuse(format!(
            "{name} could have been written by somebody else: make it yours and `chmod go-w` it"
        ))),
    }
}
