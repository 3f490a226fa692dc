//! What an idle sandbox costs in memory: what its processes hold, and what the kernel holds for it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::census;
use super::driver::Driver;
use super::stand::{Stand, read};

const SANDBOXES: u32 = 500;

/// What the kernel cannot take back while a sandbox lives.
const KERNEL: [&str; 4] = ["SUnreclaim", "KernelStack", "PageTables", "Percpu"];

#[derive(Debug)]
pub(super) struct Idle {
    pub(super) sandboxes: u32,
    /// In KiB, of all sandboxes together; the processes first.
    pub(super) parts: Vec<(&'static str, i64)>,
}

impl Idle {
    pub(super) fn total(&self) -> i64 {
        self.parts.iter().map(|(_, kib)| kib).sum()
    }
}

pub(super) fn measure(stand: &Stand) -> Result<Idle> {
    let hold = ["sh", "-c", "echo on; exec sleep infinity"];
    // Once for caches and templates, so that only sandboxes are counted.
    drop(held(stand, 1, &hold)?);
    let before = Kernel::now()?;
    let driver = held(stand, SANDBOXES, &hold)?;
    let kernel = before.growth()?;
    let processes = census::descendants(driver.pid())?;
    let mut held = 0;
    for pid in &processes {
        held += proportional_kib(*pid)?;
    }
    let parts = [("processes (PSS)", held)].into_iter().chain(kernel).collect();
    Ok(Idle { sandboxes: SANDBOXES, parts })
}

fn held(stand: &Stand, count: u32, command: &[&str]) -> Result<Driver> {
    let instrument = stand.resident(&["idle", &count.to_string()], command);
    let mut driver = Driver::start(&instrument, &stand.log)?;
    ensure!(driver.number()? == u64::from(count), "not all sandboxes started");
    Ok(driver)
}

/// What the kernel held for everybody at one time.
#[derive(Debug)]
pub(super) struct Kernel(BTreeMap<String, i64>);

impl Kernel {
    pub(super) fn now() -> Result<Self> {
        let line = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.split_ascii_whitespace().next()?.parse().ok()?))
        };
        Ok(Self(read("/proc/meminfo")?.lines().filter_map(line).collect()))
    }

    /// What it holds more since then, in KiB.
    pub(super) fn growth(&self) -> Result<Vec<(&'static str, i64)>> {
        let now = Self::now()?;
        KERNEL.into_iter().map(|name| Ok((name, now.field(name)? - self.field(name)?))).collect()
    }

    fn field(&self, name: &str) -> Result<i64> {
        self.0.get(name).copied().with_context(|| format!("/proc/meminfo has no {name}"))
    }
}

pub(super) fn proportional_kib(pid: u32) -> Result<i64> {
    of_process(pid, "Pss:")
}

pub(super) fn resident_kib(pid: u32) -> Result<i64> {
    of_process(pid, "Rss:")
}

fn of_process(pid: u32, field: &str) -> Result<i64> {
    let rollup = read(&format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.with_context(|| format!("process {pid} has no {field}"))
}
