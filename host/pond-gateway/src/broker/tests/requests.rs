//! What a client may ask (cases 93 to 113): refusals reach no upstream, and what does reach it is what a rule let by.

use serde_json::Value;

use super::world::*;

const MESSAGE: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[]}"#;
const ANSWER: &str = r#"{"usage":{"input_tokens":10,"output_tokens":5}}"#;

async fn quiet() -> World {
    World::new(|_| json_ok(ANSWER)).await
}

/// Asks and expects a refusal, in the provider's shape, of which the upstream saw nothing.
async fn refused(world: &World, request: &str, status: u16, code: &str) {
    let answer = world.raw(request.as_bytes()).await;
    let (line, body) = parts(&answer);
    assert!(line.starts_with(&format!("HTTP/1.1 {status} pond: ")), "{answer}");
    assert!(answer.contains(&format!("X-Pond-Denied: {code}\r\n")), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    assert!(body["error"]["message"].is_string() || status == 431, "{answer}");
    assert_eq!(world.seen().len(), 0, "{request}");
}

fn with_key(path: &str, at: usize, body: &str) -> String {
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

/// Which model, where, one field of the body, and the code of its refusal.
const WAYS_OUT: &[(usize, &str, &str, &str)] = &[
    (0, "/v1/messages", r#""tools":[{"type":"web_search_20250305"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"web_fetch_20250910"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"code_execution_20250825"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":7}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"bash_code_execution_20250825"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""tools":[{"type":"memory_"}]"#, "provider_egress"),
    (
        0,
        "/v1/messages",
        r#""context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}"#,
        "unpriced_option",
    ),
    (0, "/v1/messages", r#""mcp_servers":[{"url":"https://evil"}]"#, "provider_egress"),
    (0, "/v1/messages", r#""container":"c1""#, "provider_storage"),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://evil/?d"}}]}]"#,
        "provider_egress",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}]"#,
        "provider_egress",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"container_upload","file_id":"f"}]}]"#,
        "provider_storage",
    ),
    (
        0,
        "/v1/messages",
        r#""messages":[{"content":[{"type":"code_execution_output","file_id":"f"}]}]"#,
        "provider_storage",
    ),
    (0, "/v1/messages", r#""service_tier":"priority""#, "unpriced_option"),
    (0, "/v1/messages", r#""speed":"fast""#, "unpriced_option"),
    (0, "/v1/messages", r#""inference_geo":"us""#, "unpriced_option"),
    (1, "/v1/responses", r#""tools":[{"type":"web_search"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"mcp","server_url":"https://evil"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"code_interpreter"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"file_search"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{"type":"computer_use_preview"}]"#, "provider_egress"),
    (1, "/v1/responses", r#""tools":[{}]"#, "provider_egress"),
    (
        1,
        "/v1/responses",
        r#""tools":[{"type":"namespace","tools":[{"type":"function"},{"type":"web_search"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"type":"tool_search_output","tools":[{"type":"code_interpreter"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"content":[{"type":"input_image","image_url":"https://evil"}]}]"#,
        "provider_egress",
    ),
    (
        1,
        "/v1/responses",
        r#""input":[{"content":[{"type":"input_file","file_url":"https://evil"}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/responses", r#""input":[{"type":"item_reference","id":"x"}]"#, "provider_storage"),
    (1, "/v1/responses", r#""input":[{"id":"msg_x"}]"#, "provider_storage"),
    (
        1,
        "/v1/responses",
        r#""input":[{"role":"user","content":"x"},{"type":null,"id":"m"}]"#,
        "provider_storage",
    ),
    (1, "/v1/responses", r#""input":[{"type":7,"role":null,"id":"m"}]"#, "provider_storage"),
    (1, "/v1/responses", r#""background":true"#, "provider_storage"),
    (1, "/v1/responses", r#""store":true"#, "provider_storage"),
    (1, "/v1/responses", r#""previous_response_id":"r""#, "provider_storage"),
    (1, "/v1/responses", r#""conversation":"c""#, "provider_storage"),
    (1, "/v1/responses", r#""prompt":{"id":"p"}"#, "provider_storage"),
    (1, "/v1/responses", r#""service_tier":"priority""#, "unpriced_option"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"image_url","image_url":{"url":"https://evil"}}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/chat/completions", r#""web_search_options":{}"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""store":true"#, "provider_storage"),
    (1, "/v1/chat/completions", r#""models":["other"]"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""route":"fallback""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""provider":{"order":["dear"]}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""preset":"p""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""prediction":{"type":"content"}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""audio":{"voice":"a"}"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""modalities":["text","audio"]"#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""service_tier":"flex""#, "unpriced_option"),
    (1, "/v1/chat/completions", r#""plugins":[{"id":"web"}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""search_parameters":{"mode":"on"}"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""enable_search":true"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""tools":[{"type":"web_search"}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""tools":[{}]"#, "provider_egress"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"video_url":{"url":"http://e"}}]}]"#,
        "provider_egress",
    ),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"audio_url":"http://e"}]}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"image_url":["data:x"]}]}]"#, "provider_egress"),
    (1, "/v1/chat/completions", r#""messages":[{"content":[{"file":{"file_id":"f"}}]}]"#, "provider_storage"),
    (
        1,
        "/v1/chat/completions",
        r#""messages":[{"content":[{"type":"file","file":{"file_data":"https://evil/?d"}}]}]"#,
        "provider_egress",
    ),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""tools":[{"googleSearch":{}}]"#,
        "provider_egress",
    ),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""tools":[{"urlContext":{}}]"#, "provider_egress"),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""tools":[{"code_execution":{}}]"#, "body_field"),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""generation_config":{}"#, "body_field"),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""contents":[{"parts":[{"fileData":{"fileUri":"https://evil"}}]}]"#,
        "provider_egress",
    ),
    (
        2,
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#""system_instruction":{"parts":[{"fileData":{"fileUri":"https://evil"}}]}"#,
        "provider_egress",
    ),
    (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#""cachedContent":"c""#, "provider_storage"),
    (
        2,
        GENERATE,
        r#""contents":[{"parts":[{"functionResponse":{"response":{},"parts":[{"fileData":{"fileUri":"u"}}]}}]}]"#,
        "provider_egress",
    ),
    (2, GENERATE, r#""contents":[{"parts":[{"function_call":{"file_data":{}}}]}]"#, "provider_egress"),
    (2, GENERATE, r#""generationConfig":{"responseModalities":["TEXT","AUDIO"]}"#, "unpriced_option"),
    (2, GENERATE, r#""systemInstruction":{"parts":[{"fileData":{"fileUri":"u"}}]}"#, "provider_egress"),
    (2, GENERATE, r#""serviceTier":"priority""#, "unpriced_option"),
    (2, GENERATE, r#""serviceTier":{"0":"flex"}"#, "unpriced_option"),
    (2, GENERATE, r#""generationConfig":{"serviceTier":"flex"}"#, "unpriced_option"),
];

#[tokio::test]
async fn c109_c110_c111_the_provider_is_no_way_out() {
    let world = quiet().await;
    for (at, path, field, code) in WAYS_OUT {
        let body = match at {
            0 => format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":9,{field}}}"),
            1 => format!("{{\"model\":\"gpt-5\",{field}}}"),
            _ => format!("{{{field}}}"),
        };
        let status = if *code == "body_field" { 400 } else { 403 };
        refused(&world, &with_key(path, *at, &body), status, code).await;
    }
}

/// Values a provider could read as a list of one, or as the object they should be.
const MISSHAPEN: &[(usize, &str, &str)] = &[
    (0, "/v1/messages", r#""tools":{"type":"web_search_20250305"}"#),
    (0, "/v1/messages", r#""tools":[[{"type":"web_search_20250305"}]]"#),
    (1, "/v1/responses", r#""tools":{"type":"web_search"}"#),
    (1, "/v1/responses", r#""tools":[{"type":"namespace","tools":{"type":"web_search"}}]"#),
    (1, "/v1/responses", r#""input":[{"type":"additional_tools","tools":{"type":"web_search"}}]"#),
    (1, "/v1/responses", r#""input":{"id":"msg_x"}"#),
    (0, "/v1/messages", r#""context_management":[{"type":"compact_20260112"}]"#),
    (0, "/v1/messages", r#""context_management":{"edits":{"type":"compact_20260112"}}"#),
    (1, "/v1/responses", r#""store":null"#),
    (1, "/v1/chat/completions", r#""enable_search":"yes""#),
    (1, "/v1/chat/completions", r#""tools":"web_search""#),
    (1, "/v1/chat/completions", r#""modalities":"audio""#),
    (1, "/v1/chat/completions", r#""modalities":{"0":"audio"}"#),
    (2, "/v1beta/models/gemini-2.5-pro:countTokens", r#""generateContentRequest":{"contents":[]}"#),
    (2, GENERATE, r#""model":"models/gemini-2.5-pro""#),
    (2, GENERATE, r#""model":null"#),
    (2, GENERATE, r#""tools":{"urlContext":{}}"#),
    (2, GENERATE, r#""tools":"urlContext""#),
    (2, GENERATE, r#""tools":[[{"urlContext":{}}]]"#),
    (2, GENERATE, r#""generationConfig":{"responseModalities":"AUDIO"}"#),
    (2, GENERATE, r#""generationConfig":[{"responseModalities":["AUDIO"]}]"#),
];
const GENERATE: &str = "/v1beta/models/gemini-2.5-pro:generateContent";

#[tokio::test]
async fn c106_c109_what_is_not_a_list_is_not_an_empty_one() {
    let world = quiet().await;
    for (at, path, field) in MISSHAPEN {
        let body = match at {
            0 => format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":9,{field}}}"),
            1 => format!("{{\"model\":\"gpt-5\",{field}}}"),
            _ => format!("{{{field}}}"),
        };
        refused(&world, &with_key(path, *at, &body), 400, "body_field").await;
    }
    let source = r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"source":[{"type":"url"}]}]}"#;
    refused(&world, &with_key("/v1/messages", 0, source), 403, "provider_egress").await;
}

#[tokio::test]
async fn c109_the_client_s_own_tools_and_inline_pictures_pass() {
    let world = quiet().await;
    let body = r#"{"model":"claude-sonnet-4-5","max_tokens":9,"tools":[{"name":"a","input_schema":{}},
        {"type":"custom","name":"b"},{"type":"bash_20250124","name":"bash"}],"mcp_servers":[],
        "context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"messages":[{"content":[
        {"type":"image","source":{"type":"base64","data":"aGk="}},
        {"type":"tool_use","input":{"source":{"type":"url"}}}]}]}"#;
    let answer = world.ask(0, "/v1/messages", body).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(world.seen()[0].text(), body);
    let body = r#"{"contents":[],"system_instruction":{"parts":[{"text":"a"}]},"generationConfig":{"maxOutputTokens":9}}"#;
    assert!(world.ask(2, GENERATE, body).await.starts_with("HTTP/1.1 200 "), "as LiteLLM spells it");
    let body = r#"{"serviceTier":"standard","contents":[{"parts":[{"functionResponse":{"response":{"fileData":"x"}}},
        {"functionCall":{"args":{"fileData":1}}}]}]}"#;
    assert!(world.ask(2, GENERATE, body).await.starts_with("HTTP/1.1 200 "), "a function's own fields");
    let body =
        r#"{"model":"gpt-5","input":[{"role":"user","id":"a","content":"x"},{"type":"reasoning","id":"b"}]}"#;
    assert!(
        world.ask(1, "/v1/responses", body).await.starts_with("HTTP/1.1 200 "),
        "items that say what they are"
    );
}

#[tokio::test]
async fn c109_provider_tools_open_the_provider_s_tools_and_not_its_files() {
    let mut order = order(pond_policy::model::Microcents::from_cents(5000));
    order.models[0].provider_tools = true;
    let open = World::with(order, |_| json_ok(ANSWER)).await;
    let message = |rest: &str| format!(r#"{{"model":"claude-sonnet-4-5","max_tokens":9,{rest}}}"#);
    for block in [
        r#"{"type":"container_upload","file_id":"f"}"#,
        r#"{"type":"document","source":{"type":"file","file_id":"f"}}"#,
    ] {
        let body = message(&format!(r#""messages":[{{"content":[{block}]}}]"#));
        refused(&open, &with_key("/v1/messages", 0, &body), 403, "provider_storage").await;
    }
    for field in [
        r#""tools":[{"type":"web_search_20250305"}]"#,
        r#""messages":[{"content":[{"type":"code_execution_output","file_id":"made_by_it"}]}]"#,
    ] {
        let answer = open.ask(0, "/v1/messages", &message(field)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{field}: {answer}");
    }
}

/// As Codex sends them: groups of functions, in the body for some models and in an item of the input for others.
#[tokio::test]
async fn c109_groups_of_the_client_s_tools_pass() {
    let world = quiet().await;
    let group = r#"{"type":"namespace","name":"agents","tools":[{"type":"function","name":"close",
        "parameters":{"properties":{"image_url":{"type":"string"}}}},{"type":"custom","name":"exec"}]}"#;
    for field in [
        format!(r#""tools":[{{"type":"function","name":"a"}},{group}]"#),
        format!(r#""input":[{{"type":"additional_tools","role":"developer","tools":[{group}]}}]"#),
    ] {
        let body = format!(r#"{{"model":"gpt-5","max_output_tokens":9,"store":false,{field}}}"#);
        let answer = world.ask(1, "/v1/responses", &body).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{field}: {answer}");
    }
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
