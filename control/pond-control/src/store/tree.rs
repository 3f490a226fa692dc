//! The audit log as a Merkle tree that only grows. Entries are written in the transaction of the change they tell of; this puts
//! the committed ones into the tree, in the order that never changes, and signs where that leads.
//!
//! TRUSTED, but the database is not believed: before anything is added, the last checkpoint must be signed by this control plane's
//! key and be the root of the edge that is stored. Invariants: no two trees of one size are signed: whoever comes second finds
//! that the size is not the one it began with; a full tile never changes; nothing is in the tree before it is committed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use pond_seal::Digest;
use pond_seal::audit::checkpoint::{Checkpoint, CheckpointFault};
use pond_seal::audit::entry;
use pond_seal::audit::evidence::Evidence;
use pond_seal::audit::proof::{ProofFault, consistency, inclusion};
use pond_seal::audit::tile::{self, Tile};
use pond_seal::audit::tree::{Growing, NotAnEdge, leaf as leaf_hash};
use pond_seal::key::SigningKey;

use super::Store;
use super::engine::{Fault, Row, Tx, args};
use super::id::{JobId, StageId};
use super::journal::Place;

/// Entries added in one transaction.
const BATCH: i64 = 4096;

/// The tree is not what this control plane made of it, or cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum TreeFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the audit log was tampered with: its last checkpoint is not one of this control plane")]
    Checkpoint(#[from] CheckpointFault),
    #[error("the audit log was tampered with: its edge is damaged")]
    Edge(#[from] NotAnEdge),
    #[error("the audit log was tampered with: its edge is not what was signed")]
    Root,
    #[error("the audit log was tampered with: a tile is missing or damaged")]
    Tile,
    #[error("the audit log was tampered with: entry {0} is not the one that was added")]
    Entry(u64),
    #[error(
        "the audit log was tampered with: it has {found} entries, and had {before} when this process last looked"
    )]
    Shrunk { found: u64, before: u64 },
    #[error("no such proof")]
    Proof(#[from] ProofFault),
}

/// Where the tree stands.
struct Standing {
    size: u64,
    /// The last entry that is in it.
    last: Place,
    checkpoint: String,
}

/// An entry as its row has it: whatever somebody wrote there.
struct Leaf {
    place: Place,
    line: String,
}

/// Tiles to write; those of the leaves with the place of their first.
type Changed = Vec<(Tile, Vec<Digest>, Option<Place>)>;

impl Store {
    /// Puts what was committed into the tree and signs the new checkpoint. How many entries that were.
    pub async fn grow_tree(&self, key: &SigningKey) -> Result<u64, TreeFault> {
        let mut added = 0;
        loop {
            let (count, all) = self.grow_once(key).await?;
            added += count;
            if all {
                return Ok(added);
            }
        }
    }

    /// Entries of one batch, and whether there are no more. Whoever finds that another was faster leaves the rest to it.
    async fn grow_once(&self, key: &SigningKey) -> Result<(u64, bool), TreeFault> {
        let mut tx = self.engine.read().await?;
        let standing = Standing::read(&mut tx).await?;
        let mut growing = self.believed(&mut tx, &standing, key).await?;
        let sql = tx.dialect().audit();
        let after = standing.last;
        let rows = tx.rows(sql, args![after.tx, after.seq, BATCH, None::<&str>]).await?;
        let leaves = rows.iter().map(Leaf::read).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = leaves.last().map(|leaf| leaf.place) else { return Ok((0, true)) };
        let changed = add(&mut tx, &mut growing, &leaves).await?;
        drop(tx);
        let checkpoint = Checkpoint { size: growing.size(), root: growing.root() };
        let next = Standing { size: checkpoint.size, last, checkpoint: checkpoint.sign(key) };
        let full = i64::try_from(leaves.len()).is_ok_and(|count| count == BATCH);
        if !self.write_tree(&standing, &next, &changed).await? {
            return Ok((0, true));
        }
        self.remember(next.size);
        Ok((next.size - standing.size, !full))
    }

