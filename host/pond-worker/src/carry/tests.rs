//! Links lead nowhere on either way, special files are no files, and what is left out is left out.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

struct World {
    place: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["root/workspace", "host/tree/deep", "out"] {
            std::fs::create_dir_all(place.path().join(name)).unwrap();
        }
        std::fs::write(place.path().join("secret"), "secret").unwrap();
        std::fs::write(place.path().join("host/tree/a"), "a").unwrap();
        std::fs::write(place.path().join("host/tree/deep/b.log"), "b").unwrap();
        Self { place }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    fn open(&self, name: &str) -> File {
        File::open(self.at(name)).unwrap()
    }

    fn bring(&self, source: &str, target: &str, exclude: &[&str]) -> Result<Copied, CarryFault> {
        let owner = rustix::process::geteuid().as_raw();
        let exclude: Vec<String> = exclude.iter().map(|text| (*text).to_owned()).collect();
        bring_in(self.open("root").as_fd(), target, self.open(source).as_fd(), owner, &exclude)
    }

    fn take(&self, source: &str, name: &str) -> Result<Copied, CarryFault> {
        take_out(self.open("root").as_fd(), source, self.open("out").as_fd(), name, None)
    }

    /// One file of so many bytes at most.
    fn take_file(&self, source: &str, name: &str, most: u64) -> Result<Copied, CarryFault> {
        take_out(self.open("root").as_fd(), source, self.open("out").as_fd(), name, Some(most))
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn trees_and_files_go_in_and_come_out() {
    let world = World::new();
    world.bring("host/tree", "/workspace/new/tree", &["*.log"]).unwrap();
    assert_eq!(read(&world.at("root/workspace/new/tree/a")), "a");
    assert!(world.at("root/workspace/new/tree/deep").is_dir());
    assert!(!world.at("root/workspace/new/tree/deep/b.log").exists(), "left out");
    assert!(matches!(world.bring("host/tree", "/workspace/new/tree", &[]), Err(CarryFault::Exists(_))));
    world.bring("secret", "/workspace/new/tree/a", &[]).unwrap();
    assert_eq!(read(&world.at("root/workspace/new/tree/a")), "secret", "a file is replaced");
    std::fs::set_permissions(world.at("root/workspace/new/tree/a"), PermissionsExt::from_mode(0o4755))
        .unwrap();
    world.take("/workspace/new", "copy").unwrap();
    let found = std::fs::metadata(world.at("out/copy/tree/a")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o755, "without setuid");
    assert!(matches!(world.take("/workspace/new", "copy"), Err(CarryFault::Exists(_))));
    world.take("/workspace/new/tree/a", "a").unwrap();
    assert_eq!(read(&world.at("out/a")), "secret");
}

#[test]
fn a_file_that_is_too_large_and_a_directory_are_not_begun() {
    let world = World::new();
    std::fs::write(world.at("root/workspace/a"), "12345").unwrap();
    File::create(world.at("root/workspace/huge")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(world.take_file("/workspace/a", "a", 4), Err(CarryFault::TooLarge(_, 4))));
    assert!(matches!(world.take_file("/workspace/huge", "huge", 1 << 20), Err(CarryFault::TooLarge(..))));
    assert!(matches!(world.take_file("/workspace", "all", 1 << 20), Err(CarryFault::Directory(_))));
    assert_eq!(std::fs::read_dir(world.at("out")).unwrap().count(), 0, "nothing was begun");
    world.take_file("/workspace/a", "a", 5).unwrap();
    assert_eq!(read(&world.at("out/a")), "12345");
}

#[test]
fn no_link_is_followed_on_either_way() {
    let world = World::new();
    symlink(world.place.path(), world.at("root/workspace/up")).unwrap();
    symlink(world.at("secret"), world.at("root/workspace/file")).unwrap();
    for path in ["/workspace/up/secret", "/workspace/file", "/workspace/up"] {
        let taken = world.take(path, "x");
        assert!(matches!(taken, Err(CarryFault::Absent(_) | CarryFault::Special(_))), "{path}: {taken:?}");
    }
    assert!(matches!(world.bring("secret", "/workspace/up/planted", &[]), Err(CarryFault::Absent(_))));
    assert!(!world.at("planted").exists());
    world.bring("host/tree/a", "/workspace/file", &[]).unwrap();
    assert_eq!(read(&world.at("secret")), "secret", "the link was replaced, not written through");
    std::fs::create_dir(world.at("root/workspace/tree")).unwrap();
    symlink("../../secret", world.at("root/workspace/tree/out")).unwrap();
    symlink("inner", world.at("root/workspace/tree/in")).unwrap();
    let copied = world.take("/workspace/tree", "tree").unwrap();
    assert_eq!(copied.skipped_names, ["out"]);
    assert!(std::fs::symlink_metadata(world.at("out/tree/in")).unwrap().is_symlink());
}

#[test]
fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere() {
    let world = World::new();
    for number in 0..300 {
        std::fs::create_dir_all(world.at(&format!("host/tree/a-dir/{number}"))).unwrap();
    }
    for round in 0..10 {
        let target = world.at(&format!("root/workspace/tree-{round}"));
        let (made, aside) = (target.join("a-dir"), target.join("aside"));
        std::thread::scope(|scope| {
            // What runs in the sandbox waits for the directory to be made, and puts a link to the host in its place.
            let swap = scope.spawn(|| {
                let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
                while std::fs::rename(&made, &aside).is_err() && std::time::Instant::now() < until {}
                symlink(world.at("out"), &made).unwrap();
            });
            drop(world.bring("host/tree", &format!("/workspace/tree-{round}"), &[]));
            swap.join().unwrap();
        });
        assert_eq!(std::fs::read_dir(world.at("out")).unwrap().count(), 0, "in round {round}");
    }
}

#[test]
fn what_is_too_large_is_no_shorter_copy() {
    let world = World::new();
    for place in ["root/workspace/large", "host/large"] {
        let file = File::create(world.at(place)).unwrap();
        file.set_len(MOST_BYTES + 1).unwrap();
    }
    assert!(matches!(world.take("/workspace/large", "large"), Err(CarryFault::TooLarge(_, MOST_BYTES))));
    assert!(matches!(
        world.bring("host/large", "/workspace/in", &[]),
        Err(CarryFault::TooLarge(_, MOST_BYTES))
    ));
    assert_eq!(std::fs::read_dir(world.at("out")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.at("root/workspace")).unwrap().count(), 1);
    // A hole takes no room on either side.
    File::create(world.at("root/workspace/hole")).unwrap().set_len(8 << 20).unwrap();
    world.take("/workspace/hole", "hole").unwrap();
    let taken = std::fs::metadata(world.at("out/hole")).unwrap();
    assert_eq!((taken.len(), std::os::unix::fs::MetadataExt::blocks(&taken)), (8 << 20, 0));
}

#[test]
fn a_link_that_leads_out_of_what_is_brought_in_is_refused_unless_it_is_left_out() {
    let world = World::new();
    for target in ["/etc/passwd", "../../secret", "deep/../../up"] {
        symlink(target, world.at("host/tree/link")).unwrap();
        let refused = world.bring("host/tree", "/workspace/refused", &[]);
        assert!(
            matches!(refused, Err(CarryFault::Tree(SnapshotFault::Outward { .. }))),
            "{target}: {refused:?}"
        );
        std::fs::remove_dir_all(world.at("root/workspace/refused")).unwrap();
        world.bring("host/tree", "/workspace/taken", &["link"]).unwrap();
        std::fs::remove_dir_all(world.at("root/workspace/taken")).unwrap();
        std::fs::remove_file(world.at("host/tree/link")).unwrap();
    }
    symlink("deep/../a", world.at("host/tree/link")).unwrap();
    world.bring("host/tree", "/workspace/kept", &[]).unwrap();
}

#[test]
fn only_plain_paths_and_plain_files() {
    let world = World::new();
    for path in
        ["", "/", "workspace/a", "/workspace/../a", "/proc/1/mem", "/dev/null", "/sys", "/workspace//a"]
    {
        assert!(matches!(world.take(path, "x"), Err(CarryFault::Path(_))), "{path:?}");
        assert!(matches!(world.bring("secret", path, &[]), Err(CarryFault::Path(_))), "{path:?}");
    }
    for name in ["", "..", "a/b", "."] {
        std::fs::write(world.at("root/workspace/f"), "").unwrap();
        assert!(matches!(world.take("/workspace/f", name), Err(CarryFault::Path(_))), "{name:?}");
    }
    let _listening = std::os::unix::net::UnixListener::bind(world.at("root/workspace/socket")).unwrap();
    assert!(matches!(world.take("/workspace/socket", "x"), Err(CarryFault::Special(_))));
}
