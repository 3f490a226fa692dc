//! C02–C16, E13, E14, G10: nothing is followed, opened, pulled in or let through.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode as Permissions, XattrFlags, makedev, mknodat, setxattr};

use super::*;
use crate::path::RelPath;

const NONE: [&str; 0] = [];

fn mknod(path: &std::path::Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Permissions::from_raw_mode(0o644), device).unwrap();
}

fn mark(path: &std::path::Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

#[test]
fn c03_links_are_data_and_never_followed() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("id_rsa"), "SECRET").unwrap();
    let overlay = Overlay::of(&tree(&[("d/f", file("x"))]));
    let merged = overlay.merged();
    symlink(secret.path(), merged.join("absolute")).unwrap();
    symlink("../../../../etc/passwd", merged.join("d/up")).unwrap();
    symlink("/proc/self/root", merged.join("magic")).unwrap();
    symlink("d/f", merged.join("inside")).unwrap();
    symlink(".git/hooks", merged.join("hooks")).unwrap();
    symlink("x", merged.join(".gitmodules")).unwrap();
    let run = overlay.collect();
    assert_eq!(run.summary(), ["absolute added", "d/up added", "hooks added", "inside added", "magic added"]);
    assert_eq!(run.rejections(), [".gitmodules Reserved"]);
    let flagged: Vec<_> = run
        .collected
        .record
        .flagged
        .iter()
        .map(|flag| format!("{} {:?}", flag.path, flag.category))
        .collect();
    assert_eq!(
        flagged,
        ["absolute LinkOutside", "d/up LinkOutside", "hooks LinkIntoGit", "magic LinkOutside"]
    );
    let objects = fs::read_dir(run.dir.path().join("objects")).unwrap();
    for object in objects {
        assert_ne!(fs::read(object.unwrap().path()).unwrap(), b"SECRET");
    }
}

#[test]
fn c02_a_link_in_the_base_is_never_read_through() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("key"), "SECRET").unwrap();
    let base = tree(&[("out", crate::testkit::Entry::Link(secret.path().to_str().unwrap().into()))]);
    let overlay = Overlay::of(&base);
    // A directory of the same name: its `key` must be new, not compared with the secret behind the link.
    fs::remove_file(overlay.merged().join("out")).unwrap();
    fs::create_dir(overlay.merged().join("out")).unwrap();
    fs::write(overlay.merged().join("out/key"), "SECRET").unwrap();
    assert_eq!(overlay.collect().summary(), ["out deleted", "out/key added"]);
}

#[test]
fn c04_c05_c06_special_files_are_refused_unopened() {
    let overlay = Overlay::of(&tree(&[("f", file("x"))]));
    let upper = overlay.upper();
    mknod(&upper.join("char"), FileType::CharacterDevice, makedev(1, 3));
    mknod(&upper.join("block"), FileType::BlockDevice, makedev(7, 0));
    // Opening a fifo for reading would wait for a writer for ever.
    mknod(&upper.join("fifo"), FileType::Fifo, 0);
    // Replacing a file of the base by something special does not pass for its deletion.
    mknod(&upper.join("f"), FileType::Fifo, 0);
    drop(UnixListener::bind(overlay.merged().join("socket")).unwrap());
    let run = overlay.collect();
    assert_eq!(run.summary(), NONE);
    assert_eq!(
        run.rejections(),
        ["block BlockDevice", "char CharDevice", "f Fifo", "fifo Fifo", "socket Socket"]
    );
}

#[test]
fn c07_a_whiteout_look_alike_only_ever_deletes() {
    let overlay = Overlay::of(&tree(&[("d/a", file("x")), ("d/b", file("y")), ("e", file("z"))]));
    for name in ["d", "nothing"] {
        mknod(&overlay.upper().join(name), FileType::CharacterDevice, 0);
    }
    let run = overlay.collect();
    assert_eq!((run.summary(), run.rejections()), (vec!["d/a deleted".into(), "d/b deleted".into()], vec![]));
}

