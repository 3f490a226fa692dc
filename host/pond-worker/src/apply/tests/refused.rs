//! G13 and the rest: what may not be applied leaves the checkout untouched, to the inode.

use std::cell::Cell;

use super::*;
use crate::fault::with_hook;

fn conflicts(scene: &Scene) -> Vec<(String, ConflictKind)> {
    let before = scene.state();
    let found = match scene.apply(STRICT) {
        Err(ApplyRefused::Conflicts(found)) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(scene.state(), before);
    assert!(scene.leaves_no_trace());
    found.into_iter().map(|conflict| (conflict.path.to_string(), conflict.kind)).collect()
}

#[test]
fn another_base_is_refused_with_every_conflict() {
    let scene = Scene::new();
    fs::write(scene.path("modified"), "mine\n").unwrap();
    fs::set_permissions(scene.path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(scene.path("shared/a")).unwrap();
    fs::remove_file(scene.path("link")).unwrap();
    symlink("elsewhere", scene.path("link")).unwrap();
    fs::write(scene.path("added-link"), "in the way").unwrap();
    let expected = [
        ("added-link", ConflictKind::Exists),
        ("link", ConflictKind::Differs),
        ("mode", ConflictKind::Differs),
        ("modified", ConflictKind::Differs),
        ("shared/a", ConflictKind::Missing),
    ];
    assert_eq!(conflicts(&scene), expected.map(|(path, kind)| (path.to_owned(), kind)));
}

#[test]
fn a_directory_that_is_now_a_link_is_not_written_through() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a"), "a\n").unwrap();
    let scene = Scene::with(|merged| {
        fs::write(merged.join("shared/a"), "evil\n").unwrap();
        fs::write(merged.join("shared/new"), "evil\n").unwrap();
    });
    fs::remove_dir_all(scene.path("shared")).unwrap();
    symlink(outside.path(), scene.path("shared")).unwrap();
    let expected = [("shared/a", ConflictKind::Missing), ("shared/new", ConflictKind::ParentNotADirectory)];
    assert_eq!(conflicts(&scene), expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(read_tree(outside.path()), tree(&[("a", file("a\n"))]));
}

#[test]
fn a_link_swapped_in_after_the_survey_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a"), "a\n").unwrap();
    let mut scene = Scene::with(|merged| {
        fs::write(merged.join("modified"), "new\n").unwrap();
        fs::write(merged.join("shared/a"), "evil\n").unwrap();
        fs::write(merged.join("shared/new"), "evil\n").unwrap();
    });
    // Before anything is staged, and after everything is.
    for point in [1, 4] {
        scene.afresh();
        let (shared, aside, target) = (scene.path("shared"), scene.path("aside"), outside.path().to_owned());
        let swap = move |passed| {
            if passed == point {
                fs::rename(&shared, &aside).unwrap();
                symlink(&target, &shared).unwrap();
            }
        };
        let outcome = with_hook(swap, || scene.apply(STRICT));
        assert!(
            match &outcome {
                Err(ApplyRefused::Stage { path, .. }) => point == 1 && path.to_string() == "shared/a",
                Err(ApplyRefused::Change { path, .. }) => point == 4 && path.to_string() == "shared/a",
                _ => false,
            },
            "{outcome:?}"
        );
        assert_eq!(read_tree(outside.path()), tree(&[("a", file("a\n"))]));
        assert_eq!(fs::read_to_string(scene.path("modified")).unwrap(), "old\n");
        assert!(scene.leaves_no_trace());
    }
}

#[test]
fn an_edit_made_meanwhile_is_kept_and_the_rest_undone() {
    // Each of the points after the survey, until the edit comes too late to be lost.
    let mut scene = Scene::new();
    for point in 0..8 {
        for name in ["modified", "shared/a", "emptied/deep/gone"] {
            scene.afresh();
            let victim = scene.path(name);
            let edit = move |passed| {
                if passed == point {
                    fs::write(&victim, "edited by hand\n").unwrap();
                }
            };
            let outcome = with_hook(edit, || scene.apply(STRICT));
            assert!(
                matches!(&outcome, Err(ApplyRefused::Moved { path }) if path.to_string() == name),
                "{outcome:?}"
            );
            let mut expected = base();
            expected.insert(name.into(), file("edited by hand\n"));
            assert_eq!(read_tree(scene.checkout.path()), expected);
            assert!(scene.leaves_no_trace());
        }
    }
}

#[test]
fn a_file_created_meanwhile_is_not_overwritten() {
    let scene = Scene::new();
    let victim = scene.path("added-link");
    let done = Cell::new(false);
    let create = move |_| {
        if !done.replace(true) {
            fs::write(&victim, "mine").unwrap();
        }
    };
    let outcome = with_hook(create, || scene.apply(STRICT));
    assert!(
        matches!(&outcome, Err(ApplyRefused::Change { path, .. }) if path.to_string() == "added-link"),
        "{outcome:?}"
    );
    let mut expected = base();
    expected.insert(b"added-link".to_vec(), file("mine"));
    assert_eq!(read_tree(scene.checkout.path()), expected);
}

#[test]
fn tampered_contents_are_refused() {
    let scene = Scene::new();
    let before = scene.state();
    for object in fs::read_dir(scene.run.dir.path().join("objects")).unwrap() {
        fs::write(object.unwrap().path(), "swapped").unwrap();
    }
    assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Stage { .. })));
    assert_eq!(scene.state(), before);
    assert!(scene.leaves_no_trace());
}

