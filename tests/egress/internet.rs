//! The internet posture: any public name, in any protocol over TCP and without a word about a proxy; and everything that
//! stays closed there. Each row is also tried on the host side, where nothing holds it: what is refused inside must work
//! there, or the row proves nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::hello::Hello;
use crate::world::dns::question;
use crate::world::log::Log;
use crate::world::sides::{HOST, RESOLVER};
use crate::world::zone::{A, DOMAIN, Script, public};
use crate::world::{Backend, Done, Plan, World};

/// Says each row's bytes to its address and prints what came first: the answer in hexadecimal, or why there is none.
const DIALLER: &str = r#"
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def attempt(row):
    kind, host, port, say = row
    say = bytes.fromhex(say)
    try:
        if kind == "udp":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(20)
                sock.connect((host, port))
                sock.send(say)
                return "said " + sock.recv(64).hex()
        if kind == "looks twice": socket.gethostbyname(host)
        if kind == "keeps": host = socket.gethostbyname(host)
        with socket.create_connection((host, port), 20) as sock:
            sock.sendall(say)
            first = sock.recv(64)
            return "said " + first.hex() if first else "closed"
    except socket.gaierror:
        return "no such name"
    except (ConnectionResetError, BrokenPipeError):
        return "closed"
    except OSError as fault:
        return "errno " + str(fault.errno)

with ThreadPoolExecutor(32) as pool:
    json.dump(list(pool.map(attempt, json.loads(sys.argv[1]))), sys.stdout)
"#;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: far.side\r\nConnection: close\r\n\r\n";
const TLS: &str = "said 16";
const HTTP: &str = "said 485454502f312e3120323030";
const GREETING: &str = "said 5353482d322e30";
/// A fatal alert: `access_denied`.
const ALERT: &str = "said 15030300020231";
const CLOSED: &str = "closed";
const NO_NAME: &str = "no such name";
const REFUSED: &str = "errno 111";
const UNREACHABLE: &str = "errno 101";
const PRIVATE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));
/// Where only a name that is rebound leads.
const REBOUND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 6));

struct Row {
    what: &'static str,
    kind: &'static str,
    host: String,
    port: u16,
    say: Vec<u8>,
    /// What it gets inside: the beginning of one of these.
    inside: &'static [&'static str],
    /// And where nothing holds it.
    outside: &'static str,
}

fn row(
    what: &'static str,
    host: impl Into<String>,
    port: u16,
    say: impl Into<Vec<u8>>,
    inside: &'static [&'static str],
    outside: &'static str,
) -> Row {
    Row { what, kind: "tcp", host: host.into(), port, say: say.into(), inside, outside }
}

fn hello(name: &str) -> Vec<u8> {
    Hello::to(name).record()
}

fn own(tag: &str) -> String {
    format!("{tag}.{DOMAIN}")
}

fn served() -> Vec<Row> {
    vec![
        row("https", own("web"), 443, hello(&own("web")), &[TLS], TLS),
        row("tls on another port", own("other"), 8443, hello(&own("other")), &[TLS], TLS),
        row("http", own("plain"), 80, GET, &[HTTP], HTTP),
        row("a server that speaks first", own("ssh"), 22, "", &[GREETING], GREETING),
        row("a client that speaks at once", own("both"), 22, "SSH-2.0-x\r\n", &[GREETING], GREETING),
    ]
}

