//! Who may what. Every route of the table is tried by everybody who may not, and by one who may.

use pond_control::api::{Need, Rate, Reach, Route};
use pond_policy::scope::Scope;
use pond_seal::bearer::Kind;
use serde_json::{Value, json};

use super::client::{Reply, ask};
use super::world::{Set, World, document};

/// A good request for a route: path, media type and body. A route without one does not compile.
struct Good {
    path: String,
    media: &'static str,
    body: Vec<u8>,
}

struct Things {
    run: String,
    worker: String,
    token: String,
    sandbox: String,
}

fn good(route: Route, things: &Things) -> Good {
    let path = route.path().replace("{run}", &things.run).replace("{worker}", &things.worker);
    let path = path.replace("{token}", &things.token).replace("{project}", "acme").replace("{stage}", "a");
    let path = path.replace("{tile}", "0").replace("{sandbox}", &things.sandbox).replace("{exec}", "1");
    let path = path.replace("{host}", "git.example.com").replace("{name}", "KEY");
    let json =
        |path: String, body: Value| Good { path, media: "application/json", body: body.to_string().into() };
    let plain = |path: String| Good { path, media: "", body: Vec::new() };
    match route {
        Route::Preflight => json(path, document("acme", &["a"])),
        Route::Submit => json(path, json!({"document": document("acme", &["a"])})),
        Route::SendSource => Good {
            path: format!("{path}?project=acme"),
            media: pond_wire::api::TREE_TYPE,
            body: pond_wire::tree::Entry::Leave { mode: 0o755 }.encode().unwrap(),
        },
        Route::MakeSandbox => json(
            path,
            json!({"project": "acme", "document": {"sandbox": {"profile": "untrusted-code-internet"}}}),
        ),
        Route::Exec => json(path, json!({"command": ["true"]})),
        Route::WriteFile => Good {
            path: format!("{path}?path=/workspace/a"),
            media: "application/octet-stream",
            body: b"a".to_vec(),
        },
        Route::ReadFile => plain(format!("{path}?path=/workspace/a")),
        Route::Sandboxes => plain(format!("{path}?project=acme")),
        Route::Cancel => json(path, json!({"reason": "enough"})),
        Route::SetCredential => json(format!("{path}?project=acme"), json!({"value": "v"})),
        Route::JoinToken => json(path, json!({"tier": "trusted", "ttl_seconds": 60})),
        Route::IssueToken => json(path, json!({"scopes": ["tokens:admin"], "project": "acme"})),
        Route::Credentials | Route::RemoveCredential => plain(format!("{path}?project=acme")),
        Route::Consistency => plain(format!("{path}?from=0&to=0")),
        Route::Runs | Route::Audit => plain(format!("{path}?project=acme")),
        Route::Health
        | Route::Ready
        | Route::OpenApi
        | Route::Metrics
        | Route::Run
        | Route::Events
        | Route::Logs
        | Route::Statement
        | Route::Result
        | Route::Proof
        | Route::Checkpoint
        | Route::LogEntries
        | Route::Sandbox
        | Route::RemoveSandbox
        | Route::StopSandbox
        | Route::ResumeSandbox
        | Route::SandboxEvents
        | Route::ShowExec
        | Route::ExecOutput
        | Route::CancelExec
        | Route::Projects
        | Route::MakeProject
        | Route::RemoveProject
        | Route::Egress
        | Route::AllowEgress
        | Route::RemoveEgress
        | Route::RotateCredentials
        | Route::Workers
        | Route::RevokeWorker
        | Route::DrainWorker
        | Route::ReleaseWorker
        | Route::Tokens
        | Route::RevokeToken => plain(path),
    }
}

fn try_with(world: &World, route: Route, things: &Things, token: Option<&str>) -> Reply {
    let good = good(route, things);
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers: Vec<(&str, &str)> =
        bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
    if !good.media.is_empty() {
        headers.push(("Content-Type", good.media));
    }
    ask(world.address, route.method_name(), &good.path, &headers, &good.body)
}

