//! One running control plane: what its doors (the user's API, the workers' protocol, the orchestrator's feed) share.
//!
//! TRUSTED. Invariants: the clock of this process is the only one that decides anything; the signing key leaves this value only
//! as signatures; a change in the store rings the bell after it is committed, never before, and whoever waits for the bell looks
//! again by itself now and then, because another control plane on the same Postgres rings another bell.

use std::path::PathBuf;
use std::time::Duration;

use pond_policy::operator::Operator;
use pond_policy::settings::Settings;
use pond_seal::key::SigningKey;
use tokio::sync::watch;

use crate::protocol::Judged;
use crate::store::{Moment, Store};

/// How long whoever waits for the bell goes without looking.
pub const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Plane {
    pub store: Store,
    /// What offers, grants and releases are signed with.
    pub key: SigningKey,
    /// What the operator demands of every sandbox.
    pub settings: Settings,
    /// pond.toml: models, prices, rules for hosts.
    pub operator: Operator,
    /// Where ciphertext of bundles and results lies.
    pub files: PathBuf,
    /// The file of the ring that values at rest are under.
    pub vault: PathBuf,
    pub bell: Bell,
    /// What documents came to under these settings.
    pub judged: Judged,
    /// The wall clock, as the program reads it; tests have their own.
    pub clock: fn() -> Moment,
}

impl Plane {
    #[must_use]
    pub fn now(&self) -> Moment {
        (self.clock)()
    }
}

/// Something changed. It does not say what: who waits reads the store.
#[derive(Debug)]
pub struct Bell(watch::Sender<()>);

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Bell {
    pub fn ring(&self) {
        self.0.send_replace(());
    }

    #[must_use]
    pub fn listen(&self) -> Listening {
        Listening(self.0.subscribe())
    }
}

#[derive(Debug)]
pub struct Listening(watch::Receiver<()>);

impl Listening {
    /// Returns when the bell rang since the last time, or when it is time to look again anyway.
    pub async fn wait(&mut self) {
        // Who rings lives as long as the plane; when both are gone there is nothing to wait for, and time passes all the same.
        let rung = tokio::time::timeout(LOOK_AGAIN, self.0.changed()).await;
        if matches!(rung, Ok(Err(_))) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
