//! gVisor for the tests of the container backends: Debian 12's is from before its fast platform, so the next release's is
//! fetched. It needs nothing installed.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::Shop;
use super::release::{self, Release};

const SUITE: &str = "trixie";
const PACKAGE: &str = "runsc";

/// Where the tests are told the runtime is.
pub(super) const VARIABLE: &str = "POND_TEST_RUNSC";

/// Fetched once; one that is there is taken as it is.
pub(super) fn fetch(shop: &Shop) -> Result<PathBuf> {
    let place = shop.target.join("xtask").join("gvisor");
    let unpacked = place.join("runsc");
    release::whole(&unpacked, |partial| {
        Release::open(shop, &place, SUITE)?.unpack(shop, &[PACKAGE], partial)
    })?;
    let runsc = unpacked.join("usr/bin/runsc");
    ensure!(runsc.is_file(), "the package {PACKAGE} of {SUITE} has no usr/bin/runsc");
    Ok(runsc)
}
