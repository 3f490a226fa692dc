//! The asking side of the instrument in `benches/launch.rs`: one line asks for one launch and brings its time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::run::Invocation;

/// A running instrument. It ends when this value goes away.
#[derive(Debug)]
pub(super) struct Driver {
    shown: String,
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Driver {
    pub(super) fn start(instrument: &Invocation, log: &Path) -> Result<Self> {
        let mut child = instrument.converse(log)?;
        let ask = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        Ok(Self { shown: instrument.to_string(), child, ask, answers })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One launch, and how long it took.
    pub(super) fn launch(&mut self) -> Result<Duration> {
        let asked =
            self.ask.as_mut().context("the instrument has ended").and_then(|pipe| Ok(pipe.write_all(b"\n")?));
        let nanoseconds = asked.and_then(|()| self.number());
        Ok(Duration::from_nanos(nanoseconds.with_context(|| self.failed())?))
    }

    /// The next line, which is a number.
    pub(super) fn number(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().with_context(|| self.failed())
    }

    fn failed(&self) -> String {
        format!("`{}` gave no answer; its complaint is in the log", self.shown)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.ask = None;
        if let Err(_reaped_elsewhere) = self.child.wait() {}
    }
}
