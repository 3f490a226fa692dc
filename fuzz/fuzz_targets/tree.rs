//! Any bytes as what came out of a container, whole and in pieces: the same reading, every name one name, and nothing beyond
//! its caps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_wire::tree::{Decoder, Entry, Event, MAX_CONTENT, MAX_DEPTH, TreeCaps, TreeFault};

const CAPS: TreeCaps = TreeCaps { entries: 64, bytes: 4096 };

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let whole = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(step)), whole);
    assert_bounded(&whole.0);
});

/// What could be told before the end or the fault; contents joined, since they may be cut anywhere.
fn read(bytes: &[u8], step: usize) -> (Vec<Event>, Result<bool, TreeFault>) {
    let mut decoder = Decoder::new(CAPS);
    let mut events: Vec<Event> = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        decoder.push(piece);
        loop {
            match (decoder.next_event(), events.last_mut()) {
                (Err(fault), _) => return (events, Err(fault)),
                (Ok(None), _) => break,
                (Ok(Some(Event::Content(more))), Some(Event::Content(before))) => {
                    assert!(more.len() <= MAX_CONTENT);
                    before.extend(more);
                }
                (Ok(Some(event)), _) => events.push(event),
            }
        }
    }
    (events, Ok(decoder.is_over()))
}

fn assert_bounded(events: &[Event]) {
    let (mut open, mut entries, mut bytes) = (vec![Vec::new()], 0, 0);
    for event in events {
        let name = match event {
            Event::Content(content) => {
                bytes += content.len();
                continue;
            }
            Event::Entry(Entry::Leave { .. }) | Event::End => {
                open.pop();
                continue;
            }
            Event::Entry(
                Entry::Enter { name }
                | Entry::File { name, .. }
                | Entry::Link { name, .. }
                | Entry::Fifo { name }
                | Entry::Socket { name }
                | Entry::Large { name },
            ) => name,
        };
        assert!(!name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0));
        let before: &mut Vec<u8> = open.last_mut().expect("an entry is in a directory");
        assert!(*before < *name);
        before.clone_from(name);
        entries += 1;
        if let Event::Entry(Entry::Enter { .. }) = event {
            open.push(Vec::new());
        }
        assert!(open.len() <= MAX_DEPTH + 1);
    }
    assert!(entries <= 64 && bytes <= 4096);
}
