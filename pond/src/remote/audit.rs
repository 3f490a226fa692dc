//! `pond audit ls|export|verify`: the audit log of a control plane, and whether anybody changed it.
//!
//! The server and its files are believed in nothing: every line is hashed here, and what they lead to must be what the control
//! plane's key signed. A checkpoint that was kept elsewhere shows whether the log only grew since.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pond_seal::Digest;
use pond_seal::audit::checkpoint::{Checkpoint, MOST_BYTES};
use pond_seal::audit::proof::{ProofFault, check_consistency};
use pond_seal::audit::tile::WIDTH;
use pond_seal::audit::tree::{Growing, empty, leaf};
use pond_seal::key::PublicKey;
use pond_wire::api::{AuditPage, LogCheckpoint, LogConsistency};
use serde::Serialize;

use super::moment;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::output::{self, REFUSED, plain};
use crate::proof::regular;
use crate::verify::check::{Checks, Failure};
use crate::verify::trusted;

/// A line of an export; entries have some hundred bytes.
const MOST_LINE: u64 = 1 << 20;
const MOST_TILE: usize = 64 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// What happened at the control plane, oldest first.
    Ls(LsArgs),
    /// Every entry as a line of JSON, and in the last line the signed checkpoint they lead to.
    Export(ExportArgs),
    /// Check that nobody changed the log: of an export, without a network, or of the control plane.
    #[command(
        after_help = "Exit codes: 0 everything holds; 125 something does not, or could not be checked."
    )]
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only what concerns this project.
    #[arg(long, value_name = "P")]
    project: Option<String>,
    /// Begin after this entry: the PLACE of an earlier answer.
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
    /// Entries to show.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A new file; standard output without it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// An export; without it, the log of the control plane.
    file: Option<PathBuf>,
    /// The control plane's public key, as a PEM file or in hexadecimal. An export is not verified without it; a control plane
    /// is asked for its own.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A checkpoint that was kept: the log must begin with the one it was signed for.
    #[arg(long, value_name = "CHECKPOINT")]
    since: Option<PathBuf>,
    /// Where to put the checkpoint that was verified, to be kept.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(command: &Audit) -> ExitCode {
    match command {
        Audit::Ls(args) => client::ask(&args.server, args.json, async |server| ls(server, args).await),
        Audit::Export(args) => client::ask(&args.server, false, async |server| export(server, args).await),
        Audit::Verify(args) => match &args.file {
            None => client::ask(&args.server, args.json, async |server| verify(server, args).await),
            Some(file) => verify_file(file, args).unwrap_or_else(|fault| output::failed(&fault, args.json)),
        },
    }
}

async fn ls(server: &Server, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let target = Target::new(&["audit"]).maybe("project", args.project.as_deref());
    let target = target.maybe("cursor", args.after.as_deref()).with("limit", &args.limit.to_string());
    let page: AuditPage = server.json(Call::get(target)).await?;
    if args.json {
        return Ok(output::json(&page));
    }
    let row = |entry: &pond_wire::api::AuditEntry| {
        let project = entry.project.clone().unwrap_or_else(|| "-".to_owned());
        let (place, when, detail) = (entry.place.clone(), moment(entry.at), entry.detail.to_string());
        [place, when, entry.actor.clone(), entry.action.clone(), project, entry.subject.clone(), detail]
    };
    let header = ["PLACE", "WHEN (UTC)", "WHO", "WHAT", "PROJECT", "OF", "DETAIL"];
    let shown = output::lines(&output::table(header, page.entries.iter().map(row)));
    if let Some(next) = &page.next {
        output::say(&format!("pond: more with --after {}", plain(next)));
    }
    Ok(shown)
}

/// Lines on their way into a tree, and the root it had where an earlier checkpoint was.
struct Reading {
    growing: Growing,
    since: u64,
    root_since: Option<Digest>,
}

impl Reading {
    fn new(since: Option<&Checkpoint>) -> Self {
        let since = since.map_or(0, |since| since.size);
        let root_since = (since == 0).then(empty);
        Self { growing: Growing::default(), since, root_since }
    }

    fn push(&mut self, line: &[u8]) {
        self.growing.push(leaf(line), |_, _| {});
        if self.growing.size() == self.since {
            self.root_since = Some(self.growing.root());
        }
    }

    fn found(&self) -> Checkpoint {
        Checkpoint { size: self.growing.size(), root: self.growing.root() }
    }
}

async fn checkpoint(server: &Server) -> anyhow::Result<LogCheckpoint> {
    Ok(server.json(Call::get(Target::new(&["audit", "checkpoint"]))).await?)
}

