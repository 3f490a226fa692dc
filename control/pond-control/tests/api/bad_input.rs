//! Requests of people who have not read the documentation, and of those who have read it for other reasons.

use std::io::{Read, Write};

use serde_json::json;

use super::client::{ask, open, parse};
use super::world::{Set, World};

pub(crate) fn everything_that_fails_is_a_problem(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a"]);
    let unknown = format!("run_{}", "0".repeat(32));
    for (method, path, status, code) in [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/../healthz", 404, "not_found"),
        ("PATCH", "/v1/runs", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("GET", "/v1/runs/nonsense", 404, "not_found"),
        ("GET", "/v1/runs/%ff", 400, "parameter_invalid"),
        ("GET", "/v1/runs/..%2f..%2fetc", 404, "not_found"),
        ("GET", &format!("/v1/runs/{unknown}"), 404, "not_found"),
        ("GET", &format!("/v1/runs/{unknown}/events"), 404, "not_found"),
        ("GET", &format!("/v1/runs/{run}/stages/b/logs"), 404, "not_found"),
        ("GET", &format!("/v1/runs/{run}/stages/a/logs?stream=result"), 400, "parameter_invalid"),
        ("GET", &format!("/v1/runs/{run}/stages/a/logs?offset=-1"), 400, "parameter_invalid"),
        ("GET", &format!("/v1/runs/{run}/stages/a/statement"), 404, "not_found"),
        ("GET", "/v1/runs?limit=0", 400, "parameter_invalid"),
        ("GET", "/v1/runs?limit=1000000", 400, "parameter_invalid"),
        ("GET", "/v1/runs?limit=1&limit=2", 400, "parameter_invalid"),
        ("GET", "/v1/runs?state=odd", 400, "parameter_invalid"),
        ("GET", "/v1/runs?cursor=run_1", 400, "parameter_invalid"),
        ("GET", "/v1/runs?unknown=1", 400, "parameter_invalid"),
        ("GET", "/v1/runs?project=a%20b", 400, "parameter_invalid"),
        ("GET", "/v1/audit?cursor=x", 400, "parameter_invalid"),
        ("PUT", "/v1/projects/-", 400, "parameter_invalid"),
        ("DELETE", "/v1/projects/nobodys", 404, "not_found"),
        ("PUT", "/v1/projects/acme/egress/10.0.0.1", 422, "host_refused"),
        ("PUT", "/v1/projects/acme/egress/*", 422, "host_refused"),
        ("PUT", "/v1/projects/acme/egress/api.anthropic.com", 422, "host_refused"),
        ("PUT", "/v1/projects/nobodys/egress/git.example.com", 404, "not_found"),
        ("DELETE", "/v1/projects/acme/egress/git.example.com", 404, "not_found"),
        ("DELETE", "/v1/credentials/NONE", 404, "not_found"),
        ("POST", &format!("/v1/workers/worker_{}/revoke", "0".repeat(32)), 404, "not_found"),
        ("DELETE", &format!("/v1/tokens/tok_{}", "0".repeat(32)), 404, "not_found"),
    ] {
        let reply = world.ask(method, path, None);
        assert_eq!((reply.status, reply.problem().as_str()), (status, code), "{method} {path}");
    }
    let mut stream = open(world.address);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: pond\r\nX: ").unwrap();
    stream.write_all(&vec![b'x'; 64 << 10]).unwrap_or_default();
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw).unwrap_or_default();
    assert!(raw.is_empty() || parse(&raw).status == 431, "{}", String::from_utf8_lossy(&raw));
}

