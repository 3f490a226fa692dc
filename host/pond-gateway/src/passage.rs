//! From a destination a job names to a tunnel it may use: verdict, slot, one lookup, judged addresses, one dial, one record.
//! Zone: host. Invariant: the order of these steps is the order of the statements in `open`; none is skipped on any path.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;

use pond_policy::egress::{Basis, Denial, DenialCode, Destination, Pinned};
use pond_wire::gateway::{Approval, Caps, Close, Door, Tunnel};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::dial::{self, DialFault};
use crate::gateway::Gateway;
use crate::relay::{self, Counted, Meter};
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

    /// Does `work` for as long as the rules cover the destination.
    pub(crate) async fn while_covered<T, F>(&self, work: Pin<&mut F>) -> Result<T, Revoked>
    where
        F: Future<Output = T>,
    {
        let mut rules = self.rules.clone();
        tokio::select! {
            biased;
            revoked = revoked(&mut rules, &self.destination) => Err(revoked),
            done = work => Ok(done),
        }
    }

    /// The far side, for who speaks with it in the job's place.
    pub(crate) fn far_side(&self) -> Counted<'_> {
        Counted::new(&self.upstream, &self.meter)
    }

    /// Records the end of what somebody said in the job's place, or the cap that it met.
    pub(crate) async fn settle(self, close: Close) {
        let close = self.meter.room_now().err().unwrap_or(close);
        if let Some(denial) = over_cap(close, self.gateway.tunnels.caps(), &self.destination) {
            self.gateway.refused(self.approval.door, &denial);
        }
        self.end(close).await;
    }

    /// Carries bytes between `client` and the destination until the tunnel ends, and records its end.
    pub(crate) async fn carry(self, client: TcpStream, first: Vec<u8>) {
        let ended = {
            let relayed = relay::relay(&client, &self.upstream, first, &self.meter, &self.gateway.pool);
            self.while_covered(pin!(relayed)).await
        };
        // Both ends are free before the record is: a slow host must not hold sockets open.
        drop(client);
        match ended {
            Ok(close) => {
                if let Some(denial) = over_cap(close, self.gateway.tunnels.caps(), &self.destination) {
                    self.gateway.refused(self.approval.door, &denial);
                }
                self.end(close).await;
            }
            Err(revoked) => self.cut(revoked).await,
        }
    }

    /// Ends a tunnel that the rules no longer cover; what they say now is in the record, as for one that was never opened.
    pub(crate) async fn cut(self, revoked: Revoked) {
        if let Revoked::Denied(denial) = &revoked {
            self.gateway.refused(self.approval.door, denial);
        }
        self.end(revoked.close()).await;
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
    let slot = gateway.tunnels.claim().ok_or_else(|| {
        let hint = format!("at most {} at a time", gateway.tunnels.caps().tunnels);
        Denial::at_door(DenialCode::TooManyTunnels, &destination.to_string(), hint)
    })?;
    if gateway.tunnels.room().await == 0 {
        let hint = "this job has moved all the bytes it may";
        return Err(Denial::at_door(DenialCode::BytesSpent, &destination.to_string(), hint));
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

/// Why a tunnel that was open may not go on.
#[derive(Debug)]
pub(crate) enum Revoked {
    JobEnded,
    Denied(Denial),
}

impl Revoked {
    fn close(&self) -> Close {
        match self {
            Self::JobEnded => Close::JobEnded,
            Self::Denied(_) => Close::RuleRemoved,
        }
    }
}

/// Resolves when the rules no longer cover the destination.
async fn revoked(rules: &mut watch::Receiver<Arc<Stance>>, destination: &Destination) -> Revoked {
    while rules.changed().await.is_ok() {
        let stance = Arc::clone(&rules.borrow_and_update());
        if let Err(denial) = stance.judge(destination) {
            return match *stance {
                Stance::Ended => Revoked::JobEnded,
                Stance::BrokerOnly | Stance::Listed(_) | Stance::Internet(_) => Revoked::Denied(denial),
            };
        }
    }
    std::future::pending().await
}

/// The refusal of whatever a tunnel would have carried beyond a cap of the operator's, if it ended at one.
fn over_cap(close: Close, caps: &Caps, destination: &Destination) -> Option<Denial> {
    let (code, hint) = match close {
        Close::TunnelBytes => {
            (DenialCode::TunnelBytes, format!("a connection moves at most {} bytes", caps.tunnel_bytes))
        }
        Close::TotalBytes => (DenialCode::BytesSpent, "this job has moved all the bytes it may".to_owned()),
        Close::Lifetime => {
            (DenialCode::TunnelLifetime, format!("a connection lasts at most {} s", caps.lifetime_seconds))
        }
        // A quiet one has lost nothing: clients keep connections for later, and open others.
        Close::Idle
        | Close::Finished
        | Close::ClientReset
        | Close::UpstreamReset
        | Close::Refused
        | Close::RuleRemoved
        | Close::JobEnded => return None,
    };
    Some(Denial::at_door(code, &destination.to_string(), hint))
}

/// Every byte goes at once, and a peer that vanished is noticed. What a listener accepts is tuned as the listener is.
pub(crate) fn tune(listener: impl AsFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(relay::keep_alive(listener)?)
}
