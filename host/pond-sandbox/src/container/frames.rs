//! Takes apart what arrives on a container's stream: the engine's own pieces, and in them the frames of pid 1.
//!
//! Zone: host. Both are hostile: a piece of no known stream, and a frame that only pond sends or that is no frame, end the container.

use std::os::unix::net::UnixStream;

use pond_wire::contained::{FrameFault, Header, Kind, MAX_PIECE};
use rustix::io::Errno;

use super::relay::RelayFault;

/// What precedes each piece of a stream: its number, three zeros, and a length.
const PIECE_HEADER: usize = 8;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FramesFault {
    #[error("the engine sent a piece of unknown stream {0}")]
    Stream(u8),
    #[error(transparent)]
    Frame(#[from] FrameFault),
    #[error("a frame that only pond sends")]
    Direction,
}

/// What one look at the engine's stream came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// More of it, or nothing yet.
    Something,
    /// The engine will say no more.
    TheEnd,
}

#[derive(Debug, Default)]
pub(super) struct Frames {
    raw: Vec<u8>,
    /// What is left of the piece being read, and whether it is of the stream that carries frames.
    piece: usize,
    carries: bool,
    framed: Vec<u8>,
}

impl Frames {
    /// Takes what the engine has now, one piece at most, and never waits for it.
    pub(super) fn hear(&mut self, engine: &UnixStream) -> Result<Heard, RelayFault> {
        let mut piece = [0; MAX_PIECE];
        match rustix::io::read(engine, &mut piece) {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(Heard::TheEnd),
            Ok(length) => self.push(piece.get(..length).unwrap_or_default())?,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(RelayFault::Relay(errno.into())),
        }
        Ok(Heard::Something)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), FramesFault> {
        self.raw.extend(bytes);
        loop {
            if self.piece > 0 {
                let length = self.piece.min(self.raw.len());
                let bytes = self.raw.drain(..length);
                // Pid 1 says nothing on its error stream; what a runtime says there is for nobody.
                if self.carries {
                    self.framed.extend(bytes);
                }
                self.piece -= length;
            }
            let Some([stream, _, _, _, length @ ..]) = self.raw.first_chunk::<PIECE_HEADER>() else {
                return Ok(());
            };
            if self.piece > 0 {
                return Ok(());
            }
            self.carries = match *stream {
                STDOUT => true,
                STDERR => false,
                other => return Err(FramesFault::Stream(other)),
            };
            self.piece = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            self.raw.drain(..PIECE_HEADER);
        }
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, FramesFault> {
        let Some(header) = self.framed.first_chunk::<{ Header::BYTES }>() else { return Ok(None) };
        let Header { kind, length } = Header::decode(*header)?;
        match kind {
            Kind::Stdout
            | Kind::Stderr
            | Kind::Report
            | Kind::Evidence
            | Kind::Taken
            | Kind::Kept
            | Kind::ExecStdout
            | Kind::ExecStderr
            | Kind::ExecTaken
            | Kind::ExecReport
            | Kind::ExecOver => {}
            Kind::Order
            | Kind::Go
            | Kind::Input
            | Kind::InputEnd
            | Kind::Stop
            | Kind::Size
            | Kind::Leave
            | Kind::ExecStart
            | Kind::ExecInput
            | Kind::ExecInputEnd
            | Kind::ExecSize
            | Kind::ExecSignal
            | Kind::ExecRoom => {
                return Err(FramesFault::Direction);
            }
        }
        let whole = Header::BYTES + length;
        if self.framed.len() < whole {
            return Ok(None);
        }
        let payload = self.framed.drain(..whole).skip(Header::BYTES).collect();
        Ok(Some((kind, payload)))
    }
}

#[cfg(test)]
mod tests {
    //! However the bytes are cut, the same frames come out, and nothing else does.
    use super::*;
    use pond_wire::contained::frame;

    fn piece(stream: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0], &length[..], bytes].concat()
    }

    #[test]
    fn frames_survive_any_cut() {
        let sent =
            [(Kind::Stdout, b"out".to_vec()), (Kind::Stderr, b"".to_vec()), (Kind::Report, vec![7; 24])];
        let framed: Vec<u8> = sent.iter().flat_map(|(kind, bytes)| frame(*kind, bytes).unwrap()).collect();
        for inner in 1..framed.len() {
            let pieces =
                framed.chunks(inner).flat_map(|bytes| [piece(2, b"noise"), piece(1, bytes)]).flatten();
            let stream: Vec<u8> = pieces.collect();
            for outer in [1, 3, 8, stream.len()] {
                let mut frames = Frames::default();
                let mut got = Vec::new();
                for bytes in stream.chunks(outer) {
                    frames.push(bytes).unwrap();
                    while let Some(next) = frames.next().unwrap() {
                        got.push(next);
                    }
                }
                assert_eq!(got, sent, "cut at {inner} and {outer}");
            }
        }
    }

    #[test]
    fn what_pid_1_may_not_say_is_refused() {
        let said = |bytes: &[u8]| {
            let mut frames = Frames::default();
            frames.push(&piece(1, bytes)).unwrap();
            frames.next()
        };
        assert_eq!(said(&frame(Kind::Go, b"").unwrap()), Err(FramesFault::Direction));
        assert_eq!(said(&[99, 0, 0, 0, 0]), Err(FramesFault::Frame(FrameFault::Kind(99))));
        assert_eq!(Frames::default().push(&piece(3, b"x")), Err(FramesFault::Stream(3)));
    }
}
