//! Whatever of a sandbox is killed, nothing of it is left but what a stopped one has, and its events have no gap.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

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

/// Every process that is not dead: its number, its parent's and its words.
fn alive() -> Vec<(i32, i32, String)> {
    fs::read_dir("/proc")
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
        .collect()
}

fn is_of(boxes: &Boxes, pid: i32) -> bool {
    let environment = format!("POND_STATE_DIR={}", boxes.world.state().display());
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == environment.as_bytes()))
}

/// Processes of this name below this state directory.
pub(super) fn named(boxes: &Boxes, name: &str) -> Vec<i32> {
    alive()
        .into_iter()
        .filter(|(pid, _, found)| found == name && is_of(boxes, *pid))
        .map(|(pid, ..)| pid)
        .collect()
}

/// Processes of keepers below this state directory, and all that descend from them.
fn processes(boxes: &Boxes) -> Vec<(i32, String)> {
    let mut found: Vec<(i32, String)> = Vec::new();
    let all = alive();
    for (pid, _, name) in &all {
        if name == "pond keeper" && is_of(boxes, *pid) {
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

pub(super) fn kill(pid: i32) {
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

const WAITER: &str = "pond waiter";
const USUAL_SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const USUAL_ROUNDS: u64 = 12;

#[expect(clippy::disallowed_methods, reason = "a longer campaign is asked for by variables")]
fn number(variable: &str, usual: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(usual, |text| text.parse().unwrap_or_else(|fault| panic!("{variable}={text}: {fault}")))
}

/// A round kills something at a time that nobody chose: the command that asks, the keeper, its launcher, pid 1, the gateway or a program;
/// while the sandbox is made, used, stopped, resumed or removed.
struct Round<'a> {
    boxes: &'a Boxes,
    id: String,
    /// Those of the one that nothing must happen to.
    spared: &'a BTreeSet<i32>,
}

impl Round<'_> {
    /// A command, and a kill while it runs; and what was killed.
    fn under_fire(&self, chance: &mut Chance, words: &[&str], within: u64) -> String {
        let mut asked = self.boxes.world.pond(&[&["sandbox"], words].concat());
        let mut asked = asked.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(within)));
        let mut alive = processes(self.boxes);
        alive.retain(|(pid, _)| !self.spared.contains(pid));
        alive.extend(named(self.boxes, WAITER).into_iter().map(|pid| (pid, WAITER.to_owned())));
        alive.push((i32::try_from(asked.id()).unwrap(), "the command itself".to_owned()));
        let (victim, name) = &alive[usize::try_from(chance.below(alive.len() as u64)).unwrap()];
        kill(*victim);
        asked.wait().unwrap();
        format!("{words:?} killed {name}")
    }

    fn play(&self, chance: &mut Chance) {
        let mut acts =
            vec![self.under_fire(chance, &["create", "--id", &self.id, "--idle-ttl", "never"], 120)];
        let place = self.boxes.world.state().join("sandboxes").join(&self.id);
        // The keeper may still be on its way to a name, or never have heard of one.
        wait_until(|| {
            place.exists() || !processes(self.boxes).iter().any(|(pid, _)| !self.spared.contains(pid))
        });
        if !place.exists() {
            return;
        }
        for _ in 0..chance.below(3) {
            let (words, within): (&[&str], u64) = match chance.below(3) {
                0 => (&["exec", &self.id, "--", "sh", "-c", "echo x > file; sleep 0.05"], 80),
                1 => (&["stop", &self.id], 120),
                _ => (&["resume", &self.id], 120),
            };
            acts.push(self.under_fire(chance, words, within));
        }
        if chance.below(2) == 0 {
            acts.push(self.under_fire(chance, &["rm", &self.id], 100));
        }
        self.boxes.events(&self.id);
        // A keeper that was told to stop is on its way when the command that told it is dead.
        let mut removed = self.boxes.sandbox(&["rm", &self.id]);
        for _ in 0..20 {
            if removed.code == 0 || self.boxes.state(&self.id) == "deleted" {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            removed = self.boxes.sandbox(&["rm", &self.id]);
        }
        let events = self.boxes.events(&self.id);
        assert_eq!(self.boxes.state(&self.id), "deleted", "{acts:?}: {removed:?} {events:?}");
        wait_until(|| names(&place).len() == 3);
        let stays = ["box.json", "events.jsonl", "lock"].map(str::to_owned);
        assert_eq!(names(&place), BTreeSet::from(stays), "{acts:?}");
    }
}

/// Fewer than a campaign, the same rule: `cargo xtask chaos --sandboxes`.
#[test]
fn sandboxes_made_and_removed_under_random_kills_leave_nothing() {
    let (seed, rounds) = (number("POND_CHAOS_SEED", USUAL_SEED), number("POND_SANDBOX_ROUNDS", USUAL_ROUNDS));
    let mut chance = Chance(seed);
    let boxes = Boxes::new();
    boxes.create("bystander", &["--idle-ttl", "never"]);
    let spared: BTreeSet<i32> = processes(&boxes).into_iter().map(|(pid, _)| pid).collect();
    for round in 0..rounds {
        eprintln!("round {round} of {rounds}, POND_CHAOS_SEED={seed}");
        Round { boxes: &boxes, id: format!("r{round}"), spared: &spared }.play(&mut chance);
    }
    let others = || processes(&boxes).into_iter().filter(|(pid, _)| !spared.contains(pid)).count();
    wait_until(|| others() == 0 && disks(&boxes.world.state()) == 1);
    let now: BTreeSet<i32> = processes(&boxes).into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(now, spared, "nothing happened to the one that was left alone");
    assert_eq!(boxes.shell("bystander", "echo here").stdout, "here\n");
    let told: Vec<String> =
        boxes.events("bystander").iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, ["accepted", "started", "exec_started", "exec_ended"]);
    assert_eq!(boxes.sandbox(&["rm", "bystander"]).code, 0);
    wait_until(|| is_clean(&boxes));
    boxes.world.run(&["gc"]);
    assert_eq!(names(&boxes.world.state().join("live")), BTreeSet::new());
    wait_until(|| named(&boxes, WAITER).is_empty());
}
