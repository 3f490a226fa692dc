//! All or nothing, onto the right base, through no link, from any point of death.

mod killed;
mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::testkit::{self, Entry, Overlay, Run, Tree, file, read_tree, script, tree, write_tree};

const STRICT: ApplyOptions = ApplyOptions { escaping_links: Accept::No, incomplete: Accept::No };

/// A base with one of everything, and a result that changes all of it.
struct Scene {
    run: Run,
    checkout: tempfile::TempDir,
    after: Tree,
}

fn base() -> Tree {
    tree(&[
        ("dir-to-file/inner", file("in\n")),
        ("emptied/deep/gone", file("gone\n")),
        ("file-to-dir", file("was a file\n")),
        ("kept", file("kept\n")),
        ("link", Entry::Link(b"kept".to_vec())),
        ("mode", file("#!/bin/sh\n")),
        ("modified", file("old\n")),
        ("shared/a", file("a\n")),
        ("shared/b", file("b\n")),
    ])
}

impl Scene {
    fn new() -> Self {
        Self::with(|merged| {
            fs::remove_dir_all(merged.join("dir-to-file")).unwrap();
            fs::write(merged.join("dir-to-file"), "now a file\n").unwrap();
            fs::remove_dir_all(merged.join("emptied")).unwrap();
            fs::remove_file(merged.join("file-to-dir")).unwrap();
            fs::create_dir_all(merged.join("file-to-dir/new/deep")).unwrap();
            fs::write(merged.join("file-to-dir/new/deep/file"), "new\n").unwrap();
            fs::remove_file(merged.join("link")).unwrap();
            fs::write(merged.join("link"), "now a file\n").unwrap();
            fs::set_permissions(merged.join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(merged.join("modified"), "new\n").unwrap();
            fs::remove_file(merged.join("shared/a")).unwrap();
            symlink("kept", merged.join("added-link")).unwrap();
        })
    }

    fn with(acts: impl FnOnce(&Path)) -> Self {
        let overlay = Overlay::of(&base());
        acts(&overlay.merged());
        let (run, checkout) = (overlay.collect(), tempfile::tempdir().unwrap());
        let mut scene = Self { run, checkout, after: read_tree(&overlay.merged()) };
        scene.afresh();
        scene
    }

    /// The same result against a fresh checkout.
    fn afresh(&mut self) {
        self.checkout = tempfile::tempdir().unwrap();
        write_tree(self.checkout.path(), &base());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.checkout.path().join(name)
    }

    fn apply(&self, options: ApplyOptions) -> Result<Applied, ApplyRefused> {
        let checkout = testkit::open(self.checkout.path());
        apply(self.run.fd.as_fd(), checkout.as_fd(), options)
    }

    fn recover(&self) -> Result<Recovered, ApplyRefused> {
        let checkout = testkit::open(self.checkout.path());
        recover(self.run.fd.as_fd(), checkout.as_fd())
    }

    /// Everything about the checkout, down to inode numbers.
    fn state(&self) -> BTreeMap<PathBuf, (u64, u32, u32, Vec<u8>)> {
        let mut state = BTreeMap::new();
        let mut pending = vec![self.checkout.path().to_owned()];
        while let Some(path) = pending.pop() {
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if meta.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            state.insert(path, (meta.ino(), meta.mode(), meta.uid(), content));
        }
        state
    }

    /// Who may do what with it, and whose it is.
    fn facts(&self, name: &str) -> (u32, u32, u32) {
        let meta = self.path(name).symlink_metadata().unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    }

    fn leaves_no_trace(&self) -> bool {
        let mut kept = fs::read_dir(self.run.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let has_journal = kept.any(|name| name.as_encoded_bytes().starts_with(b"apply-"));
        let mut names = fs::read_dir(self.checkout.path()).unwrap().map(|entry| entry.unwrap().file_name());
        !has_journal && names.all(|name| !is_staging_name(name.as_encoded_bytes()))
    }
}

#[test]
fn a_result_lands_whole_and_once() {
    let scene = Scene::new();
    let kept = scene.path("kept").metadata().unwrap().ino();
    assert_eq!(scene.apply(STRICT).unwrap(), Applied { changed: 10, recovered: Recovered::Nothing });
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
    assert_eq!(scene.path("kept").metadata().unwrap().ino(), kept);
    assert!(!scene.path("emptied").exists() && scene.leaves_no_trace());
    assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::Conflicts(conflicts)) if conflicts.len() == 10));
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
}

