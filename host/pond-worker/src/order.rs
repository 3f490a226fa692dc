//! What the daemon tells the process that runs one job, and what that process answers: one socket, which is its standard input.
//!
//! Zone: host, both ends. First a frame with the order, then two frames per secret, then an empty one; whoever ends the
//! socket after that ends the job. Answers are lines of JSON. Secrets are in these frames and in no argument, variable or file.

use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use pond_seal::offer::Allotted;
use pond_seal::{Digest, Secret};
use serde::{Deserialize, Serialize};

/// An executor is at most as large as an offer.
const MOST_FRAME: usize = 2 << 20;
const MOST_SECRETS: usize = 64;
/// Carries the descriptors.
const FIRST: u8 = b'o';
/// One answer.
pub const MOST_LINE: usize = 16 << 10;

/// One job, as a control plane offered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOrder {
    pub worker: String,
    pub tenant: String,
    pub job: String,
    pub attempt: u32,
    pub epoch: u64,
    pub input: Digest,
    pub policy: Digest,
    /// The stage's executor, as JSON text.
    pub executor: String,
    /// How long the job may take in all.
    pub deadline_seconds: u32,
    /// What it may use besides.
    pub allotted: Allotted,
    /// Where the source lies: a private directory.
    pub checkout: PathBuf,
    /// What the statement is signed with.
    pub key: PathBuf,
}

/// What the process that runs a job says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum JobAnswer {
    /// What the job has cost until now.
    Spent { cost_microcents: u64, egress_bytes: u64 },
    /// A call of a model waits for more money; what the job would have to be lent in all.
    Short { least_microcents: u64, most_microcents: u64 },
    /// Connections wait for more bytes than the job was lent; so many have been moved.
    ShortBytes { moved: u64 },
    /// The job is over; its statement and its result lie in the directory of this run.
    Ended { run: String },
    /// Nothing ran, or what ran cannot be told.
    Failed { code: String, message: String },
}

/// A secret and its name.
pub type NamedSecret = (String, Secret);

/// What connects the process that runs a job with the daemon.
#[derive(Debug)]
pub struct Wires {
    /// Orders came here, answers go back; readable when the job shall end.
    pub socket: UnixStream,
    /// Where the job's output goes, byte for byte as its logs have it.
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// What the job may use in all, again and again; see [`Lent`].
    pub lent: OwnedFd,
}

/// What a job was lent in all, of money and of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lent {
    pub microcents: Answered,
    pub egress_bytes: Answered,
}

/// How much that is, and how many questions about it were answered: no more than before is a no to who asked, and nothing to who did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    pub total: u64,
    pub answers: u64,
}

impl Answered {
    pub fn answer(&mut self, total: u64) {
        *self = Self { total, answers: self.answers.wrapping_add(1) };
    }
}

impl Lent {
    pub const BYTES: usize = 32;

    /// Eight bytes each, big-endian: a packet that a pipe never cuts.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { microcents, egress_bytes } = self;
        let words = [microcents.total, microcents.answers, egress_bytes.total, egress_bytes.answers];
        let mut bytes = [0; Self::BYTES];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| {
            place.copy_from_slice(&word.to_be_bytes());
        });
        bytes
    }

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_be_bytes));
        let mut next = || words.next().unwrap_or_default();
        let mut answered = || Answered { total: next(), answers: next() };
        Self { microcents: answered(), egress_bytes: answered() }
    }
}

/// Sends an order, where standard output and error shall go, and where more money and bytes are announced.
pub fn send(
    to: &UnixStream,
    order: &JobOrder,
    secrets: &[NamedSecret],
    wires: [BorrowedFd<'_>; 3],
) -> io::Result<()> {
    pond_sys::socket::send(to, &[FIRST], &wires)?;
    write(&mut &*to, order, secrets)
}

/// Takes over what [`send`] sent from the other end.
pub fn receive(socket: UnixStream) -> io::Result<(JobOrder, Vec<NamedSecret>, Wires)> {
    let mut first = [0];
    let (length, descriptors) = pond_sys::socket::receive(&socket, &mut first)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [stdout, stderr, lent]: [OwnedFd; 3] =
        descriptors.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let (order, secrets) = read(&mut &socket)?;
    Ok((order, secrets, Wires { socket, stdout, stderr, lent }))
}

fn write(to: &mut impl Write, order: &JobOrder, secrets: &[NamedSecret]) -> io::Result<()> {
    frame(to, &serde_json::to_vec(order)?)?;
    for (name, secret) in secrets {
        frame(to, name.as_bytes())?;
        frame(to, secret.expose())?;
    }
    frame(to, b"")?;
    to.flush()
}

fn read(from: &mut impl Read) -> io::Result<(JobOrder, Vec<NamedSecret>)> {
    let order = serde_json::from_slice(&framed(from)?)?;
    let mut secrets = Vec::new();
    loop {
        let name = framed(from)?;
        if name.is_empty() {
            return Ok((order, secrets));
        }
        if secrets.len() == MOST_SECRETS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let name = String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?;
        secrets.push((name, Secret::new(framed(from)?)));
    }
}

/// One line.
pub fn answer(to: &mut impl Write, answer: &JobAnswer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    to.write_all(&line)
}

fn frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(bytes)
}

fn framed(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MOST_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> JobOrder {
        JobOrder {
            worker: "w".to_owned(),
            tenant: "t".to_owned(),
            job: "j".to_owned(),
            attempt: 1,
            epoch: 2,
            input: Digest::of(b"in"),
            policy: Digest::of(b"policy"),
            executor: "{}".to_owned(),
            deadline_seconds: 3,
            allotted: Allotted { cost_microcents: 4, output_bytes: 5, artifact_bytes: 6, egress_bytes: 7 },
            checkout: "/c".into(),
            key: "/k".into(),
        }
    }

    #[test]
    fn what_was_lent_arrives_with_what_it_answers() {
        let mut lent = Lent::default();
        lent.egress_bytes.answer(7);
        lent.egress_bytes.answer(u64::MAX);
        lent.microcents.answer(3);
        assert_eq!(Lent::from_bytes(lent.to_bytes()), lent);
        assert_eq!(
            (lent.microcents.answers, lent.egress_bytes),
            (1, Answered { total: u64::MAX, answers: 2 })
        );
    }

    #[test]
    fn an_order_and_its_secrets_arrive() {
        let mut bytes = Vec::new();
        write(&mut bytes, &order(), &[("model".to_owned(), Secret::new(b"key".to_vec()))]).unwrap();
        let (received, secrets) = read(&mut bytes.as_slice()).unwrap();
        assert_eq!(received, order());
        let secrets: Vec<_> = secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose())).collect();
        assert_eq!(secrets, [("model", b"key".as_slice())]);
        for cut in 0..bytes.len() {
            assert!(
                read(&mut &bytes[..cut]).is_err_and(|fault| fault.kind() == io::ErrorKind::UnexpectedEof)
            );
        }
        let huge = [u32::MAX.to_be_bytes().as_slice(), &bytes].concat();
        assert!(read(&mut huge.as_slice()).is_err_and(|fault| fault.kind() == io::ErrorKind::InvalidData));
    }
}
