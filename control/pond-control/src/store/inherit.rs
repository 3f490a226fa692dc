//! What a stage works on that needs others: which stages came before it, with the results that count, and the tree that was made of
//! them and of the run's source.

use std::collections::{HashMap, HashSet};

use super::Store;
use super::bundle::{BundleFault, NewBundle};
use super::engine::{Fault, args};
use super::id::{BundleId, JobId, Moment, StageId, WorkerId};
use super::journal::Actor;
use super::lease::Lease;

/// A stage that came before another one, and the lease whose result counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    pub stage: StageId,
    pub name: String,
    pub lease: Lease,
    /// Every stage that came before this one.
    pub after: HashSet<StageId>,
}

impl Store {
    /// Every stage that this one needs, over any number of steps; one that another needs comes before it.
    pub async fn before(&self, stage: &StageId) -> Result<Vec<Before>, Fault> {
        let sql = "SELECT stage_id, needs_id, needed.name AS name FROM stage_need JOIN stage AS needed ON needed.id = needs_id
                   WHERE needed.run_id = (SELECT run_id FROM stage WHERE id = $1) ORDER BY needed.position";
        let (mut needs, mut names) = (HashMap::<StageId, Vec<StageId>>::new(), HashMap::new());
        for row in self.engine.rows(sql, args![stage]).await? {
            let needed = row.read("needs_id", StageId::parse)?;
            names.insert(needed.clone(), row.text("name")?);
            needs.entry(row.read("stage_id", StageId::parse)?).or_default().push(needed);
        }
        let mut before = Vec::new();
        for (stage, after) in in_order(stage, &needs) {
            let name = names.get(&stage).cloned().unwrap_or_default();
            let lease = self.counting(&stage).await?;
            before.push(Before { stage, name, lease, after });
        }
        Ok(before)
    }

    /// The lease of the result that a stage's success rests on.
    async fn counting(&self, stage: &StageId) -> Result<Lease, Fault> {
        let sql = "SELECT job_id, worker_id, epoch FROM result
                   WHERE stage_id = $1 AND outcome = 'succeeded' AND standing IN ('single', 'confirmed')
                   ORDER BY attempt DESC LIMIT 1";
        let row =
            self.engine.row(sql, args![stage]).await?.ok_or(Fault::Unreadable { column: "stage_id" })?;
        let (job, worker) = (row.read("job_id", JobId::parse)?, row.read("worker_id", WorkerId::parse)?);
        Ok(Lease { job, worker, epoch: row.count("epoch")? })
    }

    /// What the stage of this lease works on from here on. False when somebody else was faster, or the lease is over.
    pub async fn inherit(
        &self,
        lease: &Lease,
        bundle: NewBundle<'_>,
        now: Moment,
    ) -> Result<bool, BundleFault> {
        let id: BundleId = self.store_bundle(bundle, &Actor::System, now).await?;
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE stage SET source = $4 WHERE source IS NULL AND id = (
                       SELECT stage_id FROM job WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'leased')";
        let taken = tx.run(sql, args![&lease.job, &lease.worker, lease.epoch, &id]).await? == 1;
        tx.commit().await?;
        Ok(taken)
    }

    /// The holder of an offer has until then to take it up; the time before was not its own. False when the lease is over.
    pub async fn offer_until(&self, lease: &Lease, until: Moment, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE job SET lease_until = $4, offered_at = $5
                   WHERE id = $1 AND worker_id = $2 AND epoch = $3 AND state = 'leased'";
        let held = tx.run(sql, args![&lease.job, &lease.worker, lease.epoch, until, now]).await? == 1;
        tx.commit().await?;
        Ok(held)
    }
}

/// What comes before a stage, each with all that comes before it. A document has no circles, and no more stages than can be walked.
fn in_order(stage: &StageId, needs: &HashMap<StageId, Vec<StageId>>) -> Vec<(StageId, HashSet<StageId>)> {
    let mut done: Vec<(StageId, HashSet<StageId>)> = Vec::new();
    let mut open = vec![(stage.clone(), false)];
    while let Some((one, entered)) = open.pop() {
        if done.iter().any(|(known, _)| *known == one) {
            continue;
        }
        let needed = needs.get(&one).map(Vec::as_slice).unwrap_or_default();
        if !entered {
            open.push((one, true));
            open.extend(needed.iter().rev().map(|needed| (needed.clone(), false)));
            continue;
        }
        let mut after: HashSet<StageId> = needed.iter().cloned().collect();
        for (known, earlier) in &done {
            if needed.contains(known) {
                after.extend(earlier.iter().cloned());
            }
        }
        done.push((one, after));
    }
    done.retain(|(one, _)| one != stage);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first_with_all_before_it() {
        let ids: Vec<StageId> = (0..5).map(|_| StageId::new(Moment(1)).unwrap()).collect();
        let [a, b, c, d, e] = ids.as_slice() else { panic!("five") };
        // e needs d and b; d needs b and c; b and c need a.
        let needs = HashMap::from([
            (e.clone(), vec![d.clone(), b.clone()]),
            (d.clone(), vec![b.clone(), c.clone()]),
            (b.clone(), vec![a.clone()]),
            (c.clone(), vec![a.clone()]),
        ]);
        let set = |ids: &[&StageId]| ids.iter().copied().cloned().collect::<HashSet<_>>();
        let expected = vec![
            (a.clone(), set(&[])),
            (b.clone(), set(&[a])),
            (c.clone(), set(&[a])),
            (d.clone(), set(&[a, b, c])),
        ];
        assert_eq!(in_order(e, &needs), expected);
        assert_eq!(in_order(a, &needs), []);
    }
}
