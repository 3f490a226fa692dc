//! On Postgres each is a statement of [`at_once`], which is a whole transaction.

use std::collections::HashMap;

use super::{Finish, Piece, Start, Take, Taken};
use crate::store::dialect::at_once;
use crate::store::engine::{Column, Engine, Fault, Row, args};
use crate::store::id::{JobId, WorkerId};
use crate::store::lease::{Lease, Renewed};

pub(super) async fn take(engine: &Engine, all: &[&Take]) -> Result<HashMap<WorkerId, Taken>, Fault> {
    let Some(Take { class, project, .. }) = all.first() else { return Ok(HashMap::new()) };
    let columns = vec![
        Column::Texts(all.iter().map(|one| one.worker.as_str()).collect()),
        Column::Ints(all.iter().map(|one| count(one.generation)).collect()),
        Column::Ints(all.iter().map(|one| one.until.0).collect()),
        Column::Ints(all.iter().map(|one| one.now.0).collect()),
    ];
    let rows = engine.together(at_once::TAKE, columns, args![*class, project]).await?;
    let taken = |row: &Row| Ok((row.read("worker_id", WorkerId::parse)?, Taken::read(row)?));
    rows.iter().map(taken).collect()
}

pub(super) async fn start(engine: &Engine, all: &[&Start]) -> Result<HashMap<JobId, Renewed>, Fault> {
    let mut columns = leases(all.iter().map(|one| &one.lease));
    columns.push(Column::Ints(all.iter().map(|one| one.until.0).collect()));
    columns.push(Column::Ints(all.iter().map(|one| one.grace.0).collect()));
    columns.push(Column::Ints(all.iter().map(|one| one.now.0).collect()));
    let rows = engine.together(at_once::START, columns, &[]).await?;
    let mut started = HashMap::new();
    for row in rows {
        let job = row.read("id", JobId::parse)?;
        if let Some(one) = all.iter().find(|one| one.lease.job == job) {
            started.insert(job, Renewed::read(&row, one.until)?);
        }
    }
    Ok(started)
}

pub(super) async fn append(engine: &Engine, all: &[&Piece]) -> Result<HashMap<JobId, bool>, Fault> {
    let sql = match all.first().is_some_and(|one| one.of_result) {
        true => at_once::APPEND_RESULT,
        false => at_once::APPEND_OUTPUT,
    };
    let mut columns = leases(all.iter().map(|one| &one.lease));
    columns.push(Column::Texts(all.iter().map(|one| one.stream).collect()));
    columns.push(Column::Ints(all.iter().map(|one| count(one.size)).collect()));
    columns.push(Column::Bytes(all.iter().map(|one| one.chain.as_slice()).collect()));
    columns.push(Column::Bytes(all.iter().map(|one| one.bytes.as_slice()).collect()));
    let rows = engine.together(sql, columns, &[]).await?;
    let stored = |row: &Row| {
        let cancel = row.int("cancel")? != 0 || row.maybe_text("why")?.is_some();
        Ok((row.read("id", JobId::parse)?, cancel))
    };
    rows.iter().map(stored).collect()
}

pub(super) async fn finish(engine: &Engine, all: &[&Finish]) -> Result<HashMap<JobId, ()>, Fault> {
    let mut columns = leases(all.iter().map(|one| &one.lease));
    columns.push(Column::Bytes(all.iter().map(|one| one.digest.as_slice()).collect()));
    columns.push(Column::Bytes(all.iter().map(|one| one.envelope.as_slice()).collect()));
    columns.push(Column::Ints(all.iter().map(|one| one.now.0).collect()));
    for at in 0..3 {
        let told = all.iter().map(|one| one.told.get(at).map_or("", String::as_str));
        columns.push(Column::Texts(told.collect()));
    }
    let piece = |of: fn(&Piece) -> &[u8]| all.iter().map(move |one| one.piece.as_ref().map_or(&[][..], of));
    columns.push(Column::Bytes(piece(|piece| &piece.chain).collect()));
    columns.push(Column::Bytes(piece(|piece| &piece.bytes).collect()));
    let rows = engine.together(at_once::FINISH, columns, &[]).await?;
    rows.iter().map(|row| Ok((row.read("id", JobId::parse)?, ()))).collect()
}

fn leases<'a>(of: impl Iterator<Item = &'a Lease> + Clone) -> Vec<Column<'a>> {
    vec![
        Column::Texts(of.clone().map(|lease| lease.job.as_str()).collect()),
        Column::Texts(of.clone().map(|lease| lease.worker.as_str()).collect()),
        Column::Ints(of.map(|lease| count(lease.epoch)).collect()),
    ]
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
