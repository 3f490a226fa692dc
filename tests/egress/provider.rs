//! The broker's catalogue end to end (cases 103 to 132 as far as they are seen from outside): one job sends every request, and
//! then a client on the host side, with the real key and no broker, sends the same bytes to the same scripted provider.

mod anthropic;
mod openai;
mod row;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::broker::{REAL_KEY, configured};
use crate::rules::files_below;
use crate::world::http::Reply;
use crate::world::log::Request;
use crate::world::servers::Handler;
use crate::world::{Backend, Done, Plan, World};

use row::{Row, Sees};

/// Sends the requests of `calls.json`, one after the other, to the broker or to the host given, and prints what came back.
const CALLER: &str = r#"
import json, os, socket, ssl, sys
key = next(os.environ[name] for name in ("REAL_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY") if name in os.environ)
def connect():
    if len(sys.argv) == 1: return socket.create_connection(("127.0.0.1", 8377), 20)
    plain = socket.create_connection((sys.argv[1], 443), 20)
    return ssl.create_default_context(cafile="ca.pem").wrap_socket(plain, server_hostname=sys.argv[1])
def send(call):
    leaves, reply = "X-Leaves:" in call, b""
    head, _, body = call.replace("{KEY}", key).partition("{PAD}")
    pad = b"x" * (33 << 20) if body else b""
    with connect() as s:
        s.settimeout(20)
        try: s.sendall(head.encode("latin-1") + pad + body.encode("latin-1"))
        except OSError: pass
        try:
            while more := s.recv(65536):
                reply += more
                if leaves and b"message_start" in reply: break
        except OSError: pass
    return reply.decode("latin-1")
print(json.dumps([send(call) for call in json.load(open("calls.json"))]))
"#;

/// The place in a request that says which row it is.
pub(crate) fn mark(number: usize) -> String {
    format!("row:{number};")
}

/// A request with this body, marked, of a client that goes away afterwards. `{ROW}` in the body is its mark.
pub(crate) fn post(target: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nContent-Type: application/json\r\nConnection: close\r\n\
         {headers}Content-Length: {{LENGTH}}\r\n\r\n{body}"
    )
}

/// The request as it is sent.
fn numbered(call: &str, number: usize) -> String {
    let call = call.replace("{ROW}", &mark(number));
    let length = call.split_once("\r\n\r\n").map_or(0, |(_, body)| body.chars().count());
    let padding = if call.contains("{PAD}") { (33 << 20) - "{PAD}".len() } else { 0 };
    call.replace("{LENGTH}", &(length + padding).to_string())
}

/// A provider that does with each row what the row says.
fn provider(rows: &[Row]) -> Handler {
    let scripts: HashMap<String, Handler> =
        rows.iter().zip(0..).map(|(row, number)| (mark(number), Arc::clone(&row.provider))).collect();
    Arc::new(move |request: &Request| {
        let found = scripts.iter().find(|(mark, _)| bears(request, mark));
        found.map_or_else(Reply::not_found, |(_, script)| script(request))
    })
}

fn bears(request: &Request, mark: &str) -> bool {
    let beginning = &request.body[..request.body.len().min(1000)];
    let in_body = beginning.windows(mark.len()).any(|window| window == mark.as_bytes());
    in_body || request.headers.iter().any(|(_, value)| value.contains(mark))
}

/// A provider, and the model of it that is asked for.
#[derive(Clone, Copy)]
struct Provider {
    api: &'static str,
    host: &'static str,
    id: &'static str,
}

const ANTHROPIC: Provider =
    Provider { api: "anthropic", host: crate::world::models::ANTHROPIC, id: "claude-haiku-4-5" };
const OPENAI: Provider = Provider { api: "openai", host: crate::world::models::OPENAI, id: "gpt-5-mini" };

fn world(of: Provider, rows: &[Row], backend: Backend) -> World {
    let handlers = HashMap::from([(of.host.to_owned(), provider(rows))]);
    let world = configured(Plan { handlers, backend, ..Plan::default() }, of.api, of.host, of.id);
    world.trust();
    world.write("caller.py", CALLER);
    let calls: Vec<String> = rows.iter().zip(0..).map(|(row, number)| numbered(&row.call, number)).collect();
    world.write("calls.json", json!(calls).to_string());
    world
}