/// Every line of the log up to `size`, as the server has them.
async fn each(
    server: &Server,
    size: u64,
    mut line: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut left, mut tile) = (size, 0_u64);
    while left > 0 {
        let target = Target::new(&["audit", "entries", &tile.to_string()]);
        let bytes = server.bytes(Call::get(target), MOST_TILE).await?;
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        // The last tile may have grown since the checkpoint; any other has what belongs to it, or somebody changed it.
        let expected = left.min(u64::try_from(WIDTH)?);
        let found = u64::try_from(lines.len())?;
        if found < expected || found > u64::try_from(WIDTH)? {
            bail!(
                "entries {} to {} are not {expected} but {found}: the log was changed",
                size - left,
                size - left + expected
            );
        }
        for one in lines.into_iter().take(usize::try_from(expected)?) {
            line(one)?;
        }
        left -= expected;
        tile += 1;
    }
    Ok(())
}

async fn export(server: &Server, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let signed = checkpoint(server).await?;
    let key = PublicKey::parse(&signed.key).context("the key the server names")?;
    let checkpoint = Checkpoint::verify(&signed.checkpoint, &key).context("the server's checkpoint")?;
    let mut out: Box<dyn Write> = match &args.out {
        None => Box::new(stdout().lock()),
        Some(path) => {
            let made = File::options().write(true).create_new(true).open(path);
            Box::new(std::io::BufWriter::new(made.with_context(|| format!("making {}", path.display()))?))
        }
    };
    let mut reading = Reading::new(None);
    each(server, checkpoint.size, |line| {
        reading.push(line);
        out.write_all(line).and_then(|()| out.write_all(b"\n")).context("writing the export")
    })
    .await?;
    if reading.found() != checkpoint {
        bail!("the entries are not the ones that were signed: the log was changed");
    }
    let last = serde_json::to_string(&signed)?;
    writeln!(out, "{last}").and_then(|()| out.flush()).context("writing the export")?;
    output::say(&format!("pond: {} entries, signed by key {}", checkpoint.size, key.to_hex()));
    Ok(ExitCode::SUCCESS)
}

/// What was checked, and what came of it.
#[derive(Debug, Serialize)]
struct Report {
    verified: bool,
    entries: Option<u64>,
    root_sha256: Option<Digest>,
    key_id: String,
    checks: Checks,
}

impl Report {
    fn print(&self, json: bool) -> ExitCode {
        let shown = if json { output::json(self) } else { output::lines(&self.text()) };
        if self.verified { shown } else { ExitCode::from(REFUSED) }
    }

    fn text(&self) -> String {
        let mut lines = self.checks.lines();
        lines.push(match (self.verified, self.entries) {
            (true, Some(entries)) => {
                format!("verified: {entries} entries, signed by the key with the id {}", self.key_id)
            }
            (true, None) | (false, _) => {
                "REFUSED: the log is not what was signed, or could not be read".to_owned()
            }
        });
        lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    }
}

/// A checkpoint that somebody kept.
fn kept(args: &VerifyArgs) -> anyhow::Result<Option<String>> {
    let Some(path) = &args.since else { return Ok(None) };
    let reading = || format!("reading the checkpoint {}", path.display());
    let mut text = String::new();
    let most = u64::try_from(MOST_BYTES)? + 1;
    regular(path).with_context(reading)?.take(most).read_to_string(&mut text).with_context(reading)?;
    Ok(Some(text))
}

/// The log against its checkpoints: the one it ends with, and the one that was kept.
fn judge(signed: Option<Checkpoint>, since: Option<Checkpoint>, reading: &Reading, checks: &mut Checks) {
    let Some(signed) = signed else { return };
    let found = reading.found();
    let entries = match (found.size == signed.size, found.root == signed.root) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::new("log_count", format!("there are {}", found.size))),
        (true, false) => Err(Failure::new("log_root", "an entry was changed, moved, added or removed")),
    };
    checks.step(format!("the {} entries are the ones that were signed", signed.size), entries);
    let Some(since) = since else { return };
    let begins = match reading.root_since {
        None => {
            Err(Failure::new("log_shrunk", format!("it had {} entries, and has {}", since.size, found.size)))
        }
        Some(root) if root == since.root => Ok(()),
        Some(_) => {
            let fault = ProofFault::NotConsistent;
            Err(Failure::of(fault.code(), &fault))
        }
    };
    checks.step(
        format!("the log begins with the {} entries of the checkpoint that was kept", since.size),
        begins,
    );
}

fn signed(note: &str, key: &PublicKey, what: &str, checks: &mut Checks) -> Option<Checkpoint> {
    let verified = Checkpoint::verify(note, key).map_err(|fault| Failure::of(fault.code(), &fault));
    checks.step(format!("{what} is signed by the control plane's key"), verified)
}

