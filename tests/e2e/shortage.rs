//! A host that has run out of something: one line that says of what and what to do next, exit 125, and nothing left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::bad_input::{left, mounted};
use crate::support::{Done, World, names};

/// Refused with one line that says all of this.
#[track_caller]
pub(crate) fn refused(done: &Done, says: &[&str]) {
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.lines().count()), (125, "", 1), "{done:?}");
    assert!(
        done.stderr.starts_with("pond: ") && says.iter().all(|part| done.stderr.contains(part)),
        "{says:?}: {done:?}"
    );
}

/// A run whose state lies on a small filesystem of its own, and whatever that filesystem holds of it afterwards.
fn cramped(world: &World, options: &str, command: &str) -> (Done, BTreeSet<String>) {
    let listing = world.project().join("listing");
    let script = format!(
        "mkdir s p; mount -t tmpfs -o {options} y s; cd p; export POND_STATE_DIR=$1/s; set +e; \
         $P run -- {command} > /dev/null; code=$?; cd $1/s; find live runs scratch -mindepth 1 -not -name '*.template' > {}; exit $code",
        listing.display()
    );
    let done = mounted(world, &script);
    (done, std::fs::read_to_string(listing).unwrap().lines().map(str::to_owned).collect())
}

/// Refused, and nothing of the run is left; a whole template is for the next one.
#[track_caller]
fn refused_for_room((done, kept): (Done, BTreeSet<String>), says: &str) -> String {
    refused(&done, &[says, "POND_STATE_DIR"]);
    let debris: BTreeSet<String> = kept.into_iter().filter(|name| !name.ends_with(".image")).collect();
    assert_eq!(debris, BTreeSet::new(), "{done:?}");
    done.stderr
}

#[test]
fn a_disk_without_room() {
    let world = World::new();
    for (options, command, says) in [
        ("size=4k", "true", "mkfs.ext4: No space left"),
        ("size=64k", "true", "mkfs.ext4: No space left"),
        ("size=4m", "head -c 64m /dev/zero", "handing the job's output on: No space left"),
    ] {
        refused_for_room(cramped(&world, options, command), says);
    }
    // Later there is a template, and what is missing is a place for the run itself.
    let filled = "true 2> /dev/null; i=0; while (: > $1/s/$i) 2> /dev/null; do i=$((i + 1)); done; rm $1/s/0 $1/s/1; $P run -- true";
    refused(&cramped(&world, "nr_inodes=40", filled).0, &["making ", "POND_STATE_DIR"]);
    // With room the same command ends well.
    assert_eq!(cramped(&world, "size=64m", "head -c 1m /dev/zero").0.code, 0);
}

/// The state lies on a file system of its own, with so many of its 100 megabytes taken. The job writes 20, has the kernel write them
/// back, and ends when the others are gone.
fn while_full(world: &World, filler: u32) -> Done {
    let job = "echo begun; head -c 20m /dev/zero > f; sync -f /home/pond 2> /dev/null; echo written; read go";
    let host = "for i in $(seq 900); do grep -qs written $1/s/runs/*/stdout.log && break; sleep 0.1; done; rm $1/s/filler; echo go";
    mounted(
        world,
        &format!(
            "mkdir s p; mount -t tmpfs -o size=100m y s; cd p; export POND_STATE_DIR=$1/s; $P run -q -- true; \
             head -c {filler}m /dev/zero > $1/s/filler; \
             set +e; ({host}) | $P run --json -- sh -c '{job}' > $1/said; code=$?; cat $1/said; $P explain --json >&2; exit $code"
        ),
    )
}

