//! An image that a run names: it must be there, it is known by its digest, and what it says of how it wants to be run does not
//! matter or is refused.

use serde_json::Value;

use super::daemon::Daemon;
use crate::done::Done;
use crate::support::{World, names};
use crate::visitor::Visitor;

const PROGRAMS: [&str; 4] = ["/bin/sh", "/usr/bin/cat", "/usr/bin/id", "/usr/bin/env"];

fn nothing_is_left(daemon: &Daemon, world: &World) {
    assert_eq!(daemon.containers(), Vec::<String>::new());
    let volumes = daemon.api("GET", "/volumes", None)["Volumes"].as_array().map_or(0, Vec::len);
    assert_eq!((volumes, names(&world.state().join("live")).len()), (0, 0));
}

fn run(daemon: &Daemon, world: &World, flags: &[&str], way: &str) -> Done {
    let mut pond = daemon.pond(world, &[&["run"], flags].concat());
    Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap())
}

#[test]
fn an_image_that_fights_the_posture_does_not_change_it() {
    let (daemon, world) = (Daemon::start(), World::new());
    world.write("f", "before\n");
    let changes = [
        "ENTRYPOINT [\"/bin/sh\", \"-c\", \"echo entered\"]",
        "CMD [\"/bin/false\"]",
        "USER 0:0",
        "WORKDIR /evil",
        "ENV LD_PRELOAD=/evil.so HOME=/evil PATH=/opt/evil:/usr/bin:/bin KEPT=yes HTTPS_PROXY=http://evil:1",
        "HEALTHCHECK CMD /bin/false",
        "EXPOSE 80",
        "LABEL io.pond.job=other io.pond.state=other",
    ];
    let id = daemon.import("fights", &PROGRAMS, &changes);
    let line = "cat f; echo $HOME $PWD $KEPT $PATH; [ $(id -u) -gt 1000 ] && echo nobody; [ -e /usr/bin/python3 ] || echo small; \
                echo after > f; (echo x > /evil) 2>/dev/null || echo sealed; echo ${HTTPS_PROXY#http://127.0.0.1}";
    for backend in ["docker", "gvisor"] {
        for way in ["bind", "stream"] {
            let flags = ["--json", "--backend", backend, "--image", "fights", "--", "sh", "-c", line];
            let done = run(&daemon, &world, &flags, way);
            let summary: Value =
                serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
            let directory = std::path::Path::new(summary["directory"].as_str().unwrap());
            let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
            let expected = "before\n/home/pond /workspace yes /opt/evil:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin\n\
                            nobody\nsmall\nsealed\n:3128\n";
            assert_eq!(text("stdout.log"), expected, "{backend} {way}: {}", text("stderr.log"));
            assert_eq!(summary["result"]["changed"], 1, "{summary:#}");
            // By digest, wherever it is told.
            assert_eq!(summary["isolation"]["image"], id.as_str());
            let stated = crate::verify::statement(directory);
            assert_eq!(stated["predicate"]["image"], id.strip_prefix("sha256:").unwrap(), "{stated:#}");
        }
    }
    nothing_is_left(&daemon, &world);
}

/// The image's variables are not those of pid 1.
#[test]
fn pid_one_has_none_of_the_images_variables() {
    let (daemon, world) = (Daemon::start(), World::new());
    daemon.import("tools", &["/bin/sh", "/usr/bin/sleep"], &["ENV LD_PRELOAD=/evil.so GLIBC_TUNABLES=x=y"]);
    let arguments =
        ["run", "--backend", "docker", "--image", "tools", "--", "sh", "-c", "echo ready; sleep 1000"];
    let mut child = daemon
        .pond(&world, &arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(crate::support::first_line(&mut child), "ready\n");
    let name = daemon.containers().remove(0);
    let inspected = daemon.api("GET", &format!("/containers{name}/json"), None);
    let pid = &inspected["State"]["Pid"];
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(!environment.contains("evil") && !environment.contains("TUNABLES"), "{environment:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_image_that_cannot_be_had_or_held_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    daemon.import("bare", &["/usr/bin/env"], &[]);
    daemon.import("volumes", &PROGRAMS, &["VOLUME /data"]);
    for (flags, why) in [
        (
            &["--backend", "docker", "--image", "nosuch/agent:1"][..],
            "no image nosuch/agent:1, and pond pulls none; get it yourself with `docker pull nosuch/agent:1`",
        ),
        (&["--backend", "docker", "--image", "./image.tar"], "`docker load --input ./image.tar`"),
        (&["--backend", "docker", "--image", "volumes"], "declares VOLUME /data"),
        (
            &["--backend", "docker", "--image", "bare"],
            "could not execute the command: No such file or directory",
        ),
        (&["--image", "bare"], "the native backend stands on the host's own toolchain and takes no image"),
        (&["--backend", "native", "--image", "bare"], "takes no image"),
    ] {
        let done = run(&daemon, &world, &[flags, &["--", "sh", "-c", "echo ran"]].concat(), "bind");
        assert!(done.code == 125 && done.stdout.is_empty() && done.stderr.contains(why), "{why:?}: {done:?}");
    }
    // Nothing but the program is needed of an image.
    let done = run(&daemon, &world, &["-q", "--backend", "docker", "--image", "bare", "--", "env"], "bind");
    assert!(done.code == 0 && done.stdout.contains("HOME=/home/pond\n"), "{done:?}");
    nothing_is_left(&daemon, &world);
}

/// The Dockerfile of docs/containers.md, built by the engine from what lies beside it: nothing is pulled, and the job runs on
/// exactly that image.
#[test]
fn the_documented_dockerfile_makes_an_image_that_is_used_by_its_digest() {
    let (daemon, world) = (Daemon::start(), World::new());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/image/Dockerfile");
    let id = daemon.build("tools", &PROGRAMS, &std::fs::read_to_string(file).unwrap());
    let line = "cat --version >/dev/null && [ ! -e /usr/bin/python3 ] && echo its own";
    for backend in ["docker", "gvisor"] {
        let flags = ["--json", "--backend", backend, "--image", &id, "--", "sh", "-c", line];
        let done = run(&daemon, &world, &flags, "bind");
        let summary: Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
        let log = std::path::Path::new(summary["directory"].as_str().unwrap()).join("stdout.log");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "its own\n", "{backend}: {summary:#}");
        assert_eq!(summary["isolation"]["image"], id.as_str());
    }
    nothing_is_left(&daemon, &world);
}

/// Anybody but root is refused in words, before anything is made, though the engine's socket be theirs.
#[test]
fn an_ordinary_user_is_refused_with_what_to_do() {
    let (daemon, visitor) = (Daemon::start(), Visitor::invite());
    for backend in ["docker", "gvisor"] {
        let mut user = visitor.command(visitor.pond.to_str().unwrap());
        user.args(["run", "--backend", backend, "--", "true"]).env("DOCKER_HOST", daemon.address());
        let done = Done::of(user.output().unwrap());
        let why = "only root can; run pond as root, or use the native backend";
        assert!(done.code == 125 && done.stderr.contains(why), "{done:?}");
    }
    nothing_is_left(&daemon, &visitor.world);
}
