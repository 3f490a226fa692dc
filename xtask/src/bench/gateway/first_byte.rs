//! The same curl of the same allowed host: bare, under `pond run` and under sandbox-runtime, to the first byte it prints.

use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result};

use super::super::race::{self, Contender, Pace, Row};
use super::super::stand::Stand;
use super::world::{DNS, HTTPS, PAGE};
use super::worlds::Worlds;
use crate::run::Invocation;

pub(super) const BARE: &str = "curl alone";
pub(super) const POND: &str = "pond run";
pub(super) const SANDBOX_RUNTIME: &str = "sandbox-runtime";

const PACKAGE: &str = "@anthropic-ai/sandbox-runtime";
const VERSION: &str = "0.0.78";
/// Launches per turn of the other contenders.
const LAUNCHES: u32 = 4;

pub(super) fn measure(worlds: &Worlds<'_>, rounds: u32) -> Result<Vec<Row>> {
    let stand = worlds.stand;
    let program = sandbox_runtime(stand)?;
    let settings = stand.path("srt.json");
    let allowed = format!(
        r#"{{"network":{{"allowedDomains":["{}"],"deniedDomains":[]}},"filesystem":{{"denyRead":[],"allowWrite":[],"denyWrite":[]}}}}"#,
        PAGE.name
    );
    std::fs::write(&settings, allowed)?;
    let url = format!("https://{}/", PAGE.name);
    let curl = ["curl", "--silent", "--insecure", "--max-time", "20", &url];
    let curling = |sandbox: Invocation| curl.iter().fold(sandbox, |all, word| all.arg(word));
    let (launch, pond, checkout) = (stand.path("launch"), stand.path("pond"), stand.path("checkout"));
    let bare = worlds.knowing_hosts(&[&launch, "speak"]);
    let ours =
        [&launch, "speak", &pond, "run", "--quiet", "--checkout", &checkout, "--allow-host", PAGE.name, "--"];
    let ours = worlds.nearby(&ours).env("POND_RESOLVER", &format!("{DNS}:53"));
    let theirs = worlds.knowing_hosts(&[&launch, "speak", &program, "--settings", &settings, "--"]);
    let contenders = [(BARE, bare), (POND, ours), (SANDBOX_RUNTIME, theirs)];
    let contenders = contenders.map(|(name, sandbox)| Contender {
        name,
        instrument: curling(sandbox),
        pace: Pace::EveryRound,
    });
    let _server = Server::start(worlds)?;
    race::run(&contenders, rounds * LAUNCHES, &stand.log)
}

/// Installs this version once, below the build's own directory.
fn sandbox_runtime(stand: &Stand) -> Result<String> {
    let place = stand.root.join("target/xtask").join(format!("sandbox-runtime-{VERSION}"));
    let program = place.join("node_modules/.bin/srt");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the checkout's path is not UTF-8");
    if !program.exists() {
        let package = format!("{PACKAGE}@{VERSION}");
        stand.step(&["npm", "install", "--no-audit", "--no-fund", "--prefix", &text(&place)?, &package])?;
    }
    text(&program)
}

/// A server with a page.
struct Server(Child);

impl Server {
    fn start(worlds: &Worlds<'_>) -> Result<Self> {
        let stand = worlds.stand;
        let accept = format!("{}:{HTTPS}", PAGE.address);
        let (key, certificate) = (stand.path("leaf.key"), stand.path("leaf.pem"));
        let serve = ["openssl", "s_server", "-quiet", "-www", "-accept", &accept];
        let shown = ["-key", &key, "-cert", &certificate];
        let server = Self(worlds.far_away(&[&serve[..], &shown].concat()).start(&stand.log)?);
        let ready = format!(
            "until curl --silent --insecure --output /dev/null https://{accept}/; do sleep 0.1; done"
        );
        worlds.nearby(&["timeout", "20", "sh", "-c", &ready]).capture().context("no page is served")?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already is reaped all the same.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
