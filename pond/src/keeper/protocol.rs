//! What a keeper and whoever calls it say to each other, on the socket in the sandbox's directory: frames of a kind, a length and
//! bytes. The first frame of a call is a request; every answer is a frame as well.
//!
//! Zone: host. Both ends are the sandbox's owner or root (the directory lets nobody else in), and both still bound what they
//! read and refuse what they do not know: a caller may be an API that speaks for somebody far away.

use std::io::{self, Read, Write};

use pond_policy::life::{Operation, State, WrongState};
use serde::{Deserialize, Serialize};

/// The largest request or answer; what programs write comes in smaller pieces.
pub(crate) const MOST_FRAME: usize = 2 << 20;
pub(crate) const PIECE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// JSON: a `Request` first, `Answer`s after it.
    Say,
    /// For the program's standard input; an empty one ends it.
    Input,
    Stdout,
    Stderr,
    /// Both, as a terminal mixes them.
    Terminal,
    /// The person's window changed: JSON `Size`.
    Resize,
}

impl Kind {
    const ALL: [(Kind, u8); 6] = [
        (Kind::Say, 0),
        (Kind::Input, 1),
        (Kind::Stdout, 2),
        (Kind::Stderr, 3),
        (Kind::Terminal, 4),
        (Kind::Resize, 5),
    ];

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(u8::MAX, |(_, code)| *code)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == code).map(|(kind, _)| *kind)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// How it is.
    Status,
    /// Run a program; its output follows until `Answer::Ended`.
    Exec(Exec),
    /// End a program that runs.
    Cancel { exec: u64 },
    /// End everything in it, and keep its disk.
    Stop,
    /// End everything in it, and remove it.
    Delete,
    /// Copy what lies behind the descriptor that travels along to this path inside.
    CopyIn { target: String },
    /// Copy this path into the directory behind the descriptor that travels along, under this name; with `most`, only a file, and only
    /// one that is no larger.
    CopyOut {
        source: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exec {
    pub(crate) argv: Vec<String>,
    #[serde(default)]
    pub(crate) env: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// A terminal of this size, in place of pipes.
    #[serde(default)]
    pub(crate) terminal: Option<Size>,
    /// Whether input follows; without it the program reads end-of-file.
    #[serde(default)]
    pub(crate) input: bool,
    /// Whether it goes on when the caller leaves, who then hears no more than its number.
    #[serde(default)]
    pub(crate) detach: bool,
    #[serde(default)]
    pub(crate) timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Status(Status),
    /// The program has this number.
    Began {
        exec: u64,
    },
    Ended(ExecEnd),
    Copied {
        entries: u64,
        bytes: u64,
        skipped: Vec<String>,
    },
    /// It was done.
    Done,
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) state: String,
    pub(crate) sequence: u64,
    pub(crate) keeper: u32,
    pub(crate) running: Vec<u64>,
    /// Until nobody's use of it stops it.
    pub(crate) idle_seconds_left: Option<u64>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecEnd {
    pub(crate) exec: u64,
    /// Its own, or 128 and the signal, or 124 for one that took too long.
    pub(crate) exit_code: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<u8>,
    pub(crate) timed_out: bool,
    pub(crate) cancelled: bool,
    /// Streams of which the files hold only the beginning.
    pub(crate) truncated: Vec<String>,
    pub(crate) elapsed_ms: u64,
    pub(crate) max_rss_kib: u64,
    pub(crate) cpu_micros: u64,
}

/// Why not. `code` is stable; the documents list it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allowed: Vec<String>,
}

impl Refusal {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), allowed: Vec::new() }
    }

    pub(crate) fn wrong_state(state: State, operation: Operation) -> Self {
        let message = WrongState { state, operation }.to_string();
        let allowed = state.allowed().iter().map(|operation| operation.name().to_owned()).collect();
        Self { allowed, ..Self::new("sandbox_wrong_state", message) }
    }
}

pub(crate) fn write_frame(to: &mut impl Write, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let [a, b, c, d] = length.to_be_bytes();
    let mut frame = Vec::with_capacity(bytes.len() + 5);
    frame.extend([kind.code(), a, b, c, d]);
    frame.extend_from_slice(bytes);
    to.write_all(&frame)
}

pub(crate) fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    write_frame(to, Kind::Say, &serde_json::to_vec(what)?)
}

/// The next frame; nothing when the other end has gone.
pub(crate) fn read_frame(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut header = [0; 5];
    match from.read_exact(&mut header) {
        Err(fault)
            if [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&fault.kind()) =>
        {
            return Ok(None);
        }
        read => read?,
    }
    let [code, length @ ..] = header;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = Kind::from_code(code).ok_or_else(invalid)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| invalid())?;
    if length > MOST_FRAME {
        return Err(invalid());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some((kind, bytes)))
}

#[cfg(test)]
mod tests {
    //! Frames survive the way, and what is too large or unknown is none.
    use super::*;

    #[test]
    fn frames_round_trip_and_are_bounded() {
        let mut wire = Vec::new();
        for (kind, _) in Kind::ALL {
            write_frame(&mut wire, kind, b"bytes").unwrap();
        }
        let mut reader = wire.as_slice();
        for (kind, _) in Kind::ALL {
            assert_eq!(read_frame(&mut reader).unwrap(), Some((kind, b"bytes".to_vec())));
        }
        assert_eq!(read_frame(&mut reader).unwrap(), None);
        for bad in [[9, 0, 0, 0, 0], [0, 255, 255, 255, 255]] {
            assert_eq!(read_frame(&mut bad.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let unknown = br#"{"exec": {"argv": ["true"], "root": true}}"#;
        let refused = serde_json::from_slice::<Request>(unknown).unwrap_err().to_string();
        assert!(refused.starts_with("unknown field `root`"), "{refused}");
    }
}