#[test]
fn c08_hard_links_become_independent_files() {
    let overlay = Overlay::of(&tree(&[("f", file("x"))]));
    fs::write(overlay.merged().join("one"), "same").unwrap();
    fs::hard_link(overlay.merged().join("one"), overlay.merged().join("two")).unwrap();
    fs::hard_link(overlay.merged().join("f"), overlay.merged().join("g")).unwrap();
    let run = overlay.collect();
    assert_eq!(run.summary(), ["g added", "one added", "two added"]);
    let objects: Vec<_> =
        fs::read_dir(run.dir.path().join("objects")).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(
        objects.iter().all(|object| std::os::unix::fs::MetadataExt::nlink(&object.metadata().unwrap()) == 1)
    );
}

#[test]
fn c09_c10_modes_and_owners_are_normalised() {
    let overlay = Overlay::of(&tree(&[]));
    for (name, mode) in
        [("suid", 0o6755), ("sticky", 0o1644), ("world", 0o666), ("group-x", 0o654), ("none", 0)]
    {
        let path = overlay.merged().join(name);
        fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, Some(12345), Some(54321)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let run = overlay.collect();
    let modes: Vec<_> =
        run.collected.record.changes.iter().map(|change| change.delta.result().unwrap().mode).collect();
    assert_eq!(modes, [Mode::Regular, Mode::Regular, Mode::Regular, Mode::Executable, Mode::Regular]);
}

#[test]
fn c11_e13_sparse_giants_are_refused_and_holes_stay_holes() {
    let overlay = Overlay::of(&tree(&[]));
    File::create(overlay.merged().join("giant")).unwrap().set_len((1 << 63) - 4096).unwrap();
    File::create(overlay.merged().join("hole")).unwrap().set_len(8 << 20).unwrap();
    let run = overlay.collect();
    assert_eq!(
        (run.summary(), run.rejections()),
        (vec!["hole added".into()], vec!["giant FileTooLarge".into()])
    );
    let object = fs::read_dir(run.dir.path().join("objects")).unwrap().next().unwrap().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&object.metadata().unwrap()), 0);
}

#[test]
fn c12_caps_on_the_whole_refuse_the_result_and_name_the_cap() {
    let overlay = Overlay::of(&tree(&[("base/1", file("1234567890")), ("base/2", file("1234567890"))]));
    fs::create_dir(overlay.merged().join("d")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(overlay.merged().join("d").join(name), "123456").unwrap();
    }
    let exceeded = |caps: Caps| match overlay.collect_within(&caps) {
        Err(CollectFault::Exceeded { cap, limit }) => Some((cap, limit)),
        Err(fault) => panic!("{fault:?}"),
        Ok(_) => None,
    };
    let caps = Caps::default();
    assert_eq!(exceeded(Caps { entries: 4, ..caps }), None);
    assert_eq!(exceeded(Caps { entries: 3, ..caps }), Some((Cap::Entries, 3)));
    assert_eq!(exceeded(Caps { total_bytes: 18, ..caps }), None);
    assert_eq!(exceeded(Caps { total_bytes: 17, ..caps }), Some((Cap::TotalBytes, 17)));
    assert_eq!(exceeded(Caps { path_text: 9, ..caps }), Some((Cap::PathText, 9)));
    // What a deletion has to spell out of the base counts as well.
    fs::remove_dir_all(overlay.merged().join("base")).unwrap();
    assert_eq!(exceeded(Caps { entries: 6, ..caps }), Some((Cap::Entries, 6)));
    assert_eq!(exceeded(Caps { total_bytes: 37, ..caps }), Some((Cap::TotalBytes, 37)));
    assert_eq!(exceeded(Caps { entries: 7, total_bytes: 38, ..caps }), None);
}

#[test]
fn c12_caps_on_one_entry_refuse_that_entry() {
    let overlay = Overlay::of(&tree(&[]));
    let merged = overlay.merged();
    fs::create_dir_all(merged.join("1/2/3/4")).unwrap();
    for path in ["1/2/deep", "1/2/3/deeper", "longname", "short"] {
        fs::write(merged.join(path), "12345").unwrap();
    }
    fs::write(merged.join("big"), "123456").unwrap();
    let run = overlay.collect_within(&Caps { depth: 3, name: 7, file_bytes: 5, ..Caps::default() }).unwrap();
    assert_eq!(run.summary(), ["1/2/deep added", "short added"]);
    assert_eq!(
        run.rejections(),
        ["1/2/3/4 TooDeep", "1/2/3/deeper TooDeep", "big FileTooLarge", "longname NameTooLong"]
    );
}

