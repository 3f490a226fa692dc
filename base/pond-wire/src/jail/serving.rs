//! What crosses between a keeper and pid 1 of a sandbox that lasts, once it serves: small packets of a fixed size that name an
//! exec, and the descriptors that belong to them.
//!
//! They travel on the socket of the launch's reports, which no job ever holds. What is to be executed comes as a sealed memory file,
//! because arguments and environment may be larger than a packet. Both sides refuse what they do not wholly understand.

use serde::{Deserialize, Serialize};

use super::{Console, Program, Report, ReportFault};

/// What pid 1 is asked for. `exec` and `call` are the keeper's numbers and are given back with every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Run a program. Its sealed [`ExecOrder`] travels along and, where that says pipes, three streams.
    Start { exec: u64 },
    /// Send a signal to the process group of an exec's first process.
    Signal { exec: u64, signal: u8 },
    /// Connect to a port of the sandbox's own loopback; the socket travels back with the answer.
    Connect { call: u64, port: u16 },
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AskFault {
    #[error("a request of {0} bytes")]
    Length(usize),
    #[error("a request of unknown kind {0}")]
    Kind(u8),
}

impl Ask {
    pub const BYTES: usize = 12;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let (kind, signal, port, id) = match self {
            Self::Start { exec } => (1, 0, 0, exec),
            Self::Signal { exec, signal } => (2, signal, 0, exec),
            Self::Connect { call, port } => (3, 0, port, call),
        };
        let mut bytes = [0; Self::BYTES];
        let fields = [kind, signal].into_iter().chain(port.to_le_bytes()).chain(id.to_le_bytes());
        for (slot, byte) in bytes.iter_mut().zip(fields) {
            *slot = byte;
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, AskFault> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| AskFault::Length(bytes.len()))?;
        let [kind, signal, low, high, id @ ..] = *bytes;
        let (port, id) = (u16::from_le_bytes([low, high]), u64::from_le_bytes(id));
        match (kind, signal, port) {
            (1, 0, 0) => Ok(Self::Start { exec: id }),
            (2, signal, 0) => Ok(Self::Signal { exec: id, signal }),
            (3, 0, port) => Ok(Self::Connect { call: id, port }),
            (other, _, _) => Err(AskFault::Kind(other)),
        }
    }
}

/// What pid 1 says of one exec or call. An exec that began ends with `Exited` or `Signaled`; one that did not, with `Failed`
/// before it. That it began is said where something travels along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub id: u64,
    pub report: Report,
}

impl Answer {
    pub const BYTES: usize = Report::BYTES + size_of::<u64>();

    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (slot, byte) in
            bytes.iter_mut().zip(self.report.encode().into_iter().chain(self.id.to_le_bytes()))
        {
            *slot = byte;
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, ReportFault> {
        let (report, id) = bytes.split_at_checked(Report::BYTES).ok_or(ReportFault::Length(bytes.len()))?;
        let id: [u8; size_of::<u64>()] = id.try_into().map_err(|_| ReportFault::Length(bytes.len()))?;
        Ok(Self { id: u64::from_le_bytes(id), report: Report::decode(report)? })
    }
}

/// One program to run inside, over what the plan says of every program, and what its streams are. `Console::Pipes` come with the request; a terminal is made inside, and its
/// master travels out with `Report::Began`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecOrder {
    pub argv: Vec<String>,
    /// Variables besides the plan's, replacing those of the same name.
    pub env: Vec<(String, String)>,
    /// Where it begins, if not where the plan says.
    pub cwd: Option<String>,
    pub console: Console,
}

impl ExecOrder {
    /// The whole program.
    pub fn over(self, plan: &Program) -> Program {
        let mut env = plan.env.clone();
        for (name, value) in self.env {
            env.retain(|(other, _)| *other != name);
            env.push((name, value));
        }
        let cwd = self.cwd.unwrap_or_else(|| plan.cwd.clone());
        // What a shell would have set for whoever starts there.
        if let Some((_, value)) = env.iter_mut().find(|(name, _)| name == "PWD") {
            value.clone_from(&cwd);
        }
        Program { argv: self.argv, env, search: plan.search.clone(), cwd }
    }
}

#[cfg(test)]
mod tests {
    //! Every request and answer survives the wire, and nothing else becomes one.
    use super::*;

    #[test]
    fn requests_round_trip_and_strangers_are_refused() {
        for ask in [
            Ask::Start { exec: u64::MAX },
            Ask::Signal { exec: 3, signal: 9 },
            Ask::Connect { call: 1 << 40, port: 65535 },
        ] {
            assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        }
        let mut odd = Ask::Start { exec: 1 }.encode();
        for (slot, value) in [(0, 0), (0, 4), (0, 255)] {
            odd[slot] = value;
            assert_eq!(Ask::decode(&odd), Err(AskFault::Kind(value)));
        }
        odd[0] = 1;
        odd[1] = 9;
        assert_eq!(Ask::decode(&odd), Err(AskFault::Kind(1)), "a start has no signal");
        assert_eq!(Ask::decode(b"short"), Err(AskFault::Length(5)));
        assert_eq!(Ask::decode(&[1; 13]), Err(AskFault::Length(13)));
    }

    #[test]
    fn answers_round_trip() {
        let usage = super::super::Usage { max_rss_kib: 1, cpu_micros: 2 };
        for report in [Report::Began, Report::Connected, Report::Exited { code: 3, usage }] {
            let answer = Answer { id: 7, report };
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        assert_eq!(Answer::decode(&Report::Serving.encode()), Err(ReportFault::Length(Report::BYTES)));
    }
}
