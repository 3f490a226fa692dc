//! Thousands of launches in sequence, and what there is afterwards that was not there before.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::census::{self, Census, Ours, Thing};
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
    let directory = PathBuf::from(stand.path(""));
    let mut ours = Ours { directory, instrument: driver.pid(), jobs: BTreeSet::new() };
    let before = settled(stand, &mut ours)?;
    for number in 1..=launches {
        driver.launch()?;
        if number % 500 == 0 {
            println!("      {way}: {number} of {launches}");
        }
    }
    let after = settled(stand, &mut ours)?;
    Ok(Growth { way, launches, before, after })
}

/// Results of runs are meant to stay, and their names fill caches: they go first, then the kernel gets time to clean up.
fn settled(stand: &Stand, ours: &mut Ours) -> Result<Census> {
    ours.jobs.extend(census::names(Path::new(&stand.path("state/runs"))));
    stand.capture(&["rm", "-rf", &stand.path("state/runs")])?;
    fs::create_dir(stand.path("state/runs"))?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let deadline = Instant::now() + SETTLING;
    let mut last = census::take(ours)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let next = census::take(ours)?;
        if next == last || Instant::now() > deadline {
            return Ok(next);
        }
        last = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_more_of_ours_is_growth_and_the_kernels_own_is_not() {
        let all =
            |extra: &[Thing]| Thing::ALL.map(|thing| (thing, 5 + i64::from(extra.contains(&thing)))).into();
        let growth = |extra: &[Thing]| Growth { way: "", launches: 1, before: all(&[]), after: all(extra) };
        assert!(growth(&[]).is_none());
        for thing in Thing::ALL {
            assert_eq!(growth(&[thing]).is_none(), !thing.is_exact(), "{thing:?}");
        }
    }
}
