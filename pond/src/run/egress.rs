//! The way out of one run: which doors its posture gives it, the gateway behind them, and what went through.
//!
//! Nothing of the job runs before the gateway serves. What the gateway says is recorded as it comes, bounded, and told in
//! the summary; it is the gateway's word and never the job's.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use pond_policy::egress::HostRule;
use pond_policy::harness::proxy_environment;
use pond_policy::model::UpstreamHost;
use pond_policy::operator::Operator;
use pond_policy::profile::Network;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::native::Running;
use pond_wire::gateway::doors::{BROKER, DNS, PROXY};
use pond_wire::gateway::{Caps, Event, Identity, Order, Reach};
use pond_wire::jail::Door;
use pond_worker::gateway::Gateway;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::model::Chosen;
use super::traffic::Traffic;

/// Where a run's verdicts are kept, one JSON object per line.
const RECORD: &str = "egress.jsonl";
/// More than any honest job fills; what comes after is only counted.
const RECORD_BYTES: usize = 8 << 20;
const HTTPS: u16 = 443;
/// All listeners travel in one packet.
const MOST_PORTS: usize = 24;
/// How long a gateway may take to say its last word.
const FAREWELL: Duration = Duration::from_secs(10);
/// Until the doors are there the job's own time limit does not run yet.
const LAUNCH_TIME: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// The first user id of gateways, which run as it plus the number of the process that started them: no person has it, no
/// job is mapped to it, and no two gateways share it.
const FIRST_ID: u32 = 0x6F00_0000;

const CAPS: Caps = Caps {
    tunnels: 256,
    tunnel_bytes: 16 << 30,
    total_bytes: 64 << 30,
    idle_seconds: 600,
    lifetime_seconds: 24 * 3600,
};

/// A gateway that is getting ready.
#[derive(Debug)]
pub(super) struct WayOut {
    gateway: Gateway,
    pub(super) doors: Vec<Door>,
}

/// A gateway at work, and who listens to it. It ends with this value.
#[derive(Debug)]
pub(super) struct Watched {
    gateway: Arc<Gateway>,
    heard: Receiver<anyhow::Result<Traffic>>,
    listener: Option<JoinHandle<()>>,
}

/// What decides where a run may go.
#[derive(Debug)]
pub(super) struct Plan {
    reach: Option<Reach>,
    pub(super) doors: Vec<Door>,
    /// What leads the job's tools to the doors.
    pub(super) env: Vec<(String, String)>,
}

/// Decides what the posture, the operator's file and the flags let out.
pub(super) fn plan(
    policy: &SandboxPolicy,
    operator: &Operator,
    asked: &[String],
    with_model: bool,
) -> anyhow::Result<Plan> {
    let broker = with_model.then_some(Door::Broker);
    match policy.posture().network {
        Network::Sealed if with_model => {
            bail!("{} has no network at all, so no model either", policy.profile().name())
        }
        Network::Sealed => Ok(Plan { reach: None, doors: Vec::new(), env: Vec::new() }),
        Network::BrokerOnly => {
            let reach = with_model.then_some(Reach::BrokerOnly);
            Ok(Plan { reach, doors: broker.into_iter().collect(), env: Vec::new() })
        }
        Network::Allowlist => {
            let allow = allowed(operator, asked)?;
            past_no_model(operator, &allow)?;
            let doors = doors(&allow)?.into_iter().chain(broker).collect();
            let text = |rules: &[HostRule]| rules.iter().map(ToString::to_string).collect();
            let reach = Reach::Allowlist { allow: text(&allow), deny: text(&operator.egress.deny) };
            let env = proxy_environment(&PROXY.ip().to_string(), PROXY.port());
            Ok(Plan { reach: Some(reach), doors, env })
        }
        Network::Internet | Network::Open => bail!("no backend offers this network"),
    }
}

/// The operator's presets and rules, then what this run asks for, each once.
fn allowed(operator: &Operator, asked: &[String]) -> anyhow::Result<Vec<HostRule>> {
    let mut rules = Vec::new();
    for preset in &operator.egress.presets {
        rules.extend(preset.rules()?);
    }
    rules.extend(operator.egress.allow.iter().cloned());
    for text in asked {
        rules.push(HostRule::parse_config(text)?);
    }
    let mut unique: Vec<HostRule> = Vec::new();
    for rule in rules {
        if !unique.contains(&rule) {
            unique.push(rule);
        }
    }
    Ok(unique)
}

/// Starts the gateway the plan asks for; nothing, where it lets nothing out.
pub(super) fn start(
    plan: Plan,
    job: &str,
    resolvers: Vec<SocketAddr>,
    model: Option<Chosen>,
    executable: &Path,
) -> anyhow::Result<Option<WayOut>> {
    let Plan { reach: Some(reach), doors, .. } = plan else { return Ok(None) };
    let identity = rustix::process::geteuid().is_root().then(|| {
        let own = FIRST_ID + std::process::id();
        Identity { uid: own, gid: own }
    });
    let (broker, key) = model.map(|model| (model.order, model.key)).unzip();
    let order = Order { job: job.to_owned(), reach, resolvers, nat64: None, caps: CAPS, broker, identity };
    let keys: Vec<_> = key.iter().map(AsFd::as_fd).collect();
    Ok(Some(WayOut { gateway: Gateway::start(executable, &order, &keys)?, doors }))
}

