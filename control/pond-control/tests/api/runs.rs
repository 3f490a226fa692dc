//! A run from its document to its end, as a client sees it.

use pond_policy::settings::Settings;
use serde_json::{Value, json};

use super::client::ask;
use super::world::{Set, World, document};

pub(crate) fn a_run_is_judged_submitted_shown_and_cancelled(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let accepted = world.ask("POST", "/v1/preflight", Some(&document("acme", &["a", "b a"])));
    let accepted = accepted.json();
    assert_eq!((&accepted["project"], &accepted["stages"][1]["needs"]), (&json!("acme"), &json!(["a"])));
    let mut bad = document("acme", &["a", "a"]);
    bad["stages"][0]["executor"]["sandbox"]["profile"] = json!("odd");
    bad["extra"] = json!(1);
    let refused = world.ask("POST", "/v1/preflight", Some(&bad)).json();
    let codes: Vec<&str> =
        refused["faults"].as_array().unwrap().iter().map(|fault| fault["code"].as_str().unwrap()).collect();
    assert_eq!(
        (refused["status"].as_u64(), codes.contains(&"unknown_profile")),
        (Some(422), true),
        "{codes:?}"
    );
    assert!(codes.contains(&"unknown_field") && codes.contains(&"stage_duplicate"), "{codes:?}");
    let resent = world.ask("POST", "/v1/runs", Some(&json!({"document": bad})));
    assert_eq!(resent.json()["faults"], refused["faults"], "a submission is judged like a preflight");
    let unknown = world.ask("POST", "/v1/runs", Some(&json!({"document": document("nobodys", &["a"])})));
    assert_eq!(unknown.problem(), "project_unknown");
    let judged = world.ask("POST", "/v1/preflight", Some(&document("nobodys", &["a"])));
    assert_eq!((judged.problem().as_str(), judged.json()), ("project_unknown", unknown.json()));
    assert_eq!(judged.json()["faults"][0]["path"], "project");
    let yaml = "project: acme\nproject: acme\nstages: []\n";
    let twice = world.ask("POST", "/v1/runs", Some(&json!({"document": yaml}))).json();
    assert_eq!(twice["faults"][0]["code"], "duplicate_field");

    let run = world.submit(&["a", "b a"]);
    let shown = world.ask("GET", &format!("/v1/runs/{run}"), None).json();
    let view: pond_wire::api::RunView = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!((view.run.id.as_str(), view.run.open_stages, view.stages.len()), (run.as_str(), 2, 2));
    assert_eq!(shown["stages"][0]["state"], "queued");
    assert_eq!(
        shown["stages"][0]["reason"],
        "no worker is in pool:trusted; one that offers sandbox.* is needed"
    );
    assert_eq!(shown["stages"][1]["reason"], "needs 1 more to succeed first");
    let cancelled = world.ask("POST", &format!("/v1/runs/{run}/cancel"), Some(&json!({"reason": "enough"})));
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    let again = world.ask("POST", &format!("/v1/runs/{run}/cancel"), None);
    assert_eq!((again.status, &again.json()["cancel"]), (200, &json!("enough")));
}

pub(crate) fn the_same_key_is_the_same_run(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let bearer = format!("Bearer {}", world.admin);
    let send = |token: &str, key: &str, stages: &[&str]| {
        let headers =
            [("Authorization", token), ("Content-Type", "application/json"), ("Idempotency-Key", key)];
        let body = json!({"document": document("acme", stages)}).to_string();
        let reply = ask(world.address, "POST", "/v1/runs", &headers, body.as_bytes());
        let run = reply.json()["run"].as_str().map(str::to_owned);
        (reply.status, run)
    };
    let (status, run) = send(&bearer, "k", &["a"]);
    assert_eq!((status, run.is_some()), (201, true));
    assert_eq!(send(&bearer, "k", &["a"]), (200, run.clone()));
    assert_eq!(send(&bearer, "k", &["b"]).0, 422);
    let (status, other) = send(&bearer, "k2", &["a"]);
    assert!(status == 201 && other != run);
    let somebody = format!("Bearer {}", world.token(pond_policy::scope::Scope::ALL, None));
    assert_eq!(send(&somebody, "k", &["b"]).0, 201, "keys of others do not matter");
}

pub(crate) fn an_operator_s_demand_holds_at_preflight_and_submission(start: &dyn Fn(Set) -> World) {
    let mut unconfined = document("acme", &["a"]);
    unconfined["stages"][0]["executor"]["sandbox"] = json!({"profile": "none"});
    let lax = start(Set::default());
    let warned = lax.ask("POST", "/v1/preflight", Some(&unconfined)).json();
    assert_eq!(warned["warnings"][0]["code"], "unconfined_sandbox");
    let submitted = lax.ask("POST", "/v1/runs", Some(&json!({"document": unconfined})));
    assert_eq!(
        (submitted.status, &submitted.json()["warnings"][0]["code"]),
        (201, &json!("unconfined_sandbox"))
    );
    drop(lax);
    let settings = Settings::parse(Some("true"), None).unwrap();
    let strict = start(Set { settings, ..Set::default() });
    for (path, body) in [("/v1/preflight", unconfined.clone()), ("/v1/runs", json!({"document": unconfined}))]
    {
        let refused = strict.ask("POST", path, Some(&body));
        assert_eq!(
            (refused.status, &refused.json()["faults"][0]["code"]),
            (422, &json!("unconfined_refused"))
        );
    }
    assert_eq!(strict.ask("GET", "/v1/runs", None).json()["runs"], json!([]));
}

pub(crate) fn pages_go_by_cursor(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let mut runs: Vec<String> = (0..5).map(|_| world.submit(&["a"])).collect();
    runs.reverse();
    let ids = |page: &Value| -> Vec<String> {
        page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = world.ask("GET", "/v1/runs?limit=2", None).json();
    world.submit(&["late"]);
    let next = first["next"].as_str().unwrap();
    let second = world.ask("GET", &format!("/v1/runs?limit=3&cursor={next}"), None).json();
    assert_eq!(
        (ids(&first), ids(&second), &second["next"]),
        (runs[..2].to_vec(), runs[2..].to_vec(), &Value::Null)
    );
    let active = world.ask("GET", "/v1/runs?state=active&project=acme&limit=200", None).json();
    assert_eq!(ids(&active).len(), 6);
    assert_eq!(ids(&world.ask("GET", "/v1/runs?state=failed", None).json()), [""; 0]);
    let mut cursor = String::new();
    let mut entries = 0;
    loop {
        let page = world.ask("GET", &format!("/v1/audit?limit=3{cursor}"), None).json();
        entries += page["entries"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(entries, 2 + 1 + 6 * 2, "projects, the admin's token, and each run with its queued stage");
}
