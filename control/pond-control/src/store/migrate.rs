//! The schema, step by step. A store that is newer than this pond, or whose steps were edited, is not touched.

use pond_seal::Digest;

use super::engine::{Engine, Fault, args};
use super::id::Moment;

#[derive(Debug, thiserror::Error)]
pub enum MigrateFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the store has version {found}; this pond knows {known} and would not understand it")]
    Newer { found: i64, known: i64 },
    #[error("version {0} of the store is not the one this pond would have made")]
    Edited(i64),
}

pub(super) async fn migrate(engine: &Engine, now: Moment) -> Result<(), MigrateFault> {
    let mut tx = engine.write().await?;
    tx.script(engine.dialect().versions()).await?;
    let migrations = engine.dialect().migrations();
    let known = migrations.last().map_or(0, |last| last.version);
    let mut done = 0;
    for row in tx.rows("SELECT version, digest FROM schema_version ORDER BY version", &[]).await? {
        done = row.int("version")?;
        let digest = row.digest("digest")?;
        let ours = migrations.iter().find(|migration| migration.version == done);
        let ours = ours.ok_or(MigrateFault::Newer { found: done, known })?;
        if Digest::of(ours.sql.as_bytes()) != digest {
            return Err(MigrateFault::Edited(done));
        }
    }
    for migration in migrations.iter().filter(|migration| migration.version > done) {
        tx.script(migration.sql).await?;
        let digest = Digest::of(migration.sql.as_bytes());
        tx.run(
            "INSERT INTO schema_version (version, digest, at) VALUES ($1, $2, $3)",
            args![migration.version, &digest, now],
        )
        .await?;
    }
    Ok(tx.commit().await?)
}
