//! The one SQLite connection that writes. Transactions that arrive while another is under way share its commit, so that a slow
//! disk is waited for once for all of them.
//!
//! Each is a savepoint inside one outer transaction. Invariants: nobody is told that something is written before the outer
//! commit returned; one that is dropped is rolled back alone, before the next begins; whatever the engine refuses rolls all of
//! them back and all are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::engine::Fault;

/// Transactions that share a commit.
const MOST_TOGETHER: usize = 64;
/// How long one waits for others to commit for it; after that it does so itself.
const PATIENCE: Duration = Duration::from_millis(3);

/// What the others of a commit that failed are told.
#[derive(Debug, thiserror::Error)]
#[error("a commit shared with others failed")]
struct Shattered;

#[derive(Debug)]
pub(super) struct Writer {
    group: Arc<Mutex<Group>>,
    coming: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Group {
    connection: Option<SqliteConnection>,
    /// The outer transaction has begun.
    open: bool,
    /// A savepoint stands that nobody released.
    torn: bool,
    /// Those that wait for the commit.
    done: Vec<oneshot::Sender<bool>>,
}

/// One transaction, which has the connection to itself until it ends.
#[derive(Debug)]
pub(super) struct Part {
    /// Gone once it has ended.
    group: Option<OwnedMutexGuard<Group>>,
    shared: Arc<Mutex<Group>>,
    coming: Arc<AtomicUsize>,
}

/// Counts who is on the way, also if they turn back.
struct Coming<'a>(&'a AtomicUsize);

impl<'a> Coming<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Writer {
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<Self, Fault> {
        let connection = Some(options.connect().await.map_err(Fault::Open)?);
        let group = Group { connection, open: false, torn: false, done: Vec::new() };
        Ok(Self { group: Arc::new(Mutex::new(group)), coming: Arc::default() })
    }

    pub(super) async fn begin(&self) -> Result<Part, Fault> {
        let coming = Coming::new(&self.coming);
        let group = Some(Arc::clone(&self.group).lock_owned().await);
        drop(coming);
        // From here on who goes away has something to take back.
        let mut part = Part { group, shared: Arc::clone(&self.group), coming: Arc::clone(&self.coming) };
        let Some(group) = part.group.as_mut() else { return Err(Fault::Begin(sqlx::Error::PoolClosed)) };
        group.begin().await.map_err(Fault::Begin)?;
        Ok(part)
    }

    /// Ends what is under way and closes the file.
    pub(super) async fn close(&self) {
        let mut group = self.group.lock().await;
        if let Err(_told_already) = group.settle(Left::TakeBack).await {}
        if let Some(connection) = group.connection.take()
            && let Err(_nothing_left_to_lose) = connection.close().await
        {}
    }
}

impl Part {
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        self.group.as_mut().and_then(|group| group.connection.as_mut()).ok_or(sqlx::Error::PoolClosed)
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let group = self.group.take().ok_or(sqlx::Error::PoolClosed)?;
        if self.coming.load(Ordering::Relaxed) == 0 || group.done.len() >= MOST_TOGETHER {
            return settle(group, Left::Keep).await;
        }
        let mut receiver = to_the_end(leave(group)).await?;
        let answer = match tokio::time::timeout(PATIENCE, &mut receiver).await {
            Ok(answer) => answer,
            // Whoever was coming turned back, or is slow.
            Err(_elapsed) => {
                let group = Arc::clone(&self.shared).lock_owned().await;
                if let Ok(answer) = receiver.try_recv() {
                    Ok(answer)
                } else {
                    return settle(group, Left::TakeBack).await;
                }
            }
        };
        if answer == Ok(true) { Ok(()) } else { Err(sqlx::Error::Protocol(Shattered.to_string())) }
    }
}

/// One that is given up holds the write lock until what it shared is committed; nobody may be coming who would do that.
impl Drop for Part {
    fn drop(&mut self) {
        if let Some(mut group) = self.group.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { group.settle(Left::TakeBack).await });
        }
    }
}

/// What becomes of a savepoint that still stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Keep,
    TakeBack,
}

async fn settle(mut group: OwnedMutexGuard<Group>, left: Left) -> Result<(), sqlx::Error> {
    to_the_end(async move { group.settle(left).await }).await
}

/// Ends one transaction and lets the next begin; the answer comes with the commit.
async fn leave(mut group: OwnedMutexGuard<Group>) -> Result<oneshot::Receiver<bool>, sqlx::Error> {
    group.release().await?;
    let (sender, receiver) = oneshot::channel();
    group.done.push(sender);
    Ok(receiver)
}