pub(crate) fn oversized_and_mistyped_bodies_are_refused(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let bearer = format!("Bearer {}", world.admin);
    let send = |path: &str, media: &str, extra: &[(&str, &str)], body: &[u8]| {
        let mut headers = vec![("Authorization", bearer.as_str())];
        if !media.is_empty() {
            headers.push(("Content-Type", media));
        }
        headers.extend(extra);
        let method = if path.contains("credentials") { "PUT" } else { "POST" };
        let reply = ask(world.address, method, path, &headers, body);
        (reply.status, reply.problem())
    };
    let json = "application/json";
    let is = |status: u16, code: &str| (status, code.to_owned());
    for body in
        [&b""[..], b"{", b"[]", b"null", b"\xff\xfe", br#"{"document": {}, "force": 1}"#, br#"{"document"#]
    {
        assert_eq!(
            send("/v1/runs", json, &[], body),
            is(400, "malformed"),
            "{}",
            String::from_utf8_lossy(body)
        );
    }
    for media in ["", "text/plain", "application/jsonx", "multipart/form-data"] {
        assert_eq!(send("/v1/runs", media, &[], b"{}"), is(415, "media_type"), "{media}");
    }
    assert_eq!(send("/v1/runs", json, &[("Content-Encoding", "gzip")], b"{}"), is(415, "media_type"));
    let large = vec![b' '; (2 << 20) + (8 << 10)];
    assert_eq!(send("/v1/runs", json, &[], &large), is(413, "body_too_large"));
    let declared = [("Content-Length", "99999999999")];
    assert_eq!(send("/v1/runs", json, &declared, b""), is(413, "body_too_large"));
    assert_eq!(send("/v1/preflight", json, &[], &vec![b' '; (1 << 20) + 1]), is(413, "body_too_large"));
    assert_eq!(send("/v1/preflight", "application/yaml", &[], b"a: [b"), is(422, "document_refused"));
    assert_eq!(send("/v1/tokens", json, &[], br#"{"scopes": ["admin"]}"#), is(400, "malformed"));
    assert_eq!(
        send("/v1/workers/tokens", json, &[], br#"{"tier": "any", "ttl_seconds": 1}"#),
        is(400, "malformed")
    );
    let byo = json!({"tier": "byo", "ttl_seconds": 1}).to_string();
    assert_eq!(send("/v1/workers/tokens", json, &[], byo.as_bytes()), is(422, "grant_refused"));
    let key = [("Idempotency-Key", "")];
    let good = json!({"document": super::world::document("acme", &["a"])}).to_string();
    assert_eq!(send("/v1/runs", json, &key, good.as_bytes()), is(400, "parameter_invalid"));
    let secret = br#"{"value": "planted-secret", "x": 1}"#;
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", json)];
    let reply = ask(world.address, "PUT", "/v1/credentials/KEY", &headers, secret);
    assert_eq!((reply.status, reply.text().contains("planted")), (400, false), "{reply:?}");
}

pub(crate) fn a_list_of_fields_is_no_body(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a"]);
    for (path, fields) in [
        ("/v1/runs", json!([super::world::document("acme", &["a"]), null, 0])),
        (&format!("/v1/runs/{run}/cancel"), json!(["enough"])),
        ("/v1/tokens", json!(["api", ["runs:read"], null, null])),
        ("/v1/workers/tokens", json!(["trusted", null, 60])),
        ("/v1/credentials/KEY", json!(["v"])),
        ("/v1/sandboxes", json!([{"sandbox": {"profile": "untrusted-code-internet"}}, "acme"])),
    ] {
        let method = if path.contains("credentials") { "PUT" } else { "POST" };
        let reply = world.ask(method, path, Some(&fields));
        assert_eq!((reply.status, reply.problem().as_str()), (400, "malformed"), "{path}");
    }
}

pub(crate) fn a_grant_that_would_mean_nothing_names_its_field(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    for (body, code, path, allowed) in [
        (
            json!({"tier": "trusted", "tenant": "acme", "ttl_seconds": 1}),
            "grant_refused",
            "tier",
            json!(["byo"]),
        ),
        (json!({"tier": "byo", "ttl_seconds": 1}), "grant_refused", "tenant", json!([])),
        (
            json!({"tier": "byo", "tenant": "nobodys", "ttl_seconds": 1}),
            "project_unknown",
            "tenant",
            json!([]),
        ),
        (json!({"scopes": ["runs:read"], "project": "nobodys"}), "project_unknown", "project", json!([])),
    ] {
        let path_asked = if body.get("tier").is_some() { "/v1/workers/tokens" } else { "/v1/tokens" };
        let reply = world.ask("POST", path_asked, Some(&body));
        assert_eq!((reply.status, reply.problem().as_str()), (422, code), "{body}");
        let fault = &reply.json()["faults"][0];
        assert_eq!(
            (&fault["code"], &fault["path"], &fault["allowed"]),
            (&json!(code), &json!(path), &allowed)
        );
    }
}
