//! Results that count only together with others: a stage is run again elsewhere until enough workers agree, or cannot any more.
//!
//! All of it in the transaction that takes the result, under the run's row. The next run goes to a worker that has not run the
//! stage, to the trusted pool first; who is outvoted gets no more work until an operator looks at it.

use pond_policy::quorum::{Verdict, judge};
use pond_policy::reason::{Cause, Reason};
use pond_policy::route::{Have, Need};
use pond_policy::tags::Tag;
use pond_policy::tier::Tier;
use pond_seal::Digest;
use serde_json::json;

use super::Store;
use super::engine::{Fault, Tx, args};
use super::flow::{HeldRun, LiveJob};
use super::id::{JobId, Moment, StageId, WorkerId};
use super::journal::{self, Action, Actor};
use super::worker::{WorkerState, about, read_have};

/// What a result is worth in comparison with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot<'a> {
    /// Over everything that must agree.
    pub digest: Digest,
    /// How many must.
    pub quorum: u64,
    /// The paths, one a line, in which it differs from the first that it differs from.
    pub differs: &'a str,
}

/// What a result counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody else was asked.
    Single,
    /// Others are.
    Unconfirmed,
    /// Enough others agree.
    Confirmed,
    /// Others disagree: more of them, or all with each other.
    Distrusted,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Single, Self::Unconfirmed, Self::Confirmed, Self::Distrusted];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Unconfirmed => "unconfirmed",
            Self::Confirmed => "confirmed",
            Self::Distrusted => "distrusted",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.name() == name)
    }
}

/// One who ran the stage, and what came of it.
struct Voter {
    job: JobId,
    worker: WorkerId,
    digest: Digest,
}

/// What the results of a stage say together.
pub(super) enum Together {
    /// It is to be run again, by none of these.
    Again(Vec<WorkerId>),
    Agreed,
    /// Why nobody is believed.
    Split(String),
}

