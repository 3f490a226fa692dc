//! One file into a sandbox or out of it, by way of a directory of pond's own: a keeper copies by descriptor, and follows no link.
//!
//! HOSTILE BYTES: a file that comes out is counted and handed on. Invariant: nothing is left in the directory, whatever happens; what
//! a stopped process left there goes with the next.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pond_control::keeper::KeepFault;
use rustix::fs::OFlags;

use super::{broken, failed};
use crate::keeper::client::Call;
use crate::keeper::converge::Seen;
use crate::keeper::protocol::{Answer, Refusal, Request};

const NAME: &str = "file";
static TURN: AtomicU64 = AtomicU64::new(0);

/// A directory for one file on its way.
struct Passage(PathBuf);

impl Passage {
    fn open(desk: &Path) -> Result<Self, KeepFault> {
        let number = TURN.fetch_add(1, Ordering::Relaxed);
        let way = Self(desk.join(format!(".way-{}-{number}", std::process::id())));
        DirBuilder::new().mode(0o700).create(&way.0).map_err(failed)?;
        Ok(way)
    }

    fn file(&self) -> PathBuf {
        self.0.join(NAME)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Err(fault) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(fault = &fault as &dyn std::error::Error, "a file on its way was not removed");
        }
    }
}

pub(super) fn read(desk: &Path, seen: &Seen, path: &str, most: usize) -> Result<Vec<u8>, KeepFault> {
    let way = Passage::open(desk)?;
    let into = File::open(&way.0).map_err(failed)?;
    let bytes = u64::try_from(most).unwrap_or(u64::MAX);
    let request = Request::CopyOut { source: path.to_owned(), name: NAME.to_owned(), most: Some(bytes) };
    carry(seen, &request, &into, most)?;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file =
        File::options().read(true).custom_flags(flags.cast_signed()).open(way.file()).map_err(failed)?;
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

pub(super) fn write(desk: &Path, seen: &Seen, path: &str, bytes: &[u8]) -> Result<(), KeepFault> {
    let way = Passage::open(desk)?;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(way.file())
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    let from = File::open(way.file()).map_err(failed)?;
    carry(seen, &Request::CopyIn { target: path.to_owned() }, &from, bytes.len())
}

fn carry(seen: &Seen, request: &Request, descriptor: &File, most: usize) -> Result<(), KeepFault> {
    let gone = |fault: std::io::Error| KeepFault::Busy(format!("its keeper does not answer: {fault}"));
    let mut call = Call::open(seen.place.directory()).map_err(gone)?;
    call.say_with(request, descriptor.as_fd()).map_err(gone)?;
    match call.answer().map_err(broken)? {
        Answer::Refused(Refusal { code, .. }) if code == "copy_source_absent" => Err(KeepFault::Unknown),
        Answer::Refused(Refusal { code, .. }) if code == "copy_too_large" => Err(KeepFault::TooLarge(most)),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Copied { .. }
        | Answer::Done
        | Answer::Status(_)
        | Answer::Began { .. }
        | Answer::Ended(_) => Ok(()),
    }
}
