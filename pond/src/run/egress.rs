//! The way out of one run: which doors its posture gives it, the gateway behind them, and what went through.
//!
//! Nothing of the job runs before the gateway serves. What the gateway says is recorded as it comes, bounded, and told in
//! the summary; it is the gateway's word and never the job's.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use pond_policy::egress::HostRule;
use pond_policy::profile::Network;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::native::Running;
use pond_wire::gateway::{Caps, Event, Identity, Order, Reach};
use pond_wire::jail::Door;
use pond_worker::gateway::Gateway;

use super::traffic::Traffic;

/// Where a run's verdicts are kept, one JSON object per line.
const RECORD: &str = "egress.jsonl";
/// More than any honest job fills; what comes after is only counted.
const RECORD_BYTES: usize = 8 << 20;
const HTTPS: u16 = 443;
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

/// A gateway at work, and who listens to it.
#[derive(Debug)]
pub(super) struct Watched {
    gateway: Arc<Gateway>,
    listener: JoinHandle<anyhow::Result<Traffic>>,
}

/// Starts the gateway the policy asks for; nothing, where it lets nothing out.
pub(super) fn start(
    policy: &SandboxPolicy,
    job: &str,
    resolvers: Vec<SocketAddr>,
    executable: &Path,
) -> anyhow::Result<Option<WayOut>> {
    let (reach, doors) = match policy.posture().network {
        Network::Sealed | Network::BrokerOnly => return Ok(None),
        Network::Allowlist => {
            let allow = policy.allow().iter().map(ToString::to_string).collect();
            (Reach::Allowlist { allow, deny: Vec::new() }, doors(policy.allow()))
        }
        Network::Internet | Network::Open => bail!("the native backend does not offer this network"),
    };
    let identity = rustix::process::geteuid().is_root().then(|| {
        let own = FIRST_ID + std::process::id();
        Identity { uid: own, gid: own }
    });
    let order =
        Order { job: job.to_owned(), reach, resolvers, nat64: None, caps: CAPS, broker: None, identity };
    Ok(Some(WayOut { gateway: Gateway::start(executable, &order, &[])?, doors }))
}

/// One front door for each port a rule names; clients that speak to a proxy need only the first.
fn doors(allow: &[HostRule]) -> Vec<Door> {
    let mut ports: Vec<u16> = allow.iter().filter_map(|rule| Some(rule.port()?.get())).collect();
    ports.push(HTTPS);
    ports.sort_unstable();
    ports.dedup();
    let fronts = ports.into_iter().map(|port| Door::Front { port });
    [Door::Proxy, Door::Dns].into_iter().chain(fronts).collect()
}

impl WayOut {
    /// Takes the doors over as the sandbox makes them, and lets the job begin once they are served.
    pub(super) fn open(&self, running: &mut Running) -> anyhow::Result<()> {
        let listeners = loop {
            if let Some(listeners) = running.doors.take() {
                break listeners;
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
        let heard = Arc::clone(&gateway);
        let listener = std::thread::Builder::new()
            .name("gateway".to_owned())
            .spawn(move || listen(&heard, record))
            .context("starting the listener of the gateway")?;
        Ok(Watched { gateway, listener })
    }
}

impl Watched {
    /// The job is over: what went through, and what did not.
    pub(super) fn finish(self) -> anyhow::Result<Traffic> {
        self.gateway.finish()?;
        match self.listener.join() {
            Ok(traffic) => traffic,
            Err(_panicked) => bail!("the listener of the gateway ended badly"),
        }
    }
}

/// Writes down every event until the gateway has said its last word.
fn listen(gateway: &Gateway, mut record: File) -> anyhow::Result<Traffic> {
    let mut traffic = Traffic::default();
    let mut room = RECORD_BYTES;
    while let Some(event) = gateway.listen()? {
        let line = serde_json::to_vec(&event)?;
        match room.checked_sub(line.len() + 1) {
            Some(left) => {
                record.write_all(&line)?;
                record.write_all(b"\n")?;
                room = left;
            }
            None => traffic.unwritten += 1,
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
