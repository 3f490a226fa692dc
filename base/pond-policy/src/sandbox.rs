//! Worker side of the contract: the stored block becomes the policy a sandbox is launched under.
//!
//! The block is parsed and held to the worker's own settings again; a policy computed elsewhere cannot be handed in,
//! because only `resolve` makes one. The posture is derived from the profile at every question, so it cannot drift.

use crate::block::SandboxBlock;
use crate::capability::Requirement;
use crate::duration::Timeout;
use crate::egress::{HostRule, Preset};
use crate::image::Image;
use crate::limits::Limits;
use crate::node::Node;
use crate::path::Path;
use crate::profile::{Posture, Profile};
use crate::refusal::{Code, Refusal, Refusals};
use crate::settings::Settings;

/// Everything a provider needs to know to confine one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    block: SandboxBlock,
    requirement: Option<Requirement>,
    allow: Vec<HostRule>,
    timeout: Timeout,
}

/// Resolves a stored block on the machine that will enforce it.
pub fn resolve(block: Option<&Node>, settings: &Settings) -> Result<SandboxPolicy, Refusals> {
    resolve_at(&Path::root(), block, settings)
}

/// Resolves a block that stands at `path` in a larger document.
pub fn resolve_at(path: &Path, block: Option<&Node>, settings: &Settings) -> Result<SandboxPolicy, Refusals> {
    let mut refusals = Refusals::default();
    let block = SandboxBlock::accept(block, path, settings, &mut refusals);
    refusals.finish(block.map(|block| SandboxPolicy::new(block, settings)))
}

impl SandboxPolicy {
    fn new(block: SandboxBlock, settings: &Settings) -> Self {
        Self {
            requirement: block.requirement(settings),
            allow: allow_rules(&block),
            timeout: block.profile().time().default,
            block,
        }
    }

    pub const fn profile(&self) -> Profile {
        self.block.profile()
    }

    pub const fn posture(&self) -> Posture {
        self.block.profile().posture()
    }

    /// `None` when the job is not confined.
    pub fn limits(&self) -> Option<Limits> {
        self.block.limits()
    }

    pub const fn image(&self) -> Option<&Image> {
        self.block.overrides().image.as_ref()
    }

    /// Hosts the gateway may open; empty unless the posture has an allowlist.
    pub fn allow(&self) -> &[HostRule] {
        &self.allow
    }

    /// Hosts that the block itself names.
    pub fn asked_hosts(&self) -> &[HostRule] {
        self.block.allow_hosts()
    }

    /// What the provider must be; `None` when the job is not confined.
    pub const fn requirement(&self) -> Option<Requirement> {
        self.requirement
    }

    pub const fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// The same policy with another time limit, as far as the profile permits one.
    pub fn with_timeout(self, timeout: Timeout, path: &Path) -> Result<Self, Refusal> {
        check_timeout(self.profile(), timeout, path)?;
        Ok(Self { timeout, ..self })
    }
}

/// A profile's time limit may be shortened freely and lengthened only up to its own bound.
pub fn check_timeout(profile: Profile, timeout: Timeout, path: &Path) -> Result<(), Refusal> {
    let most = profile.time().most;
    let message = || format!("{timeout} is more than {profile} allows: the most is {most}");
    if timeout > most { Err(Refusal::new(Code::TimeoutInvalid, path, message())) } else { Ok(()) }
}

/// The safe defaults and the stage's own hosts, each once. A default that did not parse would only be missing.
fn allow_rules(block: &SandboxBlock) -> Vec<HostRule> {
    let mut rules: Vec<HostRule> = Vec::new();
    if block.profile().has_allowlist() {
        let defaults = Preset::DEFAULT.into_iter().flat_map(Preset::rules).flatten();
        for rule in defaults.chain(block.allow_hosts().iter().cloned()) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    rules
}
