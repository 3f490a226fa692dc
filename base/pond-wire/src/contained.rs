//! The boundary between pond and pid 1 of a container: frames over its standard input and output, the only two streams that
//! every engine and every runtime carry.
//!
//! A frame is a kind, a length and so many bytes. Pond sends the order, a go, the job's input, the size of its terminal and a farewell; pid 1 sends the
//! job's output, reports and, where the copy travels as a stream, what the job made of it. The job holds neither stream. Decoding refuses any kind it does not know and any length over
//! its kind's bound, because pid 1 shares the job's fate.

pub mod serving;

use serde::{Deserialize, Serialize};

use crate::jail::{JailPlan, MAX_PLAN_BYTES, Report};
use serving::NUMBER;

/// Where pond's own executable stands in a container, and the name under which it is pid 1.
pub const PROGRAM: &str = "/.pond/init";

/// With this word and a directory, the same executable fills the directory from its input instead, and reports.
pub const UNPACK: &str = "unpack";

/// The most of a stream that one frame carries.
pub const MAX_PIECE: usize = 64 << 10;

/// How much of the job's input may be on its way and not yet the job's: pid 1 has room for so much, and hears what comes behind it.
pub const INPUT_WINDOW: usize = 256 << 10;

/// More than any kernel says of itself.
const MAX_EVIDENCE: usize = 4 << 10;

/// What pid 1 is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub plan: JailPlan,
    pub kernel: Kernel,
    pub transfer: Transfer,
}

/// How the job's copy of the checkout gets into a container, and what became of it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// The host's own disk is mounted there.
    Bind,
    /// No directory is shared: as a [`crate::tree`] each way.
    Stream,
}

/// Whose kernel answers the job's system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// The host's own, with every layer that the native sandbox asks of it.
    Host,
    /// gVisor's, which has no Landlock.
    Gvisor,
    /// That of a virtual machine of the container's own, which may have Landlock or not.
    Machine,
}

/// What pid 1 sees of the kernel it runs on, before anything of the job does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// `/proc/version`, on one line.
    pub version: String,
    /// Different on every kernel that was ever started.
    pub boot_id: String,
    pub landlock: Landlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    Present,
    Absent,
}

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

