//! The first minute of a gateway's life: its socket, its order, its listeners. Zone: host; nothing here comes from the job.
//! Invariant: an order or a set of doors that is not wholly understood ends the process.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use pond_policy::egress::{CidrFault, HostFault, Nat64Prefix};
use pond_wire::gateway::journal::JOURNAL_BYTES;
use pond_wire::gateway::{Command, Door, Doors, MAX_ORDER_BYTES, Order};
use rustix::fs::SealFlags;
use thiserror::Error;

use crate::broker::{Key, KeyFault};
use crate::resolve::{self, Resolver};
use crate::stance::Stance;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const MAX_RESOLV_CONF: u64 = 64 << 10;
const MAX_DOORS_BYTES: usize = 4 << 10;

/// A step of the start that failed.
#[derive(Debug, Error)]
pub(crate) enum StartFault {
    #[error("this program is started by pond, not by hand")]
    NoSocket(#[source] io::Error),
    #[error("dropping what was inherited")]
    Scrub(#[source] io::Error),
    #[error("receiving the order")]
    Receive(#[source] io::Error),
    #[error("the host went away before the doors were open")]
    HostGone,
    #[error("the packet carries no order")]
    NoOrder,
    #[error("the packet carries no journal")]
    NoJournal,
    #[error("the journal is not one that keeps its size")]
    Journal(#[source] io::Error),
    #[error("reading the order")]
    ReadOrder(#[source] io::Error),
    #[error("the order is larger than {MAX_ORDER_BYTES} bytes")]
    OrderTooLarge,
    #[error("the order is not understood")]
    Order(#[source] serde_json::Error),
    #[error("the order names {places} models and hosts of git, and carries {keys} keys")]
    KeyCount { places: usize, keys: usize },
    #[error("reading a key")]
    Key(#[source] KeyFault),
    #[error("the order holds a bad rule")]
    Rule(#[source] HostFault),
    #[error("the order holds a bad NAT64 prefix")]
    Nat64(#[source] CidrFault),
    #[error("preparing the resolver")]
    Resolver(#[source] hickory_resolver::net::NetError),
    #[error("the doors are not understood")]
    Doors(#[source] serde_json::Error),
    #[error("the packet says {named} doors and carries {carried} descriptors")]
    DoorCount { named: usize, carried: usize },
    #[error("the door {0:?} is given twice")]
    DoorTwice(Door),
}

/// An order, read and understood.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) order: Order,
    pub(crate) stance: Stance,
    pub(crate) nat64: Option<Nat64Prefix>,
    pub(crate) resolver: Resolver,
    pub(crate) journal: File,
    /// One per model of the broker.
    pub(crate) keys: Vec<Key>,
    /// One per host of git.
    pub(crate) git_keys: Vec<Key>,
}

/// Takes the control socket, which arrives as standard input, and drops every other inherited descriptor.
pub(crate) fn take_socket() -> Result<OwnedFd, StartFault> {
    let stdin = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(stdin).map_err(|errno| StartFault::NoSocket(errno.into()))?;
    pond_sys::fd::close_from(3).map_err(StartFault::Scrub)?;
    let scrub = |errno: rustix::io::Errno| StartFault::Scrub(errno.into());
    let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(scrub)?;
    rustix::stdio::dup2_stdin(rustix::stdio::stderr()).map_err(scrub)?;
    Ok(socket)
}

/// Waits for the order and reads everything the gateway will not be able to read later.
pub(crate) fn receive_order(socket: impl AsFd) -> Result<Start, StartFault> {
    let mut packet = [0; 64];
    let (length, descriptors) =
        pond_sys::socket::receive(socket, &mut packet).map_err(StartFault::Receive)?;
    if length == 0 && descriptors.is_empty() {
        return Err(StartFault::HostGone);
    }
    let mut descriptors = descriptors.into_iter();
    let order = read_order(descriptors.next().ok_or(StartFault::NoOrder)?)?;
    let journal = take_journal(descriptors.next().ok_or(StartFault::NoJournal)?)?;
    let stance = Stance::new(&order.reach).map_err(StartFault::Rule)?;
    let nat64 = order.nat64.as_deref().map(Nat64Prefix::parse).transpose().map_err(StartFault::Nat64)?;
    // In a static program the resolver's library finds its randomness through a file, so it must be made before there are
    // none.
    let resolver = Resolver::new(&name_servers(&order)).map_err(StartFault::Resolver)?;
    let keys = descriptors.map(|key| Key::read(&mut File::from(key))).collect::<Result<Vec<Key>, _>>();
    let mut keys = keys.map_err(StartFault::Key)?;
    let models = order.broker.as_ref().map_or(0, |broker| broker.models.len());
    let places = models + order.git.len();
    if places != keys.len() {
        return Err(StartFault::KeyCount { places, keys: keys.len() });
    }
    let git_keys = keys.split_off(models);
    Ok(Start { order, stance, nat64, resolver, journal, keys, git_keys })
}

/// The journal as it was agreed: its size is the host's to choose, and nobody's to change.
fn take_journal(descriptor: OwnedFd) -> Result<File, StartFault> {
    let fault = |errno: rustix::io::Errno| StartFault::Journal(errno.into());
    let seals = rustix::fs::fcntl_get_seals(&descriptor).map_err(fault)?;
    let size = rustix::fs::fstat(&descriptor).map_err(fault)?.st_size;
    let fits = usize::try_from(size).is_ok_and(|size| size == JOURNAL_BYTES);
    if !fits || !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
        return Err(StartFault::Journal(io::ErrorKind::InvalidInput.into()));
    }
    Ok(File::from(descriptor))
}

fn read_order(descriptor: OwnedFd) -> Result<Order, StartFault> {
    let mut file = File::from(descriptor);
    let mut text = Vec::new();
    file.rewind().map_err(StartFault::ReadOrder)?;
    file.take(MAX_ORDER_BYTES + 1).read_to_end(&mut text).map_err(StartFault::ReadOrder)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_ORDER_BYTES) {
        return Err(StartFault::OrderTooLarge);
    }
    serde_json::from_slice(&text).map_err(StartFault::Order)
}

/// The order's name servers, or this machine's. One without any still runs jobs: every lookup fails, and says so.
fn name_servers(order: &Order) -> Vec<SocketAddr> {
    if !order.resolvers.is_empty() {
        return order.resolvers.clone();
    }
    let mut text = String::new();
    let read = File::open(RESOLV_CONF).and_then(|file| file.take(MAX_RESOLV_CONF).read_to_string(&mut text));
    read.map(|_| resolve::name_servers(&text)).unwrap_or_default()
}

/// Waits for the listeners: each descriptor with the door it is.
pub(crate) fn receive_doors(socket: impl AsFd) -> Result<Vec<(Door, OwnedFd)>, StartFault> {
    let mut packet = [0; MAX_DOORS_BYTES];
    let (length, descriptors) =
        pond_sys::socket::receive(socket, &mut packet).map_err(StartFault::Receive)?;
    if length == 0 && descriptors.is_empty() {
        return Err(StartFault::HostGone);
    }
    let text = packet.get(..length).unwrap_or_default();
    if serde_json::from_slice::<Command>(text).is_ok() {
        // The job is over before it had doors.
        return Err(StartFault::HostGone);
    }
    let Doors { doors } = serde_json::from_slice(text).map_err(StartFault::Doors)?;
    if doors.len() != descriptors.len() {
        return Err(StartFault::DoorCount { named: doors.len(), carried: descriptors.len() });
    }
    let mut seen = HashSet::new();
    match doors.iter().find(|door| **door != Door::Tls && !seen.insert(**door)) {
        Some(door) => Err(StartFault::DoorTwice(*door)),
        None => Ok(doors.into_iter().zip(descriptors).collect()),
    }
}
