//! The way out of one run: which doors its posture gives it, the gateway behind them, and what went through.
//!
//! Nothing of the job runs before the gateway serves. What the gateway says is recorded as it comes, bounded, and told in
//! the summary; it is the gateway's word and never the job's.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use pond_policy::egress::{HostFault, HostRule};
use pond_policy::harness::proxy_environment;
use pond_policy::model::UpstreamHost;
use pond_policy::operator::{self, Operator};
use pond_policy::profile::Network;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::native::Running;
use pond_wire::gateway::doors::PROXY;
use pond_wire::gateway::{Caps, Identity, Order, Reach};
use pond_wire::jail::Door;
use pond_worker::gateway::Gateway;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::OWN_EXECUTABLE;
use super::counter::{Auditor, Counter};
use super::desk::Desk;
use super::git::Lent;
use super::listener::{Daemon, Listener};
use super::model::Chosen;
use super::record::Record;
use super::rules::Rules;
use super::traffic::Traffic;

/// The port of requests in clear text.
const HTTP: u16 = 80;
/// All listeners travel in one packet.
const MOST_PORTS: usize = 24;
/// How long a gateway may take to say its last word.
const FAREWELL: Duration = Duration::from_secs(10);
/// Until the doors are there the job's own time limit does not run yet.
const LAUNCH_TIME: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// The first user id of gateways, which run as it plus the number of the process that started them: no person has it, no
/// job is mapped to it, and no two gateways share it.
const FIRST_ID: u32 = 0x6F00_0000;

/// Connections of a job at the same time.
const TUNNELS: u32 = 256;

/// A gateway that is getting ready.
#[derive(Debug)]
pub(crate) struct WayOut {
    gateway: Gateway,
    pub(crate) doors: Vec<Door>,
    /// Where a person changes the rules, if there are any.
    counter: Option<(Rules, Desk)>,
    ceiling_microcents: u64,
}

/// A gateway at work, and who listens to it. It ends with this value.
#[derive(Debug)]
pub(crate) struct Watched {
    gateway: Arc<Gateway>,
    heard: Receiver<anyhow::Result<Traffic>>,
    listener: Option<JoinHandle<()>>,
}

/// Whom a job may reach.
#[derive(Debug)]
enum Outside {
    Nothing,
    Broker,
    Listed(Rules),
    Internet { deny: Vec<String> },
}

impl Outside {
    fn reach(&self) -> Option<Reach> {
        match self {
            Self::Nothing => None,
            Self::Broker => Some(Reach::BrokerOnly),
            Self::Listed(rules) => Some(rules.reach()),
            Self::Internet { deny } => Some(Reach::Internet { deny: deny.clone() }),
        }
    }
}

/// What decides where a run may go.
#[derive(Debug)]
pub(crate) struct Plan {
    outside: Outside,
    caps: Caps,
    pub(crate) doors: Vec<Door>,
    /// What leads the job's tools to the doors.
    pub(crate) env: Vec<(String, String)>,
}

impl Plan {
    /// The same, with no more bytes in all than this, and with none to begin with: they are lent.
    pub(super) fn within(mut self, total_bytes: u64) -> Self {
        self.caps.total_bytes = self.caps.total_bytes.min(total_bytes);
        self.caps.lent_bytes = Some(0);
        self
    }

    /// The same, with a door for git and what leads it there.
    pub(crate) fn lending(mut self, lent: &Lent) -> Self {
        if !lent.hosts.is_empty() {
            self.doors.push(Door::Git);
            self.env.extend(lent.env());
        }
        self
    }

    /// What the gateway will be told, if there is one.
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.outside.reach()
    }
}

/// Decides what the posture, the operator's file and the flags let out.
pub(crate) fn plan(
    policy: &SandboxPolicy,
    operator: &Operator,
    asked: &[String],
    with_model: bool,
) -> anyhow::Result<Plan> {
    let broker = with_model.then_some(Door::Broker);
    let caps = caps(&operator.egress.caps)?;
    match policy.posture().network {
        Network::Sealed if with_model => {
            bail!("{} has no network at all, so no model either", policy.profile().name())
        }
        Network::Sealed => Ok(Plan { outside: Outside::Nothing, caps, doors: Vec::new(), env: Vec::new() }),
        Network::BrokerOnly => {
            let outside = if with_model { Outside::Broker } else { Outside::Nothing };
            // No name exists inside; the responder is there to say so at once, and to whom it was said.
            let doors = broker.into_iter().flat_map(|broker| [Door::Dns, broker]).collect();
            Ok(Plan { outside, caps, doors, env: Vec::new() })
        }
        Network::Allowlist => {
            let rules = Rules::new(operator, asked)?;
            let doors = doors(rules.ports())?.into_iter().chain(broker).collect();
            let env = proxy_environment(&PROXY.ip().to_string(), PROXY.port());
            Ok(Plan { outside: Outside::Listed(rules), caps, doors, env })
        }
        Network::Internet => {
            let deny = denied(operator)?.iter().map(ToString::to_string).collect();
            // No variables: every connection finds the gateway by itself, and only there is more than HTTPS carried.
            let doors = [Door::Proxy, Door::Dns, Door::Any].into_iter().chain(broker).collect();
            Ok(Plan { outside: Outside::Internet { deny }, caps, doors, env: Vec::new() })
        }
        Network::Open => bail!("an open network is not a sandbox"),
    }
}

