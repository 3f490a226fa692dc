//! The boundary between the host process that runs a job and that job's gateway.
//!
//! An `Order` is data and carries no secret: beside it travel descriptors, the journal's first, then a key per model and one per host of
//! git, in the order's own order.
//! The gateway answers with `Event`s, JSON objects on lines of their own, one or more per packet. Each side refuses what it does not wholly understand.

pub mod broker;
mod event;
pub mod journal;

pub use event::{
    Approval, Close, Command, Door, Doors, Event, HostTotals, Lookup, ModelCall, ModelOutcome, ModelTotals,
    Refusal, Refused, Totals, Tunnel,
};

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// An order larger than this is refused before it is decoded.
pub const MAX_ORDER_BYTES: u64 = 1 << 20;
/// No event is larger, and no packet of several is.
pub const MAX_EVENT_BYTES: usize = 16 << 10;

/// The events of one packet, in their order.
pub fn events(packet: &[u8]) -> impl Iterator<Item = Result<Event, serde_json::Error>> {
    packet.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(serde_json::from_slice)
}

/// Where the gateway's doors stand inside the job's network namespace.
pub mod doors {
    use std::net::{Ipv4Addr, SocketAddrV4};

    /// The address every listed name resolves to inside.
    pub const FRONT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);
    pub const BROKER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8377);
    pub const GIT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8378);
    pub const DNS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53);
    pub const TLS: SocketAddrV4 = SocketAddrV4::new(FRONT, 443);
    /// Where every connection to an address outside loopback ends in the internet posture. No job may listen on a low port.
    pub const ANY: SocketAddrV4 = SocketAddrV4::new(FRONT, 1);
    /// The first of the addresses that stand for names in the internet posture, out of 198.18.0.0/15, which nobody has.
    pub const FIRST_ALIAS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The job this gateway serves, for its records.
    pub job: String,
    pub reach: Reach,
    /// Who is asked for the address of a listed name; empty: the machine's own resolvers.
    pub resolvers: Vec<SocketAddr>,
    /// The prefix under which this machine's resolver hides IPv4 addresses, as `prefix/length`.
    pub nat64: Option<String>,
    pub caps: Caps,
    /// The models the job may talk to; none: no broker.
    pub broker: Option<broker::Broker>,
    /// Hosts that git may be told a credential of, each with a key after those of the models.
    pub git: Vec<GitHost>,
    /// Who the gateway becomes when it is started as root; without it a gateway started as root refuses to serve.
    pub identity: Option<Identity>,
}

/// A host that a credential of git's is for. The secret is not here: it arrives as a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitHost {
    pub host: String,
    /// Whose the secret is.
    pub username: String,
    /// Certificates to trust instead of the built-in authorities.
    pub ca_pem: Option<String>,
}

/// An unprivileged user and group that no person and no job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
}

/// What the job may reach besides the broker; rules in the spelling of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Reach {
    BrokerOnly,
    Allowlist { allow: Vec<String>, deny: Vec<String> },
    Internet { deny: Vec<String> },
}

/// What one job may take of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    pub tunnels: u32,
    pub tunnel_bytes: u64,
    pub total_bytes: u64,
    /// How many of them the job has to begin with, where somebody lends it more; all of them where nobody does.
    pub lent_bytes: Option<u64>,
    pub idle_seconds: u32,
    pub lifetime_seconds: u32,
}
