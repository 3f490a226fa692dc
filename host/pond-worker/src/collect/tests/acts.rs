//! Any tree, any acts: the patch, applied by git, and the result, applied by pond, both give the job's own view.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::apply::{Accept, ApplyOptions, apply};
use crate::testkit::{self, Entry, Tree, at, read_tree, write_tree};

#[derive(Debug, Clone)]
enum Act {
    Write(Vec<u8>, Entry),
    Append(Vec<u8>, Vec<u8>),
    Chmod(Vec<u8>),
    Remove(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Touch(Vec<u8>),
}

const NAMES: [&[u8]; 13] = [
    b"a",
    b"b",
    b"dir",
    b"with space",
    b"new\nline",
    b"\x1b[31m",
    b"\xff\xfe",
    b"q\"uote",
    b"back\\slash",
    b"-rf",
    b"tab\t",
    "\u{fc}n\u{ef}".as_bytes(),
    b"trail ",
];

fn path() -> impl Strategy<Value = Vec<u8>> {
    let component = prop::sample::select(NAMES.to_vec());
    proptest::collection::vec(component, 1..4).prop_map(|parts| parts.join(&b'/'))
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "",
        "x",
        "fn main() {",
        "}",
        "\\ No newline",
        "--- a/x",
        "@@ -1 +1 @@",
        "crlf\r",
    ]);
    let text = (proptest::collection::vec(line, 0..60), any::<bool>()).prop_map(|(lines, newline)| {
        let mut text = lines.join("\n");
        text.push_str(if newline { "\n" } else { "" });
        text.into_bytes()
    });
    let bytes = proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![4 => text, 1 => bytes, 1 => Just(b"a\0b".repeat(50)), 1 => Just(Vec::new())]
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        5 => (content(), any::<bool>()).prop_map(|(bytes, executable)| Entry::File { bytes, executable }),
        // Never a loop: git does not put a directory in the place of a link to itself.
        1 => prop::sample::select(vec!["elsewhere", "../../outside", "/nowhere"]).prop_map(|to| Entry::Link(to.into())),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (path(), entry()).prop_map(|(path, entry)| Act::Write(path, entry)),
        2 => (path(), content()).prop_map(|(path, bytes)| Act::Append(path, bytes)),
        1 => path().prop_map(Act::Chmod),
        3 => path().prop_map(Act::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Act::Rename(from, to)),
        1 => path().prop_map(Act::Touch),
    ]
}

/// Writes over whatever is in the way, as `rm -rf` and `mkdir -p` would.
fn put(root: &Path, path: &[u8], entry: &Entry) {
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    for end in 1..parts.len() {
        let above = at(root, &parts[..end].join(&b'/'));
        if above.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(&above).unwrap();
        }
    }
    remove(root, path).unwrap_or_default();
    testkit::write_entry(root, path, entry);
}

/// A path that leads through a link of the job's own leaves the sandbox's tree; acts there are not its result.
fn stays_inside(root: &Path, path: &[u8]) -> bool {
    let target = at(root, path);
    let mut above = target.ancestors().skip(1).take_while(|above| *above != root);
    !above.any(|above| above.is_symlink())
}

fn remove(root: &Path, path: &[u8]) -> io::Result<()> {
    let path = at(root, path);
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn perform(root: &Path, act: &Act) -> io::Result<()> {
    match act {
        Act::Write(path, entry) => put(root, path, entry),
        Act::Append(path, bytes) if stays_inside(root, path) && !at(root, path).is_symlink() => {
            let mut file = fs::OpenOptions::new().append(true).open(at(root, path))?;
            io::Write::write_all(&mut file, bytes)?;
        }
        Act::Chmod(path)
            if stays_inside(root, path) && at(root, path).is_file() && !at(root, path).is_symlink() =>
        {
            let mode = at(root, path).metadata()?.permissions().mode();
            fs::set_permissions(at(root, path), fs::Permissions::from_mode(mode ^ 0o111))?;
        }
        Act::Remove(path) if stays_inside(root, path) => remove(root, path)?,
        Act::Rename(from, to) if stays_inside(root, from) => rename(root, from, to)?,
        Act::Touch(path) if stays_inside(root, path) && !at(root, path).is_symlink() => {
            fs::File::options().append(true).open(at(root, path))?.set_modified(std::time::UNIX_EPOCH)?;
        }
        Act::Append(..) | Act::Chmod(_) | Act::Remove(_) | Act::Rename(..) | Act::Touch(_) => {}
    }
    Ok(())
}

/// As `mv` does on an overlay: a real rename where the kernel allows it, else copy and delete.
fn rename(root: &Path, from: &[u8], to: &[u8]) -> io::Result<()> {
    if stays_inside(root, to) && fs::rename(at(root, from), at(root, to)).is_ok() {
        return Ok(());
    }
    let source = at(root, from);
    let meta = source.symlink_metadata()?;
    if meta.is_symlink() {
        let link = Entry::Link(fs::read_link(&source)?.as_os_str().as_bytes().to_vec());
        remove(root, from)?;
        put(root, to, &link);
    } else if meta.is_dir() {
        let moved = read_tree(&source);
        remove(root, from)?;
        for (path, entry) in moved {
            put(root, &[to, b"/", &path].concat(), &entry);
        }
    }
    Ok(())
}

fn base() -> impl Strategy<Value = Tree> {
    proptest::collection::vec((path(), entry()), 0..12).prop_map(|entries| {
        let dir = tempfile::tempdir().unwrap();
        for (path, entry) in entries {
            put(dir.path(), &path, &entry);
        }
        read_tree(dir.path())
    })
}

const ALL: ApplyOptions = ApplyOptions { escaping_links: Accept::Yes, incomplete: Accept::No };

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn patch_and_apply_reproduce_what_the_job_saw(base in base(), acts in proptest::collection::vec(act(), 0..14)) {
        let overlay = Overlay::of(&base);
        for act in &acts {
            perform(&overlay.merged(), act).unwrap_or_default();
        }
        let seen = read_tree(&overlay.merged());
        let run = overlay.collect();
        prop_assert_eq!(run.rejections(), Vec::<String>::new());
        prop_assert_eq!(run.git_applied(&base), seen.clone());

        let checkout = tempfile::tempdir().unwrap();
        write_tree(checkout.path(), &base);
        let fd = testkit::open(checkout.path());
        let applied = apply(run.fd.as_fd(), fd.as_fd(), ALL).map(|applied| applied.changed);
        prop_assert_eq!(applied.map_err(|refused| refused.to_string()), Ok(run.collected.record.changes.len()));
        prop_assert_eq!(read_tree(checkout.path()), seen);

        let again = overlay.collect();
        prop_assert_eq!(again.collected.record, run.collected.record);
    }
}

#[test]
fn a_link_on_the_way_is_replaced_not_followed() {
    let base = tree(&[("d/f", file("x")), ("l", Entry::Link(b"d".to_vec()))]);
    let overlay = Overlay::of(&base);
    put(&overlay.merged(), b"l/f", &file("y"));
    let run = overlay.collect();
    assert_eq!(run.summary(), ["l deleted", "l/f added"]);
    assert_eq!(run.git_applied(&base), tree(&[("d/f", file("x")), ("l/f", file("y"))]));
}
