//! `pond fetch RUN [STAGE] --out DIR`: what a stage made, with the statement its worker signed, in a new directory.
//!
//! The server and everything it sends is checked against the statement before the directory gets its name: what does not fit is
//! removed and told. The tree is taken apart under caps, by descriptor, below a directory made here.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hyper::body::Bytes;
use pond_seal::digest::Hashing;
use pond_seal::envelope::Envelope;
use pond_seal::key::PublicKey;
use pond_seal::result::FileDigest;
use pond_wire::api::{LogProof, Outcome, ResultView, RunView, StageView, Standing, Workers};
use pond_worker::pack::CAPS;
use pond_worker::unpack::unpack;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::sync::mpsc::{Receiver, channel};

use super::screen::Stream;
use super::tail::{Tail, Until};
use super::{statement, view};
use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::proof::{AUDIT_PROOF, STATEMENT};
use crate::verify::{self, AboutJob};
use crate::{output, verify::trusted};

/// How often, a second apart, a result that is not in the audit log yet is asked for.
const LOG_TRIES: usize = 30;

/// Fetch what a stage made: its patch, its artifacts, its logs and the statement its worker signed, all of it verified.
#[derive(Debug, Args)]
#[command(
    after_help = "The directory appears only when everything in it is what the worker signed. `pond verify DIR --key KEY` \
checks it again at any time."
)]
pub(crate) struct FetchArgs {
    /// The run.
    run: String,
    /// The stage; a run of one stage needs none.
    stage: Option<String>,
    /// A new directory to put it in.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The public key of the worker, as a PEM file or in hexadecimal; without it, the one the control plane has pinned.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The public key of the control plane, whose audit log must have the result; without it, the one it names.
    #[arg(long, value_name = "KEY")]
    log_key: Option<String>,
    /// Fetch a result that other workers disagree with.
    #[arg(long)]
    distrusted: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(args: &FetchArgs) -> ExitCode {
    client::ask(&args.server, args.json, async |server| fetch(server, args).await)
}

async fn fetch(server: &Arc<Server>, args: &FetchArgs) -> anyhow::Result<ExitCode> {
    let run = view(server, &args.run).await?;
    let stage = chosen(&run, args.stage.as_deref())?;
    let Some(result) = stage.results.last() else {
        bail!("{} has no result: it is {}", stage.name, super::state_of_stage(stage.state));
    };
    if result.outcome == Outcome::Rejected {
        bail!("the result of {} did not verify: {}", stage.name, stage.reason);
    }
    if result.standing == Standing::Distrusted && !args.distrusted {
        bail!(
            "other workers disagree with the result of {}: --distrusted fetches it all the same",
            stage.name
        );
    }
    let keys = match &args.key {
        Some(named) => vec![trusted(Some(named))?],
        None => pinned(server, &result.worker).await?,
    };
    let building = Building::begin(&args.out)?;
    let envelope = statement::envelope(server, &args.run, &stage.name).await?;
    let key = signer(&keys, &envelope).context("the worker has no key")?;
    write(&building.path.join(STATEMENT), &envelope)?;
    let log_key = logged(server, args, stage, &building.path.join(AUDIT_PROOF)).await?;
    let received = receive(server, &args.run, &stage.name, &building.path).await?;
    for stream in Stream::ALL {
        log(server, &args.run, &stage.name, stream, &building.path).await?;
    }
    let report = verify::of_job(&building.path, key, &about(result, received, &log_key))?;
    if report.holds() {
        building.finish(&args.out)?;
    }
    Ok(report.at(&args.out).print(args.json))
}

fn about<'a>(result: &'a ResultView, received: FileDigest, log_key: &'a PublicKey) -> AboutJob<'a> {
    AboutJob { job: &result.job, worker: &result.worker, epoch: result.epoch, received, log_key }
}

/// The proof that the audit log has the result, kept, and the key it is to be checked with.
async fn logged(
    server: &Server,
    args: &FetchArgs,
    stage: &StageView,
    into: &Path,
) -> anyhow::Result<PublicKey> {
    let ask = || {
        let target = Target::new(&["runs", &args.run, "stages", &stage.name, "proof"]);
        server.json::<LogProof>(Call::get(target))
    };
    let mut told = ask().await;
    for _ in 0..LOG_TRIES {
        // What others write at the same moment comes first.
        let Err(ClientFault::Problem(problem)) = &told else { break };
        if problem.status != 503 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        told = ask().await;
    }
    let LogProof { proof, key } = told?;
    write(into, proof.as_bytes())?;
    match &args.log_key {
        Some(named) => trusted(Some(named)),
        None => PublicKey::parse(&key).context("the key the control plane names"),
    }
}

fn chosen<'a>(run: &'a RunView, named: Option<&str>) -> anyhow::Result<&'a StageView> {
    match (named, run.stages.as_slice()) {
        (None, [only]) => Ok(only),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|stage| stage.name.as_str()).collect();
            bail!("the run has several stages; name one of {}", names.join(", "))
        }
        (Some(name), stages) => stages
            .iter()
            .find(|stage| stage.name == name)
            .with_context(|| format!("the run has no stage {name:?}")),
    }
}

