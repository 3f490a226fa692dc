//! What a stage works on that needs others: the source of its run, with all in it that the stages before it changed. Put together
//! when the stage is first offered, kept as a bundle like any other, and named in the offer by its own hash: what a worker unpacks,
//! and what its statement says it worked on, is that.
//!
//! HOSTILE: every change is what some worker signed, and was accepted; it is taken apart under the caps of a source. What cannot be put
//! together ends the stage, and says why.

mod merge;
mod overlay;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use pond_policy::reason::{Cause, Reason};
use pond_seal::bundle::{DataKey, Decrypting};
use pond_seal::fresh;
use pond_seal::{Digest, Secret};
use pond_wire::path::RelPath;
use pond_wire::tree::{self, Decoder, Entry, Event, TreeCaps};

use super::intake::{MOST_ENTRIES, PIECES};
use super::problem::Problem;
use super::rerun;
use crate::api::intake::{Intake, IntakeFault, MOST_STREAM, Packed, UNFINISHED};
use crate::plane::Plane;
use crate::store::{Before, Held, Lease, MOST_RESULT, NewBundle, Stream};
use merge::{MergeFault, Spool, Taker, merge};
use overlay::{Conflict, Overlay, Stands};

/// How long an offer may be in the making.
const LONGEST: Duration = Duration::from_secs(600);
/// Where the contents lie in a packed result.
const OBJECTS: &[u8] = b"objects";

/// Why a stage has nothing to work on.
#[derive(Debug, thiserror::Error)]
pub(super) enum InheritFault {
    /// For people, with its code.
    #[error("{0}")]
    Unusable(Reason),
    /// Not the stage's fault.
    #[error("the control plane could not put it together")]
    Here(Problem),
}

impl<T: Into<Problem>> From<T> for InheritFault {
    fn from(fault: T) -> Self {
        Self::Here(fault.into())
    }
}

/// The same lease, with something to work on.
pub(super) async fn inherited(plane: &Plane, lease: &Lease, held: Held) -> Result<Held, InheritFault> {
    let before = plane.store.before(&held.stage).await?;
    let overlay = changes(plane, &before).await?;
    if overlay.is_empty() {
        return Ok(Held { inherits: false, ..held });
    }
    let begun = plane.now();
    if !plane.store.offer_until(lease, begun.plus(LONGEST), begun).await? {
        return Err(Problem::stale().into());
    }
    let packed = put_together(plane, &held, (&before, overlay)).await?;
    let bundle = NewBundle {
        project: &held.project,
        place: packed.place(),
        digest: packed.ciphertext,
        input: packed.input,
        size: packed.size,
        key: packed.key.expose(),
    };
    let now = plane.now();
    plane.store.inherit(lease, bundle, now).await?;
    packed.keep();
    plane.store.offer_until(lease, now.plus(plane.store.rules().offer), now).await?;
    plane.store.held(lease).await?.ok_or_else(|| Problem::stale().into())
}

/// What the stages before one changed, all in all.
async fn changes(plane: &Plane, before: &[Before]) -> Result<Overlay, InheritFault> {
    let mut overlay = Overlay::default();
    for (author, stage) in before.iter().enumerate() {
        let paths = rerun::manifest(plane, &stage.lease).await?;
        let unreadable = || unusable(format!("what {} changed cannot be read", stage.name));
        let knew = |other: usize| before.get(other).is_some_and(|other| stage.after.contains(&other.stage));
        let mut last: Option<RelPath> = None;
        for path in paths.ok_or_else(unreadable)? {
            let (path, stands) = read(path).ok_or_else(unreadable)?;
            // As every manifest of pond's is: who says it otherwise may mean two things by it.
            if last.is_some_and(|last| last >= path) {
                return Err(unreadable());
            }
            overlay.lay(author, &path, stands, knew).map_err(|conflict| conflicting(&conflict, before))?;
            last = Some(path);
        }
    }
    Ok(overlay)
}

/// A line of a manifest.
fn read(path: rerun::Path) -> Option<(RelPath, Stands)> {
    let rerun::Path { path, mode, size, sha256, deleted } = path;
    let path = RelPath::try_from(path).ok()?;
    if deleted {
        return (mode.is_empty() && sha256.is_empty()).then_some((path, Stands::Nothing));
    }
    let sha256 = Digest::try_from(sha256).ok()?;
    let stands = match mode.as_str() {
        "100644" => Stands::File { executable: false, size, sha256 },
        "100755" => Stands::File { executable: true, size, sha256 },
        "120000" => Stands::Link { size, sha256 },
        _ => return None,
    };
    Some((path, stands))
}

