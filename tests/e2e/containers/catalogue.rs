//! The escape catalogue on every backend at once: nothing is breached, and a verdict that is not native's has a reason.

use serde_json::{Value, json};

use super::daemon::{Daemon, LIAR};
use crate::done::Done;
use crate::support::World;

fn report(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

/// What a report says of one backend.
fn side<'a>(report: &'a Value, backend: &str) -> &'a Value {
    let sides = report["backends"].as_array().unwrap();
    sides.iter().find(|side| side["backend"] == backend).unwrap()
}

/// The probes that a report has with this verdict on this backend.
fn with_verdict(report: &Value, backend: &str, kind: &str) -> Vec<String> {
    let probes = report["probes"].as_array().unwrap().iter();
    let has = |probe: &&Value| probe["on"][backend]["verdict"]["kind"] == kind;
    probes.filter(has).map(|probe| format!("{probe:#}")).collect()
}

/// Attacks every backend; nothing is breached, and whatever is not as on native is listed.
fn attacked(daemon: &Daemon, world: &World, way: &str, cases: &[&str]) -> Value {
    let chosen = if cases.is_empty() { &[][..] } else { &["--case"] };
    let arguments = [&["attack", "--backend", "all", "--json"], chosen, cases].concat();
    let mut pond = daemon.pond(world, &arguments);
    let done = Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap());
    let report = report(&done);
    for backend in ["native", "docker", "gvisor"] {
        assert_eq!(side(&report, backend)["state"], "attacked", "{}", side(&report, backend));
        assert_eq!(side(&report, backend)["canaries"], json!([]));
        for kind in ["breached", "broken"] {
            assert_eq!(with_verdict(&report, backend, kind), Vec::<String>::new(), "{kind} on {backend}");
        }
    }
    // Every difference is in the list, and everything in the list is still a difference.
    let differences = report["differences"].as_array().unwrap();
    let loose: Vec<&Value> = differences.iter().filter(|one| one["standing"] != "listed").collect();
    assert_eq!(loose, Vec::<&Value>::new());
    assert!(differences.iter().all(|one| one["why"].as_str().is_some_and(|why| !why.is_empty())));
    assert_eq!(done.code, 0);
    assert_eq!(daemon.containers(), Vec::<String>::new());
    report
}

fn held(report: &Value, backend: &str) -> u64 {
    side(report, backend)["held"].as_u64().unwrap()
}

#[test]
fn every_backend_gives_the_same_verdicts_or_a_listed_reason() {
    let (daemon, world) = (Daemon::start(), World::new());
    let report = attacked(&daemon, &world, "bind", &[]);
    for backend in ["native", "docker", "gvisor"] {
        assert!(held(&report, backend) > 165, "{backend}: {}", held(&report, backend));
    }
    let absent = side(&report, "firecracker");
    assert_eq!(absent["state"], "absent");
    assert!(absent["why"].as_str().unwrap().contains("no runtime for it is registered"), "{absent}");
}

/// Whatever meets the job's copy, its home or its result, and what may outlive the job: where a stream could differ from a mount.
const OF_THE_COPY: [&str; 32] = [
    "C02", "C03", "C04", "C05", "C06", "C07", "C08", "C09", "C10", "C11", "C12", "C13", "C14", "C15", "E08",
    "E11", "E12", "E13", "E14", "E15", "G03", "G12", "K05", "K06", "K27", "K31", "K32", "K37", "K38", "K44",
    "L05", "L08",
];

#[test]
fn what_meets_the_copy_is_the_same_when_it_travels() {
    let (daemon, world) = (Daemon::start(), World::new());
    let report = attacked(&daemon, &world, "stream", &OF_THE_COPY);
    let differs = &report["differences"];
    let of_a_stream = |backend: &str| {
        differs.as_array().unwrap().iter().any(|one| one["case"] == "K06" && one["backend"] == backend)
    };
    assert!(of_a_stream("docker") && of_a_stream("gvisor"), "the copy did not travel: {differs:#}");
}

#[test]
fn a_backend_that_is_not_there_is_named_and_not_pretended() {
    let world = World::new();
    let attack = |backend: &str, flags: &[&str], address: &str, runtime: &str| {
        let arguments = [&["attack", "--backend", backend, "--case", "K36"], flags].concat();
        let mut pond = world.pond(&arguments);
        pond.env("DOCKER_HOST", address).env("SWARM_GVISOR_RUNTIME", runtime);
        Done::of(pond.output().unwrap())
    };
    let nowhere = "unix:///nonexistent/docker.sock";
    let done = attack("all", &["--json"], nowhere, "");
    let told = report(&done);
    assert_eq!((done.code, &side(&told, "native")["state"]), (0, &json!("attacked")), "{told:#}");
    for backend in ["docker", "gvisor", "firecracker"] {
        let why = side(&told, backend)["why"].as_str().unwrap_or_default();
        assert!(why.contains("no container engine answers"), "{told:#}");
        assert_eq!(told["probes"][0]["on"][backend], Value::Null);
    }
    let done = attack("all", &[], nowhere, "");
    assert!(done.code == 0 && done.stdout.contains("docker is not here: no container engine"), "{done:?}");
    let done = attack("docker", &[], nowhere, "");
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
    assert!(done.stderr.contains("docker is not on this host: no container engine"), "{done:?}");

    // Nor is one that only claims to be it.
    let daemon = Daemon::start();
    let done = attack("all", &["--json"], &daemon.address(), LIAR);
    let told = report(&done);
    let why = side(&told, "gvisor")["why"].as_str().unwrap_or_default();
    assert!(done.code == 0 && why.contains("isolation_mismatch"), "{told:#}");
    assert_eq!(side(&told, "docker")["state"], "attacked", "{told:#}");
}
