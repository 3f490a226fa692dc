//! What a client may ask (cases 93 to 113): refusals reach no upstream, and what does reach it is what a rule let by.

use serde_json::Value;

use super::world::*;

const MESSAGE: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[]}"#;
pub(super) const GENERATE: &str = "/v1beta/models/gemini-2.5-pro:generateContent";
pub(super) const ANSWER: &str = r#"{"usage":{"input_tokens":10,"output_tokens":5}}"#;

pub(super) async fn quiet() -> World {
    World::new(|_| json_ok(ANSWER)).await
}

/// Asks and expects a refusal, in the provider's shape, of which the upstream saw nothing.
pub(super) async fn refused(world: &World, request: &str, status: u16, code: &str) {
    let answer = world.raw(request.as_bytes()).await;
    let (line, body) = parts(&answer);
    assert!(line.starts_with(&format!("HTTP/1.1 {status} pond: ")), "{answer}");
    assert!(answer.contains(&format!("X-Pond-Denied: {code}\r\n")), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    assert!(body["error"]["message"].is_string() || status == 431, "{answer}");
    assert_eq!(world.seen().len(), 0, "{request}");
}

pub(super) fn with_key(path: &str, at: usize, body: &str) -> String {
    post(path, &format!("Authorization: Bearer {}\r\n", DUMMIES[at]), body)
}

#[tokio::test]
async fn c93_a_listed_call_is_served() {
    let world = quiet().await;
    let answer = world.ask(0, "/v1/messages?beta=true", MESSAGE).await;
    assert_eq!(parts(&answer), ("HTTP/1.1 200 OK", ANSWER));
    let seen = world.seen();
    assert_eq!(
        (seen[0].head.target.as_slice(), seen[0].text()),
        (&b"/v1/messages?beta=true"[..], MESSAGE.into())
    );
}

#[tokio::test]
async fn c93_c94_c95_c96_other_targets_are_refused() {
    let world = quiet().await;
    for (path, status, code) in [
        ("/v1/files", 403, "path_not_allowed"),
        ("/v1/messages/batches", 403, "path_not_allowed"),
        ("/v1/messages/../files", 403, "path_not_allowed"),
        ("/v1/messages/%2e%2e/files", 403, "path_not_allowed"),
        ("//v1/messages", 403, "path_not_allowed"),
        ("/v1/responses", 403, "path_not_allowed"),
        ("/v1/messages?x=1", 400, "query_not_allowed"),
        ("http://api.anthropic.com/v1/messages", 400, "target_form"),
    ] {
        refused(&world, &with_key(path, 0, MESSAGE), status, code).await;
    }
    refused(&world, "CONNECT api.model.test:443 HTTP/1.1\r\n\r\n", 400, "target_form").await;
    refused(&world, "OPTIONS * HTTP/1.1\r\n\r\n", 400, "target_form").await;
}

#[tokio::test]
async fn c97_the_client_s_host_is_ignored() {
    let world = quiet().await;
    let request =
        with_key("/v1/messages", 0, MESSAGE).replace("Host: 127.0.0.1", "Host: evil.example\r\nHost: x");
    world.raw(request.as_bytes()).await;
    assert_eq!(world.seen()[0].header("host"), ["api.model.test"]);
    let body = r#"{"model":"gpt-5-mini","max_tokens":5,"messages":[]}"#;
    world.post("/v1/chat/completions", &format!("api-key: {}\r\n", DUMMIES[3]), body).await;
    assert_eq!(world.seen()[1].header("host"), ["api.model.test:8443"]);
    assert_eq!(world.seen()[1].head.target, b"/compatible/v1/chat/completions");
}

#[tokio::test]
async fn c106_a_body_is_read_upstream_as_it_was_judged() {
    let world = quiet().await;
    // Read as UTF-7, the second field is another `model`.
    let two_models =
        r#"{"model":"claude-sonnet-4-5","+AG0-odel":"claude-opus-4-1","max_tokens":10,"messages":[]}"#;
    for kind in ["application/json; charset=utf-7", "Application/JSON;charset=UTF-16LE", "application/json"] {
        let request = with_key("/v1/messages", 0, two_models)
            .replace("Content-Type: application/json", &format!("Content-Type: {kind}"));
        world.raw(request.as_bytes()).await;
        assert_eq!(world.seen().last().unwrap().header("content-type"), ["application/json"], "{kind}");
    }
    let list = format!("GET /v1/models HTTP/1.1\r\nConnection: close\r\nx-api-key: {}\r\n\r\n", DUMMIES[0]);
    world.raw(list.as_bytes()).await;
    assert_eq!(world.seen().last().unwrap().header("content-type"), [""; 0]);
    assert_eq!(world.seen().len(), 4);
}

#[tokio::test]
async fn c98_client_keys_never_pass_and_one_real_one_does() {
    let world = quiet().await;
    let fields = format!(
        "x-api-key: {}\r\nX-API-KEY: sk-attacker\r\nAuthorization: Bearer sk-attacker\r\nx-goog-api-key: sk-attacker\r\n\
         x_api_key: sk-attacker\r\nConnection: x-api-key, anthropic-version\r\nCookie: sk-attacker\r\n",
        DUMMIES[0]
    );
    world.post("/v1/messages", &fields, MESSAGE).await;
    let gemini = format!("/v1beta/models/gemini-2.5-pro:generateContent?key={}", DUMMIES[2]);
    world.post(&gemini, "x-api-key: sk-attacker\r\n", r#"{"contents":[]}"#).await;
    world.ask(1, "/v1/responses", r#"{"model":"gpt-5","input":"x"}"#).await;
    let seen = world.seen();
    let credentials = ["x-api-key", "authorization", "x-goog-api-key", "api-key", "cookie", "x_api_key"];
    let found =
        |at: usize| -> Vec<String> { credentials.iter().flat_map(|name| seen[at].header(name)).collect() };
    assert_eq!(found(0), [KEYS[0]]);
    assert_eq!(found(1), [KEYS[2]]);
    assert_eq!(found(2), [format!("Bearer {}", KEYS[1])]);
    assert_eq!(seen[1].head.target, b"/v1beta/models/gemini-2.5-pro:generateContent");
    for request in &seen {
        let fields: Vec<(&str, &[u8])> = request.head.headers.iter().collect();
        let all = format!("{fields:?} {}", request.text());
        assert!(!all.contains("attacker") && !all.contains("dummy") && !all.contains("Dummy"), "{all}");
    }
}

#[tokio::test]
async fn c101_c102_c104_c105_bodies_are_framed_strictly() {
    let world = quiet().await;
    let large = format!("200000\r\n{}\r\n0\r\n\r\n", "a".repeat(2 << 20));
    let key = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", DUMMIES[0]);
    for (fields, body, status, code) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400, "body_framing"),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "hello", 400, "body_framing"),
        ("Content-Length: +5\r\n", "hello", 400, "body_framing"),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n", 400, "body_framing"),
        ("Transfer-Encoding: chunked\r\n", "5\nhello", 400, "body_chunks"),
        ("Transfer-Encoding: chunked\r\n", "0\r\nx-api-key: k\r\n\r\n", 400, "body_chunks"),
        ("Content-Length: 1048577\r\n", "", 413, "body_too_large"),
        ("Transfer-Encoding: chunked\r\n", large.as_str(), 413, "body_too_large"),
        ("Content-Encoding: zstd\r\nContent-Length: 5\r\n", "hello", 415, "body_encoded"),
    ] {
        let request = format!("POST /v1/messages HTTP/1.1\r\n{key}{fields}\r\n{body}");
        refused(&world, &request, status, code).await;
    }
    let get = format!("GET /v1/models HTTP/1.1\r\n{key}Content-Length: 2\r\n\r\n{{}}");
    refused(&world, &get, 400, "body_unexpected").await;
    let plain = with_key("/v1/messages", 0, MESSAGE).replace("application/json", "text/plain");
    refused(&world, &plain, 415, "body_not_json").await;
}

