//! Control groups v2 for real: a Debian kernel that has nothing else, booted in software emulation, runs the tests of the
//! limits. The machine that runs `cargo xtask test` may have v1 or both, where half of that code never runs.
//! Whatever keeps a suite from saying that it passed is a failure.

mod guest;
mod kernel;
mod verdict;

use std::fs;

use anyhow::{Context, Result};

use super::Shop;

/// Emulation is slow: a minute on a quiet machine, six with a quarter of a processor. Only a guest that hangs is slower than this.
const SECONDS: &str = "1200";

/// What is run inside, in this order. The name is what the judge looks for.
struct Suite {
    name: &'static str,
    /// The group to step into first, as a login would.
    group: Option<&'static str>,
    command: &'static str,
}

const SUITES: [Suite; 3] = [
    Suite { name: "root-group", group: None, command: "/suite/pond-sandbox native::cgroup native::spare" },
    Suite {
        name: "child-group",
        group: Some("session"),
        command: "/suite/pond-sandbox native::cgroup native::spare",
    },
    Suite { name: "pond-run", group: Some("login"), command: "/suite/e2e limits:: residue::" },
];

pub(super) fn run(shop: &Shop) -> Result<()> {
    let place = shop.target.join("cgroup-v2");
    let kernel = kernel::fetch(shop, &place)?;
    let memory = guest::build(shop, &place, &kernel)?;
    let console = place.join("console");
    fs::write(&console, "")?;
    let (image, serial) = (kernel.image.to_string_lossy(), format!("file:{}", console.display()));
    let patience = ["timeout", "--kill-after=5", SECONDS, "qemu-system-x86_64"];
    let machine =
        ["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "2048", "-nodefaults", "-no-user-config"];
    let ends = ["-no-reboot", "-display", "none", "-serial", &serial, "-kernel", &image, "-initrd", &memory];
    // A host under load is late with the emulated timer's ticks, which the kernel would take for a broken one.
    let boot = ["-append", "console=ttyS0 loglevel=1 panic=-1 no_timer_check cgroup_no_v1=all"];
    let emulated = shop.step(shop.command(&[&patience[..], &machine, &ends, &boot].concat()));
    let said = String::from_utf8_lossy(&fs::read(&console)?).into_owned();
    let judged = verdict::judge(&said, &SUITES.map(|suite| suite.name))
        .with_context(|| format!("console of the emulated machine: {}", console.display()));
    let passed = match (emulated, judged) {
        (Ok(()), judged) => judged?,
        (Err(fault), Ok(_)) => return Err(fault),
        (Err(fault), Err(unfinished)) => return Err(unfinished.context(fault)),
    };
    println!("    Linux {}, control groups v2 only: {passed}", kernel.version);
    Ok(())
}
