//! The last step of a launch: a thread that stays with the container to its end, and sees it removed.

use super::super::canary::Isolation;
use super::super::engine::{Engine, EngineFault};
use super::super::reap;
use super::super::relay::{End, Relay, RelayFault, Relayed, Transit};
use super::super::request::Inspected;
use super::super::transfer::TransferFault;
use super::ContainerFault;
use crate::native::cgroup::{Usage, kill_all_in};

/// What is known of a container that is over.
#[derive(Debug)]
pub(crate) struct Attended {
    pub(crate) usage: Usage,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) lost: Option<TransferFault>,
    /// Why the container is still there, with nothing alive in it.
    pub(crate) left: Option<EngineFault>,
    /// The engine went while the job ran, and took its streams along.
    pub(crate) is_cut_off: bool,
}

/// Stays with a container to its end, and sees it removed.
pub(super) fn attend(
    relay: Relay,
    transit: Transit,
    engine: &Engine,
    container: &str,
    (runtime, image): (String, String),
) -> Result<Attended, ContainerFault> {
    let kernel = relay.kernel;
    let relayed = relay.run(transit);
    let told = reap::inspect(engine, container);
    let removed = reap::remove(engine, container);
    let (Relayed { usage, evidence, lost, end }, left) = match (relayed, removed) {
        (Ok(relayed), Ok(())) => (relayed, None),
        // However the job ended: what it made is whole once nothing of it can write any more.
        (Ok(relayed), Err(fault)) => {
            kill_all_in(container).map_err(RelayFault::Kill)?;
            (relayed, Some(fault))
        }
        // An engine that is gone says so better than the streams it let go of.
        (Err(fault), removed) => {
            told?;
            removed?;
            return Err(fault.into());
        }
    };
    let is_cut_off = match end {
        End::Told => false,
        // Its end and the engine's were one, unless the engine is there to be asked.
        End::Untold => told.is_err(),
        End::CutOff => true,
    };
    let usage = usage.unwrap_or_else(|| killed(told.ok().flatten().as_ref()));
    let isolation = evidence.map(|(inside, outside)| Isolation {
        runtime,
        container: container.to_owned(),
        image,
        kernel,
        inside,
        host_boot_id: outside.boot_id,
        host_sees: outside.program,
        nonce: outside.nonce,
    });
    Ok(Attended { usage, isolation, lost, left, is_cut_off })
}

/// Of a container that did not live to be read, the engine still knows whether memory was the reason.
fn killed(told: Option<&Inspected>) -> Usage {
    let oom_kills = told.filter(|told| told.state.oom_killed).map(|_| 1);
    Usage { oom_kills, ..Usage::default() }
}
