//! Ignored build output stays out, by the rules git would use on the base; git itself is the judge.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::collect::artifact::copy_artifacts;
use crate::path::RelPath;
use crate::testkit::{Entry, Run, Tree, WITHOUT_IGNORED, at, open, read_tree, write_entry, write_tree};

pub(super) fn paths(run: &Run) -> BTreeSet<Vec<u8>> {
    run.collected.record.changes.iter().map(|change| change.path.as_bytes().to_vec()).collect()
}

pub(super) fn left_out(run: &Run) -> Vec<(&str, u64)> {
    run.collected.record.left_out.iter().map(|rules| (rules.rules.as_str(), rules.paths)).collect()
}

#[expect(clippy::disallowed_methods, reason = "git is the judge of its own rules")]
pub(super) fn git(root: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "core.fileMode=true"])
        .args(["-c", "core.excludesFile=/dev/null"])
        .args(arguments)
        .current_dir(root)
        .env("GIT_CEILING_DIRECTORIES", root)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The paths `git status` lists when everything of the base is tracked and the job's view lies on top.
fn git_status(base: &Tree, seen: &Tree) -> BTreeSet<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q", "."]);
    fs::remove_file(dir.path().join(".git/info/exclude")).unwrap();
    write_tree(dir.path(), base);
    git(dir.path(), &["add", "--all", "--force"]);
    git(dir.path(), &["commit", "-q", "--allow-empty", "-m", "base"]);
    for path in read_tree(dir.path()).keys() {
        fs::remove_file(at(dir.path(), path)).unwrap();
    }
    git(dir.path(), &["clean", "-q", "-d", "-f", "-f", "-x"]);
    write_tree(dir.path(), seen);
    let listed = git(dir.path(), &["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"]);
    listed.split(|&byte| byte == 0).filter_map(|line| line.get(3..)).map(<[u8]>::to_vec).collect()
}

fn check(base: &Tree, added: &[(&str, Entry)]) -> Run {
    let overlay = Overlay::of(base);
    for (path, entry) in added {
        fs::remove_file(overlay.merged().join(path)).unwrap_or_default();
        write_entry(&overlay.merged(), path.as_bytes(), entry);
    }
    let run = overlay.collect();
    assert_eq!(paths(&run), git_status(base, &read_tree(&overlay.merged())));
    run
}

#[test]
fn braces_mean_themselves() {
    let base = tree(&[(".gitignore", file("*.{log,tmp}\n\\{x}\nc[{]d\n[]{]y\nun[{a,b}\n{z\n"))]);
    let names = [
        "a.log",
        "a.tmp",
        "a.{log,tmp}",
        "x",
        "{x}",
        "c{d",
        "c\\d",
        "{y",
        "]y",
        "y",
        "una",
        "un[a",
        "un[{a,b}",
        "z",
        "{z",
    ];
    let added = names.map(|name| (name, file("x")));
    let run = check(&base, &added);
    let seen = paths(&run);
    assert!([b"a.log".to_vec(), b"x".to_vec(), b"una".to_vec()].iter().all(|name| seen.contains(name)));
    assert!(!seen.contains(b"a.{log,tmp}".as_slice()) && !seen.contains(b"{x}".as_slice()));
}

#[test]
fn build_output_stays_out_and_work_stays_in() {
    let base = tree(&[
        (".gitignore", file("target/\n/dist\n*.log\n!keep.log\nnode_modules\n")),
        (".git/info/exclude", file("local.txt\n")),
        ("sub/.gitignore", file("!special.log\nout*\n")),
        ("src/main.rs", file("fn main() {}\n")),
        ("sub/f", file("x")),
    ]);
    let run = check(
        &base,
        &[
            ("target/debug/app", script("elf")),
            ("crates/a/target/x", file("x")),
            ("dist/bundle.js", file("x")),
            ("docs/dist/kept.js", file("x")),
            ("node_modules/a/index.js", file("x")),
            ("build.log", file("x")),
            ("keep.log", file("x")),
            ("sub/special.log", file("x")),
            ("sub/other.log", file("x")),
            ("sub/output/x", file("x")),
            ("local.txt", file("x")),
            ("src/lib.rs", file("x")),
            ("src/main.rs", file("changed")),
            ("name with target/x", file("x")),
        ],
    );
    assert_eq!(
        run.summary(),
        [
            "docs/dist/kept.js added",
            "keep.log added",
            "name with target/x added",
            "src/lib.rs added",
            "src/main.rs modified",
            "sub/special.log added"
        ]
    );
    assert_eq!(left_out(&run), [(".git/info/exclude", 1), (".gitignore", 6), ("sub/.gitignore", 1)]);
}

