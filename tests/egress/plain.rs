//! The world itself, without pond: it is closed, it answers for everybody, and it sees everything.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::world::log::{Event, Wire};
use crate::world::models;
use crate::world::zone::{A, DOMAIN};
use crate::world::{Done, Plan, World};

#[test]
fn every_address_answers_and_nothing_else_is_connected() {
    let world = World::new(Plan::default());
    let probe = "import socket,sys
for a in sys.argv[1:]: socket.create_connection((a, 443), 5).close()
print(sorted(n for _, n in socket.if_nameindex()))";
    let addresses = [
        "1.1.1.1",
        "169.254.169.254",
        "10.0.0.5",
        "100.100.100.200",
        "fd00:ec2::254",
        "2606:4700::1111",
        "64:ff9b::a00:1",
    ];
    let done = Done::of(world.direct("python3").args(["-c", probe]).args(addresses).output().unwrap());
    let expected = Done { code: 0, stdout: "['lo', 'near']\n".to_owned(), stderr: String::new() };
    assert_eq!(done, expected);
    let dialled = || world.log.dials().iter().map(|address| address.ip().to_string()).collect::<Vec<_>>();
    // The client may be gone before the far side has accepted it.
    let patience = Instant::now() + Duration::from_secs(30);
    while dialled().len() < addresses.len() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(dialled(), addresses);
}

#[test]
fn a_client_resolves_trusts_and_is_seen() {
    let world = World::new(Plan::default());
    let ca = world.trust();
    let url = format!("https://hello.{DOMAIN}/x");
    let done = Done::of(world.direct("curl").args(["-sS", "-4", "--cacert", ca, &url]).output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (0, "far side: hello.pondworld.net\n"), "{done:?}");
    let events = world.log.all();
    let name = format!("hello.{DOMAIN}");
    assert_eq!(events[0], Event::Query { name: name.clone(), kind: A, over: Wire::Udp });
    let address = SocketAddr::from((crate::world::zone::public(&name), 443));
    assert_eq!(world.log.dials(), [address]);
    assert_eq!(world.log.requests()[0].host, name);
}

/// Each provider answers in both forms, and the log has what the client sent, its key included.
#[test]
fn the_model_providers_answer_and_remember() {
    let world = World::new(Plan { handlers: models::providers(10, 5), ..Plan::default() });
    let ca = world.trust();
    let calls = [
        (models::ANTHROPIC, "/v1/messages", "message_stop"),
        (models::OPENAI, "/v1/responses", "response.completed"),
        (models::OPENAI, "/v1/chat/completions", "[DONE]"),
        (models::GEMINI, "/v1beta/models/gemini-x:streamGenerateContent", "usageMetadata"),
    ];
    for (host, path, last) in calls {
        for (body, expected) in [(r#"{"stream":true}"#, last), ("{}", "usage")] {
            let url = format!("https://{host}{path}");
            let mut curl = world.direct("curl");
            curl.args(["-sS", "--cacert", ca, "-H", "x-api-key: sk-planted", "--data-raw", body, &url]);
            let done = Done::of(curl.output().unwrap());
            assert!(done.code == 0 && done.stdout.contains(expected), "{url} {body}: {done:?}");
        }
    }
    let planted = ("x-api-key".to_owned(), "sk-planted".to_owned());
    let requests = world.log.requests();
    assert_eq!(requests.iter().filter(|request| request.headers.contains(&planted)).count(), 8);
}
