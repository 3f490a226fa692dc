//! The network budget of a run whose stages download at the same time: what all of them carry is never more than there is, and the
//! run ends when that is used up.

use serde_json::Value;

use crate::flow::{LARGE, PRELUDE};
use crate::harness::{Up, ask};
use crate::world::zone::DOMAIN;
use crate::world::{Plan, World};

/// Four downloads at a time, over and over.
const GREEDY: &str = r#"
import threading
def download():
    while True:
        try:
            s = tunnel("large.pondworld.net")
            if isinstance(s, int): time.sleep(0.1); continue
            ask(s, "large.pondworld.net", "/file")
            read(s, 1 << 20)
            s.close()
        except OSError: time.sleep(0.1)
for _ in range(4): threading.Thread(target=download).start()
"#;
const BUDGET: u64 = 8 << 20;

fn document() -> String {
    let stage = |name: &str| {
        format!(
            "  - name: {name}\n    executor:\n      kind: swarm\n      command: [/usr/bin/python3, job.py]\n      timeout: 5m\n      \
             sandbox: {{ profile: untrusted-code-write, backend: native, allow_hosts: [large.{DOMAIN}] }}\n"
        )
    };
    format!(
        "project: acme\nbudgets: {{ max_egress_bytes: {BUDGET} }}\nstages:\n{}{}",
        stage("one"),
        stage("two")
    )
}

/// What the tunnels of a stage moved, by its own signed record.
fn carried(world: &World, run: &str, stage: &str) -> u64 {
    let out = world.directory().join(stage);
    let fetched = ask(world, &["fetch", run, stage, "--out", out.to_str().unwrap()], "");
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let record = std::fs::read_to_string(out.join("egress.jsonl")).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let closed = events.filter_map(|event| event.get("closed").cloned());
    closed.map(|tunnel| tunnel["bytes_up"].as_u64().unwrap() + tunnel["bytes_down"].as_u64().unwrap()).sum()
}

#[test]
fn parallel_stages_carry_no_more_than_their_run_may() {
    let world = World::new(Plan::default());
    world.trust();
    let folder = world.sites().join(format!("large.{DOMAIN}"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), vec![b'x'; LARGE]).unwrap();
    world.write("job.py", format!("{PRELUDE}{GREEDY}"));
    let path = world.directory().join("run.yaml");
    std::fs::write(&path, document()).unwrap();
    std::fs::write(world.operator_file(), "").unwrap();
    let _up = Up::start(&world, &["--jobs", "2"]);
    let submitted = ask(&world, &["submit", path.to_str().unwrap(), "--follow"], "");
    let listed = ask(&world, &["runs", "--remote", "--json"], "");
    let listed: Value =
        serde_json::from_str(&listed.stdout).unwrap_or_else(|fault| panic!("{fault}: {listed:?}"));
    let run = listed[0]["id"].as_str().unwrap();
    let shown = ask(&world, &["show", run, "--json"], "");
    let shown: Value =
        serde_json::from_str(&shown.stdout).unwrap_or_else(|fault| panic!("{fault}: {shown:?}"));
    assert_eq!(shown["run"]["cancel_code"], "budget_egress", "{shown:#}\n{submitted:?}");
    let both = ["one", "two"].map(|stage| carried(&world, run, stage));
    // Both had a part in it, and most of it was used before the run was ended.
    assert!(both.iter().all(|bytes| *bytes > 100_000), "{both:?}");
    let all: u64 = both.iter().sum();
    assert!(all <= BUDGET && all > BUDGET / 2, "{both:?} of {BUDGET}");
}