#[test]
fn what_the_base_has_is_never_left_out() {
    let base = tree(&[
        (".gitignore", file("*.lock\nvendor/\nplain\n")),
        ("a.lock", file("one")),
        ("gone.lock", file("one")),
        ("vendor/kept.c", file("one")),
        ("plain", file("one")),
    ]);
    let overlay = Overlay::of(&base);
    let merged = overlay.merged();
    fs::write(merged.join("a.lock"), "two").unwrap();
    fs::remove_file(merged.join("gone.lock")).unwrap();
    fs::write(merged.join("vendor/kept.c"), "two").unwrap();
    fs::write(merged.join("vendor/new.c"), "two").unwrap();
    fs::remove_file(merged.join("plain")).unwrap();
    fs::create_dir(merged.join("plain")).unwrap();
    fs::write(merged.join("plain/new"), "two").unwrap();
    let run = overlay.collect();
    assert_eq!(
        run.summary(),
        ["a.lock modified", "gone.lock deleted", "plain deleted", "vendor/kept.c modified"]
    );
    assert_eq!(left_out(&run), [(".gitignore", 2)]);
    assert_eq!(paths(&run), git_status(&base, &read_tree(&merged)));
}

#[test]
fn the_jobs_own_rules_hide_nothing() {
    let overlay = Overlay::of(&tree(&[(".gitignore", file("target/\n")), ("d/f", file("x"))]));
    let merged = overlay.merged();
    fs::write(merged.join(".gitignore"), "*\n").unwrap();
    fs::write(merged.join("d/.gitignore"), "*\n").unwrap();
    fs::create_dir_all(merged.join(".git/info")).unwrap();
    fs::write(merged.join(".git/info/exclude"), "*\n").unwrap();
    fs::write(merged.join("d/backdoor.sh"), "x").unwrap();
    fs::create_dir(merged.join("target")).unwrap();
    let run = overlay.collect();
    assert_eq!(run.summary(), [".gitignore modified", "d/.gitignore added", "d/backdoor.sh added"]);
    assert_eq!(left_out(&run), [(".gitignore", 1)]);
}

