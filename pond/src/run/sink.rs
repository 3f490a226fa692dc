//! Where a job's output goes: raw to the run's log files, and to whoever watches.
//!
//! A person's terminal gets neutralised text: a hostile job must not move the cursor, set the clipboard or forge our lines. A pipe
//! gets the bytes as they are. A job with a terminal of its own draws on the person's, through a filter.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pond_wire::jail::Console;
use pond_worker::neutral::Neutraliser;
use pond_worker::supervise::Stream;
use pond_worker::terminal::Filter;

/// How much of a conversation is kept. A full-screen program draws this much in hours; the session goes on unlogged.
const TERMINAL_LOG_BYTES: u64 = 64 << 20;

/// One sink per stream the job has.
pub(crate) struct Sinks(Vec<(Stream, Sink)>);

struct Sink {
    log: Log,
    shown: Shown,
}

/// A log file and how much more may go into it.
struct Log {
    file: File,
    room: u64,
}

enum Shown {
    Nothing,
    Raw(Box<dyn Write>),
    Neutralised(Box<dyn Write>, Box<Neutraliser>),
    Filtered(Box<dyn Write>, Box<Filter>),
}

impl Sinks {
    /// Creates `stdout.log` and `stderr.log`, or `terminal.log`, in the run's directory.
    pub(crate) fn open(run: &Path, console: Console, show: bool) -> io::Result<Self> {
        let private =
            |name: &str| File::options().write(true).create_new(true).mode(0o600).open(run.join(name));
        let log = |name: &str, room| private(name).map(|file| Log { file, room });
        let shown = |stream: Box<dyn Write>, terminal: bool| match (show, terminal) {
            (false, _) => Shown::Nothing,
            (true, true) => Shown::Neutralised(stream, Box::new(Neutraliser::new())),
            (true, false) => Shown::Raw(stream),
        };
        let sinks = match console {
            Console::Pipes => vec![
                (
                    Stream::Stdout,
                    Sink {
                        log: log("stdout.log", u64::MAX)?,
                        shown: shown(Box::new(io::stdout()), io::stdout().is_terminal()),
                    },
                ),
                (
                    Stream::Stderr,
                    Sink {
                        log: log("stderr.log", u64::MAX)?,
                        shown: shown(Box::new(io::stderr()), io::stderr().is_terminal()),
                    },
                ),
            ],
            Console::Terminal { .. } => vec![(
                Stream::Terminal,
                Sink {
                    log: log("terminal.log", TERMINAL_LOG_BYTES)?,
                    shown: Shown::Filtered(Box::new(io::stdout()), Box::new(Filter::new())),
                },
            )],
        };
        Ok(Self(sinks))
    }

    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match self.0.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, sink)) => sink.take(bytes),
            None => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "output of a stream the job does not have"))
            }
        }
    }

    /// Flushes what was held back waiting for the rest of a sequence, and switches back what the job switched.
    pub(crate) fn finish(self) -> io::Result<()> {
        for (_, sink) in self.0 {
            let mut text = String::new();
            let shown = match sink.shown {
                Shown::Nothing | Shown::Raw(_) => continue,
                Shown::Neutralised(stream, neutraliser) => {
                    neutraliser.finish(&mut text);
                    stream
                }
                Shown::Filtered(stream, filter) => {
                    filter.finish(&mut text);
                    stream
                }
            };
            unless_gone(show(shown, text.as_bytes()))?;
        }
        Ok(())
    }
}

impl Sink {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.log.take(bytes)?;
        let mut text = String::new();
        let result = match &mut self.shown {
            Shown::Nothing => return Ok(()),
            Shown::Raw(stream) => show(stream, bytes),
            Shown::Neutralised(stream, neutraliser) => {
                neutraliser.push(bytes, &mut text);
                show(stream, text.as_bytes())
            }
            Shown::Filtered(stream, filter) => {
                filter.push(bytes, &mut text);
                show(stream, text.as_bytes())
            }
        };
        if unless_gone(result)? == Reader::Gone {
            self.shown = Shown::Nothing;
        }
        Ok(())
    }
}

impl Log {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let kept = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= kept as u64;
        self.file.write_all(bytes.get(..kept).unwrap_or_default())
    }
}

#[derive(PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

fn show(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Nobody reads any more (`pond run … | head`, a closed window): the job goes on or is ended by the hang-up, its log stays
/// complete.
fn unless_gone(result: io::Result<()>) -> io::Result<Reader> {
    match result {
        Ok(()) => Ok(Reader::There),
        Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(fault) if fault.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(Reader::Gone),
        Err(fault) => Err(fault),
    }
}
