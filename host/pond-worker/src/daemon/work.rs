//! What is done with a job while its lease holds: source, secrets, the process that runs it, its output, its result.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use pond_policy::run::Budget;
use pond_seal::offer::Source;
use pond_seal::request::RequestNonce;
use pond_seal::seal::{Release, Subject};
use pond_wire::orch::{
    Blob, Complete, CompleteReply, Id, Last, MOST_CHUNK_BYTES, MOST_LAST_BYTES, MOST_OFFER_BYTES, Route,
    Seal, SealReply, Stream, Version,
};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::watch;

use super::child;
use super::chunks::{ChunkFault, Outgoing};
use super::hold::{Course, Held, JobFault};
use super::pace::Pace;
use super::place::Desk;
use super::session::{CallFault, PATIENCE};
use super::{Job, opened, source};
use crate::because;
use crate::order::{JobAnswer, JobOrder, Lent, NamedSecret};

/// What the process that ran the job leaves in the run's directory.
const STATEMENT: &str = "statement.dsse.json";

/// Runs the job and tells what came of it.
pub(super) async fn work(
    held: &Held<'_>,
    desk: Desk,
    courses: watch::Receiver<Course>,
) -> Result<Option<Job>, JobFault> {
    match prepare(held, &desk).await {
        Ok((order, secrets)) => run(held, order, secrets, courses).await,
        Err(fault) => {
            explain(held, &fault).await?;
            Err(fault)
        }
    }
}

async fn prepare(held: &Held<'_>, desk: &Desk) -> Result<(JobOrder, Vec<NamedSecret>), JobFault> {
    let Held { daemon, offer, meant, lease, .. } = held;
    if matches!(offer.source, Source::Bundle { .. }) || !offer.credentials.is_empty() {
        held.begin().await?;
    }
    source::fetch(&daemon.session, offer, lease, meant.policy.limits(), &desk.source()).await?;
    let mut secrets = Vec::new();
    for name in &offer.credentials {
        secrets.push((name.clone(), secret(held, name).await?));
    }
    let order = JobOrder {
        worker: offer.worker.clone(),
        tenant: offer.tenant.clone(),
        job: offer.job.clone(),
        attempt: offer.attempt,
        epoch: offer.lease_epoch,
        input: offer.input,
        policy: offer.policy,
        executor: offer.executor.clone(),
        deadline_seconds: offer.deadline_seconds,
        allotted: offer.allotted,
        checkout: desk.source(),
        key: daemon.place.signing_key(),
    };
    Ok((order, secrets))
}

/// One credential, at the moment it is needed.
async fn secret(held: &Held<'_>, name: &str) -> Result<pond_seal::Secret, JobFault> {
    let session = &held.daemon.session;
    let body =
        Seal { version: Version, lease: held.lease.clone(), credential: Id::try_from(name.to_owned())? };
    let mut pace = Pace::default();
    let release = loop {
        match session.call(Route::Seal, &body).await {
            Ok(SealReply::Released(release)) => break Release::from_bytes(release.into_bytes()),
            Ok(SealReply::Refused(code)) => {
                let (name, code) = (name.to_owned(), code.as_str().to_owned());
                return Err(JobFault::Withheld { name, code });
            }
            Err(fault) if fault.may_pass() => pace.wait().await,
            Err(fault) => return Err(JobFault::Seal(fault)),
        }
    };
    let context = held.offer.seal_context(Subject::Credential(name.to_owned()));
    let opened = release.open(&session.control, &session.identity.opening, &context);
    opened.map_err(|fault| JobFault::Release(name.to_owned(), fault))
}

async fn run(
    held: &Held<'_>,
    order: JobOrder,
    secrets: Vec<NamedSecret>,
    courses: watch::Receiver<Course>,
) -> Result<Option<Job>, JobFault> {
    let waiting = held.daemon.spare.take(&held.daemon.executable, &held.daemon.place.state())?;
    let (process, output) = waiting.begin(order, secrets).await?;
    let mut stderr = Outgoing::new(held, Stream::Stderr);
    let mut stdout = Outgoing::new(held, Stream::Stdout);
    let attended = async { Ok::<_, JobFault>(process.attend(courses.clone(), &held.spent).await?) };
    let working = async {
        tokio::try_join!(
            attended,
            async { Ok(stdout.forward(output.stdout, &held.output_bytes).await?) },
            async { Ok(stderr.forward(output.stderr, &held.output_bytes).await?) },
        )
    };
    let (answer, (), ()) = tokio::select! {
        worked = working => worked?,
        never = announce(held.lent.subscribe(), output.lent) => match never {},
    };
    match answer {
        JobAnswer::Ended { run } => {
            let unnamed = || JobFault::Result(std::io::ErrorKind::InvalidData.into());
            let run = Run(held.daemon.place.run(&run).ok_or_else(unnamed)?);
            match *courses.borrow() {
                Course::Lost => return Err(JobFault::Lost),
                Course::Go | Course::Stop => {}
            }
            tell(held, &run).await
        }
        JobAnswer::Failed { code, message } => {
            held.daemon.changed.notify_one();
            let fault = JobFault::Failed { code, message };
            stderr.send(reason(&fault).as_bytes()).await?;
            Err(fault)
        }
        JobAnswer::Spent { .. } | JobAnswer::Short { .. } | JobAnswer::ShortBytes { .. } => {
            Err(JobFault::Child(child::ChildFault::Silent))
        }
    }
}

