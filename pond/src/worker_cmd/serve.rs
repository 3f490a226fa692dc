//! `pond worker run`: the daemon. SIGTERM, SIGINT and SIGHUP let it finish what it has; a second one makes it give that up.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use pond_worker::daemon::{Daemon, Phase, Place, Spare, look, run};
use tokio::sync::{Notify, watch};

use super::membership::Membership;
use super::runtime;
use crate::run::OWN_EXECUTABLE;
use crate::signals::SetAside;
use crate::{output, runs, settings};

/// Ask for jobs and run them.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// How many jobs at once; as many as this machine has processors.
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
}

pub(super) fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = settings::sandbox().map_err(|_refusals| anyhow::anyhow!("the operator's settings"))?;
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let place = Place::open(&state)?;
    let session = Membership::session(&place)?;
    let _alone = place.take()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let daemon = Daemon {
        session,
        place,
        settings,
        executable: PathBuf::from(OWN_EXECUTABLE),
        slots: args.jobs.map_or(cores, usize::from),
        log,
        changed: Notify::new(),
        spare: Spare::default(),
    };
    let signals = SetAside::new()?;
    runtime()?.block_on(async {
        let phase = phases(signals)?;
        let capabilities = look(Path::new(OWN_EXECUTABLE)).await?;
        working(&daemon.session.worker, &capabilities);
        run(Arc::new(daemon), capabilities, phase).await;
        log("stopped", &[]);
        Ok(ExitCode::SUCCESS)
    })
}

/// What signals make of the daemon.
pub(crate) fn phases(signals: SetAside) -> anyhow::Result<watch::Receiver<Phase>> {
    let (set, phase) = watch::channel(Phase::Work);
    let signals = signals.listen()?;
    tokio::spawn(async move {
        for next in [Phase::Drain, Phase::GiveUp] {
            signals.next().await;
            set.send_replace(next);
        }
        // Whoever watches the phase must not see it go.
        set.closed().await;
    });
    Ok(phase)
}

/// That the worker is there, and what for.
pub(crate) fn working(worker: &dyn Display, capabilities: &[String]) {
    log("working", &[("worker", worker), ("capabilities", &capabilities.join(" "))]);
    if capabilities.is_empty() {
        log("unable", &[("reason", &"no backend of this machine runs jobs; `pond doctor` says why")]);
    }
}

/// One object per line, on the error stream.
pub(crate) fn log(event: &str, about: &[(&str, &dyn Display)]) {
    let mut line = serde_json::Map::new();
    line.insert("time".to_owned(), runs::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into());
    line.insert("event".to_owned(), event.into());
    line.extend(about.iter().map(|(name, value)| ((*name).to_owned(), value.to_string().into())));
    output::say(&serde_json::Value::Object(line).to_string());
}
