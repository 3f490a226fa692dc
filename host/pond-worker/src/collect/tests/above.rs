//! A checkout that is a part of a repository: the rules and the index above it count as git counts them, and nobody else's do.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use super::ignored::{git, left_out, paths};
use super::*;
use crate::collect::above::Above;
use crate::testkit::{Entry, Run, Tree, open, read_tree, write_tree};

const PART: &str = "crates/one";

/// A repository with everything added and committed, except what its own rules ignore.
fn repository(files: &[(&str, Entry)], exclude: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q", "."]);
    write_tree(dir.path(), &tree(files));
    fs::write(dir.path().join(".git/info/exclude"), exclude).unwrap();
    git(dir.path(), &["add", "--all"]);
    git(dir.path(), &["commit", "-q", "--allow-empty", "-m", "base"]);
    fs::create_dir_all(dir.path().join(PART)).unwrap();
    dir
}

/// A job on the part of the repository adds `made`; git says what it would list of the same.
fn job(repository: &Path, made: &[(&str, Entry)]) -> (Run, BTreeSet<Vec<u8>>) {
    let part = repository.join(PART);
    let base: Tree = read_tree(&part);
    let overlay = Overlay::of(&base);
    write_tree(&overlay.merged(), &tree(made));
    let sources = Sources { above: Above::find(open(&part).as_fd()), ..overlay.sources() };
    let run = overlay.collect_from(&sources);
    write_tree(&part, &tree(made));
    let listed = git(repository, &["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"]);
    let prefix = format!("{PART}/").into_bytes();
    let listed = listed.split(|&byte| byte == 0).filter_map(|line| line.get(3..)?.strip_prefix(&*prefix));
    (run, listed.map(<[u8]>::to_vec).collect())
}

#[test]
fn rules_above_count_as_git_counts_them() {
    let repository = repository(
        &[
            (".gitignore", file("target/\n*.log\n/crates/one/dist\n/dist2\none/anchored\n")),
            ("crates/.gitignore", file("!keep.log\n/one/here\nnot/here\n")),
            ("crates/one/.gitignore", file("!mine.log\n")),
            ("crates/one/src/lib.rs", file("fn f() {}\n")),
        ],
        "local.txt\nkeep.log\n",
    );
    let made = [
        "target/o",
        "a.log",
        "keep.log",
        "mine.log",
        "dist/x",
        "dist2/x",
        "here",
        "deep/here",
        "not/here",
        "local.txt",
        "src/lib.rs",
        "src/new.rs",
        "one/anchored",
        "anchored",
    ]
    .map(|path| (path, file("made")));
    let (run, listed) = job(repository.path(), &made);
    assert_eq!(paths(&run), listed);
    assert!(listed.contains(b"src/new.rs".as_slice()) && !listed.contains(b"target/o".as_slice()));
    assert_eq!(
        left_out(&run),
        [("../../.git/info/exclude", 1), ("../../.gitignore", 3), ("../.gitignore", 1)]
    );
}

#[test]
fn what_git_does_not_know_above_is_build_output_even_when_it_was_there() {
    let repository = repository(
        &[(".gitignore", file("*.o\n")), ("crates/one/known", file("x")), ("crates/one/old.o", file("x"))],
        "",
    );
    git(repository.path(), &["add", "--force", "crates/one/known"]);
    let (run, listed) = job(repository.path(), &[("old.o", file("changed")), ("known", file("changed"))]);
    assert_eq!(
        (paths(&run), listed),
        (BTreeSet::from([b"known".to_vec()]), BTreeSet::from([b"known".to_vec()]))
    );
}

#[test]
fn a_part_that_the_rules_above_ignore_is_not_left_out() {
    for rules in ["*\n", "/crates/\n", "crates/one\n", "one/\n"] {
        let repository = repository(&[(".gitignore", file(rules))], "");
        let (run, listed) = job(repository.path(), &[("work", file("x"))]);
        assert_eq!((paths(&run).len(), listed.len(), left_out(&run).len()), (1, 0, 0), "{rules:?}");
    }
}

/// A directory chain with a repository at its top, and the part at its end.
fn chain() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join(PART);
    fs::create_dir_all(&part).unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    (dir, part)
}

fn prefix(part: &Path) -> Option<Vec<u8>> {
    Above::find(open(part).as_fd()).map(|above| above.prefix().to_vec())
}

#[test]
fn the_nearest_repository_counts_and_its_own_comes_first() {
    let (dir, part) = chain();
    assert_eq!(prefix(&part), Some(PART.into()));
    fs::write(dir.path().join("crates/.git"), "gitdir: elsewhere").unwrap();
    assert_eq!(prefix(&part), Some("one".into()));
    fs::create_dir(part.join(".git")).unwrap();
    assert_eq!(prefix(&part), None);
}

#[test]
fn a_stranger_above_has_no_say() {
    let (dir, part) = chain();
    chown(dir.path(), Some(12_345), None).unwrap();
    assert_eq!(prefix(&part), None);
    // Whoever owns the checkout, too, is no stranger to it.
    for place in [dir.path(), &dir.path().join("crates"), &part] {
        chown(place, Some(12_345), None).unwrap();
    }
    assert_eq!(prefix(&part), Some(PART.into()));
    chown(dir.path().join("crates"), Some(54_321), None).unwrap();
    assert_eq!(prefix(&part), None);
}

#[test]
fn rule_files_above_are_read_like_any_other() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("rules"), "*.made\n").unwrap();
    let repository = repository(&[], "");
    symlink(secret.path().join("rules"), repository.path().join(".gitignore")).unwrap();
    let long = "x\n".repeat(64 << 10) + "*.made\n";
    fs::write(repository.path().join("crates/.gitignore"), long).unwrap();
    let part = repository.path().join(PART);
    let overlay = Overlay::of(&read_tree(&part));
    write_tree(&overlay.merged(), &tree(&[("a.made", file("x"))]));
    let sources = Sources { above: Above::find(open(&part).as_fd()), ..overlay.sources() };
    assert!(sources.above.is_some());
    assert_eq!(paths(&overlay.collect_from(&sources)), BTreeSet::from([b"a.made".to_vec()]));
}
