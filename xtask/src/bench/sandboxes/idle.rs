//! What idle sandboxes hold: each one's keeper and all that descends from it, and what the kernel holds for them.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::super::census::{descendants, names};
use super::super::idle::{Kernel, proportional_kib};
use super::Ground;

#[derive(Debug)]
pub(super) struct Idle {
    /// In KiB, the processes of each sandbox, smallest first.
    pub(super) each: Vec<i64>,
    /// In KiB, of all sandboxes together.
    pub(super) kernel: Vec<(&'static str, i64)>,
}

impl Idle {
    pub(super) fn quantile(&self, percent: usize) -> i64 {
        let rank = (self.each.len() * percent).div_ceil(100).max(1);
        self.each.get(rank - 1).copied().unwrap_or_default()
    }

    pub(super) fn processes(&self) -> i64 {
        self.each.iter().sum()
    }

    pub(super) fn total(&self) -> i64 {
        self.processes() + self.kernel.iter().map(|(_, kib)| kib).sum::<i64>()
    }
}

pub(super) fn measure(ground: &Ground<'_>, count: u32) -> Result<Idle> {
    let id = |number: u32| format!("idle-{number}");
    let before = Kernel::now()?;
    for number in 0..count {
        let create = ["create", "--id", &id(number), "--backend", "native", "--idle-ttl", "never"];
        ground.pond(&create).capture()?;
        // One that has been used once, as those of people are.
        ground.pond(&["exec", &id(number), "--", "true"]).capture()?;
    }
    let kernel = before.growth()?;
    let mut each = Vec::new();
    for keeper in keepers(Path::new(&ground.stand.path("pond"))) {
        // A launcher that has done its work is dead and has no memory to read.
        each.push(descendants(keeper)?.into_iter().filter_map(|pid| proportional_kib(pid).ok()).sum());
    }
    ensure!(each.len() == usize::try_from(count)?, "{} of {count} sandboxes have a keeper", each.len());
    each.sort_unstable();
    for number in 0..count {
        ground.remove(&id(number))?;
    }
    Ok(Idle { each, kernel })
}

/// Those of this program.
fn keepers(program: &Path) -> Vec<u32> {
    let is_keeper = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words == b"pond\0keeper\0"
            && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
    };
    names(Path::new("/proc")).iter().filter_map(|name| name.parse().ok()).filter(is_keeper).collect()
}