#[tokio::test]
async fn c102_c103_upgrades_are_answered_at_once_and_never_with_101() {
    let world = quiet().await;
    for upgrade in
        ["Upgrade: websocket\r\nConnection: Upgrade\r\n", "Upgrade: h2c\r\n", "HTTP2-Settings: AAMAAABk\r\n"]
    {
        let request =
            format!("GET /v1/responses HTTP/1.1\r\nAuthorization: Bearer {}\r\n{upgrade}\r\n", DUMMIES[1]);
        refused(&world, &request, 403, "upgrade_refused").await;
    }
    let preface = world.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(preface.starts_with("HTTP/1.1 400 "), "{preface}");
}

#[tokio::test]
async fn c106_c107_c108_bodies_are_read_once_and_priced() {
    let world = quiet().await;
    for (body, status, code) in [
        (r#"{"model":"claude-sonnet-4-5","model":"x","max_tokens":1}"#, 400, "body_not_json"),
        (r#"{"model":"claude-sonnet-4-5","max_tokens":1e999}"#, 400, "body_not_json"),
        (r#"{"model":"claude-sonnet-4-5","max_tokens":-1}"#, 400, "body_field"),
        (r#"{"model":"claude-sonnet-4-5","max_tokens":"9"}"#, 400, "body_field"),
        (r#"{"model":"claude-sonnet-4-5","max_tokens":0}"#, 400, "body_field"),
        (r#"{"max_tokens":1}"#, 400, "body_field"),
        (r#"["model"]"#, 400, "body_not_json"),
        (r#"{"model":"claude-sonnet-4-5","Model":"claude-opus-5","max_tokens":1}"#, 400, "body_field"),
        (r#"{"model":"claude-sonnet-4-5","max_tokens":1,"MAX_TOKENS":90000}"#, 400, "body_field"),
        (r#"{"model":"Claude-Sonnet-4-5","max_tokens":1}"#, 403, "model_not_allowed"),
        (r#"{"model":"claude-sonnet-latest","max_tokens":1}"#, 403, "model_not_allowed"),
        (r#"{"model":"claude-opus-5","max_tokens":1}"#, 403, "model_not_allowed"),
    ] {
        refused(&world, &with_key("/v1/messages", 0, body), status, code).await;
    }
    let chat = r#"{"model":"gpt-5","n":1000000000,"max_completion_tokens":1000,"messages":[]}"#;
    refused(&world, &with_key("/v1/chat/completions", 1, chat), 403, "budget_exceeded").await;
    for (at, path, body) in [
        (1, "/v1/responses", r#"{"model":"gpt-5","max_output_tokens":0,"input":"x"}"#),
        (1, "/v1/chat/completions", r#"{"model":"gpt-5","max_completion_tokens":0,"max_tokens":9}"#),
        (3, "/v1/chat/completions", r#"{"model":"gpt-5-mini","max_tokens":0}"#),
        (2, GENERATE, r#"{"generationConfig":{"maxOutputTokens":0}}"#),
    ] {
        refused(&world, &with_key(path, at, body), 400, "body_field").await;
    }
    let other = r#"{"contents":[]}"#;
    refused(&world, &with_key("/v1beta/models/gemini-3:generateContent", 2, other), 403, "model_not_allowed")
        .await;
}

#[tokio::test]
async fn c112_another_key_is_refused_without_a_call() {
    let world = quiet().await;
    for fields in [
        String::new(),
        "Authorization: Bearer sk-attacker-0000000000000\r\n".to_owned(),
        format!("Authorization: Basic {}\r\n", DUMMIES[0]),
        format!("x-api-key: {}x\r\n", DUMMIES[0]),
        format!("x-api-key: {}\r\n", KEYS[0]),
    ] {
        refused(&world, &post("/v1/messages", &fields, MESSAGE), 401, "unknown_key").await;
    }
}

#[tokio::test]
async fn a_chat_stream_is_asked_for_its_usage_and_nothing_is_stored() {
    let world = quiet().await;
    let body = r#"{"model":"gpt-5","stream":true,"max_completion_tokens":9,"messages":[]}"#;
    world.ask(1, "/v1/chat/completions", body).await;
    let off = body.replace("\"messages\"", "\"stream_options\": {\"include_usage\": false}, \"messages\"");
    world.ask(1, "/v1/chat/completions", &off).await;
    world.ask(1, "/v1/responses", r#"{"model":"gpt-5","max_output_tokens":9,"input":"x"}"#).await;
    let seen: Vec<String> = world.seen().iter().map(Seen::text).collect();
    assert_eq!(
        seen,
        [
            r#"{"stream_options":{"include_usage":true},"model":"gpt-5","stream":true,"max_completion_tokens":9,"messages":[]}"#,
            r#"{"model":"gpt-5","stream":true,"max_completion_tokens":9,"stream_options": {"include_usage":true}, "messages":[]}"#,
            r#"{"store":false,"model":"gpt-5","max_output_tokens":9,"input":"x"}"#,
        ]
    );
}

#[tokio::test]
async fn expect_and_keep_alive_are_honoured_and_pipelines_stay_in_order() {
    let world = quiet().await;
    let request = with_key("/v1/messages", 0, MESSAGE).replace("Connection: close", "Expect: 100-continue");
    let last = with_key("/v1/messages", 0, MESSAGE);
    let answer = world.raw(format!("{request}{request}{last}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 100 Continue\r\n\r\n").count(), 2, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answer}");
}
