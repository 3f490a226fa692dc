//! From a destination a job names to a tunnel it may use: verdict, slot, one lookup, judged addresses, one dial, one record.
//! Zone: host. Invariant: the order of these steps is the order of the statements in `open`; none is skipped on any path.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use pond_policy::egress::{Basis, Denial, DenialCode, Destination, Pinned};
use pond_wire::gateway::{Approval, Close, Door, Tunnel};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::dial::{self, DialFault};
use crate::gateway::Gateway;
use crate::relay::{self, Meter};
use crate::stance::Stance;
use crate::tunnels::Slot;

/// A connected, recorded way to one destination.
#[derive(Debug)]
pub(crate) struct Passage {
    gateway: Arc<Gateway>,
    destination: Destination,
    approval: Approval,
    meter: Meter,
    upstream: TcpStream,
    rules: watch::Receiver<Arc<Stance>>,
    /// Given back when the passage ends.
    _slot: Slot,
}

impl Passage {
    pub(crate) async fn open(
        gateway: &Arc<Gateway>,
        door: Door,
        destination: &Destination,
    ) -> Result<Self, Denial> {
        // Subscribed first: rules that change while we dial are seen when the relay starts.
        let rules = gateway.rules.subscribe();
        let permit = gateway.stance().judge(destination)?;
        gateway.names.admit(&permit)?;
        let slot = claim(gateway, destination).await?;
        let pinned = gateway.pin(permit).await?;
        let dialled = dial::dial(&pinned).await;
        let (upstream, address) = dialled.map_err(|fault| unreachable(destination, fault))?;
        let refused = |_| unreachable(destination, DialFault::Refused);
        if dial::is_to_itself(&upstream, address).map_err(refused)? {
            let denial = Denial::self_address(destination.to_string(), address.ip());
            return Err(denial.despite(pinned.permit().basis()));
        }
        sockopt::set_tcp_nodelay(&upstream, true).map_err(|errno| refused(errno.into()))?;
        let approval = approval(gateway, door, &slot, &pinned, address);
        let gone = |_| unreachable(destination, DialFault::Refused);
        gateway.ledger.opened(&approval).await.map_err(gone)?;
        let (gateway, destination) = (Arc::clone(gateway), destination.clone());
        let meter = Meter::new(slot.tunnels());
        Ok(Self { gateway, destination, approval, meter, upstream, rules, _slot: slot })
    }

    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Resolves when the far side has something to say, or has left.
    pub(crate) async fn answers_first(&self) {
        if self.upstream.readable().await.is_err() {
            std::future::pending().await
        }
    }

    /// Carries bytes between `client` and the destination until the tunnel ends, and records its end.
    pub(crate) async fn carry(mut self, client: TcpStream, first: Vec<u8>) {
        let revoked = revoked(&mut self.rules, &self.destination);
        let close =
            relay::relay(&client, &self.upstream, first, &self.meter, &self.gateway.pool, revoked).await;
        // Both ends are free before the record is: a slow host must not hold sockets open.
        drop(client);
        self.end(close).await;
    }

    pub(crate) async fn end(self, close: Close) {
        let Self { gateway, approval, meter, upstream, _slot, .. } = self;
        drop(upstream);
        let relay::Moved { up, down } = meter.moved();
        let tunnel = Tunnel { approval, bytes_up: up, bytes_down: down, duration_ms: meter.age_ms(), close };
        // Without a host there is nobody to tell, and the control task is already ending this process.
        gateway.ledger.closed(tunnel).await.unwrap_or_default();
    }
}

/// The slot comes first: who waits for bytes has one.
async fn claim(gateway: &Gateway, destination: &Destination) -> Result<Slot, Denial> {
    let target = destination.to_string();
    let slot = gateway.tunnels.claim().ok_or_else(|| {
        let hint = format!("at most {} at a time", gateway.tunnels.caps().tunnels);
        Denial::at_door(DenialCode::TooManyTunnels, &target, hint)
    })?;
    if gateway.tunnels.room().await == 0 {
        let hint = "this job has moved all the bytes it may";
        return Err(Denial::at_door(DenialCode::BytesSpent, &target, hint));
    }
    Ok(slot)
}

fn unreachable(destination: &Destination, fault: DialFault) -> Denial {
    let code = match fault {
        DialFault::Refused => DenialCode::DialFailed,
        DialFault::Timeout => DenialCode::DialTimeout,
    };
    Denial::at_door(code, &destination.to_string(), fault.to_string())
}

fn approval(gateway: &Gateway, door: Door, slot: &Slot, pinned: &Pinned, address: SocketAddr) -> Approval {
    let permit = pinned.permit();
    let rule = match permit.basis() {
        Basis::Rule(rule) => Some(rule.to_string()),
        Basis::Internet | Basis::Model => None,
    };
    Approval {
        job: gateway.ledger.job().to_owned(),
        door,
        tunnel: slot.number(),
        host: permit.host().to_string(),
        port: permit.port().get(),
        rule,
        address: address.ip(),
    }
}

/// Resolves when the rules no longer cover the destination.
async fn revoked(rules: &mut watch::Receiver<Arc<Stance>>, destination: &Destination) -> Close {
    while rules.changed().await.is_ok() {
        let stance = Arc::clone(&rules.borrow_and_update());
        if stance.judge(destination).is_err() {
            return match *stance {
                Stance::Ended => Close::JobEnded,
                Stance::Listed(_) | Stance::Internet(_) => Close::RuleRemoved,
            };
        }
    }
    std::future::pending().await
}

/// Every byte goes at once, and a peer that vanished is noticed. What a listener accepts is tuned as the listener is.
pub(crate) fn tune(listener: impl AsFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(relay::keep_alive(listener)?)
}
