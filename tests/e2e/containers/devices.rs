//! Device nodes that an image brings along. An engine lets every container open some devices of this host by their numbers; pond's jobs,
//! sandboxes and companions open none but the engine's own in `/dev`.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use pond_policy::backend::Backend;
use pond_sandbox::container::companion::{Companion, News, Primary, accompany};
use pond_sandbox::native::Ending;
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::ground::import;
use super::kept::{Ground, job, policy, shell};
use crate::done::Done;
use crate::support::World;

const IMAGE: &str = "nodes";
/// The host's console and its zeros, for everybody to read: at the top, further down, by a second name, and where an engine
/// mounts its own devices.
const NODES: &str = "mknod -m 666 console c 5 1; mkdir -p a/b dev data; mknod -m 666 a/b/zero c 1 5; ln a/b/zero linked; \
                     mknod -m 666 dev/hidden c 1 5; mknod -m 666 data/zero c 1 5";
/// How many of them open.
const COUNT: &str = "n=0; for f in /console /a/b/zero /linked /dev/hidden /data/zero; do \
                     if (: < $f) 2>/dev/null; then n=$((n+1)); fi; done; cat /dev/null && echo opened $n";

fn nodes(daemon: &Daemon) {
    import(daemon, IMAGE, NODES);
}

/// The same image, user and command by the engine's own word, without capabilities and on a root that is read-only.
fn opened_without_pond(daemon: &Daemon) -> Value {
    let body = json!({
        "Image": IMAGE,
        "User": "1000:1000",
        "Cmd": ["sh", "-c", format!("{COUNT}; exit $n")],
        "NetworkDisabled": true,
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": true,
        },
    });
    let made = daemon.api("POST", "/containers/create", Some(&body));
    let id = made["Id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    daemon.api("POST", &format!("/containers/{id}/start"), None);
    let ended = daemon.api("POST", &format!("/containers/{id}/wait"), None);
    daemon.api("DELETE", &format!("/containers/{id}?force=true"), None);
    ended["StatusCode"].clone()
}

#[test]
fn a_device_in_an_image_does_not_open() {
    let (daemon, world) = (Daemon::start(), World::new());
    nodes(&daemon);
    // All but the one that the engine's own devices lie over.
    assert_eq!(opened_without_pond(&daemon), json!(4));
    for (backend, way) in [("docker", "bind"), ("docker", "stream"), ("gvisor", "bind")] {
        let flags = ["run", "-q", "--backend", backend, "--image", IMAGE, "--", "sh", "-c", COUNT];
        let done =
            Done::of(daemon.pond(&world, &flags).env("POND_CONTAINER_TRANSFER", way).output().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (0, "opened 0\n"), "{backend} {way}: {done:?}");
    }
}

/// A sandbox that lasts on such an image, and a companion beside it.
#[test]
fn a_device_in_the_image_of_a_sandbox_or_a_companion_does_not_open() {
    let ground = Ground::new(Backend::Docker);
    nodes(&ground.engine);
    let record = ground.reserve("primary");
    let kept = Arc::new(ground.keep_as(&policy(&[("image", IMAGE)]), &record, &[]));
    assert_eq!(shell(&kept, COUNT), (Some(0), "opened 0\n".to_owned(), String::new()));
    let Ground { engine, directory: _directory, container, checkout } = ground;
    let primary = Primary {
        container: Arc::new(container),
        kept: Arc::clone(&kept),
        checkout: Arc::new(checkout),
        aliases: Vec::new(),
    };
    let companion = Companion {
        alias: "beside".to_owned(),
        policy: policy(&[("image", IMAGE)]),
        command: ["sh", "-c", COUNT].map(str::to_owned).to_vec(),
        env: Vec::new(),
        checkup: None,
        post_start_on_primary: Vec::new(),
        disk: None,
    };
    let (news, heard) = sync_channel(64);
    let beside = accompany(primary, companion, job("primary-c-beside"), news).unwrap();
    let told: Vec<News> = heard.iter().map(|told| told.news).collect();
    let ended = told.iter().find_map(|news| {
        let News::Ended { ending: Ending::Exited { code: 0, .. }, said } = news else { return None };
        Some(said.as_str())
    });
    assert_eq!(ended, Some("opened 0"), "{told:?}");
    drop(beside);
    kept.stop().unwrap();
    record.close().unwrap();
    assert_eq!((engine.containers(), engine.processes()), (Vec::new(), Vec::new()));
}
