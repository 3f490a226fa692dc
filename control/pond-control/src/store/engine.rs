//! The two engines behind one narrow door: statements with numbered parameters, three types of value, rows read by name.
//!
//! SQLite: one connection writes, in transactions that take the write lock when they begin; others read. Postgres: a pool.
//! A transaction that is dropped, by an error or because its caller went away, is rolled back. An answer that rests on what
//! others wrote is given after a commit, even if nothing was changed: on SQLite theirs may not be over.

use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{Connection, PgConnection, Pool, Postgres, Row as _, Sqlite, SqliteConnection, Transaction};

use super::believed;
use super::dialect::Dialect;
use super::journal::{self, Entry};
use super::writer::{Part, Writer};

/// Connections of one control plane: Postgres serves writers at once, SQLite readers.
const MOST_CONNECTIONS: u32 = 8;
/// For a connection to a Postgres, which may be gone: whoever asks hears of it before they give up themselves.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that rested longer is tried before it is used.
const RESTED: Duration = Duration::from_secs(2);

/// Something went wrong between pond and its database. What was being written was not written.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the address of the store is neither sqlite:PATH nor postgres://…")]
    Address,
    #[error("opening the store")]
    Open(#[source] sqlx::Error),
    #[error("waiting for a connection to the store")]
    Begin(#[source] sqlx::Error),
    #[error("asking the store")]
    Statement(#[source] sqlx::Error),
    #[error("committing")]
    Commit(#[source] sqlx::Error),
    #[error("the store holds in `{column}` what pond does not write there")]
    Unreadable { column: &'static str },
    #[error(transparent)]
    Move(#[from] pond_policy::stage::IllegalMove),
    #[error("making an id")]
    Random(#[from] pond_seal::fresh::NoRandomness),
}

impl Fault {
    /// Whether the same may go well later: the database is out of reach, has no room, or is at odds with somebody else.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Open(_) | Self::Begin(_) => true,
            Self::Statement(fault) | Self::Commit(fault) => is_passing(fault),
            Self::Address | Self::Unreadable { .. } | Self::Move(_) | Self::Random(_) => false,
        }
    }
}

fn is_passing(fault: &sqlx::Error) -> bool {
    /// Of Postgres: connection, conflict, resources, shutting down, the system's own. Of SQLite: busy, locked, read-only, I/O,
    /// full, cannot open.
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
    const CODES: [u32; 6] = [5, 6, 8, 10, 13, 14];
    let is_known = |told: &dyn sqlx::error::DatabaseError| {
        told.code().is_some_and(|code| {
            let number = code.parse::<u32>().ok().filter(|_| code.len() < 5);
            number.is_some_and(|number| CODES.contains(&(number & 0xff)))
                || CLASSES.iter().any(|class| code.len() == 5 && code.starts_with(class))
        })
    };
    fault.as_database_error().is_some_and(is_known)
        || matches!(
            fault,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::BeginFailed
        )
}

#[derive(Debug)]
pub(super) enum Engine {
    Sqlite { writer: Writer, readers: Pool<Sqlite> },
    Postgres(Pool<Postgres>),
}

/// A transaction. It must be committed; otherwise nothing of it happened.
#[derive(Debug)]
pub(super) struct Tx {
    below: Below,
    /// What is told about it. Written with the commit, in this order.
    told: Vec<Entry>,
}

#[derive(Debug)]
enum Below {
    Write(Part),
    Read(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// The connection below a transaction.
enum Side<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

/// A parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
}

#[derive(Debug)]
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// The same field of several calls, for a statement that takes them together.
#[derive(Debug)]
pub(super) enum Column<'a> {
    Ints(Vec<i64>),
    Texts(Vec<&'a str>),
    Bytes(Vec<&'a [u8]>),
}

/// Parameters in order: `args![id, epoch]` are `$1` and `$2`.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$( $crate::store::engine::Value::from($value) ),*] };
}
pub(super) use args;

/// Binds every parameter to a query of either engine.
macro_rules! bound {
    ($sql:expr, $args:expr) => {
        bound!(to sqlx::query($sql), $args)
    };
    (to $query:expr, $args:expr) => {
        $args.iter().fold($query, |query, value| match *value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
        })
    };
}

impl Engine {
    pub(super) async fn open(address: &str) -> Result<Self, Fault> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            Self::open_sqlite(path).await
        } else if address.starts_with("postgres:") || address.starts_with("postgresql:") {
            Self::open_postgres(address).await
        } else {
            Err(Fault::Address)
        }
    }

    async fn open_sqlite(path: &str) -> Result<Self, Fault> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut, not only a killed process.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(20));
        let lasting =
            || PoolOptions::<Sqlite>::new().idle_timeout(None).max_lifetime(None).test_before_acquire(false);
        let writer = Writer::open(&options).await?;
        let readers = lasting()
            .max_connections(MOST_CONNECTIONS)
            .connect_with(options.pragma("query_only", "true"))
            .await
            .map_err(Fault::Open)?;
        Ok(Self::Sqlite { writer, readers })
    }

    async fn open_postgres(address: &str) -> Result<Self, Fault> {
        let options: PgConnectOptions = address.parse().map_err(|_| Fault::Address)?;
        // Every statement asks for rows by their keys: to plan it again for other keys costs more than to run it.
        let options = options.options([("plan_cache_mode", "force_generic_plan")]);
        let options = believed::strictly(options);
        let pool = PoolOptions::<Postgres>::new()
            .max_connections(MOST_CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move { Ok(meta.idle_for < RESTED || connection.ping().await.is_ok()) })
            })
            .connect_with(options.application_name("pond"))
            .await
            .map_err(Fault::Open)?;
        Ok(Self::Postgres(pool))
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// A transaction that may write.
    pub(super) async fn write(&self) -> Result<Tx, Fault> {
        let below = match self {
            Self::Sqlite { writer, .. } => Below::Write(writer.begin().await?),
            Self::Postgres(pool) => Below::Postgres(pool.begin().await.map_err(Fault::Begin)?),
        };
        Ok(Tx { below, told: Vec::new() })
    }

    /// A transaction that sees one moment of the store and changes nothing.
    pub(super) async fn read(&self) -> Result<Tx, Fault> {
        let begun = match self {
            Self::Sqlite { readers, .. } => readers.begin().await.map(Below::Read),
            Self::Postgres(pool) => {
                pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map(Below::Postgres)
            }
        };
        Ok(Tx { below: begun.map_err(Fault::Begin)?, told: Vec::new() })
    }

    /// One statement without a transaction around it: it sees one moment by itself. On SQLite it changes nothing; on Postgres it
    /// may be a whole transaction, over and on disk when this returns.
    pub(super) async fn rows(&self, sql: &'static str, args: &[Value<'_>]) -> Result<Vec<Row>, Fault> {
        let rows = match self {
            Self::Sqlite { readers, .. } => {
                let rows = bound!(sql, args).fetch_all(readers).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(pool) => {
                let rows = bound!(sql, args).fetch_all(pool).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        };
        rows.map_err(Fault::Statement)
    }

    /// The first row of it, if there is one.
    pub(super) async fn row(&self, sql: &'static str, args: &[Value<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// One statement for several calls, which is a whole transaction: columns first, then what all of them share. On SQLite, which
    /// gathers commits and not statements, nobody is answered.
    pub(super) async fn together(
        &self,
        sql: &'static str,
        columns: Vec<Column<'_>>,
        args: &[Value<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let Self::Postgres(pool) = self else { return Ok(Vec::new()) };
        let query = columns.into_iter().fold(sqlx::query(sql), |query, column| match column {
            Column::Ints(values) => query.bind(values),
            Column::Texts(values) => query.bind(values),
            Column::Bytes(values) => query.bind(values),
        });
        let query = bound!(to query, args);
        let rows = query.fetch_all(pool).await.map_err(Fault::Statement)?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    pub(super) fn dialect(&self) -> Dialect {
        match self.below {
            Below::Write(_) | Below::Read(_) => Dialect::Sqlite,
            Below::Postgres(_) => Dialect::Postgres,
        }
    }

    fn side(&mut self) -> Result<Side<'_>, sqlx::Error> {
        Ok(match &mut self.below {
            Below::Write(part) => Side::Sqlite(part.connection()?),
            Below::Read(tx) => Side::Sqlite(tx),
            Below::Postgres(tx) => Side::Postgres(tx),
        })
    }

    /// Something to be told when it is committed.
    pub(super) fn tell(&mut self, entry: Entry) {
        self.told.push(entry);
    }

    /// How many rows it changed.
    pub(super) async fn run(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<u64, Fault> {
        let changed = match self.side().map_err(Fault::Statement)? {
            Side::Sqlite(to) => bound!(sql, args).execute(to).await.map(|done| done.rows_affected()),
            Side::Postgres(to) => bound!(sql, args).execute(to).await.map(|done| done.rows_affected()),
        };
        changed.map_err(Fault::Statement)
    }

    pub(super) async fn rows(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Vec<Row>, Fault> {
        let rows = match self.side().map_err(Fault::Statement)? {
            Side::Sqlite(to) => {
                let rows = bound!(sql, args).fetch_all(to).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            Side::Postgres(to) => {
                let rows = bound!(sql, args).fetch_all(to).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        };
        rows.map_err(Fault::Statement)
    }

    /// The first row, if there is one.
    pub(super) async fn row(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Several statements without parameters.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let done = match self.side().map_err(Fault::Statement)? {
            Side::Sqlite(to) => sqlx::raw_sql(sql).execute(to).await.map(|_| ()),
            Side::Postgres(to) => sqlx::raw_sql(sql).execute(to).await.map(|_| ()),
        };
        done.map_err(Fault::Statement)
    }

    /// Returns when what was written, and what was read here of others' writing, is there for good.
    pub(super) async fn commit(mut self) -> Result<(), Fault> {
        let told = std::mem::take(&mut self.told);
        journal::keep(&mut self, &told).await?;
        let done = match self.below {
            Below::Write(part) => part.commit().await,
            Below::Read(tx) => tx.commit().await,
            Below::Postgres(tx) => tx.commit().await,
        };
        done.map_err(Fault::Commit)
    }
}

/// Reads one column of either engine's row.
macro_rules! column {
    ($row:expr, $column:expr, $type:ty) => {{
        let read: Result<$type, sqlx::Error> = match $row {
            Row::Sqlite(row) => row.try_get($column),
            Row::Postgres(row) => row.try_get($column),
        };
        read.map_err(|_| Fault::Unreadable { column: $column })
    }};
}

impl Row {
    pub(super) fn int(&self, column: &'static str) -> Result<i64, Fault> {
        column!(self, column, i64)
    }

    pub(super) fn maybe_int(&self, column: &'static str) -> Result<Option<i64>, Fault> {
        column!(self, column, Option<i64>)
    }

    pub(super) fn text(&self, column: &'static str) -> Result<String, Fault> {
        column!(self, column, String)
    }

    pub(super) fn maybe_text(&self, column: &'static str) -> Result<Option<String>, Fault> {
        column!(self, column, Option<String>)
    }

    pub(super) fn bytes(&self, column: &'static str) -> Result<Vec<u8>, Fault> {
        column!(self, column, Vec<u8>)
    }

    pub(super) fn maybe_digest(&self, column: &'static str) -> Result<Option<pond_seal::Digest>, Fault> {
        let bytes = column!(self, column, Option<Vec<u8>>)?;
        let digest = |bytes: Vec<u8>| <[u8; 32]>::try_from(bytes).map_err(|_| Fault::Unreadable { column });
        Ok(bytes.map(digest).transpose()?.map(pond_seal::Digest::from_bytes))
    }

    /// A column of text whose values pond gave a type.
    pub(super) fn read<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Fault> {
        parse(&self.text(column)?).ok_or(Fault::Unreadable { column })
    }

    pub(super) fn maybe_read<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let text = self.maybe_text(column)?;
        text.map(|text| parse(&text).ok_or(Fault::Unreadable { column })).transpose()
    }

    /// A count, which is never negative.
    pub(super) fn count(&self, column: &'static str) -> Result<u64, Fault> {
        u64::try_from(self.int(column)?).map_err(|_| Fault::Unreadable { column })
    }

    pub(super) fn digest(&self, column: &'static str) -> Result<pond_seal::Digest, Fault> {
        let bytes = <[u8; 32]>::try_from(self.bytes(column)?).map_err(|_| Fault::Unreadable { column })?;
        Ok(pond_seal::Digest::from_bytes(bytes))
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

/// Counts above what a column holds do not occur; if one did, it would be the largest and not a negative one.
impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value)
    }
}

impl<'a> From<&'a pond_seal::Digest> for Value<'a> {
    fn from(value: &'a pond_seal::Digest) -> Self {
        Self::Bytes(value.as_bytes())
    }
}
