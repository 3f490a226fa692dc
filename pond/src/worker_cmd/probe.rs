//! What this host can enforce: a canary on every backend, after what killed jobs left was swept.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::process::ExitCode;

use anyhow::Context;
use pond_policy::backend::Backend;
use pond_policy::capability::Capability;
use pond_policy::node::Node;
use pond_policy::profile::Profile;
use pond_policy::settings::Settings;
use pond_sandbox::capability::{Examined, Ground, examine, filter_sandbox_capabilities};
use pond_sandbox::state::StateDir;
use pond_worker::daemon::Place;

use crate::{output, runs, settings};

pub(super) fn print() -> anyhow::Result<ExitCode> {
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    Ok(output::json(&capabilities(&Place::open(&state)?)?))
}

pub(super) fn capabilities(place: &Place) -> anyhow::Result<Vec<String>> {
    runs::clean_up(&StateDir::open(&place.state())?)?;
    let block = Node::Map(vec![("profile".to_owned(), Node::text(Profile::Write.name()))]);
    let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default())
        .map_err(|_refusals| anyhow::anyhow!("the default profile was refused"))?;
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    // A canary sees nothing of the host but an empty directory.
    let checkout = place.canary();
    if !checkout.is_dir() {
        DirBuilder::new().mode(0o755).create(&checkout).context("making a place for canaries")?;
    }
    let engine = settings::engine();
    let state = place.state();
    let ground = Ground {
        state: &state,
        executable: &executable,
        engine: &engine,
        policy: &policy,
        checkout: &checkout,
    };
    let examined: Vec<Examined> =
        Backend::ALL.iter().copied().map(|backend| examine(backend, &ground)).collect();
    let all: Vec<Capability> = Backend::ALL.iter().copied().map(Capability::Backend).collect();
    let proven = filter_sandbox_capabilities(&all, &examined);
    Ok(proven.iter().map(ToString::to_string).collect())
}