    /// The tree to go on with, if it is the one that was signed.
    async fn believed(
        &self,
        tx: &mut Tx,
        standing: &Standing,
        key: &SigningKey,
    ) -> Result<Growing, TreeFault> {
        let before = self.tree_size();
        if standing.size < before {
            return Err(TreeFault::Shrunk { found: standing.size, before });
        }
        let mut edge = Vec::new();
        for (tile, width) in tile::edge(standing.size) {
            edge.push(if width == 0 { Vec::new() } else { read_tile(tx, tile).await? });
        }
        let growing = Growing::from_edge(standing.size, edge)?;
        if standing.size > 0 {
            let signed = Checkpoint::verify(&standing.checkpoint, &key.public())?;
            if signed != (Checkpoint { size: standing.size, root: growing.root() }) {
                return Err(TreeFault::Root);
            }
            standing.is_of(tx).await?;
        }
        Ok(growing)
    }

    /// Whether nobody else was faster.
    async fn write_tree(&self, from: &Standing, to: &Standing, changed: &Changed) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "UPDATE audit_tree SET size = $1, last_tx = $2, last_seq = $3, checkpoint = $4 WHERE id = 1 AND size = $5";
        let moved = args![to.size, to.last.tx, to.last.seq, &to.checkpoint, from.size];
        if tx.run(sql, moved).await? == 0 {
            return Ok(false);
        }
        for (tile, hashes, first) in changed {
            let (first_tx, first_seq) = (first.map(|place| place.tx), first.map(|place| place.seq));
            tx.run(
                "INSERT INTO audit_tile (level, number, hashes, first_tx, first_seq) VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (level, number) DO UPDATE SET hashes = excluded.hashes",
                args![i64::from(tile.level), tile.number, tile::encode(hashes).as_slice(), first_tx, first_seq],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// The last signed checkpoint; nothing before there is an entry.
    pub async fn checkpoint(&self) -> Result<Option<String>, Fault> {
        let mut tx = self.engine.read().await?;
        Ok(Some(Standing::read(&mut tx).await?.checkpoint).filter(|note| !note.is_empty()))
    }

    /// The lines of the entries that are in the leaves' tile `number`: 256, or as many as there are.
    pub async fn tree_entries(&self, number: u64) -> Result<Vec<String>, Fault> {
        let mut tx = self.engine.read().await?;
        let standing = Standing::read(&mut tx).await?;
        let leaves = leaves_of(&mut tx, &standing, number).await?;
        Ok(leaves.into_iter().map(|leaf| leaf.line).collect())
    }

    /// The hashes that show that the log of `new` entries begins with that of `old`.
    pub async fn tree_consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, TreeFault> {
        let mut tx = self.engine.read().await?;
        let size = Standing::read(&mut tx).await?.size;
        if new > size {
            return Err(ProofFault::Order { old: new, new: size }.into());
        }
        hashes(&mut tx, &consistency(old, new)?).await
    }

    /// What shows that the result of a job is in the log; nothing while its entry is not.
    pub async fn evidence(
        &self,
        stage: &StageId,
        job: &JobId,
        envelope: &Digest,
    ) -> Result<Option<Evidence>, TreeFault> {
        let mut tx = self.engine.read().await?;
        let standing = Standing::read(&mut tx).await?;
        let sql = "SELECT tx, seq, at, actor, action, project, subject, detail FROM audit
                   WHERE subject = $1 AND action = 'result.accepted' ORDER BY tx, seq";
        let mut found = None;
        for row in tx.rows(sql, args![stage]).await? {
            let leaf = Leaf::read(&row)?;
            let read = entry::Read::parse(leaf.line.as_bytes());
            found = found.or(read.filter(|read| read.accepts(job.as_str(), envelope)).map(|_| leaf));
        }
        let Some(leaf) = found.filter(|leaf| leaf.place <= standing.last) else { return Ok(None) };
        let sql = "SELECT number FROM audit_tile WHERE level = 0 AND (first_tx, first_seq) <= ($1, $2)
                   ORDER BY first_tx DESC, first_seq DESC LIMIT 1";
        let row = tx.row(sql, args![leaf.place.tx, leaf.place.seq]).await?.ok_or(TreeFault::Tile)?;
        let number = row.count("number")?;
        let leaves = leaves_of(&mut tx, &standing, number).await?;
        let at = leaves.iter().position(|one| one.place == leaf.place).ok_or(TreeFault::Tile)?;
        let index = (number << tile::HEIGHT) + u64::try_from(at).unwrap_or(u64::MAX);
        let added = read_tile(&mut tx, Tile { level: 0, number }).await?;
        if added.get(at) != Some(&leaf_hash(leaf.line.as_bytes())) {
            return Err(TreeFault::Entry(index));
        }
        let path = hashes(&mut tx, &inclusion(index, standing.size)?).await?;
        Ok(Some(Evidence { entry: leaf.line.into_bytes(), index, path, checkpoint: standing.checkpoint }))
    }
}

/// Adds leaves, and says which tiles that changed.
async fn add(tx: &mut Tx, growing: &mut Growing, leaves: &[Leaf]) -> Result<Changed, TreeFault> {
    let before = growing.size();
    let mut first: HashMap<u64, Place> = HashMap::new();
    // The tile that was begun before keeps its first entry.
    let begun = before >> tile::HEIGHT;
    if before & 0xff != 0 {
        first.insert(begun, first_of(tx, begun).await?.ok_or(TreeFault::Tile)?);
    }
    let mut changed: Changed = Vec::new();
    for leaf in leaves {
        first.entry(growing.size() >> tile::HEIGHT).or_insert(leaf.place);
        let hash = leaf_hash(leaf.line.as_bytes());
        growing.push(hash, |tile, hashes| changed.push((tile, hashes.to_vec(), None)));
    }
    changed.extend(growing.edge().map(|(tile, hashes)| (tile, hashes.to_vec(), None)));
    for (tile, _, place) in &mut changed {
        if tile.level == 0 {
            *place = first.get(&tile.number).copied();
        }
    }
    Ok(changed)
}

async fn first_of(tx: &mut Tx, number: u64) -> Result<Option<Place>, Fault> {
    let sql = "SELECT first_tx AS tx, first_seq AS seq FROM audit_tile WHERE level = 0 AND number = $1";
    tx.row(sql, args![number]).await?.as_ref().map(Place::read).transpose()
}

/// The rows from the first entry of a tile to that of the next, or to the last that is in the tree. As they are: somebody may
/// have added or removed one.
async fn leaves_of(tx: &mut Tx, standing: &Standing, number: u64) -> Result<Vec<Leaf>, Fault> {
    let Some(first) = first_of(tx, number).await? else { return Ok(Vec::new()) };
    // What lies before the first entry of all belongs to nobody, and is shown.
    let from = if number == 0 { Place { tx: i64::MIN, seq: i64::MIN } } else { first };
    let next = first_of(tx, number + 1).await?;
    // One more than can be right is enough to be wrong.
    let most = i64::try_from(tile::WIDTH).unwrap_or(i64::MAX) + 1;
    let sql = "SELECT tx, seq, at, actor, action, project, subject, detail, run_id, stage_id,
                   (SELECT run_id FROM stage WHERE stage.id = subject) AS of_run FROM audit
               WHERE (tx, seq) >= ($1, $2) AND (tx, seq) <= ($3, $4) ORDER BY tx, seq LIMIT $5";
    let to = standing.last;
    let rows = tx.rows(sql, args![from.tx, from.seq, to.tx, to.seq, most]).await?;
    let leaves = rows.iter().map(Leaf::read_filed).collect::<Result<Vec<_>, _>>()?;
    Ok(leaves.into_iter().filter(|leaf| next.is_none_or(|next| leaf.place < next)).collect())
}

async fn read_tile(tx: &mut Tx, tile: Tile) -> Result<Vec<Digest>, TreeFault> {
    let sql = "SELECT hashes FROM audit_tile WHERE level = $1 AND number = $2";
    let row = tx.row(sql, args![i64::from(tile.level), tile.number]).await?.ok_or(TreeFault::Tile)?;
    tile::decode(&row.bytes("hashes")?).ok_or(TreeFault::Tile)
}

/// The roots over parts of the tree.
async fn hashes(tx: &mut Tx, ranges: &[std::ops::Range<u64>]) -> Result<Vec<Digest>, TreeFault> {
    let mut tiles = HashMap::new();
    for tile in ranges.iter().flat_map(tile::wanted) {
        if let Entry::Vacant(place) = tiles.entry(tile) {
            place.insert(read_tile(tx, tile).await?);
        }
    }
    ranges.iter().map(|range| tile::hash(range, &tiles).ok_or(TreeFault::Tile)).collect()
}

impl Standing {
    async fn read(tx: &mut Tx) -> Result<Self, Fault> {
        let sql = "SELECT size, last_tx AS tx, last_seq AS seq, checkpoint FROM audit_tree WHERE id = 1";
        let row = tx.row(sql, &[]).await?.ok_or(Fault::Unreadable { column: "size" })?;
        Ok(Self { size: row.count("size")?, last: Place::read(&row)?, checkpoint: row.text("checkpoint")? })
    }

    /// Whether the last entry is the one that was added last. What comes after another would never be in the tree.
    async fn is_of(&self, tx: &mut Tx) -> Result<(), TreeFault> {
        let index = self.size.saturating_sub(1);
        let tile = read_tile(tx, Tile { level: 0, number: index >> tile::HEIGHT }).await?;
        let sql = "SELECT tx, seq, at, actor, action, project, subject, detail FROM audit WHERE tx = $1 AND seq = $2";
        let row = tx.row(sql, args![self.last.tx, self.last.seq]).await?;
        let leaf = row.as_ref().map(Leaf::read).transpose()?;
        let hash = leaf.map(|leaf| leaf_hash(leaf.line.as_bytes()));
        if hash.is_some() && hash.as_ref() == tile.last() { Ok(()) } else { Err(TreeFault::Entry(index)) }
    }
}

impl Leaf {
    fn read(row: &Row) -> Result<Self, Fault> {
        let place = Place::read(row)?;
        let (actor, action, subject) = (row.text("actor")?, row.text("action")?, row.text("subject")?);
        let (project, detail) = (row.maybe_text("project")?, row.text("detail")?);
        let entry = entry::Entry {
            place: &place.to_string(),
            at: row.int("at")?,
            actor: &actor,
            action: &action,
            project: project.as_deref(),
            subject: &subject,
            detail: &detail,
        };
        Ok(Self { place, line: entry.line() })
    }

    /// The same. What the events of a run are found by is no part of an entry, because it follows from it; where it does not, the
    /// line says so, and is another one than was signed.
    fn read_filed(row: &Row) -> Result<Self, Fault> {
        let mut leaf = Self::read(row)?;
        let (action, subject) = (row.text("action")?, Some(row.text("subject")?));
        let (run, stage) = (row.maybe_text("run_id")?, row.maybe_text("stage_id")?);
        let is_right = match action.split_once('.').map_or("", |(what, _)| what) {
            "run" => run == subject && stage.is_none(),
            "stage" | "result" => stage == subject && run == row.maybe_text("of_run")?,
            // A source is a project's; the run it was fetched for is told beside it.
            "bundle" => stage.is_none(),
            _ => run.is_none() && stage.is_none(),
        };
        if !is_right {
            leaf.line += " (filed elsewhere)";
        }
        Ok(leaf)
    }
}
