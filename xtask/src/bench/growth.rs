//! Thousands of launches in sequence, and what there is afterwards that was not there before.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::census::{self, Census, Thing};
use super::driver::Driver;
use super::stand::Stand;
use crate::run::Invocation;

/// Enough for every cache, template and pool to have its size.
const WARM_UP: u32 = 100;
/// The kernel takes network namespaces and dead groups apart in the background.
const SETTLING: Duration = Duration::from_secs(20);

/// One way of launching, before and after.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) way: &'static str,
    pub(super) launches: u32,
    pub(super) before: Census,
    pub(super) after: Census,
}

impl Growth {
    pub(super) fn of(&self, thing: Thing) -> i64 {
        let at = |census: &Census| census.get(&thing).copied().unwrap_or(0);
        at(&self.after) - at(&self.before)
    }

    /// Whether nothing that pond makes itself is left.
    pub(super) fn is_none(&self) -> bool {
        Thing::ALL.into_iter().filter(|thing| thing.is_exact()).all(|thing| self.of(thing) <= 0)
    }
}

pub(super) fn measure(stand: &Stand, launches: u32) -> Result<Vec<Growth>> {
    let command = stand.pond_run(&stand.path("checkout"));
    let spawning = stand.spawning(&command.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(vec![
        watch(stand, "pond run", &spawning, launches)?,
        watch(stand, "resident launcher", &stand.resident(&["released"], &["true"]), launches)?,
    ])
}

fn watch(stand: &Stand, way: &'static str, instrument: &Invocation, launches: u32) -> Result<Growth> {
    let mut driver = Driver::start(instrument, &stand.log)?;
    for _ in 0..WARM_UP {
        driver.launch()?;
    }
    let before = settled(stand, driver.pid())?;
    for number in 1..=launches {
        driver.launch()?;
        if number % 500 == 0 {
            println!("      {way}: {number} of {launches}");
        }
    }
    let after = settled(stand, driver.pid())?;
    Ok(Growth { way, launches, before, after })
}

/// Results of runs are meant to stay, and their names fill caches: they go first, then the kernel gets time to clean up.
fn settled(stand: &Stand, owner: u32) -> Result<Census> {
    stand.capture(&["rm", "-rf", &stand.path("state/runs")])?;
    fs::create_dir(stand.path("state/runs"))?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let deadline = Instant::now() + SETTLING;
    let mut last = census::take(owner)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let next = census::take(owner)?;
        if next == last || Instant::now() > deadline {
            return Ok(next);
        }
        last = next;
    }
}
