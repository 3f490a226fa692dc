//! What all doors of one job share. Zone: host.

use std::sync::{Arc, OnceLock};

use pond_policy::egress::{
    Denial, DenialCode, Destination, HostName, Nat64Prefix, Permit, Pinned, translated,
};
use pond_wire::gateway::{Door, doors};
use std::net::{IpAddr, Ipv4Addr};
use tokio::sync::watch;

use crate::aliases::Aliases;
use crate::broker::Broker;
use crate::dial::OwnAddresses;
use crate::git;
use crate::ledger::Ledger;
use crate::names::{Admitted, Names};
use crate::relay::Pool;
use crate::resolve::Resolver;
use crate::stance::Stance;
use crate::tunnels::Tunnels;

/// One job's gateway, as its doors see it.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) ledger: Ledger,
    pub(crate) rules: watch::Sender<Arc<Stance>>,
    pub(crate) tunnels: Arc<Tunnels>,
    pub(crate) names: Names,
    pub(crate) aliases: Aliases,
    pub(crate) own: OwnAddresses,
    pub(crate) resolver: Resolver,
    pub(crate) pool: Arc<Pool>,
    /// As the host was told; without it the site is asked.
    pub(crate) nat64: Option<Nat64Prefix>,
    /// Whom the job may ask with a credential that it does not have.
    pub(crate) git: git::Hosts,
    /// Absent when the order names no model.
    pub(crate) broker: OnceLock<Broker>,
}

impl Gateway {
    pub(crate) fn stance(&self) -> Arc<Stance> {
        Arc::clone(&self.rules.borrow())
    }

    /// What is set aside for model calls that have not ended, in micro-cents.
    pub(crate) fn set_aside(&self) -> u64 {
        self.broker.get().map_or(0, |broker| broker.standing().reserved.0)
    }

    /// The address a name has inside the job, if the job may know it. In the internet posture the name must exist as well,
    /// and lead somewhere the job may go: its address will be all that says whom a connection is for.
    pub(crate) async fn inside_address(&self, name: &HostName) -> Result<Ipv4Addr, Denial> {
        let stance = self.stance();
        let permit = stance.knows(name)?;
        match &*stance {
            Stance::BrokerOnly | Stance::Listed(_) | Stance::Ended => Ok(doors::FRONT),
            Stance::Internet(_) => {
                if self.names.admit(&permit)? == Admitted::First {
                    let told = self.ledger.looked_up(name).await;
                    told.map_err(|gone| {
                        Denial::at_door(DenialCode::DnsFailed, name.as_str(), gone.to_string())
                    })?;
                }
                self.pin(permit).await?;
                Ok(self.aliases.give(name))
            }
        }
    }

    /// Exactly one lookup, and a judgement of everything it found.
    pub(crate) async fn pin(&self, permit: Permit) -> Result<Pinned, Denial> {
        let addresses = self.resolver.lookup(&permit).await?;
        self.pin_to(permit, &addresses).await
    }

    /// Judges every address a name has. On a site that hides IPv4 addresses in IPv6 ones, it is those inside that count; when
    /// the site does not say, no IPv6 address is dialled.
    pub(crate) async fn pin_to(&self, permit: Permit, addresses: &[IpAddr]) -> Result<Pinned, Denial> {
        if let Some(told) = self.nat64 {
            return self.pin_behind(permit, addresses, &[told]);
        }
        if addresses.iter().all(IpAddr::is_ipv4) {
            return self.pin_behind(permit, addresses, &[]);
        }
        match self.resolver.nat64().await {
            Some(prefixes) => self.pin_behind(permit, addresses, &prefixes),
            None => self.pin_behind(permit, addresses, &[])?.over_ipv4(),
        }
    }

    /// This machine's own addresses are looked for where the packets would go.
    fn pin_behind(
        &self,
        permit: Permit,
        addresses: &[IpAddr],
        prefixes: &[Nat64Prefix],
    ) -> Result<Pinned, Denial> {
        let reached: Vec<IpAddr> = addresses.iter().map(|address| translated(*address, prefixes)).collect();
        let own = self.own.among(&reached).map_err(|_| {
            let target = format!("{}:{}", permit.host(), permit.port());
            Denial::at_door(DenialCode::DialFailed, &target, "this machine's addresses are not known")
        })?;
        permit.pin_behind_nat64(addresses, &own, prefixes)
    }

    /// A client left while its way was being opened. The name may have been looked up by then, so it is in the record.
    pub(crate) fn left(&self, door: Door, destination: &Destination) {
        let hint = "the client left before the connection stood; its name may have been looked up";
        self.refused(door, &Denial::at_door(DenialCode::ClientLeft, &destination.to_string(), hint));
    }

    pub(crate) fn refused(&self, door: Door, denial: &Denial) {
        self.ledger.refused(door, denial);
    }
}
