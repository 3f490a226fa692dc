//! `pond worker join`: makes keys, proves them with a token, and pins the key of whoever issued it. The token is never sent,
//! and is best not written on a command line either.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_seal::enroll::{Identity, JoinToken};
use pond_worker::daemon::{Place, join as enroll};
use pond_worker::link::Link;
use zeroize::Zeroizing;

use super::membership::{Membership, private};
use super::{probe, runtime};
use crate::proof::store;
use crate::{output, settings};

const MOST_TOKEN: u64 = 4 << 10;

/// Make this machine a worker of a control plane.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The address of the control plane or of an orchestrator, such as `https://pond.example.com`.
    #[arg(long, value_name = "URL")]
    control: String,
    /// Certificate authorities of that server, as PEM, instead of the usual ones.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A file with the token, for its owner alone.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The token itself, which others on this machine can then see; `-` reads it from standard input.
    #[arg(default_value = "-")]
    token: String,
}

pub(super) fn join(args: &JoinArgs) -> anyhow::Result<ExitCode> {
    let token = JoinToken::parse(token(args)?.trim())?;
    let ca_pem = args.ca_file.as_deref().map(authorities).transpose()?;
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let place = Place::open(&state)?;
    let _alone = place.take()?;
    if place.membership().exists() {
        bail!("this machine is a worker already: {} says whose", place.membership().display());
    }
    let capabilities = probe::capabilities(&place)?;
    let joining = enroll_as(&place, &args.control, ca_pem, &token, capabilities);
    let membership = runtime()?.block_on(joining)?;
    let tenant = membership.tenant.map(|tenant| format!(" of {tenant}")).unwrap_or_default();
    let tags = membership.tags.join(", ");
    Ok(output::lines(&format!(
        "joined as {}{tenant}, tagged {tags}; `pond worker run` starts it",
        membership.worker
    )))
}

/// Makes keys, has them pinned, and writes down whose worker this machine is now.
pub(crate) async fn enroll_as(
    place: &Place,
    control: &str,
    ca_pem: Option<String>,
    token: &JoinToken,
    capabilities: Vec<String>,
) -> anyhow::Result<Membership> {
    let link = Link::new(control, ca_pem.as_deref())?;
    let identity = Identity::generate()?;
    // Before they are enrolled: keys that are pinned elsewhere must not be lost here.
    for (path, pem) in
        [(place.signing_key(), identity.signing.to_pem()), (place.seal_key(), identity.opening.to_pem())]
    {
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        private(&path, pem.as_bytes())?;
    }
    let (key, grant) = enroll(&link, token, &identity, capabilities).await.context("joining")?;
    let membership = Membership {
        control: control.to_owned(),
        ca_pem,
        control_key: key.to_hex(),
        worker: grant.worker,
        tenant: grant.tenant,
        tags: grant.tags,
        generation: 0,
    };
    membership.save(place)?;
    Ok(membership)
}

fn token(args: &JoinArgs) -> anyhow::Result<Zeroizing<String>> {
    if let Some(path) = &args.token_file {
        let token = store::private("the token", path, usize::try_from(MOST_TOKEN)?)?;
        return token.with_context(|| format!("there is no file {}", path.display()));
    }
    if args.token != "-" {
        return Ok(Zeroizing::new(args.token.clone()));
    }
    let mut text = Zeroizing::new(String::new());
    std::io::stdin().take(MOST_TOKEN).read_to_string(&mut text).context("reading the token")?;
    Ok(text)
}

fn authorities(path: &std::path::Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
