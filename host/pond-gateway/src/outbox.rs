//! What is on its way to the host: a bounded queue, and a copy of all that is in it in memory the host holds too. Zone: host.
//!
//! Invariant: whoever was told that an event has a place may act on it. A gateway that is killed the moment after has lost
//! nothing, since the host reads from the journal what it was not sent; without room there, or without a host, there is no
//! place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pond_wire::gateway::{Event, journal};
use tokio::sync::mpsc;

/// The host is gone, so nothing may go on unrecorded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host takes no more records")]
pub(crate) struct Gone;

/// Where events are put.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Told>,
    journal: Arc<Journal>,
}

/// An event as it travels.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) line: Vec<u8>,
    pub(crate) urgency: Urgency,
    /// In the journal, for as long as the event is not sent.
    _slot: Option<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// With nobody waited for; those who came before may be waiting already.
    AtOnce,
    /// At once after a pause; one of many together.
    Soon,
    /// It may wait for others to travel with.
    InCompany,
}

/// Memory of the host's for all that is on its way.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// The last event's number. Held until that event is in the queue: both threads put events there, and the host takes the
    /// first that it hears for the first that is written.
    number: Mutex<u64>,
    /// The lowest comes first: a gateway with little on its way touches little memory.
    free: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Slot {
    journal: Arc<Journal>,
    at: usize,
}

impl Outbox {
    pub(crate) fn new(queue: mpsc::Sender<Told>, journal: File) -> Self {
        Self { queue, journal: Journal::new(journal) }
    }

    /// Puts an event into the queue, if there is a place.
    pub(crate) fn try_put(&self, event: &Event) -> Result<(), Gone> {
        self.journal.pass_on(event, self.queue.try_reserve().map_err(|_| Gone)?)
    }

    /// Waits for a place.
    pub(crate) async fn put(&self, event: &Event) -> Result<(), Gone> {
        self.journal.pass_on(event, self.queue.reserve().await.map_err(|_| Gone)?)
    }
}

impl Told {
    /// Some last word, which is sent before anything else is done.
    pub(crate) fn last(event: &Event) -> Result<Self, serde_json::Error> {
        Ok(Self { line: line(event)?, urgency: Urgency::AtOnce, _slot: None })
    }
}

fn line(event: &Event) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

impl Journal {
    fn new(file: File) -> Arc<Self> {
        let free = (0..journal::SLOTS).rev().collect();
        Arc::new(Self { file, number: Mutex::new(0), free: Mutex::new(free) })
    }

    /// Writes an event down, for as long as it is on its way, and sends it.
    fn pass_on(self: &Arc<Self>, event: &Event, place: mpsc::Permit<'_, Told>) -> Result<(), Gone> {
        let line = line(event).map_err(|_| Gone)?;
        let urgency = match event {
            Event::Closed(_) => Urgency::InCompany,
            Event::Opened(_) => Urgency::Soon,
            Event::Serving
            | Event::Failed { .. }
            | Event::Refused(_)
            | Event::Flood { .. }
            | Event::Looked(_)
            | Event::Model(_)
            | Event::Short { .. }
            | Event::ShortBytes { .. }
            | Event::RulesReplaced
            | Event::RulesRefused { .. }
            | Event::Host(_)
            | Event::ModelTotals(_)
            | Event::Summary(_) => Urgency::AtOnce,
        };
        let at = held(&self.free).pop().ok_or(Gone)?;
        let slot = Slot { journal: Arc::clone(self), at };
        let mut last = held(&self.number);
        self.write(at, *last + 1, &line).ok_or(Gone)?;
        // Only what is written is numbered: the host counts what it hears.
        *last += 1;
        place.send(Told { line, urgency, _slot: Some(slot) });
        Ok(())
    }

    fn write(&self, at: usize, number: u64, line: &[u8]) -> Option<()> {
        let place = u64::try_from(at.checked_mul(journal::SLOT_BYTES)?).ok()?;
        self.file.write_all_at(&journal::entry(number, line)?, place).ok()
    }
}

fn held<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Slot {
    fn drop(&mut self) {
        held(&self.journal.free).push(self.at);
    }
}

#[cfg(test)]
mod tests {
    //! Two threads at the outbox.
    use super::*;

    #[test]
    fn what_threads_say_at_once_is_heard_in_the_order_of_its_numbers_and_none_is_missing() {
        const EACH: u64 = 200;
        let file = tempfile::tempfile().unwrap();
        let (queue, mut events) = mpsc::channel(journal::SLOTS);
        let outbox = Outbox::new(queue, file.try_clone().unwrap());
        let speaker = |who: u64| {
            let refusals = (0..EACH).map(|number| who * EACH + number);
            refusals.for_each(|refusals| outbox.try_put(&Event::Flood { refusals }).unwrap());
        };
        std::thread::scope(|scope| (0..4).for_each(|who| drop(scope.spawn(move || speaker(who)))));
        let heard: Vec<Told> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let written = heard.iter().map(|told| {
            let mut slot = [0; 256];
            let at = told._slot.as_ref().map(|slot| slot.at * journal::SLOT_BYTES).unwrap();
            assert!(file.read_at(&mut slot, u64::try_from(at).unwrap()).unwrap() > 0);
            assert_eq!(journal::event(&slot), Some(&told.line[..]));
            journal::number(&slot).unwrap()
        });
        assert_eq!(written.collect::<Vec<_>>(), (1..=4 * EACH).collect::<Vec<_>>());
        let mut lines: Vec<_> = heard.iter().map(|told| told.line.clone()).collect();
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), heard.len());
    }
}
