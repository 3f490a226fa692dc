//! An ordinary user: an id that no account has, with a delegated control group, a checkout and a state directory.

use anyhow::Result;

use super::stand::Stand;
use crate::run::Invocation;

const UID: &str = "61234";

/// Gives back what root delegated when it goes away.
#[derive(Debug)]
pub(super) struct Visitor<'a> {
    stand: &'a Stand,
    groups: Vec<String>,
}

impl<'a> Visitor<'a> {
    pub(super) fn invite(stand: &'a Stand) -> Result<Self> {
        let said = stand.capture(&[&stand.path("pond"), "host", "delegate", UID, "--json"])?;
        let groups = said.split('"').filter(|part| part.starts_with('/')).map(str::to_owned).collect();
        let visitor = Self { stand, groups };
        let owned = ["install", "--directory", "--mode=700", "--owner", UID, "--group", UID];
        stand.step(&[&owned[..], &[&visitor.checkout(), &visitor.state()]].concat())?;
        Ok(visitor)
    }

    pub(super) fn checkout(&self) -> String {
        self.stand.path("visitor-checkout")
    }

    fn state(&self) -> String {
        self.stand.path("visitor-state")
    }

    /// The instrument, run by the user, in one of its modes.
    pub(super) fn instrument(&self, words: &[&str]) -> Invocation {
        let state = format!("POND_STATE_DIR={}", self.state());
        let launch = self.stand.path("launch");
        let identity = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "--inh-caps=-all"];
        let environment = ["env", "--ignore-environment", "PATH=/usr/bin:/bin", &state, &launch];
        self.stand.command(&[&identity[..], &environment, words].concat())
    }

    /// The instrument with a launcher of the user's own.
    pub(super) fn resident(&self) -> Invocation {
        self.instrument(&["resident", &self.stand.path("pond"), &self.state(), &self.checkout(), "true"])
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        for group in &self.groups {
            if let Err(fault) = self.stand.capture(&["rmdir", group]) {
                eprintln!("left behind: {group}: {fault:#}");
            }
        }
    }
}
