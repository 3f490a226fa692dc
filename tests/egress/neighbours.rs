//! Two sandboxes at once: neither gets anything of the other's (case 91), and nothing of the key is outside its gateway (case 135).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::broker::{REAL_KEY, configured};
use crate::world::models::{self, ANTHROPIC};
use crate::world::{Backend, Plan, World};

/// Says what key it was given; then tries the key it is told, and both hosts, by the doors every sandbox has.
const NEIGHBOUR: &str = r#"
import json, os, socket, sys
print(os.environ["ANTHROPIC_API_KEY"], flush=True)
def reply(port, text):
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(text.encode())
        return int(s.recv(4096).split()[1])
def connect(host): return reply(3128, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n")
def ask(key):
    body = json.dumps({"model": "claude-haiku-4-5", "max_tokens": 5, "messages": []})
    return reply(8377, f"POST /v1/messages HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nx-api-key: {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}")
for line in sys.stdin:
    print(json.dumps([ask(line.strip()), connect("one.pondworld.net"), connect("two.pondworld.net")]), flush=True)
"#;

struct Neighbour {
    pond: Child,
    said: Lines<BufReader<ChildStdout>>,
    key: String,
}

impl Neighbour {
    fn start(world: &World, host: &str) -> Self {
        let run =
            ["run", "--quiet", "--model", "main", "--allow-host", host, "--", "/usr/bin/python3", "job.py"];
        let mut pond = world.pond(&run);
        pond.env("POND_CONFIG", world.operator_file()).env("REAL_KEY", REAL_KEY);
        let mut pond = pond.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(pond.stdout.take().unwrap()).lines();
        let key = said.next().unwrap().unwrap();
        Self { pond, said, key }
    }

    fn tries(&mut self, key: &str) -> Value {
        self.pond.stdin.as_mut().unwrap().write_all(format!("{key}\n").as_bytes()).unwrap();
        serde_json::from_str(&self.said.next().unwrap().unwrap()).unwrap()
    }
}

/// Two jobs of this backend at once: each is served with its own key and its own list, and with the other's it is not.
fn apart(backend: Backend) -> (World, [Neighbour; 2]) {
    let handlers: HashMap<_, _> = models::providers(10, 5);
    let plan = Plan { handlers, backend, ..Plan::default() };
    let world = configured(plan, "anthropic", ANTHROPIC, "claude-haiku-4-5");
    world.write("job.py", NEIGHBOUR);
    let mut one = Neighbour::start(&world, "one.pondworld.net");
    let mut two = Neighbour::start(&world, "two.pondworld.net");
    let (own, other) = (one.key.clone(), two.key.clone());
    assert_ne!(own, other);
    // With its own key and its own list each is served: what is refused below is not the request.
    assert_eq!((one.tries(&own), two.tries(&other)), (json!([200, 200, 403]), json!([200, 403, 200])));
    assert_eq!((one.tries(&other), two.tries(&own)), (json!([401, 200, 403]), json!([401, 403, 200])));
    (world, [one, two])
}

fn end(neighbours: [Neighbour; 2]) {
    for mut neighbour in neighbours {
        drop(neighbour.pond.stdin.take());
        assert_eq!(neighbour.pond.wait().unwrap().code(), Some(0));
    }
}

pub(crate) fn run_on(backend: Backend) {
    let (_world, neighbours) = apart(backend);
    end(neighbours);
}

#[test]
fn c91_c135_a_neighbour_s_key_opens_nothing_and_the_real_one_is_nowhere() {
    let (_world, neighbours) = apart(Backend::Native);
    for Neighbour { pond, .. } in &neighbours {
        let told = |pid: u32| {
            ["environ", "cmdline"]
                .map(|file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default())
        };
        let holds =
            |pid: u32| told(pid).iter().any(|text| String::from_utf8_lossy(text).contains(&REAL_KEY[..20]));
        assert!(holds(pond.id()), "this is how pond was told the key");
        let below = descendants(pond.id());
        assert!(below.len() >= 2, "a gateway and a job: {below:?}");
        assert_eq!(below.into_iter().filter(|pid| holds(*pid)).collect::<Vec<_>>(), Vec::<u32>::new());
    }
    end(neighbours);
}

/// Every process that this one started, or one of those.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children =
        tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> = children
        .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    children.into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}
