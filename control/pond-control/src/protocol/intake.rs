//! Whether a result is what was asked for. HOSTILE: a worker may lie about everything, and what it sends is opened in this order:
//! size, signature by the key that was pinned for it, type, then every field that was issued against what the store has, then
//! the streams it names against what was stored, then the packed result against the digests it signed. Nothing of a result is
//! read by anybody before all of that held. A fault here ends the stage; its code is the reason that is recorded.

use pond_policy::reason::{Cause, Reason};
use pond_seal::Digest;
use pond_seal::digest::Hashing;
use pond_seal::envelope::{Envelope, EnvelopeFault};
use pond_seal::result::{EMPTY_MANIFEST, Egress, FileDigest, Limit, Log, Output, RunResult};
use pond_seal::statement::{Statement, StatementFault};
use pond_wire::tree::{Decoder, Entry, Event, TreeCaps, TreeFault};
use std::io::Write as _;

use super::gate::Caller;
use super::grant::Granted;
use super::issued::as_issued;
use super::rerun::{self, Compared};
use crate::plane::Plane;
use crate::store::{self, Held, Lease, LogPiece, MOST_RESULT, Outcome, Spent, Stream};

/// Pieces of a stream read at once.
pub(super) const PIECES: u32 = 16;
/// Entries of a packed result.
pub(super) const MOST_ENTRIES: u64 = 100_000;
const PATCH: &[u8] = b"changes.patch";
const CHANGES: &[u8] = b"changes.json";
pub(super) const MANIFEST: &[u8] = b"manifest.json";

