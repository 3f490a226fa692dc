//! The catalogue of attacks on the way out, as rows of data: what is sent from inside, what comes back, what the far side
//! sees of it, and what the same bytes reach where nothing holds them.
//!
//! All rows of a table go through one sandbox at once; each has names of its own, so the far side's log says which row did
//! what, and anything in it that no row expects fails the table.

mod addresses;
mod head;
mod names;
mod resolver;
mod row;
mod tunnel;

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use row::{Reply, Row};

use crate::world::{Backend, Done, Plan, World, source};

/// Patience of the attacker, in seconds: longer than any deadline of the gateway, and just long enough for no gateway.
const INSIDE: &str = "16";
const OUTSIDE: &str = "3";

/// Runs a table against pond, and then with the control removed.
fn run(rows: &[Row]) {
    let faults = [through_pond(rows, Backend::Native), without_control(rows)].concat();
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

/// Runs all tables, in one sandbox of this backend. Their controls are those of the tables.
pub(crate) fn run_all(backend: Backend) {
    let rows: Vec<Row> = tables().into_iter().flatten().collect();
    let faults = through_pond(&rows, backend);
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

fn tables() -> [Vec<Row>; 5] {
    [head::rows(), names::rows(), addresses::rows(), resolver::rows(), tunnel::rows()]
}

fn through_pond(rows: &[Row], backend: Backend) -> Vec<String> {
    let world = world(rows, backend);
    let doors = json!(rows.iter().map(|row| row.inside()).collect::<Vec<Value>>());
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| row.listed.iter().map(String::as_str)).collect();
    let flags: Vec<&str> = listed.iter().flat_map(|host| ["--allow-host", host]).collect();
    let attacker = ["--", "/usr/bin/python3", "attacker.py", INSIDE];
    let arguments = [&["run", "--quiet"], &flags[..], &attacker[..]].concat();
    let replies = attack(&world, &doors, world.pond(&arguments));
    let mut faults: Vec<String> = rows
        .iter()
        .zip(&replies)
        .filter_map(|(row, reply)| row.judge(reply, &world.log).err().map(|why| format!("{row}: {why}")))
        .collect();
    let expected: BTreeSet<_> = rows.iter().flat_map(|row| row.dials.iter().copied()).collect();
    let dialled: BTreeSet<_> = world.log.dials().into_iter().collect();
    faults.extend(
        dialled.difference(&expected).map(|address| format!("the far side was dialled at {address}")),
    );
    // Whoever meets an IPv6 address asks what the site hides in some.
    let site = "ipv4only.arpa".to_owned();
    let known: BTreeSet<_> = rows.iter().flat_map(|row| row.queries.iter().cloned()).chain([site]).collect();
    let asked: BTreeSet<_> = world.log.queries().into_iter().collect();
    faults.extend(asked.difference(&known).map(|name| format!("the far side was asked for {name}")));
    faults
}

fn without_control(rows: &[Row]) -> Vec<String> {
    let world = world(rows, Backend::Native);
    let doors = json!(rows.iter().map(|row| row.outside()).collect::<Vec<Value>>());
    world.write("openproxy.py", source("openproxy.py"));
    let mut proxy = world.direct("/usr/bin/python3");
    let mut proxy = proxy.arg("openproxy.py").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(proxy.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap(), 1);
    let mut attacker = world.direct("/usr/bin/python3");
    attacker.args(["attacker.py", OUTSIDE]);
    let replies = attack(&world, &doors, attacker);
    drop(proxy.stdin.take());
    proxy.wait().unwrap();
    let judge = |(row, reply): (&Row, &Reply)| match row.control.judge(reply, &world.log) {
        Ok(()) => None,
        Err(why) => Some(format!("{row}, without the control: {why}; {reply}")),
    };
    rows.iter().zip(&replies).filter_map(judge).collect()
}

fn world(rows: &[Row], backend: Backend) -> World {
    let names = rows.iter().flat_map(|row| row.zone.iter().cloned()).collect();
    let hosts_file =
        rows.iter().flat_map(|row| row.hosts_file.iter().map(|name| format!("127.0.0.1 {name}\n")));
    let world = World::new(Plan { names, hosts_file: hosts_file.collect(), backend, ..Plan::default() });
    world.write("attacker.py", source("attacker.py"));
    world
}

fn attack(world: &World, doors: &Value, mut attacker: std::process::Command) -> Vec<Reply> {
    world.write("rows.json", doors.to_string());
    let done = Done::of(attacker.output().unwrap());
    let replies: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    replies.as_array().unwrap().iter().map(Reply::parse).collect()
}

#[test]
fn connect_heads() {
    run(&head::rows());
}

#[test]
fn host_spellings() {
    run(&names::rows());
}

#[test]
fn addresses() {
    run(&addresses::rows());
}

#[test]
fn name_resolution() {
    run(&resolver::rows());
}

#[test]
fn tunnel_contents() {
    run(&tunnel::rows());
}

/// A row whose control would prove nothing says why; most rows have one that does.
#[test]
fn most_rows_have_a_control() {
    let tables = tables();
    let rows: Vec<&Row> = tables.iter().flatten().collect();
    let why = |row: &&Row| row.control.moot().map(|why| format!("{row}: {why}"));
    let moot: Vec<String> = rows.iter().filter_map(why).collect();
    assert!(moot.len() * 4 < rows.len(), "{} of {} rows:\n{}", moot.len(), rows.len(), moot.join("\n"));
}
