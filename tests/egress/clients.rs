//! Programs people use, unmodified, against mirrors under the names the default allowlist has.
//!
//! Each runs three times: on the host side without pond, which shows that client and mirror work; in a sandbox as pond sets
//! it up; and in a sandbox with every proxy setting taken away, as tools that ignore them behave.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::sides::tool;
use crate::world::{Backend, Done, Plan, World, source};

/// What every client is told: whom to trust, and to leave nothing behind.
const TRUST: &str = r#"
ca="$PWD/ca.pem"
export SSL_CERT_FILE="$ca" CURL_CA_BUNDLE="$ca" REQUESTS_CA_BUNDLE="$ca" PIP_CERT="$ca" NODE_EXTRA_CA_CERTS="$ca" npm_config_cafile="$ca"
export CARGO_HTTP_CAINFO="$ca" GIT_SSL_CAINFO="$ca" WGETRC="$PWD/wgetrc"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 npm_config_cache="$PWD/npm-cache"
export JAVA_TOOL_OPTIONS="$JAVA_TOOL_OPTIONS -Djavax.net.ssl.trustStore=$PWD/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit"
"#;

/// What the control installs is not there when pond's turn comes.
const COPY: &str = r#"
cp -r . ../direct; cd ../direct; export HOME="$PWD" CARGO_HOME="$PWD/cargo-home"
"#;

const WITHOUT_PROXY: &str = r#"
for name in $(env | cut -d= -f1 | grep -i proxy); do unset "$name"; done
unset JAVA_TOOL_OPTIONS
"#;

const FETCH_JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"#;

/// A client's shell line, the last line it prints, and whether it goes through the proxy it is told of.
struct Client {
    line: &'static str,
    prints: &'static str,
    proxy: Honours,
}

#[derive(PartialEq, Eq)]
enum Honours {
    Proxy,
    Nothing,
}

/// Runs a client everywhere.
fn everywhere(client: &Client) {
    everywhere_on(Backend::Native, client);
}

fn everywhere_on(backend: Backend, client: &Client) {
    let world = World::new(Plan { backend, ..Plan::default() });
    prepare(&world);
    let direct = format!("{COPY}{TRUST}{}", client.line);
    check(&world, "direct", client, world.direct("sh").env("PATH", path()).args(["-ec", &direct]));
    let proxied = if client.proxy == Honours::Proxy { "proxy" } else { "tls" };
    for (how, lines, door) in [("proxy", "", proxied), ("no proxy", WITHOUT_PROXY, "tls")] {
        let line = format!("{lines}{TRUST}{}", client.line);
        let allow = ["--allow-host", "hello.pondworld.net"];
        let run = [&["run", "--quiet", "--tool", "cargo"], &allow[..], &["--", "sh", "-ec", &line]].concat();
        let state = world.state().join(how);
        check(&world, how, client, world.pond(&run).env("POND_STATE_DIR", &state));
        assert_eq!(doors(&state), [door], "{how}");
    }
}

fn check(world: &World, how: &str, client: &Client, command: &mut Command) {
    let before = world.log.requests().len();
    let done = Done::of(command.output().unwrap());
    let last = done.stdout.lines().last().unwrap_or_default();
    assert_eq!((done.code, last), (0, client.prints), "{how}: {done:?}");
    assert!(world.log.requests().len() > before, "{how}: what it printed did not come from the far side");
}

/// The doors tunnels of the one run in `state` were opened at.
fn doors(state: &Path) -> Vec<String> {
    let runs: Vec<_> = std::fs::read_dir(state.join("runs")).unwrap().flatten().collect();
    let record = std::fs::read_to_string(runs[0].path().join("egress.jsonl")).unwrap();
    let events = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let doors = events.filter_map(|event| Some(event.get("opened")?["door"].as_str()?.to_owned()));
    doors.collect::<BTreeSet<String>>().into_iter().collect()
}

fn prepare(world: &World) {
    let ca = world.trust();
    world.write("wgetrc", format!("ca_certificate = {ca}\n"));
    world.write("Fetch.java", FETCH_JAVA);
    world.write(
        "crate/Cargo.toml",
        "[package]\nname = \"job\"\nedition = \"2021\"\n[dependencies]\npond-hello = \"1\"\n",
    );
    world.write("crate/src/main.rs", "fn main() { println!(\"{}\", pond_hello::GREETING) }\n");
    world.write("mirror.py", source("mirror.py"));
    let built = tool("python3").arg(world.project().join("mirror.py")).arg(world.sites()).output().unwrap();
    assert!(built.status.success(), "{:?}", Done::of(built));
}

/// Where programs are, this cargo's own folder first.
fn path() -> String {
    let cargo = Path::new(env!("CARGO")).parent().unwrap();
    format!("{}:/usr/local/bin:/usr/bin:/bin", cargo.display())
}

#[test]
fn curl() {
    everywhere(&Client {
        line: "curl --silent --show-error https://hello.pondworld.net/",
        prints: "far side: hello.pondworld.net",
        proxy: Honours::Proxy,
    });
}

#[test]
fn wget() {
    everywhere(&Client {
        line: "wget --quiet --output-document=- https://hello.pondworld.net/",
        prints: "far side: hello.pondworld.net",
        proxy: Honours::Proxy,
    });
}

