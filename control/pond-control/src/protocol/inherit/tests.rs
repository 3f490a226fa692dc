//! Trees that are put together, as they come out at the other end.

use std::collections::BTreeMap;
use std::convert::Infallible;

use pond_seal::Digest;
use pond_wire::path::RelPath;
use pond_wire::tree::{Decoder, Entry, Event, Moment, TreeCaps};

use super::merge::{MergeFault, Spool, Taker, merge};
use super::overlay::{Overlay, Stands};

const NOW: Moment = Moment { seconds: 1_800_000_000, nanos: 0 };

#[derive(Default)]
struct Stream(Vec<u8>);

impl Taker for Stream {
    type Fault = Infallible;

    fn take(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0.extend(bytes);
        Ok(())
    }
}

/// What stands at a path: `f` or `x` and content, `l` and target, `d`.
type Flat = BTreeMap<String, String>;

fn flat(entries: &[(&str, &str)]) -> Flat {
    entries.iter().map(|(path, what)| ((*path).to_owned(), (*what).to_owned())).collect()
}

/// A source with these leaves and directories, each below one that is named.
fn packed(tree: &Flat) -> Vec<u8> {
    fn within(tree: &Flat, directory: &str, bytes: &mut Vec<u8>) {
        let mut here: Vec<(&str, &str)> = Vec::new();
        for (path, what) in tree {
            let name = match directory {
                "" => Some(path.as_str()),
                _ => path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')),
            };
            here.extend(name.filter(|name| !name.contains('/')).map(|name| (name, what.as_str())));
        }
        here.sort_unstable();
        for (name, what) in here {
            let (kind, content) = what.split_at(1);
            let (text, size) = (name.as_bytes().to_vec(), u64::try_from(content.len()).unwrap());
            let mode = if kind == "x" { 0o755 } else { 0o644 };
            match kind {
                "d" => {
                    bytes.extend(Entry::Enter { name: text }.encode().unwrap());
                    let below =
                        if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                    within(tree, &below, bytes);
                }
                "l" => bytes.extend(Entry::Link { name: text, target: content.into() }.encode().unwrap()),
                _ => {
                    bytes.extend(Entry::File { name: text, mode, modified: NOW, size }.encode().unwrap());
                    bytes.extend(content.as_bytes());
                }
            }
        }
        bytes.extend(Entry::Leave { mode: 0o755 }.encode().unwrap());
    }
    let mut bytes = Vec::new();
    within(tree, "", &mut bytes);
    bytes
}

fn unpacked(bytes: &[u8]) -> Flat {
    let mut decoder = Decoder::new(TreeCaps::SOURCE);
    decoder.push(bytes);
    let (mut tree, mut within, mut last) = (Flat::new(), Vec::<String>::new(), String::new());
    while let Some(event) = decoder.next_event().unwrap() {
        let mut add = |within: &[String], name: &[u8], what: String| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            last = within.iter().cloned().chain([name]).collect::<Vec<_>>().join("/");
            tree.insert(last.clone(), what);
        };
        match event {
            Event::Entry(Entry::Enter { name }) => {
                add(&within, &name, "d".to_owned());
                within.push(String::from_utf8(name).unwrap());
            }
            Event::Entry(Entry::Leave { .. }) => drop(within.pop()),
            Event::Entry(Entry::File { name, mode, .. }) => {
                add(&within, &name, if mode & 0o100 == 0 { "f" } else { "x" }.to_owned());
            }
            Event::Entry(Entry::Link { name, target }) => {
                add(&within, &name, format!("l{}", String::from_utf8(target).unwrap()));
            }
            Event::Content(content) => {
                tree.get_mut(&last).unwrap().push_str(&String::from_utf8(content).unwrap());
            }
            Event::Entry(Entry::Fifo { .. } | Entry::Socket { .. } | Entry::Large { .. }) => {
                panic!("no tree")
            }
            Event::End => {}
        }
    }
    assert!(decoder.is_over());
    tree
}