/// The kernel takes what it cannot keep and drops it later. There is room again by the time pond looks.
#[test]
fn a_host_disk_that_was_full_for_a_while_costs_the_result() {
    let world = World::new();
    let done = while_full(&world, 85);
    let summary: serde_json::Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!((done.code, &summary["exit_code"]), (125, &125.into()), "{done:?}");
    assert_eq!(summary["result"]["kind"], "not_collected", "{summary:#}");
    let reason = summary["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("the host's disk failed or was full while the job ran"), "{reason}");
    assert!(done.stderr.contains("host_disk") && done.stderr.contains("POND_STATE_DIR"), "{done:?}");
    // With room for it the same job has its result.
    let done = while_full(&world, 1);
    let summary: serde_json::Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!((done.code, &summary["result"]["changed"]), (0, &1.into()), "{done:?}");
}

#[test]
fn a_result_for_which_there_is_no_room_is_none_and_the_run_is_kept() {
    let world = World::new();
    let (done, kept) = cramped(&world, "size=32m", "sh -c 'head -c 20m /dev/urandom > f'");
    assert_eq!(done.code, 125, "{done:?}");
    for part in ["result not collected", "POND_STATE_DIR", "the run is kept"] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    // Whichever of the two wants more room first: the job's disk, or what is read from it.
    assert!(["No space left", "the host's disk"].iter().any(|why| done.stderr.contains(why)), "{done:?}");
    let has = |name: &str| kept.iter().any(|path| path.ends_with(name));
    assert!(has("/run.json") && has("/stdout.log") && !has("/objects"), "{kept:?}");
}

/// One inode more each time, until a run has all it needs: it stops everywhere on its way once.
#[test]
fn a_disk_without_inodes() {
    let world = World::new();
    let mut told = String::new();
    for inodes in 4.. {
        let outcome = cramped(&world, &format!("nr_inodes={inodes}"), "true");
        if outcome.0.code == 0 {
            break;
        }
        // The job ran, and there was no place for its result.
        if outcome.0.stderr.contains("result not collected") {
            assert!(outcome.0.stderr.contains("the run is kept"), "{outcome:?}");
            continue;
        }
        told.push_str(&refused_for_room(outcome, ""));
    }
    for step in [
        "opening the audit log",
        "writing the record",
        "formatting a scratch image",
        "keeping the formatted template",
    ] {
        assert!(told.contains(step), "{step}: {told}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_written() {
    let world = World::new();
    world.write("file", "");
    let done =
        mounted(&world, "mkdir p; cd p; mount -o remount,ro $1; POND_STATE_DIR=$1/s exec $P run -- true");
    refused(&done, &["/s/scratch", "Read-only file system", "POND_STATE_DIR"]);
    let later = "mkdir p s; cd p; export POND_STATE_DIR=$1/s; $P run -q -- true; mount -o remount,ro $1; exec $P run -- true";
    refused(&mounted(&world, later), &["audit log", "Read-only file system", "POND_STATE_DIR"]);
    let file = world.project().join("file");
    let done = Done::of(world.pond(&["run", "--", "true"]).env("POND_STATE_DIR", file).output().unwrap());
    refused(&done, &["Not a directory", "POND_STATE_DIR"]);
}

#[test]
fn too_few_descriptors() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    for limit in [3, 5, 8, 12, 16, 20, 24, 32, 63] {
        let done = mounted(&world, &format!("mkdir p; cd p; ulimit -n {limit}; exec $P run -- true"));
        refused(&done, &["open files", "ulimit -n"]);
        assert_eq!(left(&world), before, "{limit}");
    }
    let done = mounted(&world, "mkdir p; cd p; ulimit -n 64; exec $P run -- true");
    assert_eq!(done.code, 0, "{done:?}");
}

/// The kernel ends whoever writes past it, pond among them.
#[test]
fn files_that_may_not_be_as_large_as_the_disk() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    let limited =
        |blocks: u64| world.host_shell(&format!("ulimit -f {blocks}; exec timeout 60 \"$0\" run -- true"));
    // `sh` counts in blocks of 512 bytes; the disk of the default profile has 10 GiB.
    let disk = 10 * (1 << 30) / 512;
    for blocks in [1, disk - 1] {
        refused(&limited(blocks), &["the job's disk takes", "ulimit -f"]);
        assert_eq!(left(&world), before, "{blocks}");
    }
    let done = limited(disk);
    assert_eq!(done.code, 0, "{done:?}");
}

/// A run with another `/dev`, which `make` puts into `$1/d`.
fn with_devices(world: &World, make: &str) -> Done {
    mounted(world, &format!("mkdir p d; cd p; {make}; mount --move $1/d /dev; exec $P run -- true"))
}

#[test]
fn no_loop_device() {
    let world = World::new();
    world.shell("true");
    let before = left(&world);
    // Without the door to ask for one, and with the door but without a node for what it hands out: all nodes are taken.
    let nodes = "mount -t tmpfs z $1/d; cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom";
    for door in ["", "/dev/loop-control"] {
        let done = with_devices(&world, &format!("{nodes} {door} $1/d"));
        refused(&done, &["scratch space", "free loop device", "end other jobs"]);
        assert_eq!(left(&world), before, "{door}");
    }
    // A door that leads nowhere: what a container's engine puts there that was told of a file and not of a device.
    for door in ["touch $1/d/loop-control", "mkdir $1/d/loop-control", "mknod $1/d/loop-control c 1 3"] {
        let done = with_devices(&world, &format!("{nodes} $1/d; {door}"));
        refused(&done, &["scratch space", "needs loop devices", "modprobe loop", "/dev/loop-control"]);
        assert_eq!(left(&world), before, "{door}");
    }
    let done = with_devices(&world, "mount --rbind /dev $1/d");
    assert_eq!(done.code, 0, "{done:?}");
}

/// A control group that holds so many processes and no more.
struct Crowd(PathBuf);

impl Crowd {
    fn new() -> Self {
        let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
        let hierarchy = hierarchies.into_iter().find(|path| path.is_dir()).unwrap();
        let group = hierarchy.join(format!("pond-test-{}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        Self(group)
    }

    fn run(&self, world: &World, most: u32, profile: &str) -> Done {
        let group = self.0.display();
        world.host_shell(&format!(
            "echo {most} > {group}/pids.max; echo $$ > {group}/cgroup.procs; exec \"$0\" run --profile {profile} -- true"
        ))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn no_more_processes() {
    let world = World::new();
    let crowd = Crowd::new();
    let alone = "untrusted-code-read";
    refused(&crowd.run(&world, 2, alone), &["formatting a scratch image", "ulimit -u"]);
    assert_eq!(names(&world.state().join("scratch")), BTreeSet::new());
    world.run(&["run", "--profile", alone, "--", "true"]);
    world.shell("true");
    let before = left(&world);
    // With three it is the child or the maker of its disk that finds no room, whichever is later.
    for (most, says) in [(1, "starting the launcher"), (2, "namespaces"), (3, "did not run")] {
        refused(&crowd.run(&world, most, alone), &[says, "out of", "processes"]);
        assert_eq!(left(&world), before, "{most}");
    }
    let with_gateway = "untrusted-code-write";
    refused(&crowd.run(&world, 2, with_gateway), &["starting the gateway", "out of", "processes"]);
    assert_eq!(left(&world), before);
    assert_eq!(crowd.run(&world, 12, with_gateway).code, 0);
}
