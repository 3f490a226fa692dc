//! How fast a job in a container may use the disk: held and read back where this host can, and said where it cannot.

use serde_json::{Value, json};

use super::daemon::Daemon;
use crate::done::Done;
use crate::support::World;

#[test]
fn a_containers_disk_rate_is_held_or_said_not_to_be() {
    let (daemon, world) = (Daemon::start(), World::new());
    let run = |backend: &str, way: &str| {
        let arguments = ["run", "--json", "--backend", backend, "--", "true"];
        let mut pond = daemon.pond(&world, &arguments);
        pond.env("POND_DISK_BYTES_PER_SECOND", "20m").env("POND_CONTAINER_TRANSFER", way);
        let done = Done::of(pond.output().unwrap());
        let summary: Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
        let directory = std::path::Path::new(summary["directory"].as_str().unwrap());
        let said = crate::verify::statement(directory)["predicate"]["limits"]["diskRate"].clone();
        (said, done.stderr)
    };
    let (native, _) = run("native", "");
    let not_enforceable = json!({ "kind": "not_enforceable", "bytesPerSecond": 20 << 20 });
    for backend in ["docker", "gvisor"] {
        let (said, told) = run(backend, "bind");
        assert_eq!(said, native, "{backend}: {told}");
        let is_warned = told.contains("POND_DISK_BYTES_PER_SECOND is not enforceable here: ");
        assert_eq!(is_warned, said == not_enforceable, "{backend}: {told}");
        // A copy that travels lies in memory, whatever the host can do.
        let (said, told) = run(backend, "stream");
        let why = "POND_DISK_BYTES_PER_SECOND is not enforceable here: the job's disk is memory";
        assert!(said == not_enforceable && told.contains(why), "{backend}: {said} {told}");
    }
}
