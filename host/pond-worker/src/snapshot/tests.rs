//! The copy is the tree, owners and times included, and nothing outside the tree is ever read.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::testkit::{Entry, file, open, read_tree, script, tree, write_tree};

fn copied(source: &Path) -> (tempfile::TempDir, Copied) {
    let target = tempfile::tempdir().unwrap();
    let done = snapshot(open(source).as_fd(), open(target.path()).as_fd()).unwrap();
    (target, done)
}

#[test]
fn the_copy_is_the_tree() {
    let source = tempfile::tempdir().unwrap();
    let mut base = tree(&[
        ("a/b/c", file("x")),
        ("a/run", script("y")),
        ("link", Entry::Link(b"a/b/c".to_vec())),
        ("big", file(vec![7; 200_000])),
        ("empty", file("")),
    ]);
    base.insert(b"new\nline\x1b\xff".to_vec(), file("z"));
    write_tree(source.path(), &base);
    fs::create_dir(source.path().join("bare")).unwrap();
    fs::create_dir(source.path().join(".git")).unwrap();
    fs::write(source.path().join(".git/HEAD"), "ref").unwrap();
    std::os::unix::fs::lchown(source.path().join("a/b/c"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(source.path().join("a/b/c"), fs::Permissions::from_mode(0o6711)).unwrap();
    fs::set_permissions(source.path().join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    fs::File::open(source.path().join("a/b/c")).unwrap().set_modified(old).unwrap();
    fs::File::open(source.path().join("a/b")).unwrap().set_modified(old).unwrap();
    let (target, done) = copied(source.path());
    assert_eq!(read_tree(target.path()), read_tree(source.path()));
    assert_eq!(fs::read(target.path().join(".git/HEAD")).unwrap(), b"ref");
    assert!(target.path().join("bare").is_dir());
    let facts = |path: &str| {
        let meta = target.path().join(path).symlink_metadata().unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777, meta.mtime())
    };
    assert_eq!(facts("a/b/c"), (1234, 4321, 0o711, 1000));
    assert_eq!(facts("a/b"), (0, 0, 0o555, 1000));
    assert_eq!((done.skipped, done.skipped_names), (0, vec![]));
}

#[test]
fn c01_links_and_special_files_lead_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "SECRET").unwrap();
    let source = tempfile::tempdir().unwrap();
    symlink(outside.path(), source.path().join("out")).unwrap();
    let fifo = source.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(source.path().join("sock")).unwrap());
    let (target, mut done) = copied(source.path());
    done.skipped_names.sort();
    assert_eq!(
        done,
        Copied { entries: 3, bytes: 0, skipped: 2, skipped_names: vec!["pipe".into(), "sock".into()] }
    );
    assert_eq!(fs::read_link(target.path().join("out")).unwrap(), outside.path());
}

#[test]
fn a_sparse_file_stays_sparse_and_the_rest_is_bounded() {
    let source = tempfile::tempdir().unwrap();
    fs::File::create(source.path().join("sparse")).unwrap().set_len(64 << 20).unwrap();
    let (target, _) = copied(source.path());
    let meta = target.path().join("sparse").metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks()), (64 << 20, 0));

    fs::File::create(source.path().join("huge")).unwrap().set_len(MOST_BYTES + 1).unwrap();
    let again = tempfile::tempdir().unwrap();
    let fault = snapshot(open(source.path()).as_fd(), open(again.path()).as_fd()).unwrap_err();
    assert!(matches!(fault, SnapshotFault::TooManyBytes), "{fault}");

    let deep = tempfile::tempdir().unwrap();
    let mut path = deep.path().to_owned();
    for _ in 0..=DEEPEST + 1 {
        path.push("d");
    }
    fs::create_dir_all(&path).unwrap();
    let fault = snapshot(open(deep.path()).as_fd(), open(again.path()).as_fd()).unwrap_err();
    assert!(matches!(fault, SnapshotFault::TooDeep { .. }), "{fault}");
}

/// Each of them is held whole until all is copied: a few files of a tree would otherwise cost gigabytes.
#[test]
fn directories_whose_paths_are_long_are_few() {
    let source = tempfile::tempdir().unwrap();
    let deep = (0..15).fold(source.path().to_owned(), |path, _| path.join("d".repeat(200)));
    std::fs::create_dir_all(&deep).unwrap();
    let copied = |directories: usize| {
        (0..directories).for_each(|number| {
            std::fs::create_dir_all(deep.join(number.to_string())).unwrap();
        });
        let target = tempfile::tempdir().unwrap();
        let [from, to] = [source.path(), target.path()].map(|path| File::open(path).unwrap());
        snapshot(from.as_fd(), to.as_fd()).map(|copied| copied.entries)
    };
    assert_eq!(copied(60).unwrap(), 75);
    assert!(matches!(copied(100), Err(SnapshotFault::TooMuchText)));
}
