//! Who this machine is as a worker, and whom it believes: what `join` writes and `run` reads. The keys lie beside it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use pond_seal::enroll::Identity;
use pond_seal::key::{PublicKey, SigningKey};
use pond_seal::seal::OpenKey;
use pond_worker::daemon::{Place, Session};
use pond_worker::link::Link;
use serde::{Deserialize, Serialize};

use crate::proof::store;
use crate::runs;

const MOST_BYTES: usize = 256 << 10;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Membership {
    /// Where calls go: an orchestrator, or the control plane itself.
    pub(super) control: String,
    /// Certificate authorities of the server, if it has its own.
    pub(super) ca_pem: Option<String>,
    /// The control plane's key, pinned when this machine joined.
    pub(super) control_key: String,
    pub(super) worker: String,
    pub(super) tenant: Option<String>,
    pub(super) tags: Vec<String>,
    /// How often the keys changed.
    #[serde(default)]
    pub(super) generation: u64,
}

impl Membership {
    pub(super) fn save(&self, place: &Place) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        private(&place.membership(), &text)
    }

    pub(super) fn open(place: &Place) -> anyhow::Result<Self> {
        let path = place.membership();
        let Some(text) = store::private("the membership", &path, MOST_BYTES)? else {
            bail!("this machine is no worker yet; `pond worker join` makes it one");
        };
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// The same as it is now, in the place of what was saved.
    pub(super) fn replace(&self, place: &Place) -> anyhow::Result<()> {
        replace(&place.membership(), &serde_json::to_vec_pretty(self)?)
    }

    /// Opens what was saved, with the keys.
    pub(crate) fn session(place: &Place) -> anyhow::Result<Session> {
        if place.next_keys().exists() {
            bail!(
                "a change of this worker's keys was begun and not finished; `pond worker rotate` finishes it"
            );
        }
        Self::open(place)?.session_with_keys(place)
    }

    /// With the keys that lie here, whatever is to become of them.
    pub(super) fn session_with_keys(self, place: &Place) -> anyhow::Result<Session> {
        let saved = self;
        let key = |path: &Path| {
            store::private("the key", path, MOST_BYTES)?
                .with_context(|| format!("there is no key {}", path.display()))
        };
        let identity = Identity {
            signing: SigningKey::from_pem(&key(&place.signing_key())?)?,
            opening: OpenKey::from_pem(&key(&place.seal_key())?)?,
        };
        Ok(Session {
            link: Link::new(&saved.control, saved.ca_pem.as_deref())?,
            worker: saved.worker,
            identity,
            control: PublicKey::parse(&saved.control_key).context("the pinned key of the control plane")?,
            clock,
        })
    }
}

/// Writes such a file in the place of another: it is the old one or the new one, whole, whatever happens.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    if beside.exists() {
        std::fs::remove_file(&beside).with_context(|| format!("removing {}", beside.display()))?;
    }
    private(&beside, bytes)?;
    std::fs::rename(&beside, path).with_context(|| format!("replacing {}", path.display()))
}

/// Writes a file of this machine's alone; one that is there already is a fault.
pub(super) fn private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.with_context(|| format!("writing {}", path.display()))
}

fn clock() -> u64 {
    u64::try_from(runs::now().as_second()).unwrap_or_default()
}
