//! Where a job's output goes: raw to the run's log files, and to whoever watches.
//!
//! A person's terminal gets neutralised text: a hostile job must not move the cursor, set the clipboard or forge our lines. A pipe
//! gets the bytes as they are.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pond_worker::neutral::Neutraliser;
use pond_worker::supervise::Stream;

pub(crate) struct Sinks {
    stdout: Sink,
    stderr: Sink,
}

struct Sink {
    log: File,
    shown: Shown,
}

enum Shown {
    Nothing,
    Raw(Box<dyn Write>),
    Neutralised(Box<dyn Write>, Box<Neutraliser>),
}

impl Sinks {
    /// Creates `stdout.log` and `stderr.log` in the run's directory.
    pub(crate) fn open(run: &Path, show: bool) -> io::Result<Self> {
        let shown = |stream: Box<dyn Write>, terminal: bool| match (show, terminal) {
            (false, _) => Shown::Nothing,
            (true, true) => Shown::Neutralised(stream, Box::new(Neutraliser::new())),
            (true, false) => Shown::Raw(stream),
        };
        let log = |name| File::options().write(true).create_new(true).mode(0o600).open(run.join(name));
        Ok(Self {
            stdout: Sink {
                log: log("stdout.log")?,
                shown: shown(Box::new(io::stdout()), io::stdout().is_terminal()),
            },
            stderr: Sink {
                log: log("stderr.log")?,
                shown: shown(Box::new(io::stderr()), io::stderr().is_terminal()),
            },
        })
    }

    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Stdout => self.stdout.take(bytes),
            Stream::Stderr => self.stderr.take(bytes),
        }
    }

    /// Flushes what the neutraliser held back waiting for the rest of a sequence.
    pub(crate) fn finish(self) -> io::Result<()> {
        for sink in [self.stdout, self.stderr] {
            if let Shown::Neutralised(mut stream, neutraliser) = sink.shown {
                let mut text = String::new();
                neutraliser.finish(&mut text);
                stream.write_all(text.as_bytes())?;
                stream.flush()?;
            }
        }
        Ok(())
    }
}

impl Sink {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.log.write_all(bytes)?;
        let result = match &mut self.shown {
            Shown::Nothing => Ok(()),
            Shown::Raw(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Shown::Neutralised(stream, neutraliser) => {
                let mut text = String::new();
                neutraliser.push(bytes, &mut text);
                stream.write_all(text.as_bytes()).and_then(|()| stream.flush())
            }
        };
        // Nobody reads any more (`pond run … | head`): the job goes on, its log stays complete.
        match result {
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => {
                self.shown = Shown::Nothing;
                Ok(())
            }
            other => other,
        }
    }
}