fn finish(
    key: &PublicKey,
    note: &str,
    reading: &Reading,
    checks: Checks,
    args: &VerifyArgs,
) -> anyhow::Result<ExitCode> {
    let found = reading.found();
    let verified = checks.hold();
    if let (true, Some(path)) = (verified, &args.save) {
        std::fs::write(path, note)
            .with_context(|| format!("keeping the checkpoint in {}", path.display()))?;
    }
    let report = Report {
        verified,
        entries: verified.then_some(found.size),
        root_sha256: verified.then_some(found.root),
        key_id: key.id().to_string(),
        checks,
    };
    Ok(report.print(args.json))
}

async fn verify(server: &Server, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let kept = kept(args)?;
    let told = checkpoint(server).await?;
    let key = match &args.key {
        Some(named) => trusted(Some(named))?,
        None => PublicKey::parse(&told.key).context("the key the server names")?,
    };
    let mut checks = Checks::default();
    let now = signed(&told.checkpoint, &key, "the checkpoint", &mut checks);
    let since =
        kept.as_deref().and_then(|note| signed(note, &key, "the checkpoint that was kept", &mut checks));
    let mut reading = Reading::new(since.as_ref());
    if let Some(now) = now {
        let read = each(server, now.size, |line| {
            reading.push(line);
            Ok(())
        });
        let read = read.await.map_err(|fault| Failure::new("log_count", format!("{fault:#}")));
        checks.step("the server has every entry", read);
    }
    judge(now, since, &reading, &mut checks);
    if let (Some(now), Some(since)) = (now, since) {
        checks.step("the server's own proof that the log only grew", proved(server, &since, &now).await);
    }
    finish(&key, &told.checkpoint, &reading, checks, args)
}

async fn proved(server: &Server, since: &Checkpoint, now: &Checkpoint) -> Result<(), Failure> {
    let target = Target::new(&["audit", "consistency"]);
    let target = target.with("from", &since.size.to_string()).with("to", &now.size.to_string());
    let answer: LogConsistency =
        server.json(Call::get(target)).await.map_err(|fault| Failure::of("proof_missing", &fault))?;
    let hashes: Result<Vec<Digest>, _> = answer.hashes.into_iter().map(Digest::try_from).collect();
    let hashes = hashes.map_err(|fault| Failure::of("proof_malformed", &fault))?;
    let held = check_consistency((since.size, &since.root), (now.size, &now.root), &hashes);
    held.map_err(|fault| Failure::of(fault.code(), &fault))
}

/// Nothing but the file and the key is asked.
fn verify_file(file: &Path, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let naming = || format!("reading {}", file.display());
    let told: LogCheckpoint = last_line(file).with_context(naming)?;
    let Some(named) = &args.key else {
        bail!(
            "the export names the key {}: if that is your control plane's, say so with --key",
            plain(&told.key)
        );
    };
    let key = trusted(Some(named))?;
    let mut checks = Checks::default();
    let now = signed(&told.checkpoint, &key, "the checkpoint", &mut checks);
    let since = kept(args)?.and_then(|note| signed(&note, &key, "the checkpoint that was kept", &mut checks));
    let mut reading = Reading::new(since.as_ref());
    each_of_file(file, |line, is_last| {
        if !is_last {
            reading.push(line);
        }
    })
    .with_context(naming)?;
    judge(now, since, &reading, &mut checks);
    finish(&key, &told.checkpoint, &reading, checks, args)
}

fn last_line(file: &Path) -> anyhow::Result<LogCheckpoint> {
    let mut last = Vec::new();
    each_of_file(file, |line, is_last| {
        if is_last {
            last = line.to_vec();
        }
    })?;
    serde_json::from_slice(&last).context("its last line is no checkpoint: the export is not complete")
}

/// Lines without their ends, and which of them is the last.
fn each_of_file(file: &Path, mut line: impl FnMut(&[u8], bool)) -> anyhow::Result<()> {
    let mut from = BufReader::new(regular(file)?);
    let mut now = Vec::new();
    loop {
        now.clear();
        let read = from.by_ref().take(MOST_LINE + 1).read_until(b'\n', &mut now)?;
        if read == 0 {
            return Ok(());
        }
        if u64::try_from(read)? > MOST_LINE {
            bail!("a line has more than {MOST_LINE} bytes");
        }
        if now.last() == Some(&b'\n') {
            now.pop();
        }
        let is_last = from.fill_buf()?.is_empty();
        line(&now, is_last);
    }
}
