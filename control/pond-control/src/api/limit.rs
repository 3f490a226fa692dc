//! How often: a bucket of tokens per caller that fills up with time, in memory that is bounded whoever calls.
//!
//! Who shows no good token counts by address. When there are more callers than the table holds, those that have been quiet the
//! longest are forgotten, and if nobody was quiet the newcomers share one bucket.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Actor, TokenId};

/// Callers that are told apart.
const MOST_CALLERS: usize = 4096;

/// From where a request came, as whoever accepted the connection saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// So many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Calls of one token.
    pub token: Rate,
    /// Calls of one address, whatever it shows.
    pub address: Rate,
    /// Calls of one address that showed no good token.
    pub failed: Rate,
    /// Entries in the audit log about one caller's refused calls.
    pub audit: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            token: Rate { per_second: 100, burst: 400 },
            address: Rate { per_second: 400, burst: 1600 },
            failed: Rate { per_second: 5, burst: 50 },
            audit: Rate { per_second: 1, burst: 50 },
        }
    }
}

/// Who spends, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    Token(&'a TokenId),
    Address(Peer),
    Failed(Peer),
    Audit(&'a Actor),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Token(TokenId),
    Address(IpAddr),
    Failed(IpAddr),
    Audit(String),
    /// Whoever there was no room for.
    Rest,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    /// In thousandths of a call.
    level: u64,
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Limiter {
    rates: Rates,
    buckets: Mutex<HashMap<Slot, Bucket>>,
}

impl Limiter {
    pub(super) fn new(rates: Rates) -> Self {
        Self { rates, buckets: Mutex::default() }
    }

    /// Takes one call, or says in how many seconds there is one again.
    pub(super) fn spend(&self, key: Key<'_>) -> Result<(), u64> {
        self.spend_at(key, Instant::now())
    }

    fn spend_at(&self, key: Key<'_>, now: Instant) -> Result<(), u64> {
        let (slot, rate) = self.slot(key);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(&slot) && buckets.len() >= MOST_CALLERS {
            buckets.retain(|_, bucket| !bucket.filled(now).is_full());
        }
        let slot =
            if buckets.len() < MOST_CALLERS || buckets.contains_key(&slot) { slot } else { Slot::Rest };
        let bucket = buckets.entry(slot).or_insert(Bucket::full(rate, now));
        *bucket = bucket.filled(now);
        if bucket.level < 1000 {
            let missing = 1000 - bucket.level;
            return Err(missing.div_ceil(u64::from(bucket.rate.per_second.max(1)) * 1000).max(1));
        }
        bucket.level -= 1000;
        Ok(())
    }

    fn slot(&self, key: Key<'_>) -> (Slot, Rate) {
        match key {
            Key::Token(id) => (Slot::Token(id.clone()), self.rates.token),
            Key::Address(peer) => (Slot::Address(network(peer.0)), self.rates.address),
            Key::Failed(peer) => (Slot::Failed(network(peer.0)), self.rates.failed),
            Key::Audit(actor) => (Slot::Audit(actor.to_string()), self.rates.audit),
        }
    }
}

impl Bucket {
    fn full(rate: Rate, at: Instant) -> Self {
        Self { rate, level: u64::from(rate.burst) * 1000, at }
    }

    fn filled(self, now: Instant) -> Self {
        let passed =
            u64::try_from(now.saturating_duration_since(self.at).min(Duration::from_hours(1)).as_millis());
        let gained = passed.unwrap_or(u64::MAX).saturating_mul(u64::from(self.rate.per_second));
        let level = self.level.saturating_add(gained).min(u64::from(self.rate.burst) * 1000);
        Self { level, at: now.max(self.at), ..self }
    }

    fn is_full(self) -> bool {
        self.level == u64::from(self.rate.burst) * 1000
    }
}

/// One caller has a whole /64 of version 6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(four) => IpAddr::V4(four),
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn limiter() -> Limiter {
        let rate = Rate { per_second: 2, burst: 3 };
        Limiter::new(Rates { token: rate, address: rate, failed: rate, audit: rate })
    }

    fn peer(number: u32) -> Peer {
        Peer(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[test]
    fn a_burst_is_spent_and_comes_back_with_time() {
        let (limiter, start) = (limiter(), Instant::now());
        let spend = |millis| limiter.spend_at(Key::Address(peer(1)), start + Duration::from_millis(millis));
        assert_eq!([spend(0), spend(0), spend(0), spend(0)], [Ok(()), Ok(()), Ok(()), Err(1)]);
        assert_eq!([spend(499), spend(500), spend(500)], [Err(1), Ok(()), Err(1)]);
        assert_eq!(limiter.spend_at(Key::Address(peer(2)), start), Ok(()), "others are not concerned");
        assert_eq!(limiter.spend_at(Key::Failed(peer(1)), start), Ok(()), "each thing has its own");
    }

    #[test]
    fn any_number_of_callers_fits_into_bounded_memory() {
        let (limiter, start) = (limiter(), Instant::now());
        let callers = u32::try_from(MOST_CALLERS).unwrap();
        for number in 0..callers {
            limiter.spend_at(Key::Address(peer(number)), start).unwrap();
        }
        let newcomers: Vec<_> =
            (0..4).map(|number| limiter.spend_at(Key::Address(peer(callers + number)), start)).collect();
        assert_eq!(newcomers, [Ok(()), Ok(()), Ok(()), Err(1)], "they share a bucket");
        assert_eq!(limiter.buckets.lock().unwrap().len(), MOST_CALLERS + 1);
        let later = start + Duration::from_secs(60);
        limiter.spend_at(Key::Address(peer(callers + 9)), later).unwrap();
        assert_eq!(limiter.buckets.lock().unwrap().len(), 1, "who was quiet is forgotten");
    }

    #[test]
    fn one_network_of_version_six_is_one_caller() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }
}