fn closed() -> Vec<Row> {
    let sni = own("fronted");
    vec![
        row("mail", own("mail"), 25, "", &[CLOSED], GREETING),
        row("a name server over tls", own("dot"), 853, hello(&own("dot")), &[ALERT, CLOSED], TLS),
        row("a public address", "52.1.2.3", 443, hello(&own("web")), &[ALERT, CLOSED], TLS),
        row("a public address in clear", "52.1.2.3", 80, GET, &[CLOSED], HTTP),
        row("cloud metadata", "169.254.169.254", 80, GET, &[CLOSED], HTTP),
        row("a private address", "10.0.0.5", 80, GET, &[CLOSED], HTTP),
        row("a carrier's address", "100.100.100.200", 80, GET, &[CLOSED], HTTP),
        row("an address nobody named", "198.18.200.200", 80, GET, &[CLOSED], HTTP),
        row("an IPv6 address", "2606:4700::1111", 80, GET, &[UNREACHABLE], HTTP),
        row("a name in a private network", own("inward"), 80, GET, &[NO_NAME], HTTP),
        row("a name with a private address too", own("mixed"), 80, GET, &[NO_NAME], HTTP),
        row("a name of the metadata service", own("metadata"), 80, GET, &[NO_NAME], HTTP),
        Row {
            kind: "looks twice",
            ..row("a name rebound before it is asked for again", own("rebound"), 80, GET, &[NO_NAME], HTTP)
        },
        Row {
            kind: "keeps",
            ..row("a name rebound before it is dialled", own("rebound-later"), 80, GET, &[CLOSED], HTTP)
        },
        row("a model", "api.anthropic.com", 443, hello("api.anthropic.com"), &[NO_NAME], TLS),
        row("another model", "api.openai.com", 443, hello("api.openai.com"), &[NO_NAME], TLS),
        row("a model behind another name", own("front"), 443, hello("api.openai.com"), &[ALERT], TLS),
        row("a hello for another host", sni, 443, hello(&own("web")), &[ALERT], TLS),
        row("a denied host", own("denied"), 80, GET, &[NO_NAME], HTTP),
        row(
            "the upstream of the operator's model",
            own("upstream"),
            443,
            hello(&own("upstream")),
            &[NO_NAME],
            TLS,
        ),
        Row {
            kind: "udp",
            ..row("datagrams", RESOLVER.to_string(), 53, question(&own("udp"), A), &[REFUSED], "said beef")
        },
    ]
}

fn world(backend: Backend) -> World {
    let addresses = |list: &[IpAddr]| Script::Addresses(list.to_vec());
    let far = IpAddr::from(public("rebound"));
    let names = vec![
        (own("inward"), addresses(&[PRIVATE])),
        (own("mixed"), addresses(&[far, PRIVATE])),
        (own("metadata"), addresses(&[IpAddr::from([169, 254, 169, 254])])),
        (own("rebound"), Script::Rebound(vec![far], vec![REBOUND])),
        (own("rebound-later"), Script::Rebound(vec![far], vec![REBOUND])),
        (own("front"), addresses(&[public("api.openai.com").into()])),
        (own("ourselves"), addresses(&[HOST.into()])),
    ];
    let world = World::new(Plan { names, backend, ..Plan::default() });
    let file = format!(
        "[egress]\ndeny = [\"denied.{DOMAIN}\"]\n[model.m]\napi = \"openai\"\nupstream = \"https://upstream.{DOMAIN}\"\n\
         credential = \"env:REAL_KEY\"\nmodels = [\"gpt-4o-mini\"]\n"
    );
    std::fs::write(world.operator_file(), file).unwrap();
    world
}

fn tell(rows: &[Row]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let told = rows.iter().map(|row| json!([row.kind, row.host, row.port, hex(&row.say)]));
    json!(told.collect::<Vec<Value>>()).to_string()
}

fn answers(done: &Done) -> Vec<String> {
    serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}"))
}

fn inside(world: &World, argv: &[&str]) -> Done {
    let run = [&["run", "--quiet", "--profile", "untrusted-code-internet", "--"], argv].concat();
    Done::of(world.pond(&run).env("POND_CONFIG", world.operator_file()).output().unwrap())
}

/// The far side saw what was to pass and nothing else, bytes least of all.
fn faults_of_the_far_side(log: &Log) -> Vec<String> {
    let passes = |address: &SocketAddr| {
        let of = |host: &str, port| *address == SocketAddr::from((public(&own(host)), port));
        let served = [("web", 443), ("other", 8443), ("plain", 80), ("ssh", 22), ("both", 22)];
        served.into_iter().any(|(host, port)| of(host, port))
    };
    // These are reached, because their names may be; what their clients say is not passed on.
    let silent = |address: &SocketAddr| {
        let fronts = [public("api.openai.com"), public(&own("fronted"))];
        fronts.into_iter().any(|ip| *address == SocketAddr::from((ip, 443)))
            && log.first_bytes(*address).is_empty()
    };
    let dialled: BTreeSet<SocketAddr> = log.dials().into_iter().collect();
    let unexpected = dialled.into_iter().filter(|address| !passes(address) && !silent(address));
    unexpected.map(|address| format!("the far side was reached at {address}")).collect()
}

fn rows() -> Vec<Row> {
    served().into_iter().chain(closed()).collect()
}

/// What was not as the rows say, from a job of this backend.
fn faults_inside(rows: &[Row], backend: Backend) -> Vec<String> {
    let within = world(backend);
    let answered = answers(&inside(&within, &["/usr/bin/python3", "-c", DIALLER, &tell(rows)]));
    let mut faults = faults_of_the_far_side(&within.log);
    for (row, answer) in rows.iter().zip(&answered) {
        if !row.inside.iter().any(|expected| answer.starts_with(expected)) {
            faults.push(format!("{}: expected {:?}, got {answer}", row.what, row.inside));
        }
    }
    faults
}

