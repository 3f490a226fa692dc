//! What goes in and comes out unchanged leaves no trace; what was changed is in the upper layer as an overlay would have it; what
//! is no tree is refused. Run as root, as everything that mounts a job's disk is.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use pond_wire::tree::{Entry, Moment};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

use super::*;

const CAPS: TreeCaps = TreeCaps { entries: 1000, bytes: 1 << 30 };

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn checkout() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("d/e")).unwrap();
    fs::write(at("d/e/f"), "before\n").unwrap();
    fs::write(at("d/x"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("d/x"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(at("empty"), "").unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    directory
}

fn packed(root: &Path, readers: Readers) -> (Vec<u8>, Sent) {
    let mut bytes = Vec::new();
    let sent = send(&open(root), readers, CAPS, &mut bytes).unwrap();
    (bytes, sent)
}

/// What an upper layer holds: each path, and what it is.
fn listed(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let metadata = path.symlink_metadata().unwrap();
            found.push(if kind.is_dir() {
                left.push(path);
                format!("{name}/")
            } else if kind.is_symlink() {
                format!("{name} -> {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_char_device() {
                assert_eq!(metadata.rdev(), 0);
                format!("{name} gone")
            } else if kind.is_fifo() {
                format!("{name} fifo")
            } else if metadata.len() > MAX_FILE {
                assert_eq!(metadata.blocks(), 0);
                format!("{name} large")
            } else {
                format!("{name} {:o} {:?}", metadata.mode() & 0o777, fs::read_to_string(&path).unwrap())
            });
        }
    }
    found.sort();
    found
}

fn taken(sent: Sent, bytes: &[u8]) -> (TempDir, Result<bool, TransferFault>) {
    let upper = tempfile::tempdir_in("/tmp").unwrap();
    let mut incoming = Incoming::new(open(upper.path()), sent, CAPS);
    // Cut where nothing is whole.
    let pushed = bytes.chunks(7).try_for_each(|piece| incoming.push(piece));
    (upper, pushed.map(|()| incoming.is_over()))
}

#[test]
fn what_was_not_changed_leaves_no_trace() {
    let checkout = checkout();
    let (bytes, sent) = packed(checkout.path(), Readers::Owner);
    let (upper, whole) = taken(sent, &bytes);
    assert!(whole.unwrap());
    assert_eq!(listed(upper.path()), Vec::<String>::new());
}

#[test]
fn what_was_changed_is_as_an_overlay_has_it() {
    let checkout = checkout();
    let (_, sent) = packed(checkout.path(), Readers::Owner);
    let at = |name: &str| checkout.path().join(name);
    fs::write(at("d/e/f"), "after\n").unwrap();
    fs::set_permissions(at("d/x"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(at("empty")).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    fs::remove_file(at("pipe")).unwrap();
    fs::create_dir(at("pipe")).unwrap();
    fs::create_dir_all(at("new/deep")).unwrap();
    fs::write(at("new/deep/n"), "n").unwrap();
    mknodat(CWD, at("new/q"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let (bytes, _) = packed(checkout.path(), Readers::Owner);
    let (upper, whole) = taken(sent, &bytes);
    assert!(whole.unwrap());
    let expected = [
        "d/",
        "d/e/",
        "d/e/f 644 \"after\\n\"",
        "d/x 644 \"#!/bin/sh\\n\"",
        "empty gone",
        "link -> elsewhere",
        "new/",
        "new/deep/",
        "new/deep/n 644 \"n\"",
        "new/q fifo",
        "pipe/",
    ];
    assert_eq!(listed(upper.path()), expected);
}

#[test]
fn a_directory_that_became_a_file_or_went_is_one_entry() {
    let checkout = checkout();
    let (_, sent) = packed(checkout.path(), Readers::Owner);
    fs::remove_dir_all(checkout.path().join("d")).unwrap();
    let (bytes, _) = packed(checkout.path(), Readers::Owner);
    let (upper, _) = taken(sent, &bytes);
    assert_eq!(listed(upper.path()), ["d gone"]);
    let (_, sent) = packed(self::checkout().path(), Readers::Owner);
    fs::write(checkout.path().join("d"), "file").unwrap();
    let (bytes, _) = packed(checkout.path(), Readers::Owner);
    let (upper, _) = taken(sent, &bytes);
    assert_eq!(listed(upper.path()), ["d 644 \"file\""]);
}

#[test]
fn what_pond_itself_put_there_gives_way() {
    let (checkout, upper) = (checkout(), tempfile::tempdir_in("/tmp").unwrap());
    let (_, sent) = packed(checkout.path(), Readers::Owner);
    fs::create_dir(upper.path().join("d")).unwrap();
    fs::write(upper.path().join("d/x"), "replaced").unwrap();
    fs::write(upper.path().join("link"), "replaced").unwrap();
    for name in ["link", "empty", "pipe"] {
        fs::remove_file(checkout.path().join(name)).unwrap();
    }
    fs::remove_dir_all(checkout.path().join("d")).unwrap();
    fs::create_dir(checkout.path().join("link")).unwrap();
    let (bytes, _) = packed(checkout.path(), Readers::Owner);
    let mut incoming = Incoming::new(open(upper.path()), sent, CAPS);
    incoming.push(&bytes).unwrap();
    assert_eq!(listed(upper.path()), ["d gone", "empty gone", "link/", "pipe gone"]);
}

#[test]
fn holes_and_files_too_large_fill_no_disk() {
    let modified = Moment { seconds: 0, nanos: 0 };
    let size = 64 << 20;
    let mut bytes = Entry::File { name: b"hole".to_vec(), mode: 0o644, modified, size }.encode().unwrap();
    bytes.extend(vec![0; 64 << 20]);
    bytes.extend(Entry::Large { name: b"large".to_vec() }.encode().unwrap());
    bytes.extend(Entry::Leave { mode: 0o755 }.encode().unwrap());
    let upper = tempfile::tempdir_in("/tmp").unwrap();
    let mut incoming = Incoming::new(open(upper.path()), Sent::new(), CAPS);
    incoming.push(&bytes).unwrap();
    assert!(incoming.is_over());
    let hole = upper.path().join("hole").metadata().unwrap();
    assert_eq!((hole.len(), hole.blocks()), (size, 0));
    assert_eq!(upper.path().join("large").metadata().unwrap().len(), MAX_FILE + 1);
}

#[test]
fn what_is_no_tree_is_refused_and_reaches_nothing() {
    let link = Entry::Link { name: b"l".to_vec(), target: b"/tmp".to_vec() }.encode().unwrap();
    let under_it = Entry::Enter { name: b"l".to_vec() }.encode().unwrap();
    let (upper, refused) = taken(Sent::new(), &[link, under_it].concat());
    assert!(matches!(refused, Err(TransferFault::Tree(TreeFault::Order))), "{refused:?}");
    assert_eq!(listed(upper.path()), ["l -> /tmp"]);
    let (upper, refused) = taken(Sent::new(), &Entry::Enter { name: b"..".to_vec() }.encode().unwrap());
    assert!(matches!(refused, Err(TransferFault::Tree(TreeFault::Name))), "{refused:?}");
    assert_eq!(listed(upper.path()), Vec::<String>::new());
}

#[test]
fn a_copy_for_others_can_be_read_and_not_written() {
    let checkout = checkout();
    let (bytes, _) = packed(checkout.path(), Readers::Others);
    let mut decoder = pond_wire::tree::Decoder::new(CAPS);
    decoder.push(&bytes);
    let mut modes = Vec::new();
    while let Some(event) = decoder.next_event().unwrap() {
        if let pond_wire::tree::Event::Entry(Entry::File { name, mode, .. }) = event {
            modes.push((String::from_utf8(name).unwrap(), mode));
        }
    }
    let expected = [("f", 0o644), ("x", 0o755), ("empty", 0o644)].map(|(name, mode)| (name.to_owned(), mode));
    assert_eq!(modes, expected);
}

#[test]
fn a_checkout_over_a_cap_is_refused_before_it_travels() {
    let checkout = checkout();
    let send = |caps| send(&open(checkout.path()), Readers::Owner, caps, &mut Vec::new());
    let few = send(TreeCaps { entries: 3, ..CAPS });
    assert!(matches!(few, Err(TransferFault::Entries(3))), "{few:?}");
    let small = send(TreeCaps { bytes: 8, ..CAPS });
    assert!(matches!(small, Err(TransferFault::Bytes(8))), "{small:?}");
    let deep = checkout.path().join("deep/".repeat(MAX_DEPTH + 1));
    fs::create_dir_all(deep).unwrap();
    let deep = send(CAPS);
    assert!(matches!(deep, Err(TransferFault::Depth(_))), "{deep:?}");
}
