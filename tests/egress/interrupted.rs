//! An interrupt reaches everything of pond's that a terminal or `timeout` can see at the same moment. What a model was asked by
//! then is paid for all the same, and told.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::broker::{REAL_KEY, configured};
use crate::world::http::Reply;
use crate::world::log::Request;
use crate::world::models::ANTHROPIC;
use crate::world::servers::Handler;
use crate::world::{Backend, Done, Plan, World};

/// How long a job may take to have asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks, and waits for an answer that does not come.
const CALL: &str = r#"
import json, os, socket
body = json.dumps({"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]})
s = socket.create_connection(("127.0.0.1", 8377))
s.sendall(f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nContent-Type: application/json\r\n"
          f"x-api-key: {os.environ['ANTHROPIC_API_KEY']}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
while s.recv(4096): pass
"#;

fn a_call_in_flight_is_paid_for(backend: Backend) {
    let (_never_sends, parts) = mpsc::channel();
    let parts = Arc::new(Mutex::new(parts));
    let silent: Handler = Arc::new(move |_: &Request| Reply::Fed(Arc::clone(&parts)));
    let plan = Plan { handlers: HashMap::from([(ANTHROPIC.to_owned(), silent)]), backend, ..Plan::default() };
    let world = configured(plan, "anthropic", ANTHROPIC, "claude-haiku-4-5");
    world.write("job.py", CALL);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let done = interrupted(&world, signal);
        let summary: Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
        let network = &summary["network"];
        assert_eq!(
            (done.code, &network["ended_early"]),
            (130, &Value::Bool(false)),
            "{signal:?}: {summary:#}"
        );
        let model = &network["models"]["main"];
        assert_eq!(model["calls"], 1, "{signal:?}: {summary:#}");
        assert!(model["cost_microcents"].as_u64() > Some(0), "{signal:?}: {summary:#}");
        assert_eq!(model["cost_microcents"], network["totals"]["spent_microcents"], "{summary:#}");
    }
}

/// Sends the signal to the whole process group once the model was asked.
fn interrupted(world: &World, signal: Signal) -> Done {
    let before = world.log.requests().len();
    let run = ["run", "--json", "--model", "main", "--", "/usr/bin/python3", "job.py"];
    let mut pond = world.pond(&run);
    pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY).process_group(0);
    let mut pond = pond.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let patience = Instant::now() + PATIENCE;
    while world.log.requests().len() == before {
        let ended = pond.try_wait().unwrap();
        assert!(ended.is_none() && Instant::now() < patience, "the model was never asked: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process_group(Pid::from_child(&pond), signal).unwrap();
    Done::of(pond.wait_with_output().unwrap())
}

#[test]
fn a_call_in_flight_is_paid_for_natively() {
    a_call_in_flight_is_paid_for(Backend::Native);
}

#[test]
fn a_call_in_flight_is_paid_for_on_docker() {
    a_call_in_flight_is_paid_for(Backend::Docker);
}

#[test]
fn a_call_in_flight_is_paid_for_on_gvisor() {
    a_call_in_flight_is_paid_for(Backend::Gvisor);
}