/// The same rows from a job of this backend. Their controls are those of the test below.
pub(crate) fn run_on(backend: Backend) {
    let faults = faults_inside(&rows(), backend);
    assert!(faults.is_empty(), "{} rows:\n{}", faults.len(), faults.join("\n"));
}

/// A job without any network, of this backend: no row gets anywhere, and the far side hears of none.
pub(crate) fn run_sealed(backend: Backend) {
    let (world, rows) = (world(backend), rows());
    let argv = ["/usr/bin/python3", "-c", DIALLER, &tell(&rows)];
    let run = [&["run", "--quiet", "--profile", "untrusted-code-read", "--"], &argv[..]].concat();
    let answered = answers(&Done::of(world.pond(&run).output().unwrap()));
    let got: Vec<_> = rows
        .iter()
        .zip(answered)
        .filter(|(_, answer)| !answer.starts_with("errno") && answer != NO_NAME)
        .map(|(row, answer)| format!("{}: {answer}", row.what))
        .collect();
    assert_eq!((got, world.log.all()), (Vec::new(), Vec::new()));
}

#[test]
fn any_public_name_is_reached_and_nothing_else() {
    let rows = rows();
    let told = tell(&rows);
    let mut faults = faults_inside(&rows, Backend::Native);
    let without = world(Backend::Native);
    let control = without.direct("/usr/bin/python3").args(["-c", DIALLER, &told]).output().unwrap();
    for (row, answer) in rows.iter().zip(answers(&Done::of(control))) {
        if !answer.starts_with(row.outside) {
            faults.push(format!("{}, without the control: expected {}, got {answer}", row.what, row.outside));
        }
    }
    if !without.log.dials().contains(&SocketAddr::new(REBOUND, 80)) {
        faults.push("without the control, a rebound name leads nowhere new".to_owned());
    }
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

#[test]
fn this_machine_is_not_the_internet() {
    let world = world(Backend::Native);
    let argv = ["/usr/bin/python3", "-c", DIALLER, &json!([["tcp", own("ourselves"), 80, ""]]).to_string()];
    assert_eq!(answers(&inside(&world, &argv)), [NO_NAME]);
    assert_eq!(world.log.dials(), []);
}

#[test]
fn clients_need_no_proxy_and_the_record_has_their_names() {
    let world = world(Backend::Native);
    let line =
        format!("env | grep -ci proxy; curl -sS http://plain.{DOMAIN}/; curl -ksS https://web.{DOMAIN}/");
    let done = inside(&world, &["sh", "-c", &line]);
    let expected = format!("0\nfar side: plain.{DOMAIN}\nfar side: web.{DOMAIN}\n");
    assert_eq!((done.code, done.stdout.as_str()), (0, expected.as_str()), "{done:?}");
    let runs: Vec<_> = std::fs::read_dir(world.state().join("runs")).unwrap().flatten().collect();
    let record = std::fs::read_to_string(runs[0].path().join("egress.jsonl")).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened: Vec<Value> = events.filter_map(|event| event.get("opened").cloned()).collect();
    let told: Vec<Value> = opened.iter().map(|way| json!([way["door"], way["host"], way["port"]])).collect();
    let expected = [json!(["any", own("plain"), 80]), json!(["any", own("web"), 443])];
    assert_eq!(told, expected, "{record}");
}

/// A query tells the owner of a domain something, whether or not a connection follows.
#[test]
fn names_that_are_only_looked_up_are_in_the_record() {
    let world = world(Backend::Native);
    let names = [own("plain"), own("plain"), own("web")];
    let script = "import socket, sys; [socket.gethostbyname(name) for name in sys.argv[1:]]";
    let mut argv = vec!["/usr/bin/python3", "-c", script];
    argv.extend(names.iter().map(String::as_str));
    let done = inside(&world, &argv);
    assert_eq!(done.code, 0, "{done:?}");
    let runs: Vec<_> = std::fs::read_dir(world.state().join("runs")).unwrap().flatten().collect();
    let record = std::fs::read_to_string(runs[0].path().join("egress.jsonl")).unwrap();
    let events: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let looked = events.iter().filter_map(|event| Some(event.get("looked")?["host"].clone()));
    assert_eq!(looked.collect::<Vec<_>>(), [json!(own("plain")), json!(own("web"))], "{record}");
    assert_eq!(events.last().unwrap()["summary"]["lookups"], 2, "{record}");
}
