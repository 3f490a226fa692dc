//! The way out of a container is the way out of a native job: the same rows, the same verdicts. The controls of the rows stand
//! where the rows do; what only an engine could get wrong has its own here.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::dns::question;
use crate::world::sides::{HOST, RESOLVER};
use crate::world::zone::{A, DOMAIN};
use crate::world::{Backend, Done, Plan, World};
use crate::{catalogue, clear_text, crowd, internet, live, neighbours, provider};

#[test]
fn the_catalogue_on_docker() {
    catalogue::run_all(Backend::Docker);
}

#[test]
fn the_catalogue_on_gvisor() {
    catalogue::run_all(Backend::Gvisor);
}

/// How the copy travels is nothing to the way out.
#[test]
fn the_way_out_of_a_job_whose_copy_travels() {
    for backend in [Backend::DockerByStream, Backend::GvisorByStream] {
        catalogue::run_all(backend);
        clear_text::run_on(backend);
        internet::run_sealed(backend);
    }
}

#[test]
fn the_broker_on_docker() {
    provider::run_on(Backend::Docker);
}

#[test]
fn the_broker_on_gvisor() {
    provider::run_on(Backend::Gvisor);
}

#[test]
fn rules_change_on_docker() {
    live::run_on(Backend::Docker);
}

#[test]
fn rules_change_on_gvisor() {
    live::run_on(Backend::Gvisor);
}

#[test]
fn clear_text_on_docker() {
    clear_text::run_on(Backend::Docker);
}

#[test]
fn clear_text_on_gvisor() {
    clear_text::run_on(Backend::Gvisor);
}

#[test]
fn the_internet_on_docker() {
    internet::run_on(Backend::Docker);
}

#[test]
fn the_internet_on_gvisor() {
    internet::run_on(Backend::Gvisor);
}

#[test]
fn tunnels_and_their_ends_on_docker() {
    crowd::run_on(Backend::Docker);
}

#[test]
fn tunnels_and_their_ends_on_gvisor() {
    crowd::run_on(Backend::Gvisor);
}

#[test]
fn a_sealed_job_reaches_nobody() {
    for backend in [Backend::Native, Backend::Docker, Backend::Gvisor] {
        internet::run_sealed(backend);
    }
}

/// Makes everything by which processes of one machine meet, and looks for what it is told to.
const MEETING: &str = r#"
import json, os, socket, sys
own, sought, kept = sys.argv[1], sys.argv[2], []
def found(what):
    try: what(); return True
    except OSError: return False
def abstract(act):
    meet = socket.socket(socket.AF_UNIX)
    kept.append(meet)
    return lambda name: getattr(meet, act)("\0" + name)
def processes(name):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = open(f"/proc/{pid}/cmdline").read().split("\0")
        if words[2:4] == ["meeting.py", name]: return
    raise OSError
kept.append(socket.create_server(("127.0.0.1", int(own))))
abstract("bind")(own)
kept[-1].listen()
for place in ("/tmp", "/dev/shm", "/workspace", os.environ["HOME"]): open(f"{place}/{own}", "x")
print(json.dumps({
    "port": found(lambda: socket.create_connection(("127.0.0.1", int(sought)), 20)),
    "abstract": found(lambda: abstract("connect")(sought)),
    "process": found(lambda: processes(sought)),
    "files": [found(lambda: open(f"{place}/{sought}")) for place in ("/tmp", "/dev/shm", "/workspace", os.environ["HOME"])],
}), flush=True)
sys.stdin.read()
"#;

