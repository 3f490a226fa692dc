//! The asking side of the instruments in `benches/`: a line asks, a line of numbers answers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

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
        self.say("").with_context(|| self.failed())?;
        Ok(Duration::from_nanos(self.number()?))
    }

    /// Asks for something that is answered in numbers.
    pub(super) fn ask(&mut self, question: &str) -> Result<Vec<u64>> {
        self.say(question).with_context(|| self.failed())?;
        self.numbers()
    }

    fn say(&mut self, question: &str) -> Result<()> {
        let pipe = self.ask.as_mut().context("the instrument has ended")?;
        Ok(pipe.write_all(format!("{question}\n").as_bytes())?)
    }

    /// The next line, which is a number.
    pub(super) fn number(&mut self) -> Result<u64> {
        self.numbers()?.first().copied().with_context(|| self.failed())
    }

    fn numbers(&mut self) -> Result<Vec<u64>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let numbers = line.split_ascii_whitespace().map(|word| Ok(word.parse()?)).collect::<Result<_>>();
        let numbers: Vec<u64> = numbers.with_context(|| self.failed())?;
        ensure!(!numbers.is_empty(), self.failed());
        Ok(numbers)
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
