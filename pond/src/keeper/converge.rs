//! What becomes of sandboxes that nobody keeps: their events say what they were meant to be, and whoever looks makes it so. A keeper
//! that was killed leaves a stopped sandbox, one that had not begun a failed one, a deletion is finished, and what stopped long
//! enough ago is deleted.

use std::time::Duration;

use pond_policy::life::{Event, Operation, State};
use pond_policy::sandboxes::{self, Spec};
use pond_policy::settings::Settings;
use pond_sandbox::state::StateDir;

use super::journal::{Detail, Journal};
use super::place::{Lock, Place, PlaceFault};
use crate::runs;

/// One sandbox as it is now.
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) state: State,
    pub(crate) sequence: u64,
    /// Whether somebody keeps it.
    pub(crate) is_kept: bool,
}

/// Every sandbox, each as it should be.
pub(crate) fn all(state: &StateDir, settings: &Settings) -> anyhow::Result<Vec<Seen>> {
    let places = Place::list(state)?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    runs::clean_up(state)?;
    let seen = places.into_iter().map(|place| one(place, settings));
    Ok(seen.collect::<Result<Vec<_>, _>>()?)
}

/// One of them.
pub(crate) fn named(state: &StateDir, id: &str, settings: &Settings) -> Result<Seen, PlaceFault> {
    one(Place::find(state, id)?, settings)
}

fn one(place: Place, settings: &Settings) -> Result<Seen, PlaceFault> {
    let Some(lock) = place.lock()? else {
        let journal = Journal::open_to_read(place.directory())?;
        let (state, sequence) = (journal.state(), journal.sequence());
        return Ok(Seen { place, state, sequence, is_kept: true });
    };
    let mut journal = Journal::open(place.directory())?;
    settle(&place, &lock, &mut journal, settings)?;
    let (state, sequence) = (journal.state(), journal.sequence());
    Ok(Seen { place, state, sequence, is_kept: false })
}

/// Moves a sandbox without a keeper to where it belongs.
fn settle(place: &Place, lock: &Lock, journal: &mut Journal, settings: &Settings) -> Result<(), PlaceFault> {
    match journal.state() {
        State::Pending if !journal.has_started() => {
            place.clear(lock)?;
            let why = "its keeper ended before it was ready";
            journal.append(Event::CreateFailed, Detail::because("keeper_lost", why))?;
        }
        State::Pending | State::Ready => {
            let why = "its keeper ended; its disk is as it was";
            journal.append(Event::Stopped, Detail::because("keeper_lost", why))?;
        }
        State::Deleting => finish_deletion(place, lock, journal)?,
        State::Stopped | State::Failed => {
            if is_due(place, journal, settings) {
                let why = Detail::because("cleanup_ttl", "it was stopped for as long as its document says");
                delete(place, lock, journal, why)?;
            }
        }
        State::Deleted => {}
    }
    Ok(())
}

fn is_due(place: &Place, journal: &Journal, settings: &Settings) -> bool {
    let spec = place.document().ok().and_then(|text| read(&text, settings).ok());
    let Some(most) = spec.and_then(|spec| spec.cleanup_ttl.duration()) else { return false };
    let age = journal.since().and_then(|since| Duration::try_from(runs::now().duration_since(since)).ok());
    age.is_some_and(|age| age >= most)
}

/// Removes a sandbox that nobody keeps.
pub(crate) fn delete(
    place: &Place,
    lock: &Lock,
    journal: &mut Journal,
    why: Detail,
) -> Result<(), PlaceFault> {
    journal.append(Event::Deleting, why)?;
    finish_deletion(place, lock, journal)
}

fn finish_deletion(place: &Place, lock: &Lock, journal: &mut Journal) -> Result<(), PlaceFault> {
    place.clear(lock)?;
    journal.append(Event::Deleted, Detail::default())?;
    Ok(())
}

/// A document that was accepted once.
pub(crate) fn read(text: &[u8], settings: &Settings) -> anyhow::Result<Spec> {
    let refused = |refusals: pond_policy::refusal::Refusals| {
        let first = refusals.into_list().into_iter().next();
        anyhow::anyhow!(first.map_or_else(|| "the document is refused".to_owned(), |fault| fault.message))
    };
    let node = pond_wire::decode::decode_json(text).map_err(refused)?;
    sandboxes::read(&node, settings).map_err(refused)
}

/// What may be asked of it now.
pub(crate) fn permit(seen: &Seen, operation: Operation) -> Result<(), super::protocol::Refusal> {
    let permitted = seen.state.permit(operation);
    permitted.map_err(|_| super::protocol::Refusal::wrong_state(seen.state, operation))
}