/// The source with these changes, `-` for what is gone.
fn merged(source: Option<&Flat>, changes: &[(&str, &str)]) -> Result<Flat, String> {
    let (mut overlay, mut spool) = (Overlay::default(), Spool::new(tempfile::tempfile().unwrap()));
    for (path, what) in changes {
        let (kind, content) = what.split_at(1);
        let (size, sha256) = (u64::try_from(content.len()).unwrap(), Digest::of(content.as_bytes()));
        let stands = match kind {
            "-" => Stands::Nothing,
            "l" => Stands::Link { size, sha256 },
            kind => Stands::File { executable: kind == "x", size, sha256 },
        };
        overlay.lay(0, &RelPath::from_bytes(path.as_bytes()).unwrap(), stands, |_| true).unwrap();
        if kind != "-" {
            spool.begin(sha256, size);
            spool.add(content.as_bytes()).unwrap();
        }
    }
    let (source, mut to) = (source.map(packed), Stream::default());
    let source = source.as_deref().map(std::io::Cursor::new);
    merge(source, (&overlay, &mut spool), &mut to, NOW).map_err(|fault| fault.to_string())?;
    Ok(unpacked(&to.0))
}

fn source() -> Flat {
    flat(&[
        ("a-b", "fplain"),
        ("a", "d"),
        ("a/deep", "d"),
        ("a/deep/one", "f1"),
        ("a/two", "f2"),
        ("empty", "d"),
        ("link", "l/etc"),
        ("run.sh", "fecho"),
    ])
}

#[test]
fn changes_take_their_places() {
    let changes = [
        ("0", "ffirst"),
        ("a/deep/one", "-"),
        ("a/new", "fnew"),
        ("link", "fnow a file"),
        ("n/e/w", "fdeep"),
        ("run.sh", "xecho"),
        ("to", "l../out"),
        ("zz", "f"),
    ];
    let mut expected = source();
    expected.remove("a/deep/one");
    // It held nothing else; one that was empty before stays.
    expected.remove("a/deep");
    expected.extend(flat(&changes));
    expected.remove("a/deep/one");
    expected.extend(flat(&[("n", "d"), ("n/e", "d")]));
    assert_eq!(merged(Some(&source()), &changes), Ok(expected));
    assert_eq!(merged(Some(&source()), &[]), Ok(source()));
    assert_eq!(merged(None, &[("x/y", "f1")]), Ok(flat(&[("x", "d"), ("x/y", "f1")])));
    assert_eq!(merged(None, &[]), Ok(Flat::new()));
}

#[test]
fn a_directory_and_a_file_change_places() {
    let expected = flat(&[("a", "fnow a file"), ("a-b", "fplain"), ("link", "l/etc")]);
    let changes =
        [("a", "fnow a file"), ("a/deep/one", "-"), ("a/two", "-"), ("run.sh", "-"), ("empty", "-")];
    let mut all = expected.clone();
    all.insert("empty".to_owned(), "d".to_owned());
    assert_eq!(merged(Some(&source()), &changes), Ok(all));
    let mut expected = source();
    expected.extend(flat(&[("run.sh", "d"), ("run.sh/now", "f1")]));
    assert_eq!(merged(Some(&source()), &[("run.sh", "-"), ("run.sh/now", "f1")]), Ok(expected));
}

#[test]
fn nothing_is_written_through_what_is_no_directory() {
    for (changes, path) in [
        // Through a link of the source, through a file, through a link of its own, in place of a directory that is not empty.
        (&[("link/passwd", "froot")][..], "link"),
        (&[("run.sh/now", "f1")], "run.sh"),
        (&[("d", "l/etc"), ("d/passwd", "froot")], "d"),
        (&[("a", "fnow a file"), ("a/two", "-")], "a/deep/one"),
    ] {
        let expected = format!("{path} is a file to one stage and a directory to another");
        assert_eq!(merged(Some(&source()), changes), Err(expected), "{changes:?}");
    }
}

#[test]
fn a_content_is_what_was_signed() {
    let path = RelPath::from_bytes(b"a").unwrap();
    for (signed, there) in [("one", "two"), ("one", "on"), ("one", "")] {
        for link in [false, true] {
            let (mut overlay, mut spool) = (Overlay::default(), Spool::new(tempfile::tempfile().unwrap()));
            let (size, sha256) = (3, Digest::of(signed.as_bytes()));
            let stands = match link {
                true => Stands::Link { size, sha256 },
                false => Stands::File { executable: false, size, sha256 },
            };
            overlay.lay(0, &path, stands, |_| true).unwrap();
            spool.begin(sha256, size);
            spool.add(there.as_bytes()).unwrap();
            let none = None::<std::io::Empty>;
            let fault = merge(none, (&overlay, &mut spool), &mut Stream::default(), NOW).unwrap_err();
            assert!(matches!(&fault, MergeFault::Content(path) if path == "a"), "{fault}");
        }
    }
}
