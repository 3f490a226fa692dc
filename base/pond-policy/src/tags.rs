//! Tags: what the control plane granted a worker at enrollment, and what a job requires of one.
//!
//! Invariant: whatever a job's tier, a worker in `pool:byo` receives only work of a tenant it is tagged with.

use std::fmt;

use crate::name::Project;
use crate::tier::Tier;

/// Prefixes only the control plane may grant.
pub const RESERVED_PREFIXES: [&str; 3] = ["pool:", "tenant:", "tier:"];

/// A tag: plain ASCII, at most 80 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

/// What a job asks of the worker that may receive it.
#[derive(Clone, Copy, Debug)]
pub struct JobTags<'a> {
    pub required: &'a [Tag],
    pub project: Option<&'a Project>,
}

/// Why a worker does not receive a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    #[error("the worker is not tagged {0}")]
    MissingTag(Tag),
    #[error("a pool:byo worker receives only work of a tenant it is tagged with")]
    ForeignTenant,
}

impl Tag {
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':');
        let fits = (1..=80).contains(&text.len()) && text.bytes().all(plain);
        (fits && text.starts_with(|c: char| c.is_ascii_alphanumeric())).then(|| Self(text.to_owned()))
    }

    pub fn pool(tier: Tier) -> Self {
        Self(format!("pool:{tier}"))
    }

    pub fn tenant(project: &Project) -> Self {
        Self(format!("tenant:{project}"))
    }

    /// Whether only the control plane may grant it.
    pub fn is_reserved(&self) -> bool {
        RESERVED_PREFIXES.iter().any(|prefix| self.0.starts_with(prefix))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a worker with these granted tags may receive the job.
pub fn may_receive(worker: &[Tag], job: JobTags<'_>) -> Result<(), Withheld> {
    if let Some(missing) = job.required.iter().find(|tag| !worker.contains(tag)) {
        return Err(Withheld::MissingTag(missing.clone()));
    }
    let own_tenant = job.project.is_some_and(|project| worker.contains(&Tag::tenant(project)));
    if worker.contains(&Tag::pool(Tier::Byo)) && !own_tenant {
        return Err(Withheld::ForeignTenant);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Path;

    fn tags(texts: &[&str]) -> Vec<Tag> {
        texts.iter().map(|text| Tag::parse(text).unwrap()).collect()
    }

    #[test]
    fn tags_are_plain() {
        assert_eq!(Tag::parse("tenant:acme").unwrap().as_str(), "tenant:acme");
        for bad in ["", ":x", "a b", "é", "a\n", &"a".repeat(81)] {
            assert_eq!(Tag::parse(bad), None, "{bad:?}");
        }
        let longest = Project::parse(&"p".repeat(64), &Path::root()).unwrap();
        assert_eq!(Tag::parse(Tag::tenant(&longest).as_str()), Some(Tag::tenant(&longest)));
    }

    #[test]
    fn pools_are_reserved() {
        let reserved: Vec<bool> =
            tags(&["pool:x", "tenant:x", "tier:x", "gpu", "pools"]).iter().map(Tag::is_reserved).collect();
        assert_eq!(reserved, [true, true, true, false, false]);
    }

    #[test]
    fn a_byo_worker_sees_its_own_tenant_only() {
        let acme = Project::parse("acme", &Path::root()).unwrap();
        let (trusted, byo) = (tags(&["pool:trusted"]), tags(&["pool:byo", "tenant:acme"]));
        let missing = |text: &str| Err(Withheld::MissingTag(Tag::parse(text).unwrap()));
        for (worker, required, project, expected) in [
            (&["pool:trusted"][..], &trusted, Some(&acme), Ok(())),
            (&[], &trusted, Some(&acme), missing("pool:trusted")),
            (&["pool:byo", "tenant:acme"], &byo, Some(&acme), Ok(())),
            (&["pool:byo", "tenant:other"], &byo, Some(&acme), missing("tenant:acme")),
            (&["pool:byo", "tenant:acme"], &vec![], Some(&acme), Ok(())),
            (&["pool:byo", "tenant:other"], &vec![], Some(&acme), Err(Withheld::ForeignTenant)),
            (&["pool:byo", "tenant:acme"], &vec![], None, Err(Withheld::ForeignTenant)),
            (&["pool:byo", "pool:trusted"], &trusted, Some(&acme), Err(Withheld::ForeignTenant)),
            (&["gpu"], &vec![], None, Ok(())),
        ] {
            let job = JobTags { required, project };
            assert_eq!(may_receive(&tags(worker), job), expected, "{worker:?} {required:?}");
        }
    }
}
