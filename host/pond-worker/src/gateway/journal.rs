//! The memory a gateway writes each event into before it acts on it. Zone: host; the content is the gateway's word.
//!
//! Invariant: an event is heard once, from the socket or, after the gateway's end, from here: events are numbered in the order
//! they are sent, and the journal knows how many were heard.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use pond_wire::gateway::Event;
use pond_wire::gateway::journal::{HEADER, JOURNAL_BYTES, SLOT_BYTES, SLOTS, event, number};
use rustix::fs::{MemfdFlags, SealFlags};

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    heard: u64,
}

impl Journal {
    /// A memory file whose size nobody can change.
    pub(super) fn make() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("journal", flags)?);
        file.set_len(u64::try_from(JOURNAL_BYTES).map_err(io::Error::other)?)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file, heard: 0 })
    }

    /// Counts an event that came through the socket. The first and, where there is no service, the last are in no journal.
    pub(super) fn heard(&mut self, event: &Event) {
        self.heard += u64::from(!matches!(event, Event::Serving | Event::Failed { .. }));
    }

    /// Every event that was never sent, in order. They count as heard from then on.
    pub(super) fn unheard(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        for slot in 0..SLOTS {
            let place = u64::try_from(slot.saturating_mul(SLOT_BYTES)).map_err(io::Error::other)?;
            let mut header = [0; HEADER];
            self.file.read_exact_at(&mut header, place)?;
            let Some(number) = number(&header).filter(|number| *number > self.heard) else { continue };
            let mut slot = vec![0; SLOT_BYTES];
            self.file.read_exact_at(&mut slot, place)?;
            found.extend(event(&slot).map(|event| (number, event.to_vec())));
        }
        found.sort_by_key(|(number, _)| *number);
        self.heard = found.last().map_or(self.heard, |(number, _)| *number);
        Ok(found.into_iter().map(|(_, event)| event).collect())
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pond_wire::gateway::journal::entry;

    fn written(journal: &Journal, slot: usize, number: u64) {
        let text = entry(number, format!("event {number}").as_bytes()).unwrap();
        journal.file.write_all_at(&text, u64::try_from(slot * SLOT_BYTES).unwrap()).unwrap();
    }

    #[test]
    fn what_was_not_heard_is_told_once_and_in_order() {
        let mut journal = Journal::make().unwrap();
        assert_eq!(journal.unheard().unwrap(), Vec::<Vec<u8>>::new());
        for (slot, number) in [(0, 5), (1, 2), (SLOTS - 1, 4), (7, 3), (2, 1)] {
            written(&journal, slot, number);
        }
        journal.heard(&Event::Serving);
        journal.heard(&Event::RulesReplaced);
        journal.heard(&Event::Flood { refusals: 1 });
        let expected: Vec<Vec<u8>> = (3..=5).map(|number| format!("event {number}").into_bytes()).collect();
        assert_eq!(journal.unheard().unwrap(), expected);
        assert_eq!(journal.unheard().unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn nobody_changes_the_size() {
        let journal = Journal::make().unwrap();
        let size = u64::try_from(JOURNAL_BYTES).unwrap();
        assert!(journal.file.set_len(size - 1).is_err() && journal.file.set_len(size + 1).is_err());
        assert!(journal.file.write_all_at(b"beyond", size).is_err());
    }
}
