//! What a host says it can do is what a canary did there: a name is never enough.

use serde_json::{Value, json};

use super::daemon::{Daemon, LIAR};
use super::killed::eventually;
use crate::support::{World, names};

fn examined(daemon: &Daemon, world: &World, settings: &[(&str, &str)]) -> Value {
    let mut doctor = daemon.pond(world, &["doctor", "--json"]);
    let output = doctor.envs(settings.iter().copied()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("{fault}: {output:?}"))
}

fn backend<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["backends"].as_array().unwrap();
    rows.iter().find(|row| row["backend"] == name).unwrap()
}

#[test]
fn only_what_a_canary_proved_is_offered() {
    let (daemon, world) = (Daemon::start(), World::new());
    let honest = examined(&daemon, &world, &[]);
    assert_eq!(honest["capabilities"], json!(["sandbox.native", "sandbox.docker", "sandbox.gvisor"]));
    for name in ["native", "docker", "gvisor"] {
        assert_eq!(backend(&honest, name)["internet"]["state"], "ok", "{honest:#}");
    }
    let engine = &honest["engine"];
    assert_eq!((&engine["state"], &engine["runtimes"][LIAR]), (&json!("answers"), &json!([])), "{engine:#}");
    let (docker, gvisor) = (&backend(&honest, "docker")["evidence"], &backend(&honest, "gvisor")["evidence"]);
    assert_eq!(docker["inside"]["boot_id"], docker["host_boot_id"], "{docker:#}");
    assert_ne!(gvisor["inside"]["boot_id"], gvisor["host_boot_id"], "{gvisor:#}");

    // runc, registered as something better.
    let liars = [("SWARM_GVISOR_RUNTIME", LIAR), ("SWARM_KATA_RUNTIME", LIAR)];
    let report = examined(&daemon, &world, &liars);
    assert_eq!(report["capabilities"], json!(["sandbox.native", "sandbox.docker"]), "{report:#}");
    let gvisor = backend(&report, "gvisor");
    assert!(gvisor["detail"].as_str().unwrap().starts_with("isolation_mismatch"), "{gvisor:#}");
    assert!(gvisor["remedy"].as_str().unwrap().contains("SWARM_GVISOR_RUNTIME"), "{gvisor:#}");
    assert_eq!(backend(&report, "firecracker")["state"], "unproven");

    // A network stack of its own, which not every kernel lets gVisor have: at best a sandbox without doors.
    let report = examined(&daemon, &world, &[("SWARM_GVISOR_RUNTIME", "runsc-own-network")]);
    let gvisor = backend(&report, "gvisor");
    let told =
        [&gvisor["internet"]["detail"], &gvisor["detail"]].map(|text| text.as_str().unwrap_or_default());
    assert!(gvisor["internet"]["state"] != "ok" && !told.concat().is_empty(), "{gvisor:#}");

    let report = examined(&daemon, &world, &[("DOCKER_HOST", "unix:///nonexistent/docker.sock")]);
    assert_eq!((&report["capabilities"], &report["native"]), (&json!(["sandbox.native"]), &json!(true)));
    assert_eq!(report["engine"]["state"], "absent", "{report:#}");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    eventually("nothing of a canary runs", || daemon.processes().is_empty());
    assert_eq!(names(&world.state().join("live")).len(), 0);
}