/// Why a result does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejected {
    #[error("the statement is not signed by the worker's pinned key")]
    Envelope(#[from] EnvelopeFault),
    #[error("the statement is not one about a run")]
    Statement(#[from] StatementFault),
    #[error("the statement is about another job or attempt")]
    Job,
    #[error("the statement is about another lease")]
    Lease,
    #[error("the job worked on another tree than the one it was given")]
    Input,
    #[error("the job ran another command than the one it was given")]
    Command,
    #[error("the job ran on {0}, which is less than it asked for")]
    Backend(String),
    #[error("the job was held to another policy than the one it was given")]
    Policy,
    #[error("the job ran on another image than the one it asked for")]
    Image,
    #[error("the stream {} is not what was received", .0.name())]
    Stream(Stream),
    #[error("the packed result is no tree")]
    Tree(#[from] TreeFault),
    #[error("the packed result ends early")]
    TreeCut,
    #[error("{0} of the result is not what the statement says")]
    File(&'static str),
}

/// A result could not be judged, which is not the result's fault.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntakeFault {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error(transparent)]
    Store(#[from] store::Fault),
}

impl Rejected {
    /// Stable; the documents list it.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Envelope(fault) => fault.code(),
            Self::Statement(fault) => fault.code(),
            Self::Job => "statement_job",
            Self::Lease => "statement_lease",
            Self::Input => "statement_input",
            Self::Command => "statement_command",
            Self::Backend(_) => "statement_backend",
            Self::Policy => "statement_policy",
            Self::Image => "statement_image",
            Self::Stream(_) => "statement_stream",
            Self::Tree(_) | Self::TreeCut => "result_tree",
            Self::File(_) => "result_file",
        }
    }
}

/// What came of a job whose result holds.
pub(super) struct Verified {
    pub(super) outcome: Outcome,
    /// For people; empty when it succeeded.
    pub(super) reason: String,
    /// What it is worth beside the results of others; nothing when it stands alone.
    pub(super) compared: Option<Compared>,
    /// What the statement says the job used.
    pub(super) spent: Spent,
}

pub(super) async fn judge(
    plane: &Plane,
    caller: &Caller,
    (lease, held, granted): (&Lease, &Held, &Granted),
    envelope: &[u8],
) -> Result<Verified, IntakeFault> {
    let statement = opened(caller, envelope)?;
    as_issued(&statement.result, lease, held, granted)?;
    streams(plane, lease, &statement, Stored::of(plane, lease).await?).await?;
    let terms = (granted.verify, &granted.need);
    let compared = rerun::compared(plane, (lease, held), terms, &statement).await?;
    let (outcome, reason) = verdict(&statement.result);
    Ok(Verified { outcome, reason, compared, spent: spent(&statement.result) })
}

/// The same, of a result that stands alone and came with the statement, in one piece, from a job that sent nothing else. Whether it
/// sent nothing else is for who stores it to find out.
pub(super) async fn judge_whole(
    plane: &Plane,
    caller: &Caller,
    (lease, held, granted): (&Lease, &Held, &Granted),
    (envelope, piece): (&[u8], LogPiece),
) -> Result<Verified, IntakeFault> {
    let statement = opened(caller, envelope)?;
    as_issued(&statement.result, lease, held, granted)?;
    streams(plane, lease, &statement, Stored::Whole(vec![(Stream::Result, piece)])).await?;
    let (outcome, reason) = verdict(&statement.result);
    Ok(Verified { outcome, reason, compared: None, spent: spent(&statement.result) })
}

fn opened(caller: &Caller, envelope: &[u8]) -> Result<Statement, Rejected> {
    let envelope = Envelope::parse(envelope)?;
    let verified = envelope.verify(&caller.key)?;
    Ok(Statement::decode(&verified)?)
}

/// Every stream that was stored is named once, with the content that is stored; nothing else is named. The packed result holds
/// the files the statement has digests of; none of it is looked at where there is no output.
async fn streams(
    plane: &Plane,
    lease: &Lease,
    statement: &Statement,
    output: Stored,
) -> Result<(), IntakeFault> {
    let logs = &statement.result.logs;
    let stored = output.streams();
    if let Some(unnamed) = stored.iter().find(|stream| !logs.iter().any(|log| log.stream == **stream)) {
        return Err(Rejected::Stream(*unnamed).into());
    }
    let mut result = Unpacked::new();
    for (at, log) in logs.iter().enumerate() {
        let twice = logs.iter().skip(at + 1).any(|other| other.stream == log.stream);
        let content = match stored.contains(&log.stream) {
            true => read((plane, &output), (lease, log), statement, &mut result).await?,
            false => FileDigest { sha256: Digest::of(b""), bytes: 0 },
        };
        if twice || content != (FileDigest { sha256: log.sha256, bytes: log.bytes }) {
            return Err(Rejected::Stream(log.stream).into());
        }
    }
    Ok(files(result, statement)?)
}

/// What a lease sent: all of it, where that is little, or which streams there are.
enum Stored {
    Whole(Vec<(Stream, LogPiece)>),
    Large(Vec<Stream>),
}

impl Stored {
    async fn of(plane: &Plane, lease: &Lease) -> Result<Self, store::Fault> {
        Ok(match plane.store.lease_output(lease, PIECES).await? {
            Some(pieces) => Self::Whole(pieces),
            None => Self::Large(plane.store.lease_streams(lease).await?),
        })
    }

    fn streams(&self) -> Vec<Stream> {
        match self {
            Self::Whole(pieces) => {
                let mut streams: Vec<Stream> = pieces.iter().map(|(stream, _)| *stream).collect();
                streams.dedup();
                streams
            }
            Self::Large(streams) => streams.clone(),
        }
    }
}

/// The digest of a stream, which is read once: the packed result is unpacked as it passes.
async fn read(
    (plane, output): (&Plane, &Stored),
    (lease, log): (&Lease, &Log),
    statement: &Statement,
    result: &mut Unpacked,
) -> Result<FileDigest, IntakeFault> {
    let is_result =
        log.stream == Stream::Result && matches!(statement.result.output, Output::Collected { .. });
    let mut content = Content::default();
    let (mut from, mut more) = (0, true);
    if let Stored::Whole(pieces) = output {
        more = false;
        for (_, piece) in pieces.iter().filter(|(stream, _)| *stream == log.stream) {
            content.add(&piece.bytes);
            if is_result {
                result.take(&piece.bytes);
            }
        }
    }
    while more {
        let pieces = plane.store.lease_log(lease, log.stream, from, PIECES).await?;
        more = u32::try_from(pieces.len()).is_ok_and(|found| found == PIECES);
        for piece in pieces {
            content.add(&piece.bytes);
            if is_result {
                result.take(&piece.bytes);
            }
            from = piece.sequence + 1;
        }
    }
    Ok(content.finish())
}

fn files(result: Unpacked, statement: &Statement) -> Result<(), Rejected> {
    let (changes, patch) = match &statement.result.output {
        Output::Collected { changes, patch, .. } => (changes, patch),
        // An output that is not there is nothing to vouch for.
        Output::Nothing {} | Output::NotCollected {} => {
            let is_empty = statement.subject == Digest::of(EMPTY_MANIFEST);
            return is_empty.then_some(()).ok_or(Rejected::File("manifest.json"));
        }
    };
    let [found_patch, found_changes, manifest] = result.finish()?;
    if found_patch != Some(*patch) {
        return Err(Rejected::File("changes.patch"));
    }
    if found_changes != Some(*changes) {
        return Err(Rejected::File("changes.json"));
    }
    if manifest.map(|file| file.sha256) != Some(statement.subject) {
        return Err(Rejected::File("manifest.json"));
    }
    Ok(())
}

/// The three files at the top of a packed result, hashed as they pass.
struct Unpacked {
    decoder: Decoder,
    depth: usize,
    /// Which of them the content belongs to that comes now.
    now: Option<usize>,
    files: [Option<Content>; 3],
    /// Told when all streams are what they should be.
    fault: Option<TreeFault>,
}

impl Unpacked {
    fn new() -> Self {
        let caps = TreeCaps { entries: MOST_ENTRIES, bytes: MOST_RESULT };
        Self { decoder: Decoder::new(caps), depth: 0, now: None, files: [None, None, None], fault: None }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.fault.is_none() {
            self.fault = self.push(bytes).err();
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), TreeFault> {
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.next_event()? {
            match event {
                Event::Entry(entry) => self.enter(&entry),
                Event::Content(content) => {
                    if let Some(file) =
                        self.now.and_then(|at| self.files.get_mut(at)).and_then(Option::as_mut)
                    {
                        file.add(&content);
                    }
                }
                Event::End => {}
            }
        }
        Ok(())
    }

    fn enter(&mut self, entry: &Entry) {
        self.now = None;
        match entry {
            Entry::Enter { .. } => self.depth += 1,
            Entry::Leave { .. } => self.depth = self.depth.saturating_sub(1),
            Entry::File { name, .. } if self.depth == 0 => {
                self.now = [PATCH, CHANGES, MANIFEST].iter().position(|known| known == name);
                if let Some(file) = self.now.and_then(|at| self.files.get_mut(at)) {
                    *file = Some(Content::default());
                }
            }
            Entry::File { .. }
            | Entry::Link { .. }
            | Entry::Fifo { .. }
            | Entry::Socket { .. }
            | Entry::Large { .. } => {}
        }
    }

    fn finish(self) -> Result<[Option<FileDigest>; 3], Rejected> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        if !self.decoder.is_over() {
            return Err(Rejected::TreeCut);
        }
        Ok(self.files.map(|file| file.map(Content::finish)))
    }
}

/// Something being hashed.
struct Content {
    state: Hashing<std::io::Sink>,
    bytes: u64,
}

impl Default for Content {
    fn default() -> Self {
        Self { state: Hashing::new(std::io::sink()), bytes: 0 }
    }
}

impl Content {
    /// A sink takes everything.
    fn add(&mut self, bytes: &[u8]) {
        if self.state.write_all(bytes).is_ok() {
            self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        }
    }

    fn finish(self) -> FileDigest {
        let sha256 = self.state.finish().unwrap_or_else(|_| Digest::of(b""));
        FileDigest { sha256, bytes: self.bytes }
    }
}

fn spent(said: &RunResult) -> Spent {
    let egress_bytes = match &said.egress {
        Egress::Closed {} => 0,
        Egress::Gateway { bytes_up, bytes_down, .. } => bytes_up.saturating_add(*bytes_down),
    };
    Spent { cost_microcents: said.cost_microcents, egress_bytes, ..Spent::default() }
}

fn verdict(said: &RunResult) -> (Outcome, String) {
    use pond_seal::result::Outcome as Ended;
    let (cause, sentence) = match &said.outcome {
        Ended::Exited { code: 0 } if said.exit_code == 0 => {
            return (Outcome::Succeeded, String::new());
        }
        Ended::Exited { code: 0 } => (Cause::ExitCode, format!("the run ended with code {}", said.exit_code)),
        Ended::Exited { code } => (Cause::ExitCode, format!("exited with code {code}")),
        Ended::Signaled { signal } => (Cause::Signal, format!("killed by signal {signal}")),
        Ended::TimedOut {} => (Cause::TimedOut, "its time was up".to_owned()),
        Ended::Killed { limit: Limit::Memory } => {
            (Cause::MemoryLimit, "killed at its memory limit".to_owned())
        }
        Ended::Killed { limit: Limit::Output } => {
            (Cause::OutputLimit, "killed at its output limit".to_owned())
        }
        Ended::Interrupted {} => (Cause::Interrupted, "interrupted".to_owned()),
    };
    let reason = Reason::of(cause, sentence).to_string();
    (Outcome::Failed, reason)
}
