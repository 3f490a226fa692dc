//! A live checkout that changes is noticed; a snapshot does not care, and is gone afterwards.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::bad_input::mounted;
use crate::support::{Done, Traces, World, names};

/// Starts a job that reads `f` before and after somebody edited it.
fn edited_meanwhile(world: &World, flags: &[&str]) -> (String, String) {
    let line = "cat f; echo ready; read go; cat f; echo job > made";
    let arguments = [&["run"], flags, &["--", "sh", "-c", line]].concat();
    let mut child = world
        .pond(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.ends_with("ready\n") {
        assert!(out.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    // Written anew, as an editor saves: the old inode may be cached inside.
    world.write("f.new", "after\n");
    std::fs::rename(world.project().join("f.new"), world.project().join("f")).unwrap();
    drop(child.stdin.take());
    out.read_to_string(&mut seen).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    (seen, said)
}

#[test]
fn a_snapshot_is_what_the_checkout_was() {
    let world = World::new();
    world.write("f", "before\n");
    std::fs::create_dir(world.project().join("d")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.project().join("d/link")).unwrap();
    let (seen, said) = edited_meanwhile(&world, &["--snapshot"]);
    assert_eq!(seen, "before\nready\nbefore\n");
    assert!(!said.contains("the checkout changed") && said.contains("1 file changed"), "{said}");
    let runs = world.state().join("runs");
    let run = runs.join(names(&runs).pop_first().unwrap());
    assert!(!names(&run).contains("snapshot"), "{:?}", names(&run));
    let done = world.run(&["apply"]);
    assert_eq!(
        (done.code, world.read("f").as_str(), world.read("made").as_str()),
        (0, "after\n", "job\n"),
        "{done:?}"
    );
}

#[test]
fn a_live_checkout_that_changes_is_noticed() {
    let world = World::new();
    world.write("f", "before\n");
    let (_, said) = edited_meanwhile(&world, &[]);
    assert!(said.contains("the checkout changed while the job ran"), "{said}");
    let quiet = world.shell("echo job > made2");
    assert!(!quiet.stderr.contains("the checkout changed"), "{quiet:?}");
}

#[test]
fn a_snapshot_names_what_it_lacks_and_keeps_the_owner() {
    let world = World::new();
    world.write("f", "x\n");
    std::os::unix::fs::chown(world.project().join("f"), Some(1234), Some(1234)).unwrap();
    std::os::unix::fs::chown(world.project(), Some(1234), Some(1234)).unwrap();
    let socket = world.project().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let summary = world.summary(&["--snapshot"], &["sh", "-c", "stat -c %u f; echo y >> f"]);
    let mut base = summary["base"].clone();
    let tree = base.as_object_mut().and_then(|base| base.remove("tree_sha256"));
    assert!(tree.is_some_and(|tree| tree.as_str().is_some_and(|hex| hex.len() == 64)), "{summary:#}");
    assert_eq!(
        base,
        serde_json::json!({"kind": "snapshot", "skipped": 1, "skipped_names": ["socket"]}),
        "{summary:#}"
    );
    assert_eq!((&summary["exit_code"], &summary["result"]["changed"]), (&0.into(), &1.into()), "{summary:#}");
}

/// A snapshot on a filesystem with room for one and a half of the checkout, made by this formatter.
fn on_a_small_disk(world: &World, format: &str) -> Done {
    let image = world.state().with_extension("image");
    let script = format!(
        "truncate -s 400m {image}; {format} {image}; mkdir m; mount -o loop {image} m; mkdir m/p m/s; cd m/p; \
         yes | head -c 200m > f; export POND_STATE_DIR=$1/m/s; set +e; \
         $P run --json --snapshot -- sh -c 'tail -c 2 f; echo x > made'; code=$?; ls ../s/live; ls ../s/runs/*; exit $code",
        image = image.display()
    );
    let done = mounted(world, &script);
    std::fs::remove_file(image).unwrap();
    done
}

#[test]
fn a_snapshot_shares_what_the_filesystem_can_share() {
    let world = World::new();
    let shared = on_a_small_disk(&world, "mkfs.btrfs -q");
    assert_eq!(shared.code, 0, "{shared:?}");
    assert!(shared.stdout.contains("\"changed\": 1") && !shared.stdout.contains("snapshot\n"), "{shared:?}");
    // Where it cannot, the same checkout is one copy too many, and the copy that did not fit is gone.
    let copied = on_a_small_disk(&world, "mkfs.ext4 -q");
    assert_eq!(copied.code, 125, "{copied:?}");
    assert!(
        copied.stdout.contains("making the snapshot") && copied.stdout.contains("POND_STATE_DIR"),
        "{copied:?}"
    );
    assert!(!copied.stdout.contains("snapshot\n"), "{copied:?}");
}

#[test]
fn a_snapshot_goes_with_a_failed_and_a_killed_run() {
    let world = World::new();
    world.write("f", "x\n");
    world.shell("true");
    let before = Traces::of(&world, &BTreeSet::new());
    let runs = names(&world.state().join("runs"));
    let done = world.run(&["run", "--snapshot", "--", "no-such-command"]);
    assert_eq!(done.code, 125, "{done:?}");
    assert_eq!(names(&world.state().join("runs")), runs);

    let mut child = world
        .pond(&["run", "--snapshot", "--", "sh", "-c", "echo started; sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let during = Traces::of(&world, &BTreeSet::new());
    let run = names(&world.state().join("runs")).difference(&runs).next().unwrap().clone();
    assert!(world.state().join("runs").join(&run).join("snapshot/f").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    crate::residue::wait_until(|| during.cgroups.iter().all(|group| crate::residue::tasks(group).is_empty()));
    assert_eq!(world.run(&["gc"]).stdout, "1 swept, 0 removed, 1 kept\n");
    assert_eq!(names(&world.state().join("runs")), runs);
    assert_eq!(Traces::of(&world, &during.live), before);
}
