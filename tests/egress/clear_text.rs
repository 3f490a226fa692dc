//! HTTP where only HTTPS passes: whichever door a request in clear text comes to, it is answered in its own protocol with the
//! reason, it is in the record and explained, and nothing of it goes out (cases 8, 23 and 70).

use serde_json::{Value, json};

use crate::rules::files_below;
use crate::world::zone::DOMAIN;
use crate::world::{Backend, Done, Plan, World};

/// What a client is told to do, the door it comes to, and the host its refusal names.
const WAYS: [(&str, &str, &str); 5] = [
    ("http://listed.pondworld.net/", "proxy", "listed.pondworld.net"),
    ("http://denied.pondworld.net/", "proxy", "denied.pondworld.net"),
    ("--noproxy * http://listed.pondworld.net/", "tls", "listed.pondworld.net"),
    ("--noproxy * http://listed.pondworld.net:443/", "tls", "listed.pondworld.net:443"),
    (
        "--proxytunnel --proxy http://127.0.0.1:3128 http://listed.pondworld.net:443/",
        "proxy",
        "listed.pondworld.net:443",
    ),
];

const HINT: &str = "use an https URL; clear-text requests are never forwarded";

pub(crate) fn run_on(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    let curl = "curl --silent --output /dev/null --suppress-connect-headers --dump-header - --max-time 30";
    let lines: Vec<String> =
        WAYS.iter().map(|(how, ..)| format!("{curl} {} | head -n 1", how.replace('*', "'*'"))).collect();
    let listed = format!("listed.{DOMAIN}");
    let run = ["run", "--quiet", "--allow-host", &listed, "--", "sh", "-c", &lines.join("\n")];
    let done = Done::of(world.pond(&run).output().unwrap());
    let told: Vec<&str> = done.stdout.lines().map(str::trim_end).collect();
    let expected: Vec<String> = WAYS
        .iter()
        .map(|(_, _, host)| format!("HTTP/1.1 403 pond: https only: \"{host}\" ({HINT})"))
        .collect();
    assert_eq!(told, expected, "{backend:?}: {done:?}");
    assert_eq!(world.log.requests(), [], "nothing of them went out");
    let files = files_below(&world.state().join("runs"));
    let (_, record) = files.into_iter().find(|(name, _)| name.ends_with("egress.jsonl")).unwrap();
    let record = String::from_utf8(record).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let refused: Vec<Value> = events
        .filter_map(|event| event.get("refused").cloned())
        .map(|refused| json!([refused["door"], refused["target"], refused["code"]]))
        .collect();
    let expected: Vec<Value> =
        WAYS.iter().map(|(_, door, host)| json!([door, format!("\"{host}\""), "https_only"])).collect();
    assert_eq!(refused, expected, "{record}");
    let explained = Done::of(world.pond(&["explain"]).output().unwrap());
    for (_, _, host) in WAYS {
        assert!(explained.stdout.contains(host), "{host}: {explained:?}");
    }
    assert!(explained.stdout.contains("https_only") && explained.stdout.contains(HINT), "{explained:?}");
}

#[test]
fn c23_c70_clear_text_is_refused_in_words_at_every_door() {
    run_on(Backend::Native);
    // The control: where nothing holds it the same request is answered.
    let world = World::new(Plan::default());
    let curl = world.direct("curl").args(["--silent", "http://listed.pondworld.net/"]).output().unwrap();
    assert_eq!(Done::of(curl).stdout, "far side: listed.pondworld.net\n");
}
