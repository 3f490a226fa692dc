//! Sandboxes through the API: accepted, shown, used, listed by page, followed, deleted; and seen by nobody of another project.

use pond_policy::scope::Scope;
use serde_json::{Value, json};

use super::client::{Reply, ask};
use super::world::{Set, World};

fn make(world: &World, token: &str, document: Value, key: Option<&str>) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    headers.extend(key.map(|key| ("Idempotency-Key", key)));
    let body = json!({"document": document, "project": "acme"}).to_string();
    ask(world.address, "POST", "/v1/sandboxes", &headers, body.as_bytes())
}

fn boxed(id: &str) -> Value {
    json!({"id": id, "labels": {"team": "web"}, "sandbox": {"profile": "untrusted-code-internet"}})
}

fn bytes(world: &World, method: &str, path: &str, body: &[u8]) -> Reply {
    let bearer = format!("Bearer {}", world.admin);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/octet-stream")];
    ask(world.address, method, path, &headers, body)
}

pub(crate) fn a_sandbox_is_made_used_and_deleted(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let made = make(&world, &world.admin, boxed("one"), None);
    assert_eq!((made.status, made.header("location")), (202, Some("/v1/sandboxes/one")), "{made:?}");
    let view = world.ask("GET", "/v1/sandboxes/one", None).json();
    assert_eq!(
        (&view["state"], &view["project"], &view["labels"]["team"]),
        (&json!("ready"), &json!("acme"), &json!("web"))
    );
    assert!(!view.to_string().contains("io.pond."), "{view}");

    let exec = world.ask("POST", "/v1/sandboxes/one/execs", Some(&json!({"command": ["echo", "hello"]})));
    assert_eq!((exec.status, &exec.json()["id"]), (201, &json!(1)), "{exec:?}");
    assert_eq!(world.ask("GET", "/v1/sandboxes/one/execs/1", None).json()["exit_code"], 0);
    let output =
        |query: &str| world.ask("GET", &format!("/v1/sandboxes/one/execs/1/output?{query}"), None).text();
    assert_eq!(
        (output("follow=true"), output("offset=2"), output("stream=stderr")),
        ("hello".into(), "llo".into(), String::new())
    );

    assert_eq!(bytes(&world, "PUT", "/v1/sandboxes/one/files?path=/workspace/a", b"\0\xff").status, 204);
    assert_eq!(bytes(&world, "GET", "/v1/sandboxes/one/files?path=/workspace/a", b"").body, b"\0\xff");

    assert_eq!(world.ask("POST", "/v1/sandboxes/one/stop", None).json()["state"], "stopped");
    let wrong = world.ask("POST", "/v1/sandboxes/one/execs", Some(&json!({"command": ["true"]})));
    assert_eq!((wrong.status, wrong.problem().as_str()), (409, "conflict"));
    assert_eq!(world.ask("POST", "/v1/sandboxes/one/resume", None).json()["state"], "ready");
    assert_eq!(world.ask("DELETE", "/v1/sandboxes/one", None).status, 202);
    let events = world.ask("GET", "/v1/sandboxes/one/events", None).text();
    let numbers: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5"], "{events}");
    let later = world.ask("GET", "/v1/sandboxes/one/events?from_sequence=3", None).text();
    assert!(
        later.starts_with("id: 4\nevent: started\n") && later.contains("\"state\":\"deleted\""),
        "{later}"
    );

    let log = world.ask("GET", "/v1/audit?project=acme&limit=200", None).json();
    let actions: Vec<&str> =
        log["entries"].as_array().unwrap().iter().filter_map(|entry| entry["action"].as_str()).collect();
    for action in ["created", "exec", "file_written", "file_read", "stopped", "resumed", "deleted"] {
        assert!(actions.contains(&format!("sandbox.{action}").as_str()), "{action}: {actions:?}");
    }
}

pub(crate) fn a_key_is_one_sandbox_and_an_id_is_given_once(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let nameless = json!({"sandbox": {"profile": "untrusted-code-internet"}});
    let first = make(&world, &world.admin, nameless.clone(), Some("k"));
    let again = make(&world, &world.admin, nameless.clone(), Some("k"));
    assert_eq!((first.status, again.status), (202, 200), "{again:?}");
    assert_eq!(first.json()["id"], again.json()["id"]);
    let other =
        make(&world, &world.admin, json!({"sandbox": {"profile": "untrusted-code-write"}}), Some("k"));
    assert_eq!((other.status, other.problem().as_str()), (422, "key_reused"));
    let unkeyed = make(&world, &world.admin, nameless, None);
    assert!(unkeyed.status == 202 && unkeyed.json()["id"] != first.json()["id"]);

    assert_eq!(make(&world, &world.admin, boxed("one"), Some("k2")).status, 202);
    assert_eq!(make(&world, &world.admin, boxed("one"), Some("k2")).status, 200);
    assert_eq!(make(&world, &world.admin, boxed("one"), None).problem(), "id_taken");
    assert_eq!(make(&world, &world.admin, boxed("one"), Some("k3")).problem(), "id_taken");
    world.ask("DELETE", "/v1/sandboxes/one", None);
    assert_eq!(make(&world, &world.admin, boxed("one"), None).problem(), "id_taken");
}