impl WindowSize {
    pub const BYTES: usize = 4;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d]) = (self.rows.to_le_bytes(), self.columns.to_le_bytes());
        [a, b, c, d]
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let is_whole = bytes.len() == Self::BYTES;
        is_whole.then_some(Self { rows: u16::from_le_bytes([a, b]), columns: u16::from_le_bytes([c, d]) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To pid 1: an [`Order`].
    Order,
    /// To pid 1: the job may begin.
    Go,
    /// To pid 1: bytes for the job's standard input.
    Input,
    /// To pid 1: there is no more input.
    InputEnd,
    /// To pid 1: end the job, and send what it made.
    Stop,
    /// To pid 1: the job's terminal has another [`WindowSize`].
    Size,
    /// To pid 1: everything was heard; end.
    Leave,
    Stdout,
    Stderr,
    /// From pid 1: a [`Report`].
    Report,
    /// From pid 1: its [`Evidence`], before the first report.
    Evidence,
    /// From pid 1: so many bytes of input, as a little-endian number, have gone to the job or nowhere.
    Taken,
    /// From pid 1: more of the [`crate::tree`] that the job left, after the last report.
    Kept,
    /// To pid 1 that serves: run a program. This frame and those below begin with the number of the exec they are about.
    ExecStart,
    ExecInput,
    ExecInputEnd,
    /// To pid 1: its terminal has another [`WindowSize`].
    ExecSize,
    /// To pid 1: a signal for its process group.
    ExecSignal,
    /// To pid 1: so many bytes of its output were taken.
    ExecRoom,
    ExecStdout,
    ExecStderr,
    /// From pid 1: so many bytes of its input were taken, or went nowhere.
    ExecTaken,
    /// From pid 1: a [`Report`] of it: that it was started, that it could not be, how it ended.
    ExecReport,
    /// From pid 1: after its end, that nothing of its output is left to say.
    ExecOver,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameFault {
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame of {0} bytes")]
    Length(u32),
}

/// What precedes the bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub length: usize,
}

impl Kind {
    const ALL: [(Kind, u8); 24] = [
        (Kind::Order, 1),
        (Kind::Go, 2),
        (Kind::Input, 3),
        (Kind::InputEnd, 4),
        (Kind::Leave, 5),
        (Kind::Stdout, 6),
        (Kind::Stderr, 7),
        (Kind::Report, 8),
        (Kind::Evidence, 9),
        (Kind::Stop, 10),
        (Kind::Kept, 11),
        (Kind::Taken, 12),
        (Kind::Size, 13),
        (Kind::ExecStart, 14),
        (Kind::ExecInput, 15),
        (Kind::ExecInputEnd, 16),
        (Kind::ExecSize, 17),
        (Kind::ExecSignal, 18),
        (Kind::ExecRoom, 19),
        (Kind::ExecStdout, 20),
        (Kind::ExecStderr, 21),
        (Kind::ExecTaken, 22),
        (Kind::ExecReport, 23),
        (Kind::ExecOver, 24),
    ];

    fn most(self) -> usize {
        match self {
            Self::Order => usize::try_from(MAX_PLAN_BYTES).unwrap_or(usize::MAX),
            Self::Go | Self::InputEnd | Self::Stop | Self::Leave => 0,
            Self::Input | Self::Stdout | Self::Stderr | Self::Kept => MAX_PIECE,
            Self::Report => Report::BYTES,
            Self::Evidence => MAX_EVIDENCE,
            Self::Taken => size_of::<u32>(),
            Self::Size => WindowSize::BYTES,
            Self::ExecStart => NUMBER + Self::Order.most(),
            Self::ExecInput | Self::ExecStdout | Self::ExecStderr => NUMBER + MAX_PIECE,
            Self::ExecInputEnd | Self::ExecOver => NUMBER,
            Self::ExecSize => NUMBER + WindowSize::BYTES,
            Self::ExecSignal => NUMBER + 1,
            Self::ExecRoom | Self::ExecTaken => NUMBER + size_of::<u32>(),
            Self::ExecReport => NUMBER + Report::BYTES,
        }
    }
}

impl Header {
    pub const BYTES: usize = 5;

    pub fn decode(bytes: [u8; Self::BYTES]) -> Result<Self, FrameFault> {
        let [kind, length @ ..] = bytes;
        let known = Kind::ALL.iter().find(|(_, code)| *code == kind);
        let (kind, _) = *known.ok_or(FrameFault::Kind(kind))?;
        let told = u32::from_le_bytes(length);
        let length = usize::try_from(told).ok().filter(|length| *length <= kind.most());
        Ok(Self { kind, length: length.ok_or(FrameFault::Length(told))? })
    }
}

/// A whole frame; nothing for bytes that no frame of this kind carries.
pub fn frame(kind: Kind, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= kind.most())?;
    let (_, code) = *Kind::ALL.iter().find(|(known, _)| *known == kind)?;
    let mut bytes = Vec::with_capacity(Header::BYTES + payload.len());
    bytes.push(code);
    bytes.extend(length.to_le_bytes());
    bytes.extend(payload);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    //! A frame survives the stream, and nothing unknown or oversized becomes one.
    use super::*;

    fn header(bytes: &[u8]) -> Result<Header, FrameFault> {
        Header::decode(bytes[..Header::BYTES].try_into().unwrap())
    }

    #[test]
    fn every_kind_round_trips_up_to_its_bound() {
        for (kind, _) in Kind::ALL {
            let most = vec![7; kind.most()];
            let bytes = frame(kind, &most).unwrap();
            assert_eq!(header(&bytes), Ok(Header { kind, length: kind.most() }));
            assert_eq!(&bytes[Header::BYTES..], most);
            assert_eq!(frame(kind, &vec![7; kind.most() + 1]), None);
        }
    }

    #[test]
    fn a_window_is_four_bytes() {
        let size = WindowSize { rows: 30, columns: 0x1234 };
        assert_eq!(size.encode(), [30, 0, 0x34, 0x12]);
        assert_eq!(WindowSize::decode(&size.encode()), Some(size));
        assert_eq!(WindowSize::decode(&[1, 0, 2]), None);
        assert_eq!(WindowSize::decode(&[1, 0, 2, 0, 0]), None);
    }

    #[test]
    fn unknown_kinds_and_lengths_are_refused() {
        assert_eq!(header(&[0, 0, 0, 0, 0]), Err(FrameFault::Kind(0)));
        assert_eq!(header(&[25, 0, 0, 0, 0]), Err(FrameFault::Kind(25)));
        assert_eq!(header(&[2, 1, 0, 0, 0]), Err(FrameFault::Length(1)));
        assert_eq!(header(&[6, 1, 0, 1, 0]), Err(FrameFault::Length(0x1_0001)));
        assert_eq!(header(&[8, 25, 0, 0, 0]), Err(FrameFault::Length(25)));
    }
}
