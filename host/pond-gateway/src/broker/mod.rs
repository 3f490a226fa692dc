//! The job's only door to a model: a reverse proxy that knows each API well enough to judge a request, hold it under a
//! ceiling and meter its answer, and that puts the real key where the client's worthless one was.
//!
//! Trust zone: the client is hostile, the upstream may be broken. Invariants: no header, query or body of the client
//! reaches the upstream unless a rule names it; the key is in no answer, record, error or panic; money is reserved
//! before a request is sent and settled after, whatever ends it.

mod admit;
mod count;
mod denied;
mod headers;
mod hide;
mod inspect;
mod json;
mod key;
mod ledger;
mod lender;
mod media;
pub mod meter;
mod pace;
mod record;
mod relay;
mod route;
mod rules;
mod scrub;
mod serve;
mod served;
mod spelling;
mod strict;
mod upstream;

use std::sync::Arc;

use pond_policy::model::Microcents;
use pond_wire::gateway::broker as wire;
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use inspect::{InspectFault, Inspected, LimitField, OlderLimit, OutputLimit, inspect};
pub use key::{Key, KeyFault};
pub use ledger::{Exhausted, Ledger, Reservation, Standing};
pub use lender::{Ask, Short};
pub use record::{Outcome, Record, Report};
pub(crate) use relay::is_encoded;
pub use route::{Call, Route, RouteFault, route};
pub(crate) use scrub::{RUN, Scrubber};
pub use served::ModelFault;
pub(crate) use served::tls;
pub(crate) use strict::StrictHeads;
pub use upstream::{Connect, DialFault, Dialing, Target};

use crate::http::Framing;
use lender::Lender;
use pace::Pace;
use served::Served;

/// Connections served at one time; a further one is refused at once.
const SEATS: usize = 1024;
/// Bodies being read and sent at one time hold at most this much, whatever the number of clients.
const ROOM_KIB: u32 = 256 << 10;

#[derive(Debug, Error)]
pub enum BrokerFault {
    #[error("the order names {models} models and {keys} keys came with it")]
    KeyCount { models: usize, keys: usize },
    #[error("the order names no model, or more than {}", wire::MAX_MODELS)]
    ModelCount,
    #[error("the body limit is zero or above 64 MiB")]
    BodyLimit,
    #[error("two models share a dummy key")]
    SharedDummy,
    #[error("model {number} of the order cannot be served")]
    Model {
        number: usize,
        #[source]
        fault: ModelFault,
    },
}

/// One job's broker.
pub struct Broker {
    models: Vec<Served>,
    ledger: Arc<Ledger>,
    /// Where the ceiling may be raised.
    lender: Option<Lender>,
    pace: Pace,
    body_bytes: u64,
    seats: Semaphore,
    room: Semaphore,
    report: Report,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Broker({} models)", self.models.len())
    }
}

impl Broker {
    /// `keys` are in the order of the order's models. Needs a tokio runtime with time enabled.
    pub fn new(
        order: &wire::Broker,
        keys: Vec<Key>,
        connect: &Connect,
        report: Report,
    ) -> Result<Self, BrokerFault> {
        if order.models.len() != keys.len() {
            return Err(BrokerFault::KeyCount { models: order.models.len(), keys: keys.len() });
        }
        if order.models.is_empty() || order.models.len() > wire::MAX_MODELS {
            return Err(BrokerFault::ModelCount);
        }
        if !(1..=64 << 20).contains(&order.body_bytes) {
            return Err(BrokerFault::BodyLimit);
        }
        let dummies: Vec<&str> = order.models.iter().map(|model| model.dummy_key.as_str()).collect();
        if dummies
            .iter()
            .enumerate()
            .any(|(at, dummy)| dummies.iter().skip(at + 1).any(|other| other == dummy))
        {
            return Err(BrokerFault::SharedDummy);
        }
        let serve = |(number, (model, key))| {
            Served::new(model, key, connect).map_err(|fault| BrokerFault::Model { number, fault })
        };
        let models = order.models.iter().zip(keys).enumerate().map(serve).collect::<Result<_, _>>()?;
        Ok(Self {
            models,
            ledger: Ledger::new(Microcents(order.ceiling_microcents)),
            lender: None,
            pace: Pace::default(),
            body_bytes: order.body_bytes,
            seats: Semaphore::new(SEATS),
            room: Semaphore::new(usize::try_from(ROOM_KIB).unwrap_or(Semaphore::MAX_PERMITS)),
            report,
        })
    }

    /// The same, under a ceiling that is a part of a larger one.
    #[must_use]
    pub fn lent_by(mut self, ask: Ask) -> Self {
        self.lender = Some(Lender::new(ask));
        self
    }

    /// The answer to whoever asked for more, or more without being asked.
    pub fn raise(&self, ceiling: Microcents) {
        self.ledger.raise(ceiling);
        if let Some(lender) = &self.lender {
            lender.answer();
        }
    }

    /// What has been spent, what is set aside and what the ceiling is.
    pub fn standing(&self) -> Standing {
        self.ledger.standing()
    }

    /// Waits until a body of this framing may be held. `None` only if the broker is closing.
    async fn room(&self, framing: Framing) -> Option<SemaphorePermit<'_>> {
        let bytes = match framing {
            Framing::Empty => 0,
            Framing::Length(length) => length.min(self.body_bytes),
            Framing::Chunked => self.body_bytes,
        };
        // Twice: the body as it came and the tree that judges it.
        let kib = u32::try_from(bytes.div_ceil(512)).unwrap_or(ROOM_KIB).min(ROOM_KIB);
        self.room.acquire_many(kib).await.ok()
    }
}

#[cfg(test)]
mod tests;