/// Counts the ballots of a stage, the newest included, and writes down what each result is worth now.
pub(super) async fn count(
    tx: &mut Tx,
    run: &HeldRun,
    (job, ballot): (&LiveJob, Ballot<'_>),
    now: Moment,
) -> Result<Together, Fault> {
    let (stage, quorum) = (&job.stage, ballot.quorum);
    let sql = "UPDATE result SET ballot = $2, standing = $3, differs = $4 WHERE job_id = $1";
    tx.run(sql, args![&job.id, &ballot.digest, Standing::Unconfirmed.name(), ballot.differs]).await?;
    let sql = "SELECT job_id, worker_id, ballot FROM result WHERE stage_id = $1 AND ballot IS NOT NULL ORDER BY attempt";
    let mut voters = Vec::new();
    for row in tx.rows(sql, args![stage]).await? {
        let (job, worker) = (row.read("job_id", JobId::parse)?, row.read("worker_id", WorkerId::parse)?);
        voters.push(Voter { job, worker, digest: row.digest("ballot")? });
    }
    let ballots: Vec<Digest> = voters.iter().map(|voter| voter.digest).collect();
    match judge(&ballots, quorum) {
        Verdict::Again => Ok(Together::Again(voters.into_iter().map(|voter| voter.worker).collect())),
        Verdict::Agreed { odd } => {
            for (at, voter) in voters.iter().enumerate() {
                let standing = if odd.contains(&at) { Standing::Distrusted } else { Standing::Confirmed };
                stands(tx, &voter.job, standing).await?;
                if standing == Standing::Distrusted {
                    distrust(tx, run, stage, voter, now).await?;
                    quarantine(tx, voter, now).await?;
                }
            }
            Ok(Together::Agreed)
        }
        Verdict::Split => {
            for voter in &voters {
                stands(tx, &voter.job, Standing::Distrusted).await?;
                distrust(tx, run, stage, voter, now).await?;
            }
            let sentence = format!("{} workers ran it, and no {quorum} agree", voters.len());
            Ok(Together::Split(Reason::of(Cause::Distrusted, sentence).to_string()))
        }
    }
}

async fn stands(tx: &mut Tx, job: &JobId, standing: Standing) -> Result<(), Fault> {
    let sql = "UPDATE result SET standing = $2 WHERE job_id = $1";
    tx.run(sql, args![job, standing.name()]).await.map(|_| ())
}

async fn distrust(
    tx: &mut Tx,
    run: &HeldRun,
    stage: &StageId,
    voter: &Voter,
    now: Moment,
) -> Result<(), Fault> {
    let detail = json!({"job": voter.job.as_str(), "worker": voter.worker.as_str()});
    run.tell(tx, (&Actor::System, Action::ResultDistrusted), stage, detail, now);
    Ok(())
}

async fn quarantine(tx: &mut Tx, voter: &Voter, now: Moment) -> Result<(), Fault> {
    let reason = format!("others disagree with its result of {}", voter.job);
    let sql = "UPDATE worker SET state = $2, reason = $3 WHERE id = $1 AND state IN ('active', 'draining')";
    if tx.run(sql, args![&voter.worker, WorkerState::Quarantined.name(), &reason]).await? == 1 {
        let detail = json!({"reason": reason});
        let change = about(&voter.worker, &Actor::System, Action::WorkerQuarantined, detail);
        journal::write(tx, now, &change);
    }
    Ok(())
}

impl Store {
    /// Queues a stage for a worker that is none of `ran`. Where the tier leaves it open, one of the trusted pool if there is one.
    pub(super) async fn queue_elsewhere(
        &self,
        tx: &mut Tx,
        run: &HeldRun,
        job: &LiveJob,
        ran: &[WorkerId],
        now: Moment,
    ) -> Result<(), Fault> {
        let need = self.need(tx, job.class).await?;
        let trusted = Tag::pool(Tier::Trusted);
        let others = others(tx, &need, (ran, self.watch.there_since())).await?;
        let class =
            if !need.tags().contains(&trusted) && others.iter().any(|have| have.tags.contains(&trusted)) {
                let tags = need.tags().iter().cloned().chain([trusted]).collect();
                number(tx, &Need::new(need.capability(), tags, need.project().clone())).await?
            } else {
                job.class
            };
        run.queue(tx, (&job.stage, class, job.attempt + 1), now).await?;
        let avoid = ran.iter().map(WorkerId::as_str).collect::<Vec<_>>().join(" ");
        tx.run("UPDATE job SET avoid = $2 WHERE stage_id = $1", args![&job.stage, &avoid]).await.map(|_| ())
    }

    /// Whether a stage with this need could be run by another active worker than this one.
    pub async fn has_another(&self, need: &Need, than: &WorkerId) -> Result<bool, Fault> {
        let mut tx = self.engine.read().await?;
        let ran = std::slice::from_ref(than);
        Ok(!others(&mut tx, need, (ran, self.watch.there_since())).await?.is_empty())
    }
}

/// Active workers that meet a need and were seen since, other than those that ran it.
pub(super) async fn others(
    tx: &mut Tx,
    need: &Need,
    (ran, seen_since): (&[WorkerId], Moment),
) -> Result<Vec<Have>, Fault> {
    let mut found = Vec::new();
    let sql = "SELECT id, tags, capabilities FROM worker WHERE state = 'active' AND seen_at >= $1";
    for row in tx.rows(sql, args![seen_since]).await? {
        let (id, have) = (row.read("id", WorkerId::parse)?, read_have(&row)?);
        if !ran.contains(&id) && need.met_by(&have).is_ok() {
            found.push(have);
        }
    }
    Ok(found)
}

async fn number(tx: &mut Tx, need: &Need) -> Result<i64, Fault> {
    let text = need.to_string();
    tx.run("INSERT INTO class (need) VALUES ($1) ON CONFLICT DO NOTHING", args![&text]).await?;
    let row = tx.row("SELECT id FROM class WHERE need = $1", args![&text]).await?;
    row.ok_or(Fault::Unreadable { column: "need" })?.int("id")
}

/// Workers a job must not go to, as its row has them.
pub(super) fn read_avoid(text: &str) -> Option<Vec<WorkerId>> {
    text.split_ascii_whitespace().map(WorkerId::parse).collect()
}
