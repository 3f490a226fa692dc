//! Whatever of a sandbox is killed, nothing of it is left but what a stopped one has, and its events have no gap.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::Boxes;
use crate::residue::wait_until;
use crate::support::names;

/// A fixed sequence that looks like none.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Processes of keepers below this state directory, and all that descend from them.
fn processes(boxes: &Boxes) -> Vec<(i32, String)> {
    let state = boxes.world.state();
    let environment = format!("POND_STATE_DIR={}", state.display());
    let mut found: Vec<(i32, String)> = Vec::new();
    let all: Vec<(i32, i32, String)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (_, tail) = stat.rsplit_once(')')?;
            let mut fields = tail.split_whitespace();
            let (status, parent) = (fields.next()?, fields.next()?.parse().ok()?);
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let name = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
            (status != "Z").then_some((pid, parent, name))
        })
        .collect();
    for (pid, _, name) in &all {
        let keeper = name == "pond keeper";
        let ours = fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == environment.as_bytes()));
        if keeper && ours {
            found.push((*pid, name.clone()));
        }
    }
    loop {
        let known: BTreeSet<i32> = found.iter().map(|(pid, _)| *pid).collect();
        let more: Vec<_> = all
            .iter()
            .filter(|(pid, parent, _)| known.contains(parent) && !known.contains(pid))
            .map(|(pid, _, name)| (*pid, name.clone()))
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(_gone) = kill_process(pid, Signal::KILL)
    {}
}

/// Loop devices on images below this directory.
fn disks(state: &Path) -> usize {
    let below = state.to_str().unwrap().as_bytes().to_vec();
    let is_ours = |entry: &fs::DirEntry| {
        fs::read(entry.path().join("loop/backing_file")).is_ok_and(|name| name.starts_with(&below))
    };
    fs::read_dir("/sys/block").unwrap().flatten().filter(|entry| is_ours(entry)).count()
}

fn is_clean(boxes: &Boxes) -> bool {
    processes(boxes).is_empty() && disks(&boxes.world.state()) == 0
}

#[test]
fn a_killed_keeper_leaves_a_stopped_sandbox() {
    let boxes = Boxes::new();
    boxes.create("lost", &[]);
    boxes.shell("lost", "echo kept > file");
    boxes.sandbox(&["exec", "-d", "lost", "--", "sleep", "600"]);
    let (keeper, _) = processes(&boxes).into_iter().find(|(_, name)| name == "pond keeper").unwrap();
    assert!(processes(&boxes).len() > 2, "a keeper, pid 1, a gateway, a program");
    kill(keeper);
    wait_until(|| is_clean(&boxes));
    let listed = boxes.sandbox(&["ls", "--json"]);
    assert!(listed.stdout.contains("\"stopped\""), "{listed:?}");
    assert_eq!(names(&boxes.world.state().join("live")), BTreeSet::new(), "its record went with the sweep");
    assert_eq!(boxes.events("lost").last().unwrap()["code"], "keeper_lost");
    assert_eq!(boxes.sandbox(&["resume", "lost"]).code, 0);
    assert_eq!(boxes.shell("lost", "cat file").stdout, "kept\n");
}

#[test]
fn a_sandbox_whose_pid_1_or_gateway_dies_is_started_anew() {
    let boxes = Boxes::new();
    boxes.create("hurt", &[]);
    boxes.shell("hurt", "echo kept > file");
    for name in ["pond-jail", "pond-gateway"] {
        let before = boxes.events("hurt").len();
        let (victim, _) = processes(&boxes).into_iter().find(|(_, found)| found == name).unwrap();
        kill(victim);
        wait_until(|| {
            let events = boxes.events("hurt");
            events.len() > before && events.last().unwrap()["event"] == "started"
        });
        assert_eq!(boxes.shell("hurt", "cat file").stdout, "kept\n", "after {name}");
    }
}

/// Fewer than a campaign, the same rule.
#[test]
fn sandboxes_made_and_removed_under_random_kills_leave_nothing() {
    let rounds = 12;
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
    let boxes = Boxes::new();
    for round in 0..rounds {
        let id = format!("r{round}");
        let made = boxes.world.pond(&["sandbox", "create", "--id", &id]).spawn();
        let mut made = made.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(chance.below(250)));
        let alive = processes(&boxes);
        if !alive.is_empty() {
            let at = usize::try_from(chance.below(alive.len() as u64)).unwrap();
            kill(alive[at].0);
        }
        made.wait().unwrap();
        boxes.sandbox(&["ls"]);
        if boxes.world.state().join("sandboxes").join(&id).exists() {
            boxes.events(&id);
            let removed = boxes.sandbox(&["rm", &id]);
            assert_eq!(removed.code, 0, "round {round}: {removed:?} {:?}", boxes.events(&id));
            assert_eq!(boxes.state(&id), "deleted");
            let left: BTreeSet<String> = names(&boxes.world.state().join("sandboxes").join(&id));
            let stays = ["box.json", "events.jsonl", "lock"].map(str::to_owned);
            assert_eq!(left, BTreeSet::from(stays), "round {round}");
        }
    }
    wait_until(|| is_clean(&boxes));
    boxes.world.run(&["gc"]);
    assert_eq!(names(&boxes.world.state().join("live")), BTreeSet::new());
}