/// Tells the job's process what it may use, as often as that is said. One that does not listen needs to know nothing.
async fn announce(mut lent: watch::Receiver<Lent>, mut to: Sender) -> std::convert::Infallible {
    while lent.changed().await.is_ok() {
        let lent = *lent.borrow_and_update();
        if to.write_all(&lent.to_bytes()).await.is_err() {
            break;
        }
    }
    std::future::pending().await
}

/// A run's directory; it goes with this value, told or not.
struct Run(PathBuf);

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(_swept_at_the_next_start) = std::fs::remove_dir_all(&self.0) {}
    }
}

/// Sends the result and the statement about it, until they are accepted, and asks for what comes next.
async fn tell(held: &Held<'_>, run: &Run) -> Result<Option<Job>, JobFault> {
    let session = &held.daemon.session;
    let last = send_result(held, run).await?;
    let statement = std::fs::read(run.0.join(STATEMENT)).map_err(JobFault::Result)?;
    let lease = held.lease.clone();
    let (statement, next) = (Blob::new(statement)?, held.asking.next());
    let body = Complete { version: Version, lease, last, statement, next };
    let mut pace = Pace::default();
    loop {
        match session.ask(Route::Complete, &body, PATIENCE).await {
            Ok((CompleteReply::Accepted { next, .. }, asked)) => {
                return Ok(following(held, next, asked).await);
            }
            Err(fault) if fault.may_pass() => pace.wait().await,
            Err(CallFault::Refused { code, .. }) if code == Budget::Artifacts.code() => {
                let has = body.last.map_or(0, |last| last.bytes.as_bytes().len() as u64);
                return Err(JobFault::TooMuch { has, most: held.offer.allotted.artifact_bytes });
            }
            Err(fault) => return Err(JobFault::Complete(fault)),
        }
    }
}

/// The job that came with the answer. One that does not hold costs nothing but itself: the result counts.
async fn following(
    held: &Held<'_>,
    next: Option<Blob<MOST_OFFER_BYTES>>,
    asked: RequestNonce,
) -> Option<Job> {
    match opened(held.daemon, next?, asked).await {
        Ok(job) => Some(job),
        Err(fault) => {
            (held.daemon.log)("poll_failed", &[("error", &because(&fault))]);
            None
        }
    }
}

/// Sends the packed result, but for one that is so small that it goes with the end of the job.
async fn send_result(held: &Held<'_>, run: &Run) -> Result<Option<Last>, JobFault> {
    let result =
        File::open(run.0.join(pond_seal::result::Stream::Result.file())).map_err(JobFault::Result)?;
    let has = result.metadata().map_err(JobFault::Result)?.len();
    let most = held.offer.allotted.artifact_bytes;
    let mut outgoing = Outgoing::new(held, Stream::Result);
    loop {
        let mut piece = Vec::new();
        let read = (&result).take(MOST_CHUNK_BYTES as u64).read_to_end(&mut piece);
        if read.map_err(JobFault::Result)? == 0 {
            return Ok(None);
        }
        // There is nothing before it and nothing after it, and the run has room for it as far as anybody knows.
        if (1..=MOST_LAST_BYTES as u64).contains(&has) && has <= most && piece.len() as u64 == has {
            return Ok(Some(outgoing.last(piece)?));
        }
        outgoing.send(&piece).await?;
        // What is too much for the run is not sent on; the control plane has seen that it is.
        if outgoing.is_full() || outgoing.sent() > most {
            return Err(JobFault::TooMuch { has, most });
        }
    }
}

/// Why nothing ran, where whoever asked will look for it.
async fn explain(held: &Held<'_>, fault: &JobFault) -> Result<(), ChunkFault> {
    let mut stderr = Outgoing::new(held, Stream::Stderr);
    stderr.send(reason(fault).as_bytes()).await
}

fn reason(fault: &JobFault) -> String {
    format!("pond: {}\n", because(fault))
}
