//! Hosts known to be more than they look: model APIs, services that any stranger can write to, and
//! registries that accept uploads. Data, plus the one rule of how a pattern meets an entry. A host
//! missing here is not thereby safe: a rule stays a grant, and the documents say so.

mod hosts;

use std::fmt;

use super::name::{HostName, is_below};
use super::pattern::{HostPattern, HostRule};
use hosts::{HOSTING, MODEL_APIS, NOTABLE, RELAYS, TELEMETRY};

/// What the catalogue says of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// The broker holds the key for this host; a direct door would let a job bring its own.
    ModelApi(&'static str),
    Shared(SharedKind, &'static str),
}

/// Why a host belongs to everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SharedKind {
    /// Any customer of a provider has names or buckets there.
    Hosting,
    /// Data is accepted for whichever project the sender names.
    Telemetry,
    /// Whatever is sent is kept for, or passed to, someone the sender chooses.
    Relay,
}

impl fmt::Display for SharedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hosting => {
                "which any customer of that provider can write to; name one tenant's host exactly"
            }
            Self::Telemetry => "which accepts data for any project the sender names",
            Self::Relay => "which passes data on to anyone the sender chooses",
        })
    }
}

/// How far around its name an entry reaches.
#[derive(Clone, Copy)]
enum Reach {
    /// The name itself; one host below it belongs to one tenant and may be named exactly.
    Apex,
    /// No wildcard anywhere near it; exact names are judged on their own.
    Wildcards,
    /// Everything below it too.
    Tree,
}

/// The model API that a host is or belongs to.
pub(super) fn model_api(name: &HostName) -> Option<&'static str> {
    match listing(&HostPattern::Exact(name.clone())) {
        Some(Listing::ModelApi(api)) => Some(api),
        Some(Listing::Shared(..)) | None => None,
    }
}

/// The first entry a pattern could reach, model APIs before the rest.
pub(super) fn listing(pattern: &HostPattern) -> Option<Listing> {
    let tree = |names: &'static [&'static str]| {
        names.iter().copied().find(|entry| touches(pattern, entry, Reach::Tree))
    };
    if let Some(api) = tree(MODEL_APIS).or_else(|| regional_model_api(pattern)) {
        return Some(Listing::ModelApi(api));
    }
    let hosting = HOSTING.iter().find(|(entry, reach)| touches(pattern, entry, *reach));
    (hosting.map(|(entry, _)| (SharedKind::Hosting, *entry)))
        .or_else(|| tree(TELEMETRY).map(|entry| (SharedKind::Telemetry, entry)))
        .or_else(|| tree(RELAYS).map(|entry| (SharedKind::Relay, entry)))
        .map(|(kind, entry)| Listing::Shared(kind, entry))
}

/// Cloud providers put the region before or inside the name of their model API.
fn regional_model_api(pattern: &HostPattern) -> Option<&'static str> {
    let name = pattern.name();
    if name.as_str().ends_with("-aiplatform.googleapis.com") {
        return Some("aiplatform.googleapis.com");
    }
    let bedrock = name.as_str().starts_with("bedrock") && name.is_below("amazonaws.com");
    bedrock.then_some("bedrock.amazonaws.com")
}

fn touches(pattern: &HostPattern, entry: &str, reach: Reach) -> bool {
    let name = pattern.name().as_str();
    let (same, below, above) = (name == entry, is_below(name, entry), is_below(entry, name));
    match (pattern, reach) {
        (HostPattern::Exact(_), Reach::Wildcards) => false,
        (HostPattern::Exact(_), Reach::Apex) => same,
        (HostPattern::Exact(_), Reach::Tree) => same || below,
        (HostPattern::Subdomains(_), Reach::Apex) => same || above,
        (HostPattern::Subdomains(_), Reach::Wildcards | Reach::Tree) => same || below || above,
    }
}

/// What a reviewer should know about a rule that is accepted all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWarning {
    pub code: HostWarningCode,
    pub message: String,
}

named_enum! {
    /// The stable code of a [`HostWarning`].
    pub enum HostWarningCode {
        /// Whoever holds any token of that service can write there.
        HostWriteChannel => "host_write_channel",
        /// Installing packages does not need this host.
        HostNotNeeded => "host_not_needed",
        /// Reads only, but the requested path itself carries bytes to a third party.
        HostPathLeak => "host_path_leak",
    }
}

/// Everything worth saying about an accepted rule.
pub fn lint(rule: &HostRule) -> Vec<HostWarning> {
    let covered = |host: &str| match rule.pattern() {
        HostPattern::Exact(name) => name.as_str() == host,
        HostPattern::Subdomains(base) => is_below(host, base.as_str()),
    };
    let notable = NOTABLE.iter().filter(|(host, ..)| covered(host));
    notable
        .map(|(host, code, why)| HostWarning {
            code: *code,
            message: format!("`{rule}` covers {host}: {why}"),
        })
        .collect()
}
