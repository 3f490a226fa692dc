//! `pond verify`: checks a signed statement and the files it names, offline, one line per check.
//!
//! The envelope, its files and any tree named are hostile. Nothing of the statement is read before its signature held, no file
//! is parsed before its digest was compared, and a file that the statement names and that is not there is a failure.

pub(crate) mod check;
mod copies;
mod files;
mod logged;
mod trees;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_seal::envelope::{Envelope, EnvelopeFault, MOST_BYTES};
use pond_seal::key::PublicKey;
use pond_seal::result::{FileDigest, Stream};
use pond_seal::statement::{Statement, StatementFault};
use pond_worker::collect::Side;

use check::{Checks, Failure, Report};
use files::Beside;

use crate::proof::{STATEMENT, regular, store};
use crate::runs::{self, RunInfo};
use crate::{output, settings};

const MOST_KEY_BYTES: u64 = 4096;

/// Check the signed statement of a run, and that the files it names are the ones it was made about. Needs no network.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything holds; 125 something does not, or could not be checked.")]
pub(crate) struct VerifyArgs {
    /// The statement's file, a directory with one in it, or the name of a run of this machine.
    #[arg(value_name = "FILE|RUN")]
    statement: PathBuf,
    /// The public key to trust, as a PEM file or in hexadecimal; without it, this machine's own.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The public key of the control plane whose audit log must have the result, as a PEM file or in hexadecimal.
    #[arg(long, value_name = "KEY")]
    log_key: Option<String>,
    /// A tree that must hold, at every path the run changed, what the job found there; all of it is compared where the statement
    /// names the whole input (`pond run --snapshot`, and runs of a control plane).
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    /// A tree that must hold, at every path the run changed, what the job left there.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Check the envelope and the statement alone, and none of the files it names.
    #[arg(long, conflicts_with_all = ["input", "output"])]
    alone: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Where a statement lies, and what else is known there.
struct Found {
    file: PathBuf,
    directory: PathBuf,
    /// The run it must be about, if it was asked for by name.
    run: Option<RunInfo>,
}

pub(crate) fn main(args: &VerifyArgs) -> ExitCode {
    match verify(args) {
        Ok(report) => report.print(args.json),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn verify(args: &VerifyArgs) -> anyhow::Result<Report> {
    let found = find(&args.statement)?;
    let key = trusted(args.key.as_deref())?;
    let log_key = args.log_key.as_deref().map(|named| trusted(Some(named))).transpose()?;
    let bytes = read(&found.file, u64::try_from(MOST_BYTES)?)?;
    let mut checks = Checks::default();
    let statement = statement(&bytes, &key, &mut checks);
    if let Some(statement) = &statement
        && !args.alone
    {
        let beside = Beside { directory: &found.directory, statement };
        beside.check(found.run.as_ref(), &mut checks);
        let sides = [(Side::Before, &args.input), (Side::After, &args.output)];
        for (side, tree) in sides {
            if let Some(tree) = tree {
                trees::check(&beside, side, tree, &mut checks);
            }
        }
    }
    if let (Some(statement), Some(key)) = (&statement, &log_key) {
        checks.step(logged::CHECK, logged::check(&found.directory, (&bytes, statement), key));
    }
    let unasked = log_key.is_none() && logged::is_beside(&found.directory);
    let report = Report::new(&found.file, &key, statement.as_ref(), args.alone, checks);
    Ok(report.saying(
        unasked.then_some("a proof that an audit log has it lies beside it; --log-key KEY checks that"),
    ))
}

/// Which try at a stage, as a control plane counts them.
#[derive(Debug)]
pub(crate) struct AboutJob<'a> {
    pub(crate) job: &'a str,
    pub(crate) worker: &'a str,
    pub(crate) epoch: u64,
    /// The packed result, as it came.
    pub(crate) received: FileDigest,
    /// Of the control plane, whose audit log must have the result.
    pub(crate) log_key: &'a PublicKey,
}

/// The same for a directory that was fetched: besides everything else, the statement is the one of this job under this lease.
pub(crate) fn of_job(directory: &Path, key: &PublicKey, about: &AboutJob<'_>) -> anyhow::Result<Report> {
    let file = directory.join(STATEMENT);
    let bytes = read(&file, u64::try_from(MOST_BYTES)?)?;
    let mut checks = Checks::default();
    let statement = statement(&bytes, key, &mut checks);
    if let Some(statement) = &statement {
        checks.step("statement is about this job", about.check(statement));
        checks.step("result came as it was sent", about.came_whole(statement));
        Beside { directory, statement }.check(None, &mut checks);
        checks.step(logged::CHECK, logged::check(directory, (&bytes, statement), about.log_key));
    }
    Ok(Report::new(&file, key, statement.as_ref(), false, checks))
}

impl AboutJob<'_> {
    fn check(&self, statement: &Statement) -> Result<(), Failure> {
        let job = &statement.result.job;
        let holds =
            |lease: &pond_seal::result::Lease| lease.worker == self.worker && lease.epoch == self.epoch;
        if job.id == self.job && job.lease.as_ref().is_some_and(holds) {
            return Ok(());
        }
        Err(Failure::new("run_mismatch", format!("it is about {}", job.id)))
    }

    /// Nothing was put to it, changed or left out on the way, in whatever file of it.
    fn came_whole(&self, statement: &Statement) -> Result<(), Failure> {
        let sent = statement.result.logs.iter().find(|log| log.stream == Stream::Result);
        match sent.map(|log| FileDigest { sha256: log.sha256, bytes: log.bytes }) {
            Some(sent) if sent == self.received => Ok(()),
            Some(_) | None => Err(Failure::new("result_mismatch", "not the packed result that was signed")),
        }
    }
}

/// Envelope and statement, each check only if the one before it held.
fn statement(bytes: &[u8], key: &PublicKey, checks: &mut Checks) -> Option<Statement> {
    let sealed = |fault: &EnvelopeFault| Failure::of(fault.code(), fault);
    let envelope = checks.step("envelope parses", Envelope::parse(bytes).map_err(|fault| sealed(&fault)))?;
    checks.step("payload type", envelope.check_type().map_err(|fault| sealed(&fault)))?;
    checks.step("key is the trusted one", envelope.check_key(key).map_err(|fault| sealed(&fault)))?;
    let verified = checks.step("signature", envelope.verify(key).map_err(|fault| sealed(&fault)))?;
    let decoded =
        Statement::decode(&verified).map_err(|fault: StatementFault| Failure::of(fault.code(), &fault));
    checks.step("statement, its type and its version", decoded)
}

fn find(named: &Path) -> anyhow::Result<Found> {
    let directory = |file: &Path| match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if named.is_dir() {
        return Ok(Found { file: named.join(STATEMENT), directory: named.to_owned(), run: None });
    }
    if named.symlink_metadata().is_ok() {
        return Ok(Found { file: named.to_owned(), directory: directory(named), run: None });
    }
    let text = named.to_str().context("neither a file nor a run has this name")?;
    let (info, directory) = runs::named(&runs::state()?, text)
        .with_context(|| format!("{text} is no file here and no run of this machine"))?;
    Ok(Found { file: directory.join(STATEMENT), directory, run: Some(info) })
}

/// The key somebody named, or this machine's own.
pub(crate) fn trusted(named: Option<&str>) -> anyhow::Result<PublicKey> {
    let Some(named) = named else {
        let place = settings::state_dir().context("name a key with --key")?;
        if !place.is_dir() {
            bail!("this machine has not signed anything; name a key with --key");
        }
        let own = store::existing(&runs::state()?)?;
        return own.map(|key| key.public()).context("this machine has no key; name one with --key");
    };
    let text = match PublicKey::parse(named) {
        Ok(key) => return Ok(key),
        Err(_not_text) => {
            let expected = || {
                format!(
                    "--key {named:?} is no file; it takes 64 hexadecimal digits (`pond key show`), or a file with them or a PEM key"
                )
            };
            String::from_utf8(read(Path::new(named), MOST_KEY_BYTES).with_context(expected)?)
        }
    };
    let text = text.with_context(|| format!("the key {named} is not text"))?;
    PublicKey::parse(&text).with_context(|| format!("the key {named}"))
}

/// One byte more than may be read is enough to be refused.
fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    let mut bytes = Vec::new();
    regular(path).with_context(reading)?.take(most + 1).read_to_end(&mut bytes).with_context(reading)?;
    Ok(bytes)
}