#[test]
fn python_urllib_requests_and_httpx() {
    everywhere(&Client {
        line: r#"/usr/bin/python3 -c '
import urllib.request, requests, httpx
url = "https://hello.pondworld.net/"
texts = {urllib.request.urlopen(url).read().decode(), requests.get(url).text, httpx.get(url).text}
print(*texts, end="")'"#,
        prints: "far side: hello.pondworld.net",
        proxy: Honours::Proxy,
    });
}

#[test]
fn pip_install() {
    everywhere(&Client {
        line: r#"/usr/bin/python3 -m pip install --quiet --target=installed pond-hello
PYTHONPATH=installed /usr/bin/python3 -c 'import pond_hello; print(pond_hello.GREETING)'"#,
        prints: "hello from pypi",
        proxy: Honours::Proxy,
    });
}

#[test]
fn npm_install() {
    everywhere(&Client {
        line: r#"mkdir -p job && cd job
npm install --silent --fetch-retries=0 --no-audit --no-fund --no-update-notifier pond-hello
node -e 'console.log(require("pond-hello"))'"#,
        prints: "hello from npm",
        proxy: Honours::Proxy,
    });
}

/// A crate that this machine has never downloaded.
fn cargo_run_on(backend: Backend) {
    let client = Client {
        line: "cd crate && cargo --quiet fetch && cargo --quiet --offline run --target-dir ../built",
        prints: "hello from crates",
        proxy: Honours::Proxy,
    };
    everywhere_on(backend, &client);
}

#[test]
fn cargo_run() {
    cargo_run_on(Backend::Native);
}

#[test]
fn cargo_run_on_docker() {
    cargo_run_on(Backend::Docker);
}

#[test]
fn cargo_run_on_gvisor() {
    cargo_run_on(Backend::Gvisor);
}

#[test]
fn git_clone() {
    everywhere(&Client {
        line: "git clone --quiet https://github.com/pond/hello.git cloned && cat cloned/README",
        prints: "hello from git",
        proxy: Honours::Proxy,
    });
}

#[test]
fn node_fetch() {
    everywhere(&Client {
        line: r#"node -e 'fetch("https://hello.pondworld.net/").then(reply => reply.text()).then(text => console.log(text.trim()))'"#,
        prints: "far side: hello.pondworld.net",
        proxy: Honours::Nothing,
    });
}

#[test]
fn java_http_client() {
    everywhere(&Client {
        line: r#"keytool -importcert -noprompt -alias world -file ca.pem -keystore trust.p12 -storepass changeit 2>/dev/null
java Fetch.java https://hello.pondworld.net/"#,
        prints: "far side: hello.pondworld.net",
        proxy: Honours::Proxy,
    });
}

/// Where nobody names a resolver, the machine's own is asked.
#[test]
fn the_machines_own_resolver_is_the_default() {
    let world = World::new(Plan::default());
    let ca = world.trust();
    let url = "https://hello.pondworld.net/";
    let run =
        ["run", "--quiet", "--allow-host", "hello.pondworld.net", "--", "curl", "-sS", "--cacert", ca, url];
    let done = Done::of(world.pond(&run).env_remove("POND_RESOLVER").output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (0, "far side: hello.pondworld.net\n"), "{done:?}");
}

/// Each client asks for a host that no rule names, all at the same time; one word of what they say per client.
const ASK_IN_VAIN: &str = r#"
url=https://denied.pondworld.net/
ask() { name="$1"; shift; { "$@" >"$name.log" 2>&1; echo "$?" >"$name.code"; } & }
ask curl curl --silent --show-error $url
ask bare-curl env -u HTTPS_PROXY -u https_proxy -u ALL_PROXY -u all_proxy curl --silent --show-error $url
ask wget wget --tries=1 --output-document=- $url
ask urllib /usr/bin/python3 -c "import urllib.request; urllib.request.urlopen('$url')"
ask requests /usr/bin/python3 -c "import requests; requests.get('$url')"
ask httpx /usr/bin/python3 -c "import httpx; httpx.get('$url')"
ask pip /usr/bin/python3 -m pip download --retries 1 --index-url $url pond-hello
ask npm npm view --registry=$url pond-hello
ask git git clone ${url}x.git
ask node node -e "fetch('$url').then(() => process.exit(0))"
ask java java Fetch.java $url
wait
for code in *.code; do name="${code%.code}"; echo "$name $(cat "$code") $(grep -c -e 403 -e 'pond: ' -e 'not known' -e 'ENOTFOUND' -e 'resolve host' "$name.log")"; done
"#;

#[test]
fn a_host_that_is_not_allowed_is_refused_at_once_and_says_so() {
    let world = World::new(Plan::default());
    prepare(&world);
    let line = format!("{TRUST}{ASK_IN_VAIN}");
    let done = Done::of(world.pond(&["run", "--quiet", "--", "sh", "-c", &line]).output().unwrap());
    let names =
        ["bare-curl", "curl", "git", "httpx", "java", "node", "npm", "pip", "requests", "urllib", "wget"];
    let rows: Vec<Vec<&str>> = done.stdout.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), names, "{done:?}");
    for row in &rows {
        assert!(row[1] != "0" && row[2] != "0", "{row:?} must fail and say why: {done:?}");
    }
    assert_eq!(world.log.all(), [], "the far side heard nothing of it");
}