/// Runs a table through the broker, and then without it.
fn run(of: Provider, rows: &[Row]) {
    let faults = [through_the_broker(of, rows, Backend::Native), without_it(of, rows)].concat();
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

/// Runs the tables through the broker, from sandboxes of this backend. Their controls are those of the tables.
pub(crate) fn run_on(backend: Backend) {
    for (of, rows) in [(ANTHROPIC, anthropic::rows()), (OPENAI, openai::rows())] {
        let faults = through_the_broker(of, &rows, backend);
        assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
    }
}

fn through_the_broker(of: Provider, rows: &[Row], backend: Backend) -> Vec<String> {
    let world = world(of, rows, backend);
    let replies = send_all(&world);
    let requests = world.log.requests();
    let bills = bills(&world);
    assert_eq!(
        (replies.len(), bills.len()),
        (rows.len(), rows.len()),
        "one bill for each request: {bills:#?}"
    );
    let mut faults = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let up = requests.iter().filter(|request| bears(request, &mark(number))).count();
        let heard = (up == row.goes_up()).then_some(()).ok_or_else(|| format!("it went up {up} times"));
        let verdicts = [row.held.judge(&replies[number]), heard, row.bill.judge(&bills[number])];
        faults.extend(verdicts.into_iter().filter_map(Result::err).map(|why| format!("{row}: {why}")));
    }
    let leaked = |text: &str| {
        REAL_KEY.as_bytes().windows(20).any(|part| text.contains(std::str::from_utf8(part).unwrap()))
    };
    faults.extend(
        replies
            .iter()
            .zip(rows)
            .filter(|(reply, _)| leaked(reply))
            .map(|(_, row)| format!("{row}: the key came inside")),
    );
    for (name, content) in files_below(&world.state().join("runs")) {
        assert!(!leaked(&String::from_utf8_lossy(&content)), "{name} holds the key");
    }
    faults
}

fn without_it(of: Provider, rows: &[Row]) -> Vec<String> {
    let world = world(of, rows, Backend::Native);
    let replies = send_directly(&world, of.host);
    let judge = |(row, reply): (&Row, &String)| {
        row.control.judge(reply).err().map(|why| format!("{row}, without the broker: {why}"))
    };
    rows.iter().zip(&replies).filter_map(judge).collect()
}

/// Everything of `calls.json` from inside a sandbox.
fn send_all(world: &World) -> Vec<String> {
    let model = ["--model", "main", "--max-cost-cents", "100"];
    let run = [&["run", "--quiet"], &model[..], &["--", "/usr/bin/python3", "caller.py"]].concat();
    let mut pond = world.pond(&run);
    pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY);
    replies(Done::of(pond.output().unwrap()))
}

/// The same by somebody who has the key and no broker.
fn send_directly(world: &World, host: &str) -> Vec<String> {
    let mut client = world.direct("/usr/bin/python3");
    client.args(["caller.py", host]).env("REAL_KEY", REAL_KEY);
    replies(Done::of(client.output().unwrap()))
}

fn replies(done: Done) -> Vec<String> {
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

/// What the run's record says of each request, in their order: they were sent one after the other.
fn bills(world: &World) -> Vec<Value> {
    let files = files_below(&world.state().join("runs"));
    let (_, record) = files.into_iter().find(|(name, _)| name.ends_with("egress.jsonl")).unwrap();
    let record = String::from_utf8(record).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter_map(|event| event.get("model").cloned()).collect()
}

#[test]
fn what_anthropic_is_asked_and_answers() {
    run(ANTHROPIC, &anthropic::rows());
}

#[test]
fn what_openai_is_asked_and_answers() {
    run(OPENAI, &openai::rows());
}

/// Calls that cost nothing are counted all the same; without the broker nobody counts.
#[test]
fn c132_free_calls_are_limited() {
    let body = r#"{"model":"claude-haiku-4-5","messages":[],"metadata":{"user_id":"{ROW}"}}"#;
    let call = post("/v1/messages/count_tokens", "x-api-key: {KEY}\r\n", body);
    let counted = Reply::ok("application/json", r#"{"input_tokens":3}"#);
    let row = |_| Row::answered(132, "one of many", call.clone(), counted.clone());
    let rows: Vec<Row> = (0..90).map(row).collect();
    let held = world(ANTHROPIC, &rows, Backend::Native);
    let of =
        |replies: &[String], status: &str| replies.iter().filter(|reply| reply.starts_with(status)).count();
    let replies = send_all(&held);
    let (served, limited) = (of(&replies, "HTTP/1.1 200 "), of(&replies, "HTTP/1.1 429 pond: "));
    assert!(served > 0 && limited > 0 && served + limited == 90, "{served} served, {limited} limited");
    assert_eq!(held.log.requests().len(), served, "what was refused did not go up");
    let open = world(ANTHROPIC, &rows, Backend::Native);
    assert_eq!(of(&send_directly(&open, ANTHROPIC.host), "HTTP/1.1 200 "), 90);
}

/// A row whose control would prove nothing says why; most rows have one that does.
#[test]
fn most_rows_have_a_control() {
    let tables = [anthropic::rows(), openai::rows()];
    let rows: Vec<&Row> = tables.iter().flatten().collect();
    let moot: Vec<String> = rows
        .iter()
        .filter_map(
            |row| if let Sees::Moot(why) = row.control { Some(format!("{row}: {why}")) } else { None },
        )
        .collect();
    assert!(moot.len() * 3 < rows.len(), "{} of {} rows:\n{}", moot.len(), rows.len(), moot.join("\n"));
}
