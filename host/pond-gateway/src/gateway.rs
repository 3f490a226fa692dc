//! What all doors of one job share. Zone: host.

use std::sync::{Arc, OnceLock};

use pond_policy::egress::{Denial, DenialCode, Destination, HostName, Nat64Prefix};
use pond_wire::gateway::{Door, doors};
use std::net::Ipv4Addr;
use tokio::sync::watch;

use crate::broker::Broker;
use crate::ledger::Ledger;
use crate::names::Names;
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
    pub(crate) resolver: Resolver,
    pub(crate) pool: Arc<Pool>,
    pub(crate) nat64: Option<Nat64Prefix>,
    /// Absent when the order names no model.
    pub(crate) broker: OnceLock<Broker>,
}

impl Gateway {
    pub(crate) fn stance(&self) -> Arc<Stance> {
        Arc::clone(&self.rules.borrow())
    }

    /// The address a name has inside the job, if the job may know it.
    pub(crate) fn inside_address(&self, name: &HostName) -> Result<Ipv4Addr, Denial> {
        self.stance().knows(name).map(|()| doors::FRONT)
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