/// The one of a worker's keys that signed; the one it has now if none did, which the checks will say.
fn signer<'a>(keys: &'a [PublicKey], envelope: &[u8]) -> Option<&'a PublicKey> {
    let envelope = Envelope::parse(envelope).ok();
    let signed = |key: &&PublicKey| envelope.as_ref().is_some_and(|envelope| envelope.verify(key).is_ok());
    keys.iter().find(signed).or(keys.first())
}

/// The keys that the control plane pinned: the one the worker has now, then those it had before.
async fn pinned(server: &Server, worker: &str) -> anyhow::Result<Vec<PublicKey>> {
    let workers: Workers = match server.json(Call::get(Target::new(&["workers"]))).await {
        Err(ClientFault::Problem(problem)) if problem.status == 403 => {
            bail!("this token may not see the keys of workers: name the key of worker {worker} with --key");
        }
        asked => asked?,
    };
    let found = workers.workers.iter().find(|known| known.id == worker);
    let found = found
        .with_context(|| format!("the server does not know worker {worker}; name its key with --key"))?;
    let keys = std::iter::once(&found.signing_key).chain(&found.former_keys);
    keys.map(|key| PublicKey::parse(key).with_context(|| format!("a key of worker {worker}"))).collect()
}

/// A directory beside its place, which goes when it does not get there.
struct Building {
    path: PathBuf,
    is_complete: bool,
}

impl Building {
    fn begin(out: &Path) -> anyhow::Result<Self> {
        let refused = || format!("--out {} must be a new directory", out.display());
        let place = std::path::absolute(out).with_context(refused)?;
        if place.symlink_metadata().is_ok() {
            bail!("{}: it is there already", refused());
        }
        let mut name = place.file_name().with_context(refused)?.to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let path = place.with_file_name(name);
        DirBuilder::new().mode(0o700).create(&path).with_context(refused)?;
        Ok(Self { path, is_complete: false })
    }

    fn finish(mut self, out: &Path) -> anyhow::Result<()> {
        renameat_with(CWD, &self.path, CWD, out, RenameFlags::NOREPLACE)
            .with_context(|| format!("naming the directory {}", out.display()))?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.is_complete
            && let Err(fault) = std::fs::remove_dir_all(&self.path)
        {
            output::say(&format!("pond: warning: removing the unfinished {}: {fault}", self.path.display()));
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| file.write_all(bytes)).with_context(|| format!("writing {}", path.display()))
}

/// The result's tree, unpacked by a thread of its own as it comes; and what came.
async fn receive(server: &Server, run: &str, stage: &str, into: &Path) -> anyhow::Result<FileDigest> {
    let target = Target::new(&["runs", run, "stages", stage, "result"]);
    let mut answer = server.stream(Call::get(target)).await?;
    let directory = File::open(into).context("opening the new directory")?;
    let (to, from) = channel(32);
    let unpacking = std::thread::spawn(move || {
        let mut pieces = Pieces { from, piece: Bytes::new() };
        unpack(&mut pieces, directory.as_fd(), CAPS)
    });
    let (mut broken, mut hash, mut length) = (None, Hashing::new(io::sink()), 0);
    loop {
        match answer.next().await {
            Ok(None) => break,
            // Who unpacks stopped at a fault, and will name it.
            Ok(Some(bytes)) => {
                hash.write_all(&bytes)?;
                length += u64::try_from(bytes.len())?;
                if to.send(bytes).await.is_err() {
                    break;
                }
            }
            Err(fault) => {
                broken = Some(fault);
                break;
            }
        }
    }
    drop(to);
    let unpacked = unpacking.join().map_err(|_| anyhow::anyhow!("unpacking the result failed"))?;
    match broken {
        Some(fault) => Err(fault.into()),
        None => {
            unpacked.context("unpacking the result")?;
            Ok(FileDigest { sha256: hash.finish()?, bytes: length })
        }
    }
}

/// What has come, as something to read from.
struct Pieces {
    from: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let length = self.piece.len().min(into.len());
        let piece = self.piece.split_to(length);
        into.iter_mut().zip(piece.iter()).for_each(|(to, from)| *to = *from);
        Ok(length)
    }
}

async fn log(
    server: &Arc<Server>,
    run: &str,
    stage: &str,
    stream: Stream,
    into: &Path,
) -> anyhow::Result<()> {
    let path = into.join(format!("{}.log", stream.name()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    let mut tail = Tail::new(server, run, stage, stream, Until::Now);
    while let Some(bytes) = tail.next().await? {
        file.write_all(&bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pond_seal::envelope::seal;
    use pond_seal::key::SigningKey;

    use super::*;

    #[test]
    fn a_result_is_checked_with_the_key_it_was_signed_with() {
        let [old, new, other] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let keys = [new.public(), old.public()];
        let signed = |key: &SigningKey| seal(b"{}", key).unwrap();
        assert_eq!(signer(&keys, &signed(&old)), Some(&keys[1]));
        assert_eq!(signer(&keys, &signed(&new)), Some(&keys[0]));
        for nobody in [signed(&other), b"{}".to_vec()] {
            assert_eq!(signer(&keys, &nobody), Some(&keys[0]), "which will not hold");
        }
    }
}