pub(crate) fn every_route_asks_who_is_there(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let run = world.submit(&["a"]);
    // A run that is over ends the streams of those who look.
    world.ask("POST", &format!("/v1/runs/{run}/cancel"), None);
    let worker = world.worker().to_string();
    let issued = world.ask("POST", "/v1/tokens", Some(&json!({"scopes": ["runs:read"]})));
    let boxed = json!({"project": "acme", "document": {"id": "one", "sandbox": {"profile": "untrusted-code-internet"}}});
    assert_eq!(world.ask("POST", "/v1/sandboxes", Some(&boxed)).status, 202);
    let token = issued.json()["id"].as_str().unwrap().to_owned();
    let things = Things { run, worker, token, sandbox: "one".to_owned() };
    let strangers = [
        None,
        Some("pond_api_00_00".to_owned()),
        Some(world.token_of(Kind::Relay, None)),
        Some(world.token_of(Kind::Api, Some(-1))),
        Some(world.revoked_token()),
    ];
    for route in Route::ALL {
        let Need::Scope(scope, reach) = route.need() else {
            assert_eq!(try_with(&world, *route, &things, None).status, 200, "{route:?}");
            continue;
        };
        for stranger in &strangers {
            let reply = try_with(&world, *route, &things, stranger.as_deref());
            assert_eq!(
                (reply.status, reply.problem().as_str()),
                (401, "unauthenticated"),
                "{route:?} {stranger:?}"
            );
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
        let others: Vec<Scope> = Scope::ALL.iter().copied().filter(|other| *other != scope).collect();
        let reply = try_with(&world, *route, &things, Some(&world.token(&others, None)));
        assert_eq!((reply.status, reply.problem().as_str()), (403, "scope_missing"), "{route:?}");
        let reply = try_with(&world, *route, &things, Some(&world.token(&[scope], Some("other"))));
        match (reach, reply.status) {
            (Reach::Everything, 403) => assert_eq!(reply.problem(), "project_forbidden", "{route:?}"),
            (Reach::Project, 403 | 404 | 422) => {
                let code = reply.problem();
                assert!(
                    ["project_forbidden", "not_found", "grant_refused"].contains(&code.as_str()),
                    "{route:?} {code}"
                );
            }
            (Reach::Project, 200) if matches!(route, Route::Projects | Route::Tokens) => {
                assert!(!reply.text().contains("acme"), "{route:?} {}", reply.text());
            }
            other => panic!("{route:?} of another project: {other:?}"),
        }
    }
    for route in Route::ALL {
        let Need::Scope(scope, _) = route.need() else { continue };
        let reply = try_with(&world, *route, &things, Some(&world.token(&[scope], None)));
        // The project has runs, the worker is revoked by now; there is neither a statement nor a result.
        let in_the_way = [Route::RemoveProject, Route::DrainWorker, Route::ReleaseWorker].contains(route);
        let missing = [Route::Statement, Route::Result, Route::Proof].contains(route);
        let fits = match reply.status {
            409 => in_the_way,
            404 => missing,
            status => (200..300).contains(&status) && !in_the_way && !missing,
        };
        assert!(fits, "{route:?}: {reply:?}");
    }
}

pub(crate) fn nobody_hands_out_more_than_he_has(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let limited = world.token(&[Scope::TokensAdmin, Scope::RunsRead], Some("acme"));
    let issue = |token: &str, body: Value| world.ask_as(token, "POST", "/v1/tokens", Some(&body));
    for body in [
        json!({"scopes": ["runs:write"], "project": "acme"}),
        json!({"scopes": ["runs:read"], "project": "other"}),
        json!({"scopes": ["runs:read"]}),
        json!({"scopes": [], "kind": "relay"}),
        json!({"scopes": [], "project": "acme"}),
        json!({"scopes": ["runs:read"], "project": "acme", "ttl_seconds": 0}),
    ] {
        let reply = issue(&limited, body.clone());
        assert_eq!((reply.status, reply.problem().as_str()), (422, "grant_refused"), "{body}");
    }
    let made = issue(&limited, json!({"scopes": ["runs:read"], "project": "acme"}));
    assert_eq!(made.status, 201);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(world.ask_as(&token, "GET", "/v1/runs", None).status, 200);
    let listed = world.ask_as(&limited, "GET", "/v1/tokens", None);
    assert!(!listed.text().contains(&token), "a token is shown once");
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.ask_as(&limited, "DELETE", &format!("/v1/tokens/{id}"), None).status, 204);
    assert_eq!(world.ask_as(&token, "GET", "/v1/runs", None).status, 401);
}

pub(crate) fn a_project_s_token_sees_its_project_only(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    world.submit(&["a"]);
    let body = json!({"document": document("other", &["a"])});
    assert_eq!(world.ask("POST", "/v1/runs", Some(&body)).status, 201);
    let token = world.token(Scope::ALL, Some("other"));
    let read = |path: &str| world.ask_as(&token, "GET", path, None);
    let runs = read("/v1/runs").json();
    assert_eq!((runs["runs"].as_array().unwrap().len(), &runs["runs"][0]["project"]), (1, &json!("other")));
    let audit = read("/v1/audit").json();
    let projects = audit["entries"].as_array().unwrap().iter().map(|entry| &entry["project"]);
    assert!(projects.clone().all(|project| project == "other") && projects.count() >= 2, "{audit}");
    for path in ["/v1/runs?project=acme", "/v1/audit?project=acme", "/v1/credentials?project=acme"] {
        assert_eq!(read(path).problem(), "project_forbidden", "{path}");
    }
    let mine = world.ask_as(&token, "PUT", "/v1/credentials/KEY", Some(&json!({"value": "v"})));
    assert_eq!(mine.status, 204);
    let listed = world.ask("GET", "/v1/credentials?project=other", None).json();
    assert_eq!(listed["credentials"][0]["project"], "other", "without a name it is its own, not everybody's");
}

pub(crate) fn refused_calls_are_written_down_at_a_bounded_rate(start: &dyn Fn(Set) -> World) {
    let mut set = Set::default();
    set.rates.audit = Rate { per_second: 1, burst: 3 };
    set.rates.failed = Rate { per_second: 1, burst: 12 };
    let world = start(set);
    let reader = world.token(&[Scope::RunsRead], None);
    assert_eq!(world.ask_as(&reader, "GET", "/v1/workers", None).status, 403);
    let statuses: Vec<u16> =
        (0..40).map(|_| ask(world.address, "GET", "/v1/runs", &[], b"").status).collect();
    assert!(statuses[..12].iter().all(|status| *status == 401), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    let limited = ask(world.address, "GET", "/v1/runs", &[], b"");
    if limited.status == 429 {
        assert_eq!((limited.problem().as_str(), limited.header("retry-after")), ("rate_limited", Some("1")));
    }
    let audit = world.ask("GET", "/v1/audit?limit=200", None).json();
    let refused: Vec<&Value> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == "request.refused")
        .collect();
    assert_eq!(refused[0]["subject"], "GET /v1/workers");
    assert_eq!(refused[0]["detail"], json!({"code": "scope_missing", "status": 403}));
    assert!(refused[0]["actor"].as_str().unwrap().starts_with("tok_"));
    assert_eq!(
        (&refused[1]["actor"], &refused[1]["detail"]["code"]),
        (&json!("nobody"), &json!("unauthenticated"))
    );
    assert!((4..20).contains(&refused.len()), "{}", refused.len());
}