async fn put_together(
    plane: &Plane,
    held: &Held,
    (before, overlay): (&[Before], Overlay),
) -> Result<Packed, InheritFault> {
    let mut spool = Spool::new(nameless(&plane.files).map_err(|_| Problem::internal("bundle_file"))?);
    let wanted: HashSet<(Digest, usize)> = overlay.contents().collect();
    for (author, stage) in before.iter().enumerate() {
        let of_this = |wanted: &(Digest, usize)| (wanted.1 == author).then_some(wanted.0);
        let wanted: HashSet<Digest> = wanted.iter().filter_map(of_this).collect();
        if !wanted.is_empty() {
            contents(plane, &stage.lease, &wanted, &mut spool).await?;
            if !spool.has_all(&wanted) {
                let sentence = format!(
                    "what {} changed is more than a result hands on: 128 MiB in 50,000 files",
                    stage.name
                );
                return Err(unusable(sentence));
            }
        }
    }
    let source = match &held.source {
        None => None,
        Some((bundle, _)) => {
            let (place, key) = plane.store.bundle_key(bundle).await?;
            let key = DataKey::from_secret(&Secret::new(key.to_vec()));
            Some((plane.files.join(place), key.map_err(|_| Problem::internal("bundle_key"))?))
        }
    };
    let (files, now) = (plane.files.clone(), plane.now());
    let work = move || {
        let source = source.map(|(place, key)| Decrypting::new(File::open(place)?, &key, MOST_STREAM));
        let source = source.transpose().map_err(MergeFault::Source)?;
        let mut intake = Intake::begin(&files).map_err(MergeFault::Taken)?;
        let now = tree::Moment { seconds: now.0 / 1000, nanos: 0 };
        merge(source, (&overlay, &mut spool), &mut intake, now)?;
        intake.finish().map_err(MergeFault::Taken)
    };
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|_| Problem::internal("bundle_file"))?.map_err(|fault| judged(&fault, before))
}

/// Copies the contents that are wanted of one result.
async fn contents(
    plane: &Plane,
    lease: &Lease,
    wanted: &HashSet<Digest>,
    spool: &mut Spool,
) -> Result<(), InheritFault> {
    let broken = || unusable("a result before it cannot be read".to_owned());
    let mut decoder = Decoder::new(TreeCaps { entries: MOST_ENTRIES, bytes: MOST_RESULT });
    let (mut from, mut within, mut copying): (u64, Vec<Vec<u8>>, bool) = (0, Vec::new(), false);
    loop {
        let pieces = plane.store.lease_log(lease, Stream::Result, from, PIECES).await?;
        if pieces.is_empty() {
            return Ok(());
        }
        for piece in pieces {
            from = piece.sequence + 1;
            decoder.push(&piece.bytes);
            while let Some(event) = decoder.next_event().map_err(|_| broken())? {
                match event {
                    Event::Entry(Entry::Enter { name }) => within.push(name),
                    Event::Entry(Entry::Leave { .. }) => drop(within.pop()),
                    Event::Entry(Entry::File { name, size, .. }) => {
                        let name = String::from_utf8(name).ok().and_then(|name| Digest::try_from(name).ok());
                        let named = name.filter(|name| wanted.contains(name) && within == [OBJECTS]);
                        copying = named.is_some();
                        named.into_iter().for_each(|name| spool.begin(name, size));
                    }
                    Event::Content(content) if copying => {
                        spool.add(&content).map_err(|_| Problem::unavailable())?;
                    }
                    Event::Entry(
                        Entry::Link { .. } | Entry::Fifo { .. } | Entry::Socket { .. } | Entry::Large { .. },
                    )
                    | Event::Content(_)
                    | Event::End => {}
                }
            }
        }
    }
}

/// A file that is gone when it is closed.
fn nameless(files: &Path) -> io::Result<File> {
    let random = fresh::bytes::<16>().map_err(io::Error::other)?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = files.join(format!("{UNFINISHED}{name}"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

impl Taker for Intake {
    type Fault = IntakeFault;

    fn take(&mut self, bytes: &[u8]) -> Result<(), IntakeFault> {
        self.push(bytes)
    }
}

fn judged(fault: &MergeFault<IntakeFault>, before: &[Before]) -> InheritFault {
    match fault {
        MergeFault::Conflict(conflict) => conflicting(conflict, before),
        MergeFault::Content(_) => unusable(fault.to_string()),
        MergeFault::Taken(
            IntakeFault::TooLarge(_) | IntakeFault::Names | IntakeFault::Stream(_) | IntakeFault::Tree(_),
        ) => unusable(format!("what was made before it is too much to work on: {fault}")),
        MergeFault::Taken(IntakeFault::File(_)) | MergeFault::Spool(_) => Problem::unavailable().into(),
        MergeFault::Source(_) | MergeFault::Tree(_) | MergeFault::Kind => {
            Problem::internal("bundle_missing").into()
        }
        MergeFault::Taken(
            IntakeFault::Random(_) | IntakeFault::Key(_) | IntakeFault::Kind | IntakeFault::Cut,
        ) => Problem::internal("bundle_file").into(),
    }
}

fn unusable(sentence: String) -> InheritFault {
    InheritFault::Unusable(Reason::of(Cause::NeedsUnusable, sentence))
}

fn conflicting(conflict: &Conflict, before: &[Before]) -> InheritFault {
    let name = |at: usize| before.get(at).map_or("?", |stage| stage.name.as_str());
    let path = &conflict.path;
    let sentence = match conflict.between {
        Some((one, other)) => {
            format!("{} and {} each changed {path} in a way of their own", name(one), name(other))
        }
        None => format!("{path} is a file to one stage before it and a directory to another"),
    };
    InheritFault::Unusable(Reason::of(Cause::NeedsConflict, sentence))
}
