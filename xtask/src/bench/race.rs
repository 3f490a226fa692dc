//! Contenders run in turns, so that whatever else the machine does meets all of them alike.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::driver::Driver;
use super::stats::Sample;
use crate::run::Invocation;

/// How often a contender runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    EveryRound,
    /// So many rounds apart: for what takes hundreds of times as long.
    EveryNth(u32),
}

#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// The instrument, with what it launches.
    pub(super) instrument: Invocation,
    pub(super) pace: Pace,
}

/// What a contender leaves undone when it says that it is over, or begins for its next turn, is no cost of whoever comes next.
const PAUSE: Duration = Duration::from_millis(20);

/// What a contender took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) times: Sample,
}

pub(super) fn run(contenders: &[Contender], rounds: u32, log: &Path) -> Result<Vec<Row>> {
    let mut drivers = Vec::new();
    for contender in contenders {
        let mut driver = Driver::start(&contender.instrument, log)?;
        // The first launch fills caches and makes templates; it is nobody's figure.
        driver.launch()?;
        drivers.push((contender, driver, Vec::new()));
    }
    for round in 0..rounds {
        for (contender, driver, times) in &mut drivers {
            let due = match contender.pace {
                Pace::EveryRound => true,
                Pace::EveryNth(apart) => round % apart == 0,
            };
            if due {
                sleep(PAUSE);
                times.push(driver.launch()?);
            }
        }
    }
    drivers
        .into_iter()
        .map(|(contender, _, times)| {
            let times = Sample::of(times).context("a race of no rounds")?;
            Ok(Row { name: contender.name, times })
        })
        .collect()
}
