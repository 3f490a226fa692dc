//! A tree survives any cut, and nothing that could lead out, hide or overflow becomes one.

use super::*;

const CAPS: TreeCaps = TreeCaps { entries: 100, bytes: 1 << 20 };

fn file(name: &str, size: u64) -> Entry {
    let modified = Moment { seconds: -5, nanos: 999_999_999 };
    Entry::File { name: name.into(), mode: 0o755, modified, size }
}

fn enter(name: &str) -> Entry {
    Entry::Enter { name: name.into() }
}

const LEAVE: Entry = Entry::Leave { mode: 0o755 };

fn stream(parts: &[(Entry, &[u8])]) -> Vec<u8> {
    parts.iter().flat_map(|(entry, content)| [&entry.encode().unwrap(), *content].concat()).collect()
}

/// Contents joined, so that the cut does not show.
fn read(bytes: &[u8], step: usize, caps: TreeCaps) -> Result<(Vec<Event>, bool), TreeFault> {
    let mut decoder = Decoder::new(caps);
    let mut events: Vec<Event> = Vec::new();
    for piece in bytes.chunks(step) {
        decoder.push(piece);
        while let Some(event) = decoder.next_event()? {
            match (events.last_mut(), event) {
                (Some(Event::Content(before)), Event::Content(more)) => before.extend(more),
                (_, event) => events.push(event),
            }
        }
    }
    Ok((events, decoder.is_over()))
}

fn fault(parts: &[Entry]) -> Option<TreeFault> {
    let bytes: Vec<u8> = parts.iter().flat_map(|entry| entry.encode().unwrap()).collect();
    read(&bytes, bytes.len(), CAPS).err()
}

#[test]
fn a_tree_survives_any_cut() {
    let link = Entry::Link { name: b"l".to_vec(), target: b"../../etc/passwd".to_vec() };
    let parts: Vec<(Entry, &[u8])> = vec![
        (enter("d"), b""),
        (file("a", 5), b"hello"),
        (file("empty", 0), b""),
        (LEAVE, b""),
        (Entry::Fifo { name: b"f".to_vec() }, b""),
        (Entry::Large { name: b"g".to_vec() }, b""),
        (link, b""),
        (Entry::Socket { name: b"s".to_vec() }, b""),
        (LEAVE, b""),
    ];
    let bytes = stream(&parts);
    let mut expected: Vec<Event> = Vec::new();
    for (entry, content) in &parts[..8] {
        expected.push(Event::Entry(entry.clone()));
        if !content.is_empty() {
            expected.push(Event::Content(content.to_vec()));
        }
    }
    expected.push(Event::End);
    for step in 1..=bytes.len() {
        assert_eq!(read(&bytes, step, CAPS), Ok((expected.clone(), true)), "cut at {step}");
    }
    // One that stops early is not whole, wherever it stops.
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length], bytes.len(), CAPS).is_ok_and(|(_, is_over)| !is_over), "{length}");
    }
}

#[test]
fn no_name_leads_out_or_comes_twice() {
    for name in [".", "..", "a/b", "/", "a\0"] {
        assert_eq!(fault(&[enter(name)]), Some(TreeFault::Name), "{name:?}");
    }
    assert_eq!(fault(&[file("b", 0), file("b", 0)]), Some(TreeFault::Order));
    assert_eq!(fault(&[enter("b"), LEAVE, file("b", 0)]), Some(TreeFault::Order));
    assert_eq!(fault(&[file("b", 0), file("a", 0)]), Some(TreeFault::Order));
    // The same name in another directory is another.
    assert_eq!(fault(&[enter("b"), file("b", 0), LEAVE, file("c", 0)]), None);
    assert_eq!(read(&[1, 0, 0, 0], 4, CAPS), Err(TreeFault::Name));
    assert_eq!(read(&[2, 1, b'a', 0, 0], 5, CAPS), Err(TreeFault::Name));
}

#[test]
fn what_is_over_a_cap_ends_the_reading() {
    let deep = |levels: usize| vec![enter("d"); levels];
    assert_eq!(fault(&deep(MAX_DEPTH)), None);
    assert_eq!(fault(&deep(MAX_DEPTH + 1)), Some(TreeFault::Depth));
    assert_eq!(fault(&[file("a", MAX_FILE + 1)]), Some(TreeFault::Size(MAX_FILE + 1)));
    assert_eq!(fault(&[file("a", CAPS.bytes + 1)]), Some(TreeFault::Bytes(CAPS.bytes)));
    let half = file("a", CAPS.bytes / 2 + 1);
    let content = vec![0; usize::try_from(CAPS.bytes / 2 + 1).unwrap()];
    let twice = stream(&[(half, &content), (file("b", CAPS.bytes / 2 + 1), b"")]);
    assert_eq!(read(&twice, twice.len(), CAPS), Err(TreeFault::Bytes(CAPS.bytes)));
    let few = TreeCaps { entries: 2, ..CAPS };
    let three = stream(&[(file("a", 0), b""), (file("b", 0), b""), (file("c", 0), b"")]);
    assert_eq!(read(&three, three.len(), few), Err(TreeFault::Entries(2)));
}

#[test]
fn what_no_file_has_is_refused() {
    let mut bytes = file("a", 0).encode().unwrap();
    bytes[4] = 0o16;
    assert_eq!(read(&bytes, 99, CAPS), Err(TreeFault::Facts));
    let late = Moment { seconds: 0, nanos: 1_000_000_000 };
    let file = Entry::File { name: b"a".to_vec(), mode: 0, modified: late, size: 0 };
    assert_eq!(fault(&[file]), Some(TreeFault::Facts));
    let link = |target: Vec<u8>| Entry::Link { name: b"a".to_vec(), target };
    for target in [Vec::new(), vec![b'x'; MAX_TARGET + 1], b"a\0b".to_vec()] {
        assert_eq!(fault(&[link(target)]), Some(TreeFault::Target));
    }
    assert_eq!(read(&[0, 1], 2, CAPS), Err(TreeFault::Kind(0)));
    assert_eq!(read(&[8, 1], 2, CAPS), Err(TreeFault::Kind(8)));
    assert_eq!(fault(&[LEAVE, LEAVE]), Some(TreeFault::Trailing));
    assert_eq!(fault(&[LEAVE, enter("a")]), Some(TreeFault::Trailing));
}

#[test]
fn little_is_held_however_much_arrives() {
    let mut decoder = Decoder::new(CAPS);
    decoder.push(&file("a", 1 << 20).encode().unwrap());
    decoder.push(&vec![7; 1 << 20]);
    assert!(matches!(decoder.next_event(), Ok(Some(Event::Entry(_)))));
    while let Some(Event::Content(piece)) = decoder.next_event().unwrap() {
        assert!(piece.len() <= MAX_CONTENT);
    }
    assert!(decoder.rest().is_empty());
    decoder.push(b"");
    assert!(decoder.raw.is_empty());
}
