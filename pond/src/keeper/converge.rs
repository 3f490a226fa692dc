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
use crate::{output, runs};

/// One sandbox as it is now.
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) state: State,
    pub(crate) sequence: u64,
    /// Whether somebody keeps it.
    pub(crate) is_kept: bool,
    /// Until it is deleted, if nothing happens before.
    pub(crate) left: Option<Duration>,
}

/// Every sandbox, each as it should be. One that cannot be read is told of, and keeps no other from being looked at.
pub(crate) fn all(state: &StateDir, settings: &Settings) -> anyhow::Result<Vec<Seen>> {
    let places = Place::list(state)?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    runs::clean_up(state)?;
    let mut seen = Vec::new();
    for place in places {
        match one(place, settings) {
            Ok(one) => seen.push(one),
            Err(fault) => {
                let fault = anyhow::Error::from(fault);
                output::say(&format!("pond: warning: {}", output::plain(&format!("{fault:#}"))));
            }
        }
    }
    Ok(seen)
}

/// One of them.
pub(crate) fn named(state: &StateDir, id: &str, settings: &Settings) -> Result<Seen, PlaceFault> {
    one(Place::find(state, id)?, settings)
}

fn one(place: Place, settings: &Settings) -> Result<Seen, PlaceFault> {
    let Some(lock) = place.lock()? else {
        let journal = Journal::open_to_read(place.directory())?;
        return Ok(seen(place, &journal, settings, true));
    };
    let mut journal = Journal::open(place.directory())?;
    settle(&place, &lock, &mut journal, settings)?;
    Ok(seen(place, &journal, settings, false))
}

fn seen(place: Place, journal: &Journal, settings: &Settings, is_kept: bool) -> Seen {
    let (state, sequence) = (journal.state(), journal.sequence());
    let left = left(&place, journal, settings);
    Seen { place, state, sequence, is_kept, left }
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
            if left(place, journal, settings).is_some_and(|left| left.is_zero()) {
                let why = Detail::because("cleanup_ttl", "it was stopped for as long as its document says");
                delete(place, lock, journal, why)?;
            }
        }
        State::Deleted => {}
    }
    Ok(())
}

/// Until it is deleted, for one that time deletes.
fn left(place: &Place, journal: &Journal, settings: &Settings) -> Option<Duration> {
    match journal.state() {
        State::Stopped | State::Failed => {}
        State::Pending | State::Ready | State::Deleting | State::Deleted => return None,
    }
    let spec = place.document().ok().and_then(|text| read(&text, settings).ok())?;
    let most = spec.cleanup_ttl.duration()?;
    // A time that has not come yet is that of a clock which was set back.
    let age = Duration::try_from(runs::now().duration_since(journal.since()?)).unwrap_or_default();
    Some(most.saturating_sub(age))
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