#[test]
fn a_replaced_file_keeps_its_owner_and_who_may_read_it() {
    let scene = Scene::new();
    for (name, mode) in [("modified", 0o600), ("mode", 0o640)] {
        fs::set_permissions(scene.path(name), fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(scene.path(name), Some(1234), Some(4321)).unwrap();
    }
    std::os::unix::fs::chown(scene.checkout.path(), Some(777), Some(888)).unwrap();
    scene.apply(STRICT).unwrap();
    assert_eq!(scene.facts("modified"), (0o600, 1234, 4321));
    assert_eq!(scene.facts("mode"), (0o750, 1234, 4321));
    assert_eq!(scene.facts("dir-to-file"), (0o644, 777, 888));
    assert_eq!(scene.facts("file-to-dir/new"), (0o755, 777, 888));
}

#[test]
fn a_new_file_is_as_open_as_the_callers_umask_and_in_the_group_that_its_directory_shares() {
    let scene = Scene::with(|merged| {
        fs::create_dir_all(merged.join("shared/new/deep")).unwrap();
        for name in ["new", "shared/new/deep/file", "shared/leaf"] {
            fs::write(merged.join(name), "new\n").unwrap();
        }
        fs::set_permissions(merged.join("shared/leaf"), fs::Permissions::from_mode(0o755)).unwrap();
    });
    std::os::unix::fs::chown(scene.checkout.path(), Some(777), Some(888)).unwrap();
    std::os::unix::fs::chown(scene.path("shared"), Some(777), Some(999)).unwrap();
    fs::set_permissions(scene.path("shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    scene.apply(STRICT).unwrap();
    assert_eq!(scene.facts("new"), (0o640, 777, 888));
    assert_eq!(scene.facts("shared/leaf"), (0o750, 777, 999));
    assert_eq!(scene.facts("shared/new/deep"), (0o2750, 777, 999));
    assert_eq!(scene.facts("shared/new/deep/file"), (0o640, 777, 999));
}

#[test]
fn other_files_in_an_emptied_directory_keep_it() {
    let scene = Scene::new();
    fs::write(scene.path("emptied/mine"), "untracked").unwrap();
    scene.apply(STRICT).unwrap();
    assert_eq!(fs::read_to_string(scene.path("emptied/mine")).unwrap(), "untracked");
    assert!(!scene.path("emptied/deep").exists());
}

#[test]
fn empty_directories_make_room_for_a_file() {
    let mut scene = Scene::with(|merged| {
        fs::remove_dir_all(merged.join("dir-to-file")).unwrap();
        symlink("kept", merged.join("dir-to-file")).unwrap();
        fs::write(merged.join("out"), "now a file\n").unwrap();
    });
    for stays in [None, Some("out/a/mine"), Some("dir-to-file/mine"), Some("out/.git")] {
        scene.afresh();
        fs::create_dir_all(scene.path("out/a/b")).unwrap();
        fs::create_dir_all(scene.path("dir-to-file/empty")).unwrap();
        if let Some(mine) = stays {
            fs::write(scene.path(mine), "mine\n").unwrap();
        }
        let before = scene.state();
        let outcome = scene.apply(STRICT);
        match stays {
            None => assert_eq!(
                (outcome.unwrap().changed, read_tree(scene.checkout.path())),
                (3, scene.after.clone())
            ),
            Some(mine) => {
                let above = mine.rsplit_once('/').unwrap().0;
                let expected = Conflict {
                    path: RelPath::from_bytes(above.as_bytes()).unwrap(),
                    kind: ConflictKind::Exists,
                };
                assert!(
                    matches!(&outcome, Err(ApplyRefused::Conflicts(found)) if *found == [expected]),
                    "{outcome:?}"
                );
                assert_eq!(scene.state(), before);
            }
        }
        assert!(scene.leaves_no_trace());
    }
}

/// An access list as the kernel holds it: the owner, one more user, the group, the mask, everybody.
fn access_list(named: u8, group: u8, mask: u8) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1_u16, 6, u32::MAX),
        (2, named, 1234),
        (4, group, u32::MAX),
        (16, mask, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(u16::from(rights).to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn a_replaced_file_keeps_its_access_list_and_its_owners_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    const LIST: &str = "system.posix_acl_access";
    let scene = Scene::new();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        setxattr(scene.path(name), attribute, value, XattrFlags::empty()).unwrap();
    };
    let get = |name: &str, attribute: &str| {
        let mut value = vec![0_u8; 256];
        let length = getxattr(scene.path(name), attribute, value.as_mut_slice()).ok()?;
        value.truncate(length);
        Some(value)
    };
    // New files get rights for one more user, which the file that is replaced did not give.
    set("", "system.posix_acl_default", &access_list(7, 7, 7));
    // The group may nothing, and the mask is what a mode shows in its place.
    set("modified", LIST, &access_list(6, 0, 6));
    set("modified", "user.note", b"mine");
    // A version 2 capability, given to the old content only.
    let capability = [&0x0200_0001_u32.to_le_bytes()[..], &[0xff; 4], &[0; 12]].concat();
    set("modified", "security.capability", &capability);
    set("mode", LIST, &access_list(4, 0, 4));
    scene.apply(STRICT).unwrap();
    assert_eq!(get("modified", LIST), Some(access_list(6, 0, 6)));
    assert_eq!(get("modified", "user.note"), Some(b"mine".to_vec()));
    assert_eq!(get("modified", "security.capability"), None);
    let (mode, list) = (scene.path("mode").metadata().unwrap().mode() & 0o777, get("mode", LIST).unwrap());
    // Execution follows the right to read: of the owner and of the mask.
    let mut expected = access_list(4, 0, 5);
    expected[6] = 7;
    assert_eq!((mode, list), (0o750, expected));
    assert_eq!(get("link", LIST).map(|list| list.len()), Some(44));
}
