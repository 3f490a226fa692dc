//! Events on their way from a gateway to its host, in memory that both hold: what the gateway has decided is there before it
//! acts on it, so a gateway that is killed takes nothing with it.
//!
//! Pure. The gateway's word, as everything it says: bounded, and read strictly. Each event lies in a slot of its own, between
//! two copies of its number; a slot that was being written when its writer died has two different ones, and holds nothing.

use super::MAX_EVENT_BYTES;

/// More than a gateway ever has on its way.
pub const SLOTS: usize = 1024;
/// Whole pages, so that a slot is used without its neighbours.
pub const SLOT_BYTES: usize = MAX_EVENT_BYTES + (4 << 10);
/// The size of a journal, nearly all of it never touched.
pub const JOURNAL_BYTES: usize = SLOTS * SLOT_BYTES;
/// A number and a length, which a slot begins with.
pub const HEADER: usize = 12;

/// What is written at the start of a slot for the `number`th event, counted from one.
pub fn entry(number: u64, event: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(event.len()).ok().filter(|_| event.len() <= MAX_EVENT_BYTES)?;
    Some([&number.to_le_bytes()[..], &length.to_le_bytes(), event, &number.to_le_bytes()].concat())
}

/// The number a slot begins with; none where nothing was ever written.
pub fn number(slot: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*slot.first_chunk()?);
    (number > 0).then_some(number)
}

/// The event in a slot, if it is whole.
pub fn event(slot: &[u8]) -> Option<&[u8]> {
    let number = number(slot)?;
    let length = u32::from_le_bytes(*slot.get(8..HEADER)?.first_chunk()?);
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_EVENT_BYTES)?;
    let (event, after) = slot.get(HEADER..)?.split_at_checked(length)?;
    (after.first_chunk() == Some(&number.to_le_bytes())).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_and_half_of_one_does_not() {
        let entry = entry(7, b"{\"flood\":{}}").unwrap();
        let mut slot = vec![0xAA; SLOT_BYTES];
        slot[..entry.len()].copy_from_slice(&entry);
        assert_eq!((number(&slot), event(&slot)), (Some(7), Some(&b"{\"flood\":{}}"[..])));
        // Once its last number has begun, the event itself is there.
        for written in 0..=entry.len() - 8 {
            let mut torn = vec![0; SLOT_BYTES];
            torn[..written].copy_from_slice(&entry[..written]);
            assert_eq!(event(&torn), None, "{written}");
        }
        assert_eq!((number(&[0; HEADER]), event(&[])), (None, None));
    }

    #[test]
    fn no_length_leads_out_of_the_slot() {
        for length in [0_u32, 1, 16 << 10, 20 << 10, u32::MAX] {
            let mut slot = vec![0; SLOT_BYTES];
            slot[..8].copy_from_slice(&9_u64.to_le_bytes());
            slot[8..HEADER].copy_from_slice(&length.to_le_bytes());
            assert_eq!(event(&slot), None, "{length}");
        }
        assert_eq!(super::entry(1, &vec![b'x'; MAX_EVENT_BYTES + 1]), None);
        assert!(entry(1, &vec![b'x'; MAX_EVENT_BYTES]).unwrap().len() <= SLOT_BYTES);
    }
}