/// The broker is the only door to a model, whoever asks for another.
fn past_no_model(operator: &Operator, allow: &[HostRule]) -> anyhow::Result<()> {
    for model in &operator.models {
        let UpstreamHost::Name(name) = model.upstream.host() else { continue };
        if let Some(rule) = allow.iter().find(|rule| rule.covers(name)) {
            bail!("{rule} reaches the upstream of model {}; the broker is its only door", model.name);
        }
    }
    Ok(())
}

/// One front door for each port a rule names; clients that speak to a proxy need only the first.
fn doors(allow: &[HostRule]) -> anyhow::Result<Vec<Door>> {
    let mut ports: Vec<u16> = allow.iter().filter_map(|rule| Some(rule.port()?.get())).collect();
    ports.push(HTTPS);
    ports.sort_unstable();
    ports.dedup();
    if let Some(port) = ports.iter().find(|port| [PROXY.port(), BROKER.port(), DNS.port()].contains(port)) {
        bail!("port {port} of a rule is the gateway's own inside the sandbox; no rule can name it");
    }
    if ports.len() > MOST_PORTS {
        bail!("the rules name {} ports; a sandbox has doors for {MOST_PORTS}", ports.len());
    }
    let fronts = ports.into_iter().map(|port| Door::Front { port });
    Ok([Door::Proxy, Door::Dns].into_iter().chain(fronts).collect())
}

impl WayOut {
    /// Takes the doors over as the sandbox makes them, and lets the job begin once they are served.
    pub(super) fn open(&self, running: &mut Running) -> anyhow::Result<()> {
        let listeners = loop {
            if let Some(listeners) = running.doors.take() {
                break listeners;
            }
            if !is_ready(running.reports())? {
                bail!("the sandbox was not ready within {} s", LAUNCH_TIME.tv_sec);
            }
            if running.take_report()?.is_some() {
                // It ended before it had a door; its own report says why, and whoever supervises it reads that.
                return Ok(());
            }
        };
        self.gateway.serve(&self.doors, listeners)?;
        Ok(running.go()?)
    }

    /// Writes down what the gateway says, from now to the end.
    pub(super) fn listen(self, directory: &Path) -> anyhow::Result<Watched> {
        let record = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(directory.join(RECORD))
            .context("making the record of the network")?;
        let gateway = Arc::new(self.gateway);
        let talks = Arc::clone(&gateway);
        let (told, heard) = sync_channel(1);
        let listener = std::thread::Builder::new()
            .name("gateway".to_owned())
            // Nobody may be there to hear it any more.
            .spawn(move || drop(told.send(listen(&talks, record))))
            .context("starting the listener of the gateway")?;
        Ok(Watched { gateway, heard, listener: Some(listener) })
    }
}

impl Watched {
    /// The job is over: what went through, and what did not. A gateway that does not say its last word is ended.
    pub(super) fn finish(self) -> anyhow::Result<Traffic> {
        self.gateway.finish()?;
        let heard = match self.heard.recv_timeout(FAREWELL) {
            Err(RecvTimeoutError::Timeout) => {
                self.gateway.kill();
                self.heard.recv().context("the listener of the gateway ended badly")
            }
            other => other.context("the listener of the gateway ended badly"),
        };
        heard?
    }
}

impl Drop for Watched {
    /// Whoever lets go of the gateway last waits until it is gone; that must be us, and not a thread that nobody waits for.
    fn drop(&mut self) {
        self.gateway.kill();
        if let Some(Err(_panicked)) = self.listener.take().map(JoinHandle::join) {}
    }
}

/// Waits for a report.
fn is_ready(reports: BorrowedFd<'_>) -> anyhow::Result<bool> {
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(reports, PollFlags::IN)], Some(&LAUNCH_TIME)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// Writes down every event until the gateway has said its last word. What cannot be written down may not happen: then the
/// doors are closed, and only the sums are still heard.
fn listen(gateway: &Gateway, mut record: File) -> anyhow::Result<Traffic> {
    let mut traffic = Traffic::default();
    let mut room = RECORD_BYTES;
    while let Some(event) = gateway.listen()? {
        let line = [serde_json::to_vec(&event)?, b"\n".to_vec()].concat();
        match room.checked_sub(line.len()) {
            Some(left) if traffic.unwritten == 0 => match record.write_all(&line) {
                Ok(()) => room = left,
                Err(_no_room) => {
                    traffic.unwritten += 1;
                    gateway.finish()?;
                }
            },
            _ => traffic.unwritten += 1,
        }
        let last = matches!(event, Event::Summary(_));
        traffic.take(event);
        if last {
            return Ok(traffic);
        }
    }
    traffic.ended_early = true;
    Ok(traffic)
}