#[test]
fn rule_files_that_are_no_plain_files_are_not_read() {
    let rules = tempfile::tempdir().unwrap();
    fs::write(rules.path().join("rules"), "*\n").unwrap();
    let outside = rules.path().join("rules");
    let overlay = Overlay::new(OverlayXattrs::Trusted, |lower| {
        symlink(&outside, lower.join(".gitignore")).unwrap();
        fs::create_dir_all(lower.join("fifo")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            lower.join("fifo/.gitignore"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        fs::create_dir_all(lower.join("large")).unwrap();
        fs::write(lower.join("large/.gitignore"), format!("*\n#{}\n", "x".repeat(200_000))).unwrap();
    });
    for name in ["new", "fifo/new", "large/new"] {
        fs::write(overlay.merged().join(name), "x").unwrap();
    }
    let run = overlay.collect();
    assert_eq!(
        (run.summary(), left_out(&run)),
        (vec!["fifo/new added".into(), "large/new added".into(), "new added".into()], vec![])
    );
}

/// The new file or link is nothing git would show; that what it knew is gone, it would.
#[test]
fn an_ignored_file_in_the_place_of_a_directory_takes_away_what_was_in_it() {
    let write = |lower: &Path| {
        fs::create_dir_all(lower.join("dist/deep")).unwrap();
        for (name, content) in [("dist/known", "x"), ("dist/deep/known", "x"), (".gitignore", "dist\n")] {
            fs::write(lower.join(name), content).unwrap();
        }
    };
    let repository = tempfile::tempdir().unwrap();
    git(repository.path(), &["init", "-q", "."]);
    write(repository.path());
    git(repository.path(), &["add", "--all", "--force"]);
    let base = |lower: &Path| {
        write(lower);
        fs::create_dir(lower.join(".git")).unwrap();
        let index = fs::read(repository.path().join(".git/index")).unwrap();
        fs::write(lower.join(".git/index"), index).unwrap();
    };
    let replacements: [fn(&Path); 2] =
        [|place| fs::write(place, "x").unwrap(), |place| symlink("elsewhere", place).unwrap()];
    for replace in replacements {
        let overlay = Overlay::new(OverlayXattrs::Trusted, base);
        let place = overlay.merged().join("dist");
        fs::remove_dir_all(&place).unwrap();
        replace(&place);
        let run = overlay.collect();
        assert_eq!(run.summary(), ["dist/deep/known deleted", "dist/known deleted"]);
        assert_eq!(left_out(&run), [(".gitignore", 1)]);
    }
}

#[test]
fn an_ignored_directory_is_not_walked() {
    let overlay = Overlay::of(&tree(&[(".gitignore", file("target/\n"))]));
    let deep = overlay.merged().join("target/d/d");
    fs::create_dir_all(&deep).unwrap();
    for number in 0..300 {
        fs::write(deep.join(number.to_string()), "x").unwrap();
    }
    let few = Caps { entries: 20, total_bytes: 20, ..Caps::default() };
    let run = overlay.collect_within(&few).unwrap();
    assert_eq!((run.summary(), left_out(&run)), (Vec::<String>::new(), vec![(".gitignore", 1)]));

    let all = Wanted { ignored: Ignored::Keep, ..WITHOUT_IGNORED };
    let fault = overlay.collect_wanted(&all, &few).map(|_| ()).unwrap_err();
    assert!(matches!(fault, CollectFault::Exceeded { .. }), "{fault}");
    let run = overlay.collect_wanted(&all, &Caps::default()).unwrap();
    assert_eq!((run.summary().len(), left_out(&run)), (300, vec![]));
}

#[test]
fn declared_artifacts_are_kept_though_ignored() {
    let overlay = Overlay::of(&tree(&[(".gitignore", file("target/\n*.json\n"))]));
    let merged = overlay.merged();
    fs::create_dir_all(merged.join("target/release/deps")).unwrap();
    fs::write(merged.join("target/release/app"), "elf").unwrap();
    fs::write(merged.join("target/release/app.d"), "x").unwrap();
    fs::write(merged.join("target/release/deps/lib"), "x").unwrap();
    symlink("app", merged.join("target/release/link")).unwrap();
    fs::write(merged.join("report.txt"), "x").unwrap();
    fs::write(merged.join("edit_result.json"), "{}").unwrap();
    let declared = [b"target/release/app".as_slice(), b"target/release/link", b"report.txt", b"none"]
        .map(|path| RelPath::from_bytes(path).unwrap());
    let run = overlay
        .collect_wanted(&Wanted { artifacts: &declared, ..WITHOUT_IGNORED }, &Caps::default())
        .unwrap();
    assert_eq!(run.summary(), ["report.txt added"]);
    assert_eq!(run.collected.edit_result.as_deref(), Some(b"{}".as_slice()));
    assert_eq!(left_out(&run), [(".gitignore", 3)]);
    let manifest = fs::read_to_string(run.dir.path().join("manifest.json")).unwrap();
    let named: Vec<_> = manifest.lines().filter(|line| line.contains("sha256")).collect();
    assert!(named.len() == 3 && manifest.contains("\"target/release/app\""), "{manifest}");

    let out = tempfile::tempdir().unwrap();
    let copied =
        copy_artifacts(run.fd.as_fd(), &run.collected.record, &declared, open(out.path()).as_fd()).unwrap();
    let names = |list: &[RelPath]| list.iter().map(RelPath::to_string).collect::<Vec<_>>();
    assert_eq!(names(&copied.copied), ["report.txt", "target/release/app"]);
    let link = Rejected { path: "target/release/link".to_owned(), reason: Reason::Link };
    assert_eq!((names(&copied.missing), copied.refused), (vec!["none".to_owned()], vec![link]));
}

const PATTERNS: [&str; 30] = [
    "a", "/a", "a/", "*.o", "!b.o", "d/*", "!d/b.o", "**/x", "d/**", "a/**/x", "/d/", "!d/", "*", "!*/", "?",
    "[ab]", "[!a]", "\\#a", "#a", "x ", "x\\ ", "d/x", "!a", "/*.o", "", "\\!a", "a*b", "**", "*/x",
    "[a-c]x",
];

const NAMES: [&str; 10] = ["a", "b", "d", "x", "a.o", "b.o", "#a", "!a", "x ", "ax"];

fn rules() -> impl Strategy<Value = Entry> {
    let pattern = prop::sample::select(PATTERNS.to_vec());
    proptest::collection::vec(pattern, 0..5).prop_map(|lines| file(lines.join("\n") + "\n"))
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(NAMES.to_vec());
    proptest::collection::vec(name, 1..4).prop_map(|parts| parts.join("/").into_bytes())
}

/// Later paths win over what is in their way.
fn layout(root: &Path, entries: &[(Vec<u8>, Entry)]) {
    for (path, entry) in entries {
        let target = at(root, path);
        let blocked =
            target.ancestors().skip(1).take_while(|above| *above != root).any(|above| above.is_file());
        if !blocked && !target.exists() {
            write_entry(root, path, entry);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_result_lists_what_git_status_lists(
        root in rules(), nested in rules(), exclude in rules(),
        tracked in proptest::collection::vec(path(), 0..5),
        made in proptest::collection::vec((path(), any::<bool>()), 0..12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let entries: Vec<_> = tracked.into_iter().map(|path| (path, file("base"))).collect();
        layout(dir.path(), &entries);
        let mut base = read_tree(dir.path());
        base.insert(b".gitignore".to_vec(), root);
        base.insert(b".git/info/exclude".to_vec(), exclude);
        if !base.keys().any(|path| path == b"d") {
            base.insert(b"d/.gitignore".to_vec(), nested);
        }
        let overlay = Overlay::of(&base);
        for (path, overwrite) in &made {
            let target = at(&overlay.merged(), path);
            if *overwrite && target.is_file() {
                fs::write(&target, "changed").unwrap();
            } else {
                layout(&overlay.merged(), &[(path.clone(), file("new"))]);
            }
        }
        let seen = read_tree(&overlay.merged());
        prop_assert_eq!(paths(&overlay.collect()), git_status(&base, &seen));
    }
}
