//! Takes pieces of the real key out of what an upstream sends back. A piece is masked in place, so lengths and framing
//! hold; bytes are kept back only while they could be the beginning of a piece, which an event's final newline never is.

use super::key::Key;

const MASK: u8 = b'*';
/// In errors and headers even a fragment is too much.
pub(super) const FRAGMENT: usize = 8;
/// In a model's own words only what cannot be chance: shorter runs are the public beginning that all keys share.
pub(crate) const RUN: usize = 20;

/// Masks every run of at least `least` bytes of the key.
pub(crate) struct Scrubber {
    key: Key,
    least: usize,
    /// The bytes that occur in the key at all: most of an answer is passed over by them.
    alphabet: [bool; 256],
    /// The bytes kept back, and which of them are already known to be part of a piece.
    held: Vec<u8>,
    marked: Vec<bool>,
}

impl Scrubber {
    pub(crate) fn new(key: &Key, least: usize) -> Self {
        let least = least.min(key.bytes().len());
        let mut alphabet = [false; 256];
        for byte in key.bytes() {
            if let Some(used) = alphabet.get_mut(usize::from(*byte)) {
                *used = true;
            }
        }
        Self { key: key.clone(), least, alphabet, held: Vec::new(), marked: Vec::new() }
    }

    /// A whole text at once.
    pub(super) fn whole(key: &Key, text: &[u8]) -> Vec<u8> {
        let mut scrubber = Self::new(key, FRAGMENT);
        let mut out = scrubber.feed(text);
        out.extend(scrubber.finish());
        out
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.marked.resize(self.held.len(), false);
        self.mark();
        let kept = self.keep_back();
        self.emit(self.held.len() - kept)
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.emit(self.held.len())
    }

    fn mark(&mut self) {
        let mut run = 0;
        for end in 1..=self.held.len() {
            let byte = self.held.get(end - 1).copied().unwrap_or_default();
            run = if self.alphabet.get(usize::from(byte)) == Some(&true) { run + 1 } else { 0 };
            if run < self.least {
                continue;
            }
            let window = self.held.get(end - self.least..end).unwrap_or_default();
            if holds(self.key.bytes(), window) {
                self.marked.get_mut(end - self.least..end).unwrap_or_default().fill(true);
            }
        }
    }

    /// How many bytes at the end could begin a piece that is not yet whole.
    fn keep_back(&self) -> usize {
        let most = (self.least - 1).min(self.held.len());
        let tail = |length: &usize| self.held.get(self.held.len() - length..).unwrap_or_default();
        (1..=most).rev().find(|length| holds(self.key.bytes(), tail(length))).unwrap_or(0)
    }

    fn emit(&mut self, count: usize) -> Vec<u8> {
        let marks = self.marked.drain(..count);
        self.held.drain(..count).zip(marks).map(|(byte, marked)| if marked { MASK } else { byte }).collect()
    }
}

fn holds(key: &[u8], piece: &[u8]) -> bool {
    key.windows(piece.len()).any(|window| window == piece)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"sk-real-QWERTYUIOPasdfghjkl";

    fn key() -> Key {
        Key::read(&mut &KEY[..]).unwrap()
    }

    fn in_steps(text: &[u8], least: usize, step: usize) -> Vec<u8> {
        let mut scrubber = Scrubber::new(&key(), least);
        let mut out: Vec<u8> = text.chunks(step).flat_map(|chunk| scrubber.feed(chunk)).collect();
        out.extend(scrubber.finish());
        out
    }

    #[test]
    fn c115_every_fragment_of_eight_is_masked_and_seven_are_not() {
        let text = b"bad key sk-real-QWERTYUIOPasdfghjkl, YUIOPasd, YUIOPas";
        let clean = b"bad key ***************************, ********, YUIOPas";
        for step in 1..text.len() {
            assert_eq!(in_steps(text, FRAGMENT, step), clean, "{step}");
        }
    }

    #[test]
    fn c133_an_event_is_never_kept_back() {
        let mut scrubber = Scrubber::new(&key(), RUN);
        let event = b"data: {\"text\":\"sk-real-Q\"}\n\n";
        assert_eq!(scrubber.feed(event), event);
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing_and_no_fragment_survives(
            parts in proptest::collection::vec((0usize..20, 1usize..27, "[a-z ]{0,9}"), 0..6), step in 1usize..40,
        ) {
            let mut text = Vec::new();
            for (start, length, noise) in parts {
                text.extend_from_slice(&KEY[start..(start + length).min(KEY.len())]);
                text.extend_from_slice(noise.as_bytes());
            }
            let whole = Scrubber::whole(&key(), &text);
            prop_assert_eq!(&in_steps(&text, FRAGMENT, step), &whole);
            prop_assert_eq!(whole.len(), text.len());
            prop_assert!(!KEY.windows(FRAGMENT).any(|piece| whole.windows(FRAGMENT).any(|found| found == piece)));
        }
    }
}
