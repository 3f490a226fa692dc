//! How much of everything there is: for those who watch a control plane, and for who asks whether it is there at all.

use std::collections::BTreeMap;

use super::Store;
use super::engine::{Fault, Tx};

/// Rows by state, as the store has them now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that wait or are worked on.
    pub jobs: BTreeMap<String, u64>,
    pub workers: BTreeMap<String, u64>,
}

impl Store {
    /// Whether the store answers.
    pub async fn ping(&self) -> Result<(), Fault> {
        let mut tx = self.engine.read().await?;
        tx.row("SELECT 1 AS one", &[]).await.map(|_| ())
    }

    pub async fn counts(&self) -> Result<Counts, Fault> {
        let mut tx = self.engine.read().await?;
        let jobs = by_state(&mut tx, "SELECT state, count(*) AS rows FROM job GROUP BY state").await?;
        let workers = by_state(&mut tx, "SELECT state, count(*) AS rows FROM worker GROUP BY state").await?;
        Ok(Counts { jobs, workers })
    }
}

async fn by_state(tx: &mut Tx, sql: &'static str) -> Result<BTreeMap<String, u64>, Fault> {
    let rows = tx.rows(sql, &[]).await?;
    rows.iter().map(|row| Ok((row.text("state")?, row.count("rows")?))).collect()
}
