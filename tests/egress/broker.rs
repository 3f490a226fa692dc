//! The broker, from inside a job to a provider of the far side: real keys stay out, and only what was agreed on goes up
//! (cases 93 to 113 as far as they are seen from outside).

use serde_json::{Value, json};

use crate::rules::files_below;
use crate::world::models::{self, ANTHROPIC, GEMINI, OPENAI};
use crate::world::{Done, Plan, World};

pub(crate) const REAL_KEY: &str = "sk-ant-real-0123456789abcdefghijklmnopqrstuvwxyz";

/// Sends the requests of `calls.json` with the key the job was given in place of `{KEY}`, and prints the replies.
const CALLER: &str = r#"
import json, os, socket
from concurrent.futures import ThreadPoolExecutor
key = next(os.environ[name] for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY") if name in os.environ)
def send(call):
    with socket.create_connection(("127.0.0.1", 8377), 20) as s:
        s.sendall(call.replace("{KEY}", key).encode("latin-1"))
        reply = b""
        s.settimeout(15)
        try:
            while more := s.recv(65536): reply += more
        except OSError: pass
    return reply.decode("latin-1")
with ThreadPoolExecutor(64) as pool:
    replies = list(pool.map(send, json.load(open("calls.json"))))
print(json.dumps({"key": key, "environment": dict(os.environ), "replies": replies}))
"#;

/// A world whose providers answer, and a model of this API in the operator's file.
fn world(api: &str, host: &str, id: &str, output: u64) -> World {
    let plan = Plan { handlers: models::providers(10, output), ..Plan::default() };
    let world = configured(plan, api, host, id);
    world.write("caller.py", CALLER);
    world
}

/// A world with a model called `main` in the operator's file.
pub(crate) fn configured(plan: Plan, api: &str, host: &str, id: &str) -> World {
    let world = World::new(plan);
    let ca = world.authority.certificate();
    let file = format!(
        "[model.main]\napi = {api:?}\nupstream = \"https://{host}\"\nca_file = {ca:?}\ncredential = \"env:REAL_KEY\"\nmodels = [{id:?}]\n",
    );
    std::fs::write(world.operator_file(), file).unwrap();
    world
}

fn call(world: &World, calls: &[String]) -> Value {
    call_within(world, "100", calls)
}

/// As many at once as there are, within a ceiling.
fn call_within(world: &World, cents: &str, calls: &[String]) -> Value {
    world.write("calls.json", json!(calls).to_string());
    let run = [
        "run",
        "--quiet",
        "--model",
        "main",
        "--max-cost-cents",
        cents,
        "--",
        "/usr/bin/python3",
        "caller.py",
    ];
    let mut pond = world.pond(&run);
    let done =
        Done::of(pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY).output().unwrap());
    assert!(!done.stdout.contains(REAL_KEY), "the key came inside: {done:?}");
    for (name, content) in files_below(&world.state().join("runs")) {
        let held = content.windows(REAL_KEY.len()).any(|window| window == REAL_KEY.as_bytes());
        assert!(!held, "{name} holds the key");
    }
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

fn post(target: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nContent-Type: application/json\r\nConnection: close\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

fn message(stream: bool) -> Value {
    json!({ "model": "claude-haiku-4-5", "max_tokens": 50, "stream": stream, "messages": [{ "role": "user", "content": "hi" }] })
}

fn status(reply: &Value) -> u16 {
    reply.as_str().unwrap().get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn c98_c113_each_provider_is_reached_with_the_real_key_and_no_other() {
    let chat = json!({ "model": "gpt-4o-mini", "max_tokens": 50, "messages": [{ "role": "user", "content": "hi" }] });
    let responses = json!({ "model": "gpt-5-mini", "max_output_tokens": 50, "input": "hi", "store": false });
    let generate = json!({ "contents": [{ "parts": [{ "text": "hi" }] }], "generationConfig": { "maxOutputTokens": 50 } });
    let gemini = "/v1beta/models/gemini-2.5-flash:generateContent";
    let rows = [
        (
            "anthropic",
            ANTHROPIC,
            "claude-haiku-4-5",
            "/v1/messages",
            "x-api-key: {KEY}",
            "x-api-key",
            message(false),
        ),
        (
            "openai",
            OPENAI,
            "gpt-5-mini",
            "/v1/responses",
            "Authorization: Bearer {KEY}",
            "authorization",
            responses,
        ),
        (
            "openai-chat",
            OPENAI,
            "gpt-4o-mini",
            "/v1/chat/completions",
            "Authorization: Bearer {KEY}",
            "authorization",
            chat,
        ),
        ("gemini", GEMINI, "gemini-2.5-flash", gemini, "x-goog-api-key: {KEY}", "x-goog-api-key", generate),
    ];
    for (api, host, id, target, sent, header, body) in rows {
        let world = world(api, host, id, 5);
        let told = call(&world, &[post(target, &format!("{sent}\r\n"), &body)]);
        assert_eq!(status(&told["replies"][0]), 200, "{api}: {told:#}");
        let request = &world.log.requests()[0];
        assert_eq!((request.host.as_str(), request.target.as_str()), (host, target), "{api}");
        let keys: Vec<&(String, String)> =
            request.headers.iter().filter(|(_, value)| value.contains("sk-")).collect();
        let expected =
            if header == "authorization" { format!("Bearer {REAL_KEY}") } else { REAL_KEY.to_owned() };
        assert_eq!(keys.len(), 1, "{api}: {request:?}");
        assert_eq!((keys[0].0.to_lowercase().as_str(), &keys[0].1), (header, &expected), "{api}");
        let dummy = told["key"].as_str().unwrap();
        assert!(dummy.len() >= REAL_KEY.len() && dummy != REAL_KEY, "{dummy}");
    }
}

#[test]
fn c119_a_stream_arrives_byte_for_byte() {
    let world = world("anthropic", ANTHROPIC, "claude-haiku-4-5", 5);
    let told = call(&world, &[post("/v1/messages?beta=true", "x-api-key: {KEY}\r\n", &message(true))]);
    let reply = told["replies"][0].as_str().unwrap();
    let head_end = reply.find("\r\n\r\n").unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    for event in ["message_start", "content_block_delta", "message_delta", "message_stop"] {
        assert!(reply[head_end..].contains(&format!("event: {event}\n")), "{event}: {reply}");
    }
}

/// What the broker refuses, and the far side never hears of.
#[test]
fn what_is_not_on_the_list_never_leaves() {
    let world = world("anthropic", ANTHROPIC, "claude-haiku-4-5", 5);
    let key = "x-api-key: {KEY}\r\n";
    let with = |field: &str, value: Value| {
        let mut body = message(false);
        body[field] = value;
        body
    };
    let tools = json!([{ "type": "web_search_20250305", "name": "web_search" }]);
    let image = json!([{ "role": "user", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.com/?data" } }] }]);
    let rows: Vec<(u8, &[u16], String)> = vec![
        (93, &[403], post("/v1/files", key, &message(false))),
        (93, &[403], post("/v1/messages/batches", key, &message(false))),
        (94, &[400, 403], post("/v1/messages/../files", key, &message(false))),
        (94, &[400, 403], post("/v1/messages/%2e%2e/files", key, &message(false))),
        (94, &[400, 403], post("//v1/messages", key, &message(false))),
        (94, &[400, 403], post("/v1/messages/", key, &message(false))),
        (95, &[400], post("/v1/messages?redirect=x", key, &message(false))),
        (96, &[400, 403, 405], post("https://api.anthropic.com/v1/messages", key, &message(false))),
        (96, &[400, 403, 405], "CONNECT api.anthropic.com:443 HTTP/1.1\r\n\r\n".to_owned()),
        (101, &[400], post("/v1/messages", &format!("{key}Transfer-Encoding: chunked\r\n"), &message(false))),
        (
            102,
            &[400, 403, 405],
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: close\r\n\r\n".to_owned(),
        ),
        (
            105,
            &[400, 415],
            post("/v1/messages", &format!("{key}Content-Encoding: gzip\r\n"), &message(false)),
        ),
        (107, &[403], post("/v1/messages", key, &with("model", json!("claude-unknown")))),
        (109, &[403], post("/v1/messages", key, &with("tools", tools))),
        (110, &[403], post("/v1/messages", key, &with("messages", image))),
        (112, &[401], post("/v1/messages", "x-api-key: sk-ant-somebody-elses\r\n", &message(false))),
        (112, &[401], post("/v1/messages", "", &message(false))),
    ];
    let calls: Vec<String> = rows.iter().map(|(_, _, call)| call.clone()).collect();
    let told = call(&world, &calls);
    for ((case, statuses, sent), reply) in rows.iter().zip(told["replies"].as_array().unwrap()) {
        assert!(statuses.contains(&status(reply)), "case {case}: {sent:?} got {reply:?}");
    }
    assert_eq!(world.log.requests(), [], "nothing went up");
}

/// Headers that would say more than the request, and one key too many (cases 97 to 100).
#[test]
fn c97_c98_c99_c100_headers_of_the_job_do_not_go_up() {
    let world = world("anthropic", ANTHROPIC, "claude-haiku-4-5", 5);
    let headers = "x-api-key: {KEY}\r\nHost2: x\r\nAuthorization: Bearer sk-attacker\r\nx-goog-api-key: sk-attacker\r\n\
                   X-Forwarded-For: 10.0.0.1\r\nCookie: sk-attacker\r\nanthropic-workspace-id: w\r\nVia: 1.1 x\r\n";
    let told = call(&world, &[post("/v1/messages", headers, &message(false))]);
    let up = format!("{:?}", world.log.requests());
    assert!(
        !up.contains("sk-attacker") && !up.contains("10.0.0.1") && !up.contains("workspace"),
        "{told:#} {up}"
    );
}

/// However many ask at once, what was spent stays below the ceiling (cases 108, 128 and 130).
#[test]
fn c108_c128_c130_a_crowd_spends_no_more_than_the_ceiling() {
    // A thousand tokens at half a thousandth of a cent each: three such answers and their questions fit into two cents.
    let world = world("anthropic", ANTHROPIC, "claude-haiku-4-5", 1000);
    let mut body = message(false);
    body["max_tokens"] = json!(1000);
    let told = call_within(&world, "2", &vec![post("/v1/messages", "x-api-key: {KEY}\r\n", &body); 60]);
    let replies = told["replies"].as_array().unwrap();
    let with = |wanted: u16| replies.iter().filter(|reply| status(reply) == wanted).count();
    let (answered, refused) = (with(200), with(403));
    assert!(
        (1..=3).contains(&answered) && answered + refused == 60,
        "{answered} answered, {refused} refused"
    );
    let up = world.log.requests().iter().filter(|request| request.target == "/v1/messages").count();
    assert_eq!(up, answered, "what went up was paid for");
    let refusal = replies.iter().find(|reply| status(reply) == 403).unwrap().as_str().unwrap();
    assert!(refusal.contains("\"type\":\"error\""), "shaped as the provider's own: {refusal}");
}

/// A job that reaches a model only asks for other names in vain; it hears so at once, and its owner too (case 92).
#[test]
fn c60_c92_a_job_with_a_model_alone_learns_no_name_and_what_it_asked_for_is_told() {
    let world = world("anthropic", ANTHROPIC, "claude-haiku-4-5", 10);
    let ask = "import socket, sys
try: socket.getaddrinfo('pypi.org', 443)
except socket.gaierror as fault: sys.exit(0 if fault.errno == socket.EAI_NONAME else 1)
sys.exit(2)";
    let run = ["run", "--json", "--profile", "untrusted-code-read", "--model", "main"];
    let mut pond = world.pond(&[&run[..], &["--", "/usr/bin/python3", "-c", ask]].concat());
    let done =
        Done::of(pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY).output().unwrap());
    let summary: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let host = &summary["network"]["hosts"][0];
    assert_eq!((done.code, host["target"].as_str()), (0, Some("pypi.org")), "{summary:#}");
    let refusal = &host["refusals"][0];
    let hint = "the profile reaches the model and no other host; untrusted-code-write reaches a list";
    assert_eq!((refusal["code"].as_str(), refusal["hint"].as_str()), (Some("host_not_allowed"), Some(hint)));
    assert_eq!(world.log.all(), [], "nobody was asked");
}
