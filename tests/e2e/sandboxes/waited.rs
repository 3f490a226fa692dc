//! A stopped sandbox is gone when its time is up, and nobody has to look for that: these tests read the disk and call no pond meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::Boxes;
use super::killed::{kill, named};
use crate::residue::wait_until;
use crate::support::names;

/// The last event, from the file itself.
fn last(boxes: &Boxes, id: &str) -> Value {
    let events = boxes.world.state().join("sandboxes").join(id).join("events.jsonl");
    let text = fs::read_to_string(events).unwrap();
    text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

fn waiters(boxes: &Boxes) -> Vec<i32> {
    named(boxes, "pond waiter")
}

/// The kernel calls a process a zombie when all that it held is closed.
fn has_let_go(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z') || state.starts_with('X'))
}

#[test]
fn nobody_has_to_look_for_a_sandbox_to_go() {
    let boxes = Boxes::new();
    boxes.create("left", &["--idle-ttl", "1s", "--cleanup-ttl", "2s"]);
    wait_until(|| last(&boxes, "left")["event"] == "deleted");
    let place = boxes.world.state().join("sandboxes/left");
    assert_eq!(names(&place), BTreeSet::from(["box.json", "events.jsonl", "lock"].map(str::to_owned)));
    wait_until(|| waiters(&boxes).is_empty());
    let told: Vec<(String, String)> = boxes
        .events("left")
        .iter()
        .map(|event| (event["event"].as_str().unwrap().to_owned(), event["code"].to_string()))
        .collect();
    let expected = [
        ("accepted", "null"),
        ("started", "null"),
        ("stopped", "\"idle\""),
        ("deleting", "\"cleanup_ttl\""),
        ("deleted", "null"),
    ];
    assert_eq!(told, expected.map(|(event, code)| (event.to_owned(), code.to_owned())));
}

#[test]
fn one_waits_for_all_of_them_and_only_while_there_is_one() {
    let boxes = Boxes::new();
    for (id, time) in [("long", "1h"), ("never", "never"), ("short", "1s")] {
        boxes.create(id, &["--cleanup-ttl", time]);
    }
    boxes.sandbox(&["stop", "never"]);
    wait_until(|| waiters(&boxes).is_empty());
    boxes.sandbox(&["stop", "long"]);
    wait_until(|| waiters(&boxes).len() == 1);
    let first = waiters(&boxes);
    boxes.sandbox(&["stop", "short"]);
    // The one that waits an hour hears of what is due before.
    wait_until(|| last(&boxes, "short")["event"] == "deleted");
    assert_eq!(
        (&last(&boxes, "long")["event"], &last(&boxes, "never")["event"]),
        (&"stopped".into(), &"stopped".into())
    );
    assert_eq!(waiters(&boxes), first);
    assert_eq!(boxes.sandbox(&["resume", "long"]).code, 0);
    wait_until(|| waiters(&boxes).is_empty());
    boxes.sandbox(&["stop", "long"]);
    wait_until(|| waiters(&boxes).len() == 1);
    assert_eq!(boxes.sandbox(&["rm", "long"]).code, 0);
    wait_until(|| waiters(&boxes).is_empty());
}

#[test]
fn a_waiter_that_was_killed_is_replaced_at_the_next_look() {
    let boxes = Boxes::new();
    boxes.create("due", &["--cleanup-ttl", "3s"]);
    boxes.sandbox(&["stop", "due"]);
    wait_until(|| waiters(&boxes).len() == 1);
    let [pid] = waiters(&boxes)[..] else { panic!("one waits") };
    kill(pid);
    // Its words go before its lock does: one that is still dying passes for one that waits.
    wait_until(|| has_let_go(pid));
    boxes.sandbox(&["ls"]);
    wait_until(|| last(&boxes, "due")["event"] == "deleted");
    wait_until(|| waiters(&boxes).is_empty());
}

#[test]
fn whoever_waits_holds_next_to_nothing() {
    let boxes = Boxes::new();
    boxes.create("kept", &[]);
    boxes.sandbox(&["stop", "kept"]);
    wait_until(|| waiters(&boxes).len() == 1);
    std::thread::sleep(Duration::from_millis(300));
    let [pid] = waiters(&boxes)[..] else { panic!("one waits") };
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    let kib: u64 = own.trim().trim_end_matches("kB").trim().parse().unwrap();
    // Most of it is what an unoptimised pond has at birth.
    assert!(kib < 4096, "{text}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open <= 6, "three streams, its mark and what it listens to: {open}");
}