#[test]
fn a_forged_record_cannot_name_another_place() {
    let scene = Scene::new();
    let record = scene.run.dir.path().join("changes.json");
    let honest = fs::read_to_string(&record).unwrap();
    let before = scene.state();
    let naming = |path: &str| honest.replace("\"path\": \"modified\"", &format!("\"path\": \"{path}\""));
    for forged in [".git/hooks/post-checkout", "../outside", "/etc/passwd", ".GIT/config", "shared/../../x"] {
        fs::write(&record, naming(forged)).unwrap();
        assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Record { .. })), "{forged}");
    }
    // A path twice, out of order, or below a new file.
    for forged in ["mode", "a", "link/below"] {
        fs::write(&record, naming(forged)).unwrap();
        assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Malformed { .. })), "{forged}");
    }
    assert_eq!(scene.state(), before);
}

#[test]
fn escaping_links_need_consent() {
    let scene = Scene::with(|merged| {
        fs::write(merged.join("modified"), "new\n").unwrap();
        symlink("../../etc/passwd", merged.join("way-out")).unwrap();
    });
    let before = scene.state();
    let refused = scene.apply(STRICT);
    assert!(
        matches!(&refused, Err(ApplyRefused::EscapingLink { path }) if path.to_string() == "way-out"),
        "{refused:?}"
    );
    assert_eq!(scene.state(), before);
    scene.apply(ApplyOptions { escaping_links: Accept::Yes, ..STRICT }).unwrap();
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
}

#[test]
fn an_incomplete_result_needs_consent() {
    let scene = Scene::with(|merged| {
        fs::write(merged.join("modified"), "new\n").unwrap();
        drop(std::os::unix::net::UnixListener::bind(merged.join("socket")).unwrap());
    });
    assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Incomplete { count: 1 })));
    scene.apply(ApplyOptions { incomplete: Accept::Yes, ..STRICT }).unwrap();
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
}

#[test]
fn two_at_once_do_not_mix() {
    let scene = Scene::new();
    let held = lock(testkit::open(scene.checkout.path()).as_fd()).unwrap();
    assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Busy)));
    assert!(matches!(scene.recover(), Err(ApplyRefused::Busy)));
    drop(held);
    scene.apply(STRICT).unwrap();
}

#[test]
fn a_staging_directory_shipped_by_the_repository_is_just_files() {
    let scene = Scene::new();
    let forged = scene.path(".pond-apply-0000000000000000");
    fs::create_dir(&forged).unwrap();
    let journal = r#"{"staging":".pond-apply-0000000000000000","phase":"committing","steps":
        [{"path":"kept","action":{"kind":"remove"}}],"made":[],"gone":[]}"#;
    let inode = std::os::unix::fs::MetadataExt::ino(&scene.checkout.path().metadata().unwrap());
    fs::write(forged.join(format!("apply-{inode:x}.journal")), journal).unwrap();
    fs::write(forged.join("0"), "evil").unwrap();
    scene.apply(STRICT).unwrap();
    assert_eq!(fs::read_to_string(scene.path("kept")).unwrap(), "kept\n");
    assert_eq!(fs::read_to_string(forged.join("0")).unwrap(), "evil");
}

#[test]
fn a_script_stays_a_script() {
    let scene = Scene::with(|merged| testkit::write_entry(merged, b"run.sh", &script("#!/bin/sh\n")));
    scene.apply(STRICT).unwrap();
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
}