#[test]
fn e14_deep_nesting_and_huge_directories_cost_little() {
    let overlay = Overlay::of(&tree(&[]));
    let name = "n".repeat(255);
    let mut fd = crate::testkit::open(&overlay.merged());
    for _ in 0..4000 {
        rustix::fs::mkdirat(&fd, &name, Permissions::RWXU).unwrap();
        fd = rustix::fs::openat(&fd, &name, rustix::fs::OFlags::DIRECTORY, Permissions::empty()).unwrap();
    }
    let wide = overlay.merged().join("wide");
    fs::create_dir(&wide).unwrap();
    for number in 0..5_000 {
        File::create(wide.join(number.to_string())).unwrap();
    }
    let run = overlay.collect_within(&Caps { depth: 4000, ..Caps::default() }).unwrap();
    assert_eq!(run.collected.record.changes.len(), 5_000);
    let too_long = format!("{} PathTooLong", [name.as_str(); 17].join("/"));
    assert_eq!(run.rejections(), [too_long]);
    match overlay.collect_within(&Caps { entries: 4_000, ..Caps::default() }) {
        Err(CollectFault::Exceeded { cap: Cap::Entries, limit: 4_000 }) => {}
        other => panic!("{:?}", other.map(|run| run.summary().len())),
    }
}