/// One job that sees itself, beside another that looks for it.
fn side_by_side(backend: Backend) {
    let world = World::new(Plan { backend, ..Plan::default() });
    world.write("meeting.py", MEETING);
    let start = |own: &str, sought: &str| {
        let run = ["run", "--quiet", "--", "/usr/bin/python3", "-u", "meeting.py", own, sought];
        let mut pond = world.pond(&run).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(pond.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        (pond, serde_json::from_str::<Value>(&said).unwrap_or_else(|fault| panic!("{fault}: {said}")))
    };
    let all = |is: bool| json!({ "port": is, "abstract": is, "process": is, "files": [is, is, is, is] });
    let (first, itself) = start("7001", "7001");
    let (second, other) = start("7002", "7001");
    assert_eq!((itself, other), (all(true), all(false)), "{backend:?}");
    for mut pond in [first, second] {
        drop(pond.stdin.take());
        assert_eq!(pond.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn two_jobs_on_docker_do_not_meet() {
    side_by_side(Backend::Docker);
    neighbours::run_on(Backend::Docker);
}

#[test]
fn two_jobs_on_gvisor_do_not_meet() {
    side_by_side(Backend::Gvisor);
    neighbours::run_on(Backend::Gvisor);
}

/// Asks every resolver that could be near a container for a name that tells which of them was asked, by both wires, and the
/// machine's own way last. Prints who answered.
const ASKER: &str = r#"
import json, socket, struct, sys
from concurrent.futures import ThreadPoolExecutor
def ask(wire, server, question):
    question = bytes.fromhex(question)
    kind = socket.SOCK_DGRAM if wire == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(3)
        try:
            sock.connect((server, 53))
            sock.sendall(question if wire == "udp" else struct.pack(">H", len(question)) + question)
            reply = sock.recv(512)
            return "answered" if reply and reply[-4:] != question[-4:] else "no such name"
        except OSError as fault: return "nobody"
def resolve(name):
    try: return socket.gethostbyname(name)
    except OSError: return "no such name"
asked = json.loads(sys.argv[1])
with ThreadPoolExecutor(32) as pool: told = list(pool.map(lambda row: ask(*row), asked["servers"]))
print(json.dumps([told, [resolve(name) for name in asked["names"]], open("/etc/resolv.conf").read()]))
"#;

/// Docker's own resolver, the usual ones of machines and bridges, and the world's.
const RESOLVERS: [&str; 6] =
    ["127.0.0.11", "127.0.0.53", "172.17.0.1", "172.18.0.1", "169.254.169.254", "8.8.8.8"];

fn asked() -> String {
    let servers = RESOLVERS.map(str::to_owned).into_iter().chain([HOST.to_string(), RESOLVER.to_string()]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let question = |wire: &str, server: &str| {
        hex(&question(&format!("{wire}-{}.{DOMAIN}", server.replace('.', "-")), A))
    };
    let rows: Vec<Value> = servers
        .flat_map(|server| ["udp", "tcp"].map(|wire| json!([wire, server, question(wire, &server)])))
        .collect();
    json!({ "servers": rows, "names": [format!("plain.{DOMAIN}"), format!("listed.{DOMAIN}")] }).to_string()
}

/// A container's resolver must not be a way out (CVE-2024-29018 and its kind): there is no resolver but the gateway.
fn nobody_resolves_but_the_gateway(backend: Backend) -> World {
    let world = World::new(Plan { backend, ..Plan::default() });
    let listed = format!("listed.{DOMAIN}");
    let argv = ["--", "/usr/bin/python3", "-c", ASKER, &asked()];
    let done = Done::of(
        world.pond(&[&["run", "--quiet", "--allow-host", &listed], &argv[..]].concat()).output().unwrap(),
    );
    let told: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"));
    let nobody = vec!["nobody"; 2 * (RESOLVERS.len() + 2)];
    assert_eq!(told, json!([nobody, ["no such name", "127.0.0.2"], "nameserver 127.0.0.1\n"]), "{backend:?}");
    assert_eq!(world.log.all(), [], "{backend:?}");
    world
}

#[test]
fn no_query_of_a_job_reaches_the_engines_resolver() {
    nobody_resolves_but_the_gateway(Backend::Gvisor);
    let world = nobody_resolves_but_the_gateway(Backend::Docker);
    // The control: on a network of the engine's own making the same questions are passed on to the world's resolver.
    let pass = "iptables -t nat -A POSTROUTING -o near -j MASQUERADE; echo 1 > /proc/sys/net/ipv4/ip_forward";
    let forwarding = Done::of(world.direct("sh").args(["-ec", pass]).output().unwrap());
    assert_eq!(forwarding.code, 0, "{forwarding:?}");
    let engine = world.engine();
    let image = engine.api("GET", "/images/json", None)[0]["Id"].clone();
    let made = engine.api("POST", "/networks/create", Some(&json!({ "Name": "open", "Driver": "bridge" })));
    assert!(made["Id"].is_string(), "{made}");
    let host = json!({ "NetworkMode": "open", "Binds": ["/usr:/usr:ro"] });
    let body =
        json!({ "Image": image, "Cmd": ["/usr/bin/python3", "-c", ASKER, asked()], "HostConfig": host });
    let made = engine.api("POST", "/containers/create?name=control", Some(&body));
    assert!(made["Id"].is_string(), "{made}");
    let started = engine.api("POST", "/containers/control/start", None);
    assert_eq!(started, Value::Null);
    engine.api("POST", "/containers/control/wait", None);
    let passed_on = format!("udp-127-0-0-11.{DOMAIN}");
    let queries = world.log.queries();
    assert!(queries.contains(&passed_on), "{queries:?}");
    strangers_stay(&world);
}

/// A network and a container that are not pond's, after a run that was killed and swept.
fn strangers_stay(world: &World) {
    let mut pond = world.pond(&["run", "--", "sh", "-c", "echo runs; sleep 1000"]);
    let mut child = pond.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let swept = Done::of(world.pond(&["gc"]).output().unwrap());
    assert_eq!((line.as_str(), swept.code), ("runs\n", 0), "{swept:?}");
    let listed = world.engine().api("GET", "/containers/json?all=1", None);
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|found| &found["Names"][0]).collect();
    assert_eq!(names, ["/control"]);
    assert_eq!(world.engine().api("GET", "/networks/open", None)["Driver"], "bridge");
}
