//! Where a job's output goes: raw to the run's log files, and to whoever watches.
//!
//! A person's terminal gets neutralised text: a hostile job must not move the cursor, set the clipboard or forge our lines. A pipe
//! gets the bytes as they are. A job with a terminal of its own draws on the person's, through a filter. Whoever watches may
//! stall: nothing here waits for them but [`Sinks::finish`], and that not for ever.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pond_wire::jail::Console;
use pond_worker::neutral::Neutraliser;
use pond_worker::order::Wires;
use pond_worker::supervise::Stream;
use pond_worker::terminal::Filter;
use rustix::io::Errno;

use super::outlet::{Delivered, Outlet, Patience};

/// How much of a conversation is kept. A full-screen program draws this much in hours; the session goes on unlogged.
const TERMINAL_LOG_BYTES: u64 = 64 << 20;

/// One sink per stream the job has.
pub(super) struct Sinks(Vec<(Stream, Sink)>);

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
    Raw(Outlet),
    Neutralised(Outlet, Box<Neutraliser>),
    Filtered(Outlet, Box<Filter>),
    /// The reader's side failed. The log goes on, and so does the job.
    Failed(Errno),
}

/// Who gets the job's output while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Audience<'a> {
    Nobody,
    /// Whoever started pond, on its own streams.
    Person,
    /// The daemon, which gets the bytes of the logs and nothing of ours.
    Daemon(&'a Wires),
}

impl Sinks {
    /// Creates `stdout.log` and `stderr.log`, or `terminal.log`, in the run's directory.
    pub(super) fn open(run: &Path, console: Console, audience: Audience<'_>) -> io::Result<Self> {
        let log = |name: &str, room| {
            let file = File::options().write(true).create_new(true).mode(0o600).open(run.join(name))?;
            io::Result::Ok(Log { file, room })
        };
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let shown = |stream| match (audience, stream) {
            (Audience::Nobody, _) => Ok(Shown::Nothing),
            (Audience::Person, Stream::Stdout | Stream::Terminal) => Shown::on(stdout.as_fd()),
            (Audience::Person, Stream::Stderr) => Shown::on(stderr.as_fd()),
            (Audience::Daemon(wires), Stream::Stdout | Stream::Terminal) => Shown::on(wires.stdout.as_fd()),
            (Audience::Daemon(wires), Stream::Stderr) => Shown::on(wires.stderr.as_fd()),
        };
        let sinks = match console {
            Console::Pipes => vec![
                (Stream::Stdout, Sink { log: log("stdout.log", u64::MAX)?, shown: shown(Stream::Stdout)? }),
                (Stream::Stderr, Sink { log: log("stderr.log", u64::MAX)?, shown: shown(Stream::Stderr)? }),
            ],
            Console::Terminal { .. } => {
                let shown = Shown::Filtered(Outlet::new(stdout.as_fd())?, Box::default());
                vec![(Stream::Terminal, Sink { log: log("terminal.log", TERMINAL_LOG_BYTES)?, shown })]
            }
        };
        Ok(Self(sinks))
    }

    /// For each stream that somebody watches, a descriptor that is readable while they keep up.
    pub(super) fn rooms(&self) -> io::Result<Vec<(Stream, OwnedFd)>> {
        let watched = self.0.iter().filter_map(|(stream, sink)| Some((*stream, sink.shown.outlet()?)));
        watched.map(|(stream, outlet)| Ok((stream, outlet.room()?))).collect()
    }

    /// Returns what the job is to hear in answer. Standard output without a reader is a broken pipe.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<String> {
        match self.0.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, sink)) => {
                sink.log.take(bytes)?;
                let answers = sink.shown.take(bytes).unwrap_or_else(|fault| {
                    sink.shown = Shown::failed(&fault);
                    String::new()
                });
                match (stream, sink.shown.outlet()) {
                    (Stream::Stdout, Some(outlet)) if outlet.is_unread() => {
                        Err(io::ErrorKind::BrokenPipe.into())
                    }
                    (Stream::Stdout | Stream::Stderr | Stream::Terminal, _) => Ok(answers),
                }
            }
            None => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "output of a stream the job does not have"))
            }
        }
    }

    /// Flushes what was held back waiting for the rest of a sequence, and switches back what the job switched.
    pub(super) fn finish(self, patience: Patience<'_>) -> Delivered {
        let mut delivered = Delivered::All;
        for (_, sink) in self.0 {
            let mut text = String::new();
            let outlet = match sink.shown {
                Shown::Nothing => continue,
                Shown::Failed(errno) => {
                    delivered = Delivered::Failed(errno);
                    continue;
                }
                Shown::Raw(outlet) => outlet,
                Shown::Neutralised(outlet, neutraliser) => {
                    neutraliser.finish(&mut text);
                    outlet
                }
                Shown::Filtered(outlet, filter) => {
                    filter.finish(&mut text);
                    outlet
                }
            };
            match outlet.finish(text.as_bytes(), patience) {
                Ok(Delivered::All) => {}
                Ok(less) => delivered = less,
                Err(fault) => delivered = Delivered::Failed(errno_of(&fault)),
            }
        }
        delivered
    }
}

fn errno_of(fault: &io::Error) -> Errno {
    Errno::from_io_error(fault).unwrap_or(Errno::IO)
}

impl Shown {
    fn failed(fault: &io::Error) -> Self {
        Self::Failed(errno_of(fault))
    }

    fn on(stream: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(match stream.is_terminal() {
            true => Self::Neutralised(Outlet::new(stream)?, Box::default()),
            false => Self::Raw(Outlet::new(stream)?),
        })
    }

    fn outlet(&self) -> Option<&Outlet> {
        match self {
            Self::Nothing | Self::Failed(_) => None,
            Self::Raw(outlet) | Self::Neutralised(outlet, _) | Self::Filtered(outlet, _) => Some(outlet),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<String> {
        let (mut text, mut answers) = (String::new(), String::new());
        match self {
            Self::Nothing | Self::Failed(_) => {}
            Self::Raw(outlet) => outlet.take(bytes)?,
            Self::Neutralised(outlet, neutraliser) => {
                neutraliser.push(bytes, &mut text);
                outlet.take(text.as_bytes())?;
            }
            Self::Filtered(outlet, filter) => {
                answers = filter.push(bytes, &mut text);
                outlet.take(text.as_bytes())?;
            }
        }
        Ok(answers)
    }
}

impl Log {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let kept = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= kept as u64;
        self.file.write_all(bytes.get(..kept).unwrap_or_default())
    }
}
