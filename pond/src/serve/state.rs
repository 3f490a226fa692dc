//! The state of a control plane: a private directory with its key, its vault's ring, its files, and its database unless that is a
//! Postgres. Made at the first start; what others could read is refused.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use pond_control::api::forget_unfinished;
use pond_control::plane::{Bell, Plane};
use pond_control::protocol::Judged;
use pond_control::store::{Actor, Misfit, Moment, NewToken, Rules, Store};
use pond_control::ticker::Pace;
use pond_policy::refusal::Refusals;
use pond_policy::scope::Scope;
use pond_policy::settings::Waits;
use pond_seal::bearer::{Bearer, Kind};
use pond_seal::key::SigningKey;
use pond_seal::vault::KeyRing;
use zeroize::Zeroizing;

use crate::proof::store::{make_text, private, signing_key_at};
use crate::{operator, runs, settings};

const OPEN_TO_OTHERS: u32 = 0o077;
const MOST_RING: usize = 64 << 10;

/// A control plane that is ready to serve.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) plane: Plane,
    pub(crate) pace: Pace,
}

pub(crate) async fn open() -> anyhow::Result<Opened> {
    let directory = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let control = directory.join("control");
    let files = control.join("files");
    private_directory(&control)?;
    private_directory(&files)?;
    forget_unfinished(&files).context("removing what was not finished")?;
    let (rules, pace) = spans(settings::waits().map_err(told)?);
    let operator = operator::load().map_err(told)?;
    let settings = settings::runs(&operator).map_err(told)?;
    let key: SigningKey = signing_key_at(&control.join("signing.key"))?;
    let vault = control.join("vault.keys");
    let ring = ring(&vault)?;
    let address = match settings::database() {
        Some(address) => address,
        None => own_database(&control.join("pond.db"))?,
    };
    let store = Store::open(&address, ring, rules, now()).await.context("the store")?;
    suits(&store, &key).await?;
    let (bell, judged) = (Bell::default(), Judged::default());
    let plane = Plane { store, key, settings, operator, files, vault, bell, judged, clock: now };
    Ok(Opened { plane, pace })
}

/// A store that another control plane signs for is not served: nobody could check what this one did in it. With the wrong ring it can
/// be, since values that nobody can read any more have to be set again; it is not ready, and says so.
async fn suits(store: &Store, key: &SigningKey) -> anyhow::Result<()> {
    match store.misfit(key).await.context("asking the store whose it is")? {
        None => Ok(()),
        Some(misfit @ Misfit::Signing { .. }) => bail!(
            "{misfit}; give this control plane the control/signing.key and control/vault.keys of the one that made the store \
             (docs/postgres.md), or a database of its own"
        ),
        Some(misfit @ Misfit::Vault(_)) => {
            tracing::error!(fault = &misfit as &dyn std::error::Error, "not ready");
            Ok(())
        }
    }
}

/// What the operator says, and for the rest the usual.
fn spans(waits: Waits) -> (Rules, Pace) {
    let (rules, pace) = (Rules::default(), Pace::default());
    let rules = Rules {
        offer: waits.offer.unwrap_or(rules.offer),
        lease: waits.lease.unwrap_or(rules.lease),
        grace: waits.grace.unwrap_or(rules.grace),
        ..rules
    };
    (rules, Pace { unmatched: waits.unmatched.unwrap_or(pace.unmatched), ..pace })
}

/// The token of who starts the first control plane on a store. Afterwards there is always one.
pub(crate) async fn first_token(plane: &Plane) -> anyhow::Result<Option<Bearer>> {
    if !plane.store.tokens(None).await.context("asking for tokens")?.is_empty() {
        return Ok(None);
    }
    let bearer = Bearer::generate(Kind::Api).context("making the first token")?;
    let new = NewToken { bearer: &bearer, scopes: Scope::ALL, project: None, expires_at: None };
    plane.store.issue_token(new, &Actor::System, plane.now()).await.context("storing the first token")?;
    Ok(Some(bearer))
}

/// Nobody has seen it: at the next start there is to be a first one again.
pub(crate) async fn take_back(plane: &Plane, token: Option<&Bearer>) -> anyhow::Result<()> {
    let Some(bearer) = token else { return Ok(()) };
    plane.store.forget_token(bearer).await.context("taking the first token back")
}

fn ring(path: &Path) -> anyhow::Result<KeyRing> {
    let what = "the vault's ring";
    let text = match private(what, path, MOST_RING)? {
        Some(text) => text,
        None => {
            make_text(path, what, &KeyRing::generate().context(what)?.to_text())?;
            private(what, path, MOST_RING)?.with_context(|| format!("{what} {} vanished", path.display()))?
        }
    };
    KeyRing::parse(&text).with_context(|| format!("{what} {}", path.display()))
}

/// The file is there, and private, before the engine opens it: what the engine puts beside it gets the same mode.
fn own_database(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.with_context(|| format!("the database {}", path.display()))?;
    Ok(Zeroizing::new(format!("sqlite:{}", path.display())))
}

/// A directory of this user that nobody else can look into.
fn private_directory(path: &Path) -> anyhow::Result<()> {
    let name = || format!("the directory {}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(name)?;
    let metadata = path.symlink_metadata().with_context(name)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} is not a directory of yours", name());
    }
    if metadata.mode() & OPEN_TO_OTHERS != 0 {
        bail!("{} is open to others (mode {:o}); `chmod 700` it", name(), metadata.mode() & 0o7777);
    }
    Ok(())
}

fn told(refusals: Refusals) -> anyhow::Error {
    let faults =
        refusals.into_list().into_iter().map(|refusal| format!("{}: {}", refusal.path, refusal.message));
    anyhow::anyhow!(faults.collect::<Vec<_>>().join("; "))
}

fn now() -> Moment {
    Moment(runs::now().as_millisecond())
}