#[test]
fn c13_hostile_names_are_stored_and_printed_safely() {
    let overlay = Overlay::of(&tree(&[]));
    let names: [&[u8]; 6] = [b"a\nb", b"\x1b]0;x\x07", b"\xff\xfe", b"-rf", b"q\"uote\\", b"trail "];
    for name in names {
        fs::write(crate::testkit::at(&overlay.merged(), name), name).unwrap();
    }
    let expected = crate::testkit::read_tree(&overlay.merged());
    let run = overlay.collect();
    assert_eq!(run.git_applied(&tree(&[])), expected);
    assert_eq!(run.collected.record.flagged.len(), 6);
    for output in ["changes.json", "manifest.json"] {
        let bytes = fs::read(run.dir.path().join(output)).unwrap();
        assert!(bytes.iter().all(|&byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{output}");
    }
    let reloaded = Record::load(run.fd.as_fd()).unwrap();
    assert_eq!(reloaded, run.collected.record);
}

#[test]
fn c14_marks_in_the_other_namespace_are_only_data() {
    let base = tree(&[("d/keep", file("x")), ("etc/secret", file("s")), ("f", file("y"))]);
    let overlay = Overlay::of(&base);
    let merged = overlay.merged();
    for (path, name, value) in [
        ("d", "user.overlay.opaque", &b"y"[..]),
        ("d", "user.overlay.redirect", b"/etc"),
        ("f", "user.overlay.metacopy", b""),
        ("f", "user.overlay.whiteout", b"y"),
    ] {
        mark(&merged.join(path), name, value);
    }
    let run = overlay.collect();
    assert_eq!((run.summary(), run.rejections()), (vec![], vec![]));
}

#[test]
fn c14_forged_marks_delete_or_refuse_and_never_read_elsewhere() {
    let base =
        tree(&[("d/old", file("x")), ("d/sub/x", file("1")), ("etc/secret", file("s")), ("w", file("w"))]);
    for (xattrs, space) in [(OverlayXattrs::User, "user"), (OverlayXattrs::Trusted, "trusted")] {
        let overlay = Overlay::new(xattrs, |lower| crate::testkit::write_tree(lower, &base));
        let upper = overlay.upper();
        for dir in ["d", "new", "redirected", "half"] {
            fs::create_dir(upper.join(dir)).unwrap();
        }
        for name in ["d/new", "meta", "w", "redirected/inside", "half/f"] {
            fs::write(upper.join(name), if name == "w" { "" } else { "content" }).unwrap();
        }
        let marks = [
            ("d", "opaque", &b"y"[..]),
            ("new", "redirect", b"/etc"),
            ("redirected", "redirect", b"etc"),
            ("meta", "metacopy", b""),
            ("meta", "redirect", b"/etc/secret"),
            ("w", "whiteout", b"y"),
            ("half", "opaque", b"x"),
        ];
        for (path, name, value) in marks {
            mark(&upper.join(path), &format!("{space}.overlay.{name}"), value);
        }
        let run = overlay.collect();
        assert_eq!(
            run.summary(),
            ["d/new added", "d/old deleted", "d/sub/x deleted", "half/f added", "w deleted"]
        );
        assert_eq!(run.rejections(), ["meta Metacopy", "new Redirect", "redirected Redirect"]);
    }
}

#[test]
fn c15_attributes_are_dropped() {
    let overlay = Overlay::of(&tree(&[("f", file("x"))]));
    mark(&overlay.merged().join("f"), "user.note", b"stuffed");
    mark(
        &overlay.merged().join("f"),
        "security.capability",
        b"\x01\0\0\x02\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    assert_eq!(overlay.collect().summary(), NONE);
}

#[test]
fn c16_a_file_that_still_changes_ends_the_collection() {
    // Grown before it was copied, and after.
    for point in [0, 1] {
        let overlay = Overlay::of(&tree(&[]));
        let path = overlay.merged().join("alive");
        fs::write(&path, "x").unwrap();
        let write = move |passed| {
            if passed == point {
                let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
                std::io::Write::write_all(&mut file, b"more").unwrap();
            }
        };
        match crate::fault::with_hook(write, || overlay.collect_within(&Caps::default())) {
            Err(CollectFault::Changed { path }) => assert_eq!(path, "alive"),
            other => panic!("{:?}", other.map(|run| run.summary())),
        }
    }
}

#[test]
fn g10_git_metadata_is_counted_and_never_kept() {
    let base = Overlay::new(OverlayXattrs::Trusted, |lower| {
        fs::create_dir_all(lower.join(".git/hooks")).unwrap();
        fs::create_dir_all(lower.join("sub/.git/objects")).unwrap();
        fs::write(lower.join(".git/config"), "[core]").unwrap();
        fs::write(lower.join("sub/.git/config"), "[core]").unwrap();
        fs::write(lower.join("sub/f"), "f").unwrap();
    });
    let merged = base.merged();
    fs::write(merged.join(".git/config"), "[core]\n\tfsmonitor = evil").unwrap();
    fs::write(merged.join(".git/hooks/post-checkout"), "evil").unwrap();
    for dir in [".GIT", "git~1", "d/.Git. "] {
        fs::create_dir_all(merged.join(dir)).unwrap();
        fs::write(merged.join(dir).join("config"), "evil").unwrap();
    }
    fs::write(merged.join("d/.git"), "gitdir: /etc").unwrap();
    fs::remove_dir_all(merged.join("sub")).unwrap();
    let run = base.collect();
    assert_eq!((run.summary(), run.rejections()), (vec!["sub/f deleted".into()], vec![]));
    assert_eq!(run.collected.record.git_metadata_changes, 7);
    let patch = String::from_utf8(run.patch()).unwrap();
    assert!(!patch.to_lowercase().contains("evil"), "{patch}");
}

#[test]
fn names_of_an_apply_at_work_are_refused() {
    let overlay = Overlay::of(&tree(&[]));
    fs::create_dir_all(overlay.merged().join(".pond-apply-00/d")).unwrap();
    fs::write(overlay.merged().join(".pond-apply-00/0"), "x").unwrap();
    fs::write(overlay.merged().join("d"), "x").unwrap();
    let run = overlay.collect();
    assert_eq!(
        (run.summary(), run.rejections()),
        (vec!["d added".into()], vec![".pond-apply-00 Reserved".into()])
    );
}

/// Somebody edits the checkout between the two looks that are had at it: at what changed, and for the patch.
#[test]
fn a_base_that_moves_while_it_is_read_is_said_to_have_moved() {
    let acts: [fn(&std::path::Path); 3] = [
        |base| {
            fs::rename(base.join("d"), base.join("away")).unwrap();
            symlink("away", base.join("d")).unwrap();
        },
        |base| fs::rename(base.join("d"), base.join("away")).unwrap(),
        |base| ["f", "g"].iter().for_each(|name| fs::write(base.join("d").join(name), "other").unwrap()),
    ];
    for act in acts {
        let overlay = Overlay::of(&tree(&[("d/f", file("x")), ("d/g", file("x"))]));
        for name in ["f", "g"] {
            fs::write(overlay.merged().join("d").join(name), "job").unwrap();
        }
        let base = overlay.lower();
        // Each file is copied between two of the points: at the third, the first file was compared already.
        let hook = move |point| {
            if point == 2 {
                act(&base)
            }
        };
        let failed = crate::fault::with_hook(hook, || {
            let (wanted, run) = (&crate::testkit::WITHOUT_IGNORED, tempfile::tempdir().unwrap());
            let fd = crate::testkit::open(run.path());
            collect(&overlay.sources(), wanted, &Caps::default(), fd.as_fd(), PATIENT)
        });
        assert!(matches!(&failed, Err(CollectFault::Moved { path }) if path.starts_with("d/")), "{failed:?}");
    }
}

#[test]
fn unchanged_copies_are_no_change() {
    let overlay = Overlay::of(&tree(&[("f", file("x")), ("d/g", script("y"))]));
    let merged = overlay.merged();
    fs::write(merged.join("f"), "x").unwrap();
    fs::set_permissions(merged.join("d/g"), fs::Permissions::from_mode(0o700)).unwrap();
    let run = overlay.collect();
    assert_eq!(run.summary(), NONE);
    assert_eq!(fs::read_dir(run.dir.path().join("objects")).unwrap().count(), 0);
    assert_eq!(run.patch(), b"");
}

#[test]
fn artifacts_are_regular_files_below_declared_paths() {
    let overlay = Overlay::of(&tree(&[("dist/old", file("x"))]));
    let merged = overlay.merged();
    fs::write(merged.join("dist/app"), "binary").unwrap();
    symlink("/etc/passwd", merged.join("dist/link")).unwrap();
    fs::write(merged.join("distant"), "no").unwrap();
    fs::write(merged.join("report.txt"), "yes").unwrap();
    let run = overlay.collect();
    let out = tempfile::tempdir().unwrap();
    let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
    let declared = ["dist", "report.txt", "absent"].map(path);
    let fd = crate::testkit::open(out.path());
    let copied = copy_artifacts(run.fd.as_fd(), &run.collected.record, &declared, fd.as_fd()).unwrap();
    let expected = Artifacts {
        copied: vec![path("dist/app"), path("report.txt")],
        refused: Vec::new(),
        missing: vec![path("absent")],
    };
    assert_eq!(copied, expected);
    let written = tree(&[("dist/app", file("binary")), ("report.txt", file("yes"))]);
    assert_eq!(crate::testkit::read_tree(out.path()), written);
    // Nothing is overwritten, and a link planted in the output directory is not followed.
    let again = copy_artifacts(run.fd.as_fd(), &run.collected.record, &declared, fd.as_fd());
    assert!(matches!(again, Err(ArtifactFault::Create { .. })), "{again:?}");
    let trap = tempfile::tempdir().unwrap();
    symlink(out.path(), trap.path().join("dist")).unwrap();
    let fd = crate::testkit::open(trap.path());
    let trapped = copy_artifacts(run.fd.as_fd(), &run.collected.record, &declared, fd.as_fd());
    assert!(matches!(trapped, Err(ArtifactFault::Directory { .. })), "{trapped:?}");
}

/// Ignored or not, what was asked for and is there is not told as missing.
#[test]
fn an_artifact_that_is_there_and_not_taken_is_told_with_the_reason() {
    for rules in ["", "out\n"] {
        let overlay = Overlay::of(&tree(&[(".gitignore", file(rules))]));
        let out = overlay.merged().join("out");
        fs::create_dir_all(out.join("dir")).unwrap();
        fs::write(out.join("dir/small"), "taken").unwrap();
        for name in ["big", "dir/b\tig"] {
            File::create(out.join(name)).unwrap().set_len(2 << 20).unwrap();
        }
        symlink("/etc/passwd", out.join("link")).unwrap();
        symlink("small", out.join("dir/link")).unwrap();
        mknod(&out.join("pipe"), FileType::Fifo, 0);
        let path = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let declared = ["out/big", "out/dir", "out/link", "out/pipe", "out/bi"].map(path);
        let wanted = Wanted { ignored: Ignored::LeaveOut, artifacts: &declared };
        let caps = Caps { file_bytes: 1 << 20, ..Caps::default() };
        let run = overlay.collect_wanted(&wanted, &caps).unwrap();
        let to = tempfile::tempdir().unwrap();
        let fd = crate::testkit::open(to.path());
        let told = copy_artifacts(run.fd.as_fd(), &run.collected.record, &declared, fd.as_fd()).unwrap();
        let refused: Vec<_> = told.refused.iter().map(|entry| (entry.path.as_str(), entry.reason)).collect();
        let expected = [
            ("\"out/dir/b\\tig\"", Reason::FileTooLarge),
            ("out/big", Reason::FileTooLarge),
            ("out/link", Reason::Link),
            ("out/pipe", Reason::Fifo),
        ];
        assert_eq!(refused, expected, "{rules:?}");
        assert_eq!((told.copied, told.missing), (vec![path("out/dir/small")], vec![path("out/bi")]));
    }
}

#[test]
fn the_edit_result_is_raw_bounded_and_not_a_change() {
    let overlay = Overlay::of(&tree(&[]));
    fs::write(overlay.merged().join("edit_result.json"), b"{ not json \xff").unwrap();
    let run = overlay.collect();
    assert_eq!(run.collected.edit_result.as_deref(), Some(&b"{ not json \xff"[..]));
    assert_eq!(run.summary(), NONE);
    let manifest = fs::read_to_string(run.dir.path().join("manifest.json")).unwrap();
    assert!(manifest.contains("\"path\":\"edit_result.json\""), "{manifest}");

    fs::write(overlay.merged().join("edit_result.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    let run = overlay.collect();
    assert_eq!(
        (run.collected.edit_result.clone(), run.rejections()),
        (None, vec!["edit_result.json FileTooLarge".into()])
    );

    fs::remove_file(overlay.merged().join("edit_result.json")).unwrap();
    symlink("/etc/passwd", overlay.merged().join("edit_result.json")).unwrap();
    let run = overlay.collect();
    assert_eq!(
        (run.collected.edit_result.clone(), run.summary()),
        (None, vec!["edit_result.json added".into()])
    );
}

#[test]
fn an_ordinary_user_is_told_what_could_not_be_read() {
    let overlay = Overlay::of(&tree(&[("hidden/base", file("x"))]));
    let upper = overlay.upper();
    for (dir, mode) in [("closed", 0o700), ("no-search", 0o744), ("hidden", 0o744)] {
        fs::create_dir(upper.join(dir)).unwrap();
        fs::write(upper.join(dir).join("f"), "x").unwrap();
        fs::set_permissions(upper.join(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    mark(&upper.join("hidden"), "user.overlay.opaque", b"y");
    fs::write(upper.join("secret"), "x").unwrap();
    fs::set_permissions(upper.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(upper.join("plain"), "x").unwrap();
    let sources = Sources { xattrs: OverlayXattrs::User, ..overlay.sources() };
    let run = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(run.path(), Some(1000), Some(1000)).unwrap();
    let fd = crate::testkit::open(run.path());
    let user = rustix::fs::Uid::from_raw(1000);
    // Identity is per thread, so only this one gives up root.
    let record = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            rustix::thread::set_thread_uid(user).unwrap();
            let wanted = &crate::testkit::WITHOUT_IGNORED;
            collect(&sources, wanted, &Caps::default(), fd.as_fd(), PATIENT).unwrap().record
        });
        collecting.join().unwrap()
    });
    let changed: Vec<_> = record.changes.iter().map(|change| change.path.to_string()).collect();
    let refused: Vec<_> = record.rejected.iter().map(|entry| (entry.path.as_str(), entry.reason)).collect();
    let unreadable = ["closed", "hidden/base", "hidden/f", "no-search/f", "secret"];
    assert_eq!(
        (changed, refused),
        (vec!["plain".to_owned()], unreadable.map(|path| (path, Reason::Unreadable)).to_vec())
    );
}