/// As the operator has them, in the gateway's words.
fn caps(asked: &operator::Caps) -> anyhow::Result<Caps> {
    Ok(Caps {
        tunnels: TUNNELS,
        tunnel_bytes: asked.tunnel_bytes.bytes(),
        total_bytes: asked.job_bytes.bytes(),
        lent_bytes: None,
        idle_seconds: u32::try_from(asked.idle_seconds.get())?,
        lifetime_seconds: u32::try_from(asked.lifetime_seconds.get())?,
    })
}

/// Starts the gateway the plan asks for; nothing, where it lets nothing out.
pub(crate) fn start(
    plan: Plan,
    job: &str,
    resolvers: Vec<SocketAddr>,
    model: Option<Chosen>,
    lent: Lent,
    run: &Path,
) -> anyhow::Result<Option<WayOut>> {
    let Plan { outside, caps, doors, .. } = plan;
    let Some(reach) = outside.reach() else { return Ok(None) };
    let counter = match outside {
        Outside::Listed(rules) => Some((rules, Desk::open(run)?)),
        Outside::Nothing | Outside::Broker | Outside::Internet { .. } => None,
    };
    let identity = rustix::process::geteuid().is_root().then(|| {
        let own = FIRST_ID + std::process::id();
        Identity { uid: own, gid: own }
    });
    let (broker, key) = model.map(|model| (model.order, model.key)).unzip();
    let ceiling_microcents = broker.as_ref().map_or(0, |broker| broker.ceiling_microcents);
    let git = lent.hosts;
    let order = Order { job: job.to_owned(), reach, resolvers, nat64: None, caps, broker, git, identity };
    let keys: Vec<_> = key.iter().chain(&lent.keys).map(AsFd::as_fd).collect();
    let gateway = Gateway::start(Path::new(OWN_EXECUTABLE), &order, &keys)?;
    Ok(Some(WayOut { gateway, doors, counter, ceiling_microcents }))
}

/// The operator's deny rules, and the upstreams of his models, which only the broker may reach. Built-in model APIs are
/// refused by the verdict itself, and what is no public name is never reached.
fn denied(operator: &Operator) -> anyhow::Result<Vec<HostRule>> {
    let mut deny = operator.egress.deny.clone();
    for model in &operator.models {
        let UpstreamHost::Name(name) = model.upstream.host() else { continue };
        match HostRule::parse_config(name.as_str()) {
            Ok(rule) => deny.push(rule),
            Err(
                HostFault::ModelApi { .. } | HostFault::SingleLabel { .. } | HostFault::SpecialUse { .. },
            ) => {}
            Err(fault) => {
                let kept = format!("keeping the job from the upstream of model {}", model.name);
                return Err(anyhow::Error::new(fault).context(kept));
            }
        }
    }
    Ok(deny)
}

/// One front door for each port a rule names; clients that speak to a proxy need only the first. And one where clear text
/// is expected: it leads nowhere, but whoever comes there is told why.
fn doors(ports: &[u16]) -> anyhow::Result<Vec<Door>> {
    if ports.len() > MOST_PORTS {
        bail!("the rules name {} ports; a sandbox has doors for {MOST_PORTS}", ports.len());
    }
    let clear_text = (!ports.contains(&HTTP)).then_some(HTTP);
    let fronts = ports.iter().copied().chain(clear_text).map(|port| Door::Front { port });
    Ok([Door::Proxy, Door::Dns].into_iter().chain(fronts).collect())
}

impl WayOut {
    /// Takes the doors over as the sandbox makes them, and lets the job begin once they are served.
    pub(crate) fn open(&self, running: &mut Running) -> anyhow::Result<()> {
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
            if running.has_failed() {
                // Pid 1 of a container would wait for a go that cannot come.
                return Ok(running.kill()?);
            }
        };
        self.gateway.serve(&self.doors, listeners)?;
        Ok(running.go()?)
    }

    /// Writes down what the gateway says, from now to the end, and does what people ask of the rules.
    pub(crate) fn listen(
        self,
        directory: &Path,
        auditor: Auditor,
        daemon: Option<Daemon>,
    ) -> anyhow::Result<Watched> {
        let record = Record::create(directory)?;
        let gateway = Arc::new(self.gateway);
        let counter = self.counter.map(|(rules, desk)| Counter::new(desk, rules, auditor));
        let ceiling_microcents = self.ceiling_microcents;
        let listener =
            Listener { gateway: Arc::clone(&gateway), record, counter, daemon, ceiling_microcents };
        let (told, heard) = sync_channel(1);
        let listener = std::thread::Builder::new()
            .name("gateway".to_owned())
            // Nobody may be there to hear it any more.
            .spawn(move || drop(told.send(listener.listen())))
            .context("starting the listener of the gateway")?;
        Ok(Watched { gateway, heard, listener: Some(listener) })
    }
}

impl Watched {
    /// Readable once the gateway is gone, whatever it said before.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.gateway.process()
    }

    /// The job is over: what went through, and what did not. A gateway that does not say its last word is ended.
    pub(crate) fn finish(self) -> anyhow::Result<Traffic> {
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

#[cfg(test)]
mod tests {
    //! What a job is given is written down for whoever wonders where it comes from.
    use super::*;

    #[test]
    fn the_document_has_every_variable_of_the_proxy_with_its_value() {
        let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md"))
            .replace("\\|", "|");
        for (name, value) in proxy_environment(&PROXY.ip().to_string(), PROXY.port()) {
            let row =
                document.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{name}`")));
            assert!(
                row.is_some_and(|row| row.contains(&format!(" | `{value}` | "))),
                "{name}={value}: {row:?}"
            );
        }
    }
}
