//! Output of jobs on its way to a person: neutralised on a terminal, as it is in a pipe, and with the stage's name before each line
//! where there is more than one stage.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use pond_worker::neutral::Neutraliser;

/// A longer line is cut in two where it is labelled.
const MOST_LINE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(super) const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Whether lines say whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    No,
    Stage,
}

/// What to show of what stages said. It writes nothing by itself.
#[derive(Debug)]
pub(super) struct Screen {
    labels: Labels,
    terminals: Vec<Stream>,
    shown: BTreeMap<(String, Stream), Shown>,
}

#[derive(Debug)]
struct Shown {
    neutral: Option<Neutraliser>,
    label: String,
    /// The beginning of a line, where lines are labelled.
    line: Vec<u8>,
}

impl Screen {
    /// `terminals`: the streams that somebody's terminal shows.
    pub(super) fn new(labels: Labels, terminals: Vec<Stream>) -> Self {
        Self { labels, terminals, shown: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, stage: &str, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let neutral = self.terminals.contains(&stream).then(Neutraliser::new);
        let label = match self.labels {
            Labels::No => String::new(),
            Labels::Stage => format!("{stage} | "),
        };
        let shown = self.shown.entry((stage.to_owned(), stream));
        let shown = shown.or_insert_with(|| Shown { neutral, label, line: Vec::new() });
        match &mut shown.neutral {
            None => shown.lines(bytes),
            Some(neutral) => {
                let mut text = String::new();
                neutral.push(bytes, &mut text);
                shown.lines(text.as_bytes())
            }
        }
    }

    /// The stage says no more: what was held back.
    pub(super) fn finish(&mut self, stage: &str, stream: Stream) -> Vec<u8> {
        let Some(mut shown) = self.shown.remove(&(stage.to_owned(), stream)) else { return Vec::new() };
        let mut text = String::new();
        if let Some(neutral) = shown.neutral.take() {
            neutral.finish(&mut text);
        }
        let mut out = shown.lines(text.as_bytes());
        if !shown.line.is_empty() {
            out.extend(shown.labelled());
        }
        out
    }
}

/// This process's own two streams.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// Nobody reads any more: what comes is dropped.
    gone: Vec<Stream>,
}

impl Terminal {
    /// Streams that a person watches on a terminal.
    pub(super) fn watched() -> Vec<Stream> {
        let terminal = |stream: &Stream| match stream {
            Stream::Stdout => io::stdout().is_terminal(),
            Stream::Stderr => io::stderr().is_terminal(),
        };
        Stream::ALL.into_iter().filter(terminal).collect()
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.gone.contains(&Stream::Stdout)
    }

    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if self.gone.contains(&stream) {
            return Ok(());
        }
        let written = match stream {
            Stream::Stdout => io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
        match written {
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => {
                self.gone.push(stream);
                Ok(())
            }
            other => other,
        }
    }
}

impl Shown {
    /// What can be shown of it now.
    fn lines(&mut self, text: &[u8]) -> Vec<u8> {
        if self.label.is_empty() {
            return text.to_vec();
        }
        let mut out = Vec::new();
        for byte in text {
            if *byte == b'\n' || self.line.len() >= MOST_LINE {
                out.extend(self.labelled());
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
        out
    }

    fn labelled(&mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.line);
        [self.label.as_bytes(), &line, b"\n"].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece, then the end of both stages.
    fn shown(labels: Labels, terminals: &[Stream], pieces: &[(&str, Stream, &[u8])]) -> (String, String) {
        let mut screen = Screen::new(labels, terminals.to_vec());
        let mut seen = BTreeMap::from(Stream::ALL.map(|stream| (stream, Vec::new())));
        for (stage, stream, bytes) in pieces {
            seen.get_mut(stream).unwrap().extend(screen.take(stage, *stream, bytes));
        }
        for stage in ["a", "b"] {
            for stream in Stream::ALL {
                seen.get_mut(&stream).unwrap().extend(screen.finish(stage, stream));
            }
        }
        let text = |stream: Stream| String::from_utf8_lossy(&seen[&stream]).into_owned();
        (text(Stream::Stdout), text(Stream::Stderr))
    }

    #[test]
    fn a_terminal_obeys_nothing_a_job_says() {
        let pieces: [(&str, Stream, &[u8]); 3] = [
            ("a", Stream::Stdout, b"x\x1b]52;c;"),
            ("a", Stream::Stdout, b"eA==\x07\r"),
            ("a", Stream::Stderr, b"\x1b[2J"),
        ];
        let neutral = ("x\\x1b]52;c;eA==\\x07\n".to_owned(), "\\x1b[2J".to_owned());
        assert_eq!(shown(Labels::No, &Stream::ALL, &pieces), neutral);
        let raw = ("x\x1b]52;c;eA==\x07\r".to_owned(), "\x1b[2J".to_owned());
        assert_eq!(shown(Labels::No, &[], &pieces), raw);
    }

    #[test]
    fn every_line_says_whose_it_is() {
        let pieces: [(&str, Stream, &[u8]); 4] = [
            ("a", Stream::Stdout, b"one\ntw"),
            ("b", Stream::Stdout, b"three\n"),
            ("a", Stream::Stdout, b"o\n\n"),
            ("b", Stream::Stderr, b"four"),
        ];
        let expected = ("a | one\nb | three\na | two\na | \n".to_owned(), "b | four\n".to_owned());
        assert_eq!(shown(Labels::Stage, &[], &pieces), expected);
    }
}
