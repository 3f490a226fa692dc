//! `deny.toml` in cargo-deny's own format, enforced from `cargo metadata` alone, so it holds without a network.
//! A key that is not enforced here is refused while reading, save cargo-deny's advisories, which need their database.

pub(crate) mod bans;
pub(crate) mod licences;
pub(crate) mod origins;

use serde::Deserialize;

pub(crate) const FILE: &str = "deny.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deny {
    pub(crate) graph: Graph,
    pub(crate) licenses: Licences,
    pub(crate) bans: Bans,
    pub(crate) sources: Sources,
    #[serde(rename = "advisories")]
    _for_cargo_deny: Option<toml::Table>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Graph {
    pub(crate) targets: Vec<String>,
    #[serde(rename = "all-features")]
    _always_here: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Licences {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
    #[serde(rename = "include-dev")]
    _always_here: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Bans {
    multiple_versions: Level,
    deny: Vec<Banned>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    #[default]
    Deny,
    Warn,
    Allow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// Crates that may link it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Sources {
    #[serde(rename = "unknown-registry")]
    _unknown_registry: Always,
    #[serde(rename = "unknown-git")]
    _unknown_git: Always,
    allow_registry: Vec<String>,
}

/// A setting that has one value in this repository.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Always {
    #[default]
    Deny,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_file_is_understood_whole() {
        let text = include_str!("../../../../deny.toml");
        let deny: Deny = toml::from_str(text).unwrap();
        assert!(!deny.bans.deny.is_empty() && !deny.licenses.allow.is_empty());
    }

    #[test]
    fn a_key_nobody_enforces_is_refused() {
        let text = include_str!("../../../../deny.toml").replacen("[bans]", "[bans]\nallow = []", 1);
        let error = toml::from_str::<Deny>(&text).unwrap_err();
        assert!(error.message().contains("unknown field `allow`"), "{error}");
    }
}
