//! From a permitted name to its addresses: one question to the site's resolvers, asked once for all who wait for it. Zone:
//! host; the answers are whatever the name's owner says.
//!
//! Invariants: a lookup needs a permit, so no name is asked for before its verdict; names are absolute, no search list and
//! no hosts file apply; failure is a refusal and is not remembered; the set of answers is never cut.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::rr::{RData, Record, RecordType};
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use pond_policy::egress::{Denial, HostName, Nat64Prefix, Permit};
use tokio::sync::{OnceCell, Semaphore};

const TOTAL: Duration = Duration::from_secs(5);
/// Two tries fit into the total, so that a resolver that drops one kind of question still answers the other.
const ONE_TRY: Duration = Duration::from_secs(2);
const TRIES: usize = 2;
/// Names looked up at the same time; further ones wait.
const PARALLEL: usize = 32;
/// A longer chain of aliases is a mistake or a game.
const MAX_ALIASES: usize = 16;
const MAX_CACHED: usize = 1024;
const LONGEST_CACHED: Duration = Duration::from_secs(300);
/// The name by which a site shows where it hides IPv4 addresses (RFC 7050). Nobody owns it, so it tells nobody anything.
const NAT64_NAME: &str = "ipv4only.arpa.";
/// How long a site that did not answer is not asked again.
const NAT64_PAUSE: Duration = Duration::from_secs(30);

/// Asks the site's name servers.
pub(crate) struct Resolver {
    servers: TokioResolver,
    gate: Semaphore,
    cache: Mutex<HashMap<HostName, Arc<OnceCell<Answer>>>>,
    nat64: tokio::sync::Mutex<Nat64>,
}

/// Where this site hides IPv4 addresses, as far as it said.
#[derive(Debug)]
enum Nat64 {
    NotAsked,
    NoAnswer(Instant),
    Shown(Arc<[Nat64Prefix]>),
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Answer {
    found: Found,
    valid_until: Instant,
}

#[derive(Debug, Clone)]
enum Found {
    Addresses(Arc<[IpAddr]>),
    NoSuchName,
    /// No server answered in time, or what it said was of no use.
    NoAnswer,
}

impl Resolver {
    pub(crate) fn new(name_servers: &[SocketAddr]) -> Result<Self, NetError> {
        let servers = name_servers.iter().map(|address| name_server(*address)).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let servers = Hickory::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options())
            .build()?;
        let nat64 = tokio::sync::Mutex::new(Nat64::NotAsked);
        Ok(Self { servers, gate: Semaphore::new(PARALLEL), cache: Mutex::default(), nat64 })
    }

    /// The prefixes under which this site hides IPv4 addresses, asked for once, by whoever first meets an IPv6 address.
    /// `None`: it did not say.
    pub(crate) async fn nat64(&self) -> Option<Arc<[Nat64Prefix]>> {
        let mut known = self.nat64.lock().await;
        match &*known {
            Nat64::Shown(prefixes) => return Some(Arc::clone(prefixes)),
            Nat64::NoAnswer(when) if when.elapsed() < NAT64_PAUSE => return None,
            Nat64::NoAnswer(_) | Nat64::NotAsked => {}
        }
        let asked = tokio::time::timeout(ONE_TRY, self.servers.ipv6_lookup(NAT64_NAME)).await;
        let prefixes: Arc<[Nat64Prefix]> = match asked {
            Ok(Ok(found)) => found.answers().iter().filter_map(shown).collect(),
            Ok(Err(fault)) if fault.is_no_records_found() => Arc::from([]),
            Ok(Err(_)) | Err(_) => {
                *known = Nat64::NoAnswer(Instant::now());
                return None;
            }
        };
        *known = Nat64::Shown(Arc::clone(&prefixes));
        Some(prefixes)
    }

    /// Every address of the permitted host.
    pub(crate) async fn lookup(&self, permit: &Permit) -> Result<Arc<[IpAddr]>, Denial> {
        let host = permit.host();
        let cell = self.cell(host);
        let answer = cell.get_or_init(|| self.ask(host)).await;
        let asked = format_args!("{host}:{}", permit.port());
        let denial = match &answer.found {
            Found::Addresses(addresses) => return Ok(Arc::clone(addresses)),
            Found::NoSuchName => Denial::dns_failed(&asked),
            Found::NoAnswer => Denial::dns_silent(&asked),
        };
        self.forget(host, &cell);
        Err(denial)
    }

    /// The place where the answer is or will be; all who ask for one name meet here.
    fn cell(&self, host: &HostName) -> Arc<OnceCell<Answer>> {
        let now = Instant::now();
        let stale = |cell: &OnceCell<Answer>| cell.get().is_some_and(|answer| answer.valid_until <= now);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cache.get(host).filter(|cell| !stale(cell)) {
            return Arc::clone(cell);
        }
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, cell| !stale(cell));
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        let cell = Arc::new(OnceCell::new());
        cache.insert(host.clone(), Arc::clone(&cell));
        cell
    }

    fn forget(&self, host: &HostName, failed: &Arc<OnceCell<Answer>>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.get(host).is_some_and(|cell| Arc::ptr_eq(cell, failed)) {
            cache.remove(host);
        }
    }

    async fn ask(&self, host: &HostName) -> Answer {
        let question = async {
            let _place = self.gate.acquire().await.ok()?;
            // The dot makes the name absolute.
            Some(self.servers.lookup_ip(format!("{host}.")).await)
        };
        let now = Instant::now();
        let nothing = |found| Answer { found, valid_until: now };
        match tokio::time::timeout(TOTAL, question).await.ok().flatten() {
            Some(Ok(found)) if aliases(&found) <= MAX_ALIASES => Answer {
                found: Found::Addresses(found.iter().collect()),
                valid_until: found.valid_until().min(now + LONGEST_CACHED),
            },
            Some(Err(fault)) if fault.is_no_records_found() => nothing(Found::NoSuchName),
            Some(Ok(_) | Err(_)) | None => nothing(Found::NoAnswer),
        }
    }
}

fn shown(record: &Record) -> Option<Nat64Prefix> {
    if let RData::AAAA(address) = &record.data { Nat64Prefix::shown_by(address.0) } else { None }
}

/// How many names stood between the one asked for and its addresses. Each family brings its own copy of the chain.
fn aliases(found: &LookupIp) -> usize {
    let records = found.as_lookup().answers().iter();
    let owners: HashSet<_> = records
        .filter(|record| record.record_type() == RecordType::CNAME)
        .map(|record| &record.name)
        .collect();
    owners.len()
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = ONE_TRY;
    options.attempts = TRIES;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Never;
    // One cache, and it is ours: the permit and its answers stay together.
    options.cache_size = 0;
    options
}

/// The name servers in the text of a `resolv.conf`; its search list and options mean nothing here.
pub(crate) fn name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then_some(())?;
        Some(SocketAddr::new(words.next()?.parse().ok()?, 53))
    };
    resolv_conf.lines().filter_map(server).take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c67_only_name_servers_are_read_from_resolv_conf() {
        let text = "search evil.com\noptions ndots:5\nnameserver 192.0.2.1\n# nameserver 192.0.2.2\nnameserver 2001:db8::1\n";
        let expected: Vec<SocketAddr> =
            ["192.0.2.1:53", "[2001:db8::1]:53"].map(|text| text.parse().unwrap()).into();
        assert_eq!(name_servers(text), expected);
        assert_eq!(name_servers("nameserver not-an-address\nnameserver\n"), []);
    }
}
