//! Two hundred launches at once: every one of them has to work.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::stand::Stand;

const LAUNCHES: usize = 200;

#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) launches: usize,
    pub(super) failures: usize,
    pub(super) took: Duration,
}

pub(super) fn measure(stand: &Stand) -> Result<Crowd> {
    let words = stand.pond_run(&stand.path("checkout"));
    let command = stand.with_state(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let started = Instant::now();
    let children = (0..LAUNCHES).map(|_| command.start(&stand.log)).collect::<Result<Vec<_>>>()?;
    let mut failures = 0;
    for mut child in children {
        if !child.wait()?.success() {
            failures += 1;
        }
    }
    Ok(Crowd { launches: LAUNCHES, failures, took: started.elapsed() })
}