/// Even if whoever asked for it goes away: what was sent to the engine happens, and others depend on knowing of it.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
) -> Result<T, sqlx::Error> {
    tokio::spawn(work).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

impl Group {
    /// Who goes away while this is under way leaves what may have begun to the next one: it is noted before it is asked for.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.torn && self.run("ROLLBACK TO part; RELEASE part").await.is_err() {
            self.shatter().await;
        }
        let sql = if self.open { "SAVEPOINT part" } else { "BEGIN IMMEDIATE; SAVEPOINT part" };
        (self.open, self.torn) = (true, true);
        let begun = self.run(sql).await;
        if begun.is_err() {
            self.shatter().await;
        }
        begun
    }

    async fn release(&mut self) -> Result<(), sqlx::Error> {
        let released = self.run("RELEASE part").await;
        self.torn = false;
        if released.is_err() {
            self.shatter().await;
        }
        released
    }

    async fn settle(&mut self, left: Left) -> Result<(), sqlx::Error> {
        if !self.open {
            return Ok(());
        }
        let sql = match (self.torn, left) {
            (false, _) => "COMMIT",
            (true, Left::Keep) => "RELEASE part; COMMIT",
            (true, Left::TakeBack) => "ROLLBACK TO part; RELEASE part; COMMIT",
        };
        let committed = self.run(sql).await;
        if committed.is_err() {
            self.shatter().await;
            return committed;
        }
        (self.open, self.torn) = (false, false);
        self.tell(true);
        committed
    }

    /// Takes everything back and tells everybody.
    async fn shatter(&mut self) {
        // The engine may have done so by itself.
        if let Err(_no_transaction) = self.run("ROLLBACK").await {}
        (self.open, self.torn) = (false, false);
        self.tell(false);
    }

    fn tell(&mut self, written: bool) {
        for waiter in self.done.drain(..) {
            // One that went away does not want to know.
            if let Err(_unheard) = waiter.send(written) {}
        }
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let connection = self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        sqlx::raw_sql(sql).execute(connection).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn numbers(path: &std::path::Path) -> Vec<i64> {
        let mut reader = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
        sqlx::query_scalar("SELECT number FROM kept ORDER BY number").fetch_all(&mut reader).await.unwrap()
    }

    async fn insert(part: &mut Part, number: i64) -> Result<(), sqlx::Error> {
        let insert = sqlx::query("INSERT INTO kept (number) VALUES ($1)").bind(number);
        insert.execute(part.connection()?).await.map(|_| ())
    }

    fn with_writer(test: impl AsyncFnOnce(&Arc<Writer>, &std::path::Path)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
            let options = options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
            let writer = Arc::new(Writer::open(&options).await.unwrap());
            let mut part = writer.begin().await.unwrap();
            let table = sqlx::raw_sql("CREATE TABLE kept (number integer PRIMARY KEY) STRICT");
            table.execute(part.connection().unwrap()).await.unwrap();
            part.commit().await.unwrap();
            test(&writer, &path).await;
            writer.close().await;
        });
    }

    #[test]
    fn those_who_share_a_commit_stand_or_fall_alone() {
        with_writer(async |writer, path| {
            let tasks = (0..40).map(|number| {
                let writer = Arc::clone(writer);
                tokio::spawn(async move {
                    let mut part = writer.begin().await.unwrap();
                    insert(&mut part, number).await.unwrap();
                    // Every fourth is given up, every fourth runs into a mistake of its own.
                    if number % 4 == 1 {
                        return None;
                    }
                    if number % 4 == 2 {
                        insert(&mut part, number).await.unwrap_err();
                        return None;
                    }
                    part.commit().await.unwrap();
                    Some(number)
                })
            });
            let mut told = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                told.extend(task.await.unwrap());
            }
            let expected: Vec<i64> = (0..40).filter(|number| matches!(number % 4, 0 | 3)).collect();
            assert_eq!((told, numbers(path).await), (expected.clone(), expected));
        });
    }

    #[test]
    fn one_that_is_given_up_does_not_keep_the_file() {
        with_writer(async |writer, path| {
            let mut part = writer.begin().await.unwrap();
            insert(&mut part, 1).await.unwrap();
            drop(part);
            let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(20));
            let mut other = options.connect().await.unwrap();
            sqlx::raw_sql("INSERT INTO kept (number) VALUES (2)").execute(&mut other).await.unwrap();
            assert_eq!(numbers(path).await, [2]);
        });
    }

    #[test]
    fn one_who_goes_away_takes_nobody_along() {
        with_writer(async |writer, path| {
            let mut first = writer.begin().await.unwrap();
            insert(&mut first, 1).await.unwrap();
            let turns_back = {
                let writer = Arc::clone(writer);
                tokio::spawn(async move { writer.begin().await.map(|_| ()) })
            };
            while writer.coming.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            turns_back.abort();
            first.commit().await.unwrap();
            assert_eq!(numbers(path).await, [1]);
        });
    }

    /// Asked once and never again: it goes away with its first statement on the way.
    fn once<T>(work: impl Future<Output = T>) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        drop(std::pin::pin!(work).as_mut().poll(&mut context));
    }

    #[test]
    fn one_who_goes_away_while_it_begins_or_ends_takes_nobody_along() {
        with_writer(async |writer, path| {
            once(writer.begin());
            let mut part = writer.begin().await.unwrap();
            insert(&mut part, 1).await.unwrap();
            once(part.commit());
            let mut part = writer.begin().await.unwrap();
            insert(&mut part, 2).await.unwrap();
            let coming = Coming::new(&writer.coming);
            once(part.commit());
            once(writer.begin());
            let mut part = writer.begin().await.unwrap();
            drop(coming);
            insert(&mut part, 3).await.unwrap();
            part.commit().await.unwrap();
            assert_eq!(numbers(path).await, [1, 2, 3]);
        });
    }

    #[test]
    fn when_the_engine_takes_all_back_all_are_told() {
        with_writer(async |writer, path| {
            let mut first = writer.begin().await.unwrap();
            insert(&mut first, 1).await.unwrap();
            let coming = Coming::new(&writer.coming);
            let second = async {
                // After the first has released its part and waits.
                let mut part = writer.begin().await.unwrap();
                insert(&mut part, 2).await.unwrap();
                sqlx::raw_sql("ROLLBACK").execute(part.connection().unwrap()).await.unwrap();
                part.commit().await
            };
            let (first, second) = tokio::join!(first.commit(), second);
            drop(coming);
            assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
            assert_eq!(numbers(path).await, Vec::<i64>::new());
            let mut part = writer.begin().await.unwrap();
            insert(&mut part, 3).await.unwrap();
            part.commit().await.unwrap();
            assert_eq!(numbers(path).await, [3]);
        });
    }
}
