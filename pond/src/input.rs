//! Documents named on the command line, read with a bound. Only regular files and standard input are read: a directory,
//! a device or a pipe by name is a refusal, never a hang.

use std::fs::File;
use std::io::{IsTerminal, Read, stdin};
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;

use pond_policy::node::Node;
use pond_policy::path::Path;
use pond_policy::quote::quote;
use pond_policy::refusal::{Code, Refusal, Refusals};
use pond_wire::decode::{MOST_BYTES, decode};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The document in `file`, or on standard input for `-`.
pub(crate) fn document(file: &FilePath) -> Result<Node, Refusals> {
    let bytes = if file.as_os_str() == "-" { from_stdin() } else { from_file(file) };
    decode(&bytes?)
}

/// The same as text, for somebody else to decode.
pub(crate) fn text(file: &FilePath) -> Result<String, Refusals> {
    let bytes = if file.as_os_str() == "-" { from_stdin() } else { from_file(file) };
    let bytes = bytes?;
    if bytes.len() > MOST_BYTES {
        let message = format!("the document has more than {MOST_BYTES} bytes");
        return Err(Refusal::new(Code::DocumentTooLarge, &Path::root(), message).into());
    }
    Ok(String::from_utf8(bytes).map_err(|_| unreadable("the document is not text in UTF-8".to_owned()))?)
}

fn from_stdin() -> Result<Vec<u8>, Refusal> {
    if stdin().is_terminal() {
        return Err(unreadable(
            "standard input is a terminal: name a file, or pipe a document in".to_owned(),
        ));
    }
    bounded(stdin().lock(), "standard input")
}

/// A regular file of bounded size.
pub(crate) fn from_file(file: &FilePath) -> Result<Vec<u8>, Refusal> {
    let name = quote(&file.to_string_lossy());
    bounded(open_regular(file, &name)?, &name)
}

/// A regular file of bounded size that nobody but root and the caller can have written.
pub(crate) fn from_trusted_file(file: &FilePath) -> Result<Vec<u8>, Refusal> {
    let name = quote(&file.to_string_lossy());
    let opened = open_regular(file, &name)?;
    // Of what was opened, not of what has the name by now.
    let metadata =
        opened.metadata().map_err(|error| unreadable(format!("{name} cannot be read: {error}")))?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !own || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(unreadable(format!(
            "{name} could have been written by somebody else: make it yours and `chmod go-w` it"
        )));
    }
    bounded(opened, &name)
}

fn open_regular(file: &FilePath, name: &str) -> Result<File, Refusal> {
    let failed = |error: rustix::io::Errno| unreadable(format!("{name} cannot be read: {error}"));
    // Opening a pipe without a writer would wait for one.
    let descriptor =
        open(file, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let kind = FileType::from_raw_mode(fstat(&descriptor).map_err(failed)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(unreadable(format!(
            "{name} is not a regular file: name one, or pipe the document to `-`"
        )));
    }
    Ok(File::from(descriptor))
}

/// One byte more than the decoder accepts is enough for it to refuse.
fn bounded(source: impl Read, name: &str) -> Result<Vec<u8>, Refusal> {
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    source
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(format!("{name} cannot be read: {error}")))?;
    Ok(bytes)
}

fn unreadable(message: String) -> Refusal {
    Refusal::new(Code::DocumentUnreadable, &Path::root(), message)
}