pub(crate) fn sandboxes_are_their_project_s(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    world.keeper.put("of-nobody");
    for id in ["a", "b", "c"] {
        assert_eq!(make(&world, &world.admin, boxed(id), None).status, 202);
    }
    let scopes = [Scope::SandboxesRead, Scope::SandboxesWrite];
    let (ours, theirs) = (world.token(&scopes, Some("acme")), world.token(&scopes, Some("other")));
    let ids = |token: &str, query: &str| -> Vec<String> {
        let page = world.ask_as(token, "GET", &format!("/v1/sandboxes?{query}"), None).json();
        page["sandboxes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!((ids(&ours, ""), ids(&theirs, "")), (vec!["a".into(), "b".into(), "c".into()], Vec::new()));
    assert_eq!(ids(&world.admin, "").len(), 4);
    assert_eq!(ids(&world.admin, "project=acme").len(), 3);
    assert_eq!(
        (ids(&ours, "limit=2"), ids(&ours, "limit=2&cursor=b")),
        (vec!["a".into(), "b".into()], vec!["c".into()])
    );
    assert_eq!(
        (
            ids(&ours, "label=team=web").len(),
            ids(&ours, "label=team=db").len(),
            ids(&ours, "state=stopped").len()
        ),
        (3, 0, 0)
    );
    for (token, id) in [(&theirs, "a"), (&ours, "of-nobody"), (&ours, "nothing")] {
        for (method, path) in
            [("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/events"), ("GET", "/execs/1")]
        {
            let reply = world.ask_as(token, method, &format!("/v1/sandboxes/{id}{path}"), None);
            assert_eq!((reply.status, reply.problem().as_str()), (404, "not_found"), "{method} {id}{path}");
        }
    }
    assert_eq!(make(&world, &theirs, boxed("d"), None).problem(), "project_forbidden");
    assert_eq!(ids(&world.admin, "").len(), 4, "nothing was made or deleted");
}

pub(crate) fn bad_documents_and_programs_are_refused_with_every_fault(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let reply = make(
        &world,
        &world.admin,
        json!({"id": "X", "network": "host", "sandbox": {"profile": "none"}}),
        None,
    );
    let codes: Vec<String> = reply.json()["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["code"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((reply.status, reply.problem().as_str()), (422, "document_refused"));
    codes.iter().for_each(|code| {
        assert!(["id_invalid", "unknown_field", "unconfined_refused"].contains(&code.as_str()), "{code}")
    });
    assert_eq!(codes.len(), 3);
    let mounting = json!({"sandbox": {"profile": "untrusted-code-internet"}, "mounts": [{"source": "/etc", "target": "/data"}]});
    let reply = make(&world, &world.admin, mounting, None);
    assert_eq!(
        reply.json()["faults"][0]["code"],
        "not_over_api",
        "the host's files are not a token's: {reply:?}"
    );
    make(&world, &world.admin, boxed("one"), None);
    for body in [
        json!({"command": []}),
        json!({"command": ["a"], "cwd": "../x"}),
        json!({"command": ["a"], "env": {"1": "x"}}),
    ] {
        assert_eq!(
            world.ask("POST", "/v1/sandboxes/one/execs", Some(&body)).problem(),
            "document_refused",
            "{body}"
        );
    }
    for path in ["", "?path=", "?path=a", "?path=/", "?path=/a/../b", "?path=//a", "?where=/a"] {
        let reply = world.ask("GET", &format!("/v1/sandboxes/one/files{path}"), None);
        assert_eq!((reply.status, reply.problem().as_str()), (400, "parameter_invalid"), "{path}");
    }
    let large = vec![0; (16 << 20) + 1];
    assert_eq!(bytes(&world, "PUT", "/v1/sandboxes/one/files?path=/a", &large).problem(), "body_too_large");
    assert_eq!(world.ask("GET", "/v1/sandboxes/one/execs/9/output", None).problem(), "not_found");
}

pub(crate) fn a_project_has_so_many_and_no_more(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    for number in 0..64 {
        assert_eq!(
            make(&world, &world.admin, boxed(&format!("b{number}")), Some(&number.to_string())).status,
            202
        );
    }
    assert_eq!(make(&world, &world.admin, boxed("more"), None).problem(), "conflict");
    assert_eq!(make(&world, &world.admin, boxed("b0"), Some("0")).status, 200, "the same again is no more");
    world.ask("DELETE", "/v1/sandboxes/b1", None);
    assert_eq!(make(&world, &world.admin, boxed("more"), None).status, 202);
}

pub(crate) fn without_a_keeper_it_is_said(start: &dyn Fn(Set) -> World) {
    let world = start(Set { keeps: false, ..Set::default() });
    assert_eq!(make(&world, &world.admin, boxed("one"), None).problem(), "keeper_missing");
    for path in ["/v1/sandboxes", "/v1/sandboxes/one", "/v1/sandboxes/one/events"] {
        let reply = world.ask("GET", path, None);
        assert_eq!((reply.status, reply.problem().as_str()), (409, "keeper_missing"), "{path}");
    }
}
