//! Routing: which worker may receive which job, and what to tell the owner of a job that nobody may.
//!
//! A job needs a capability, tags, and a worker that may see its project; a worker has what the control plane granted and
//! what probes confirmed. Invariants: a job reaches a worker only if everything it needs is there; a `pool:byo` worker
//! receives nothing of a tenant it is not tagged with, whatever the tier; a worker cannot give itself a reserved tag.

use std::fmt;

use crate::capability::{Capability, Requirement};
use crate::dispatch::Dispatch;
use crate::name::{Name, Project};
use crate::tags::{JobTags, Tag, Withheld, may_receive};
use crate::tier::Tier;

/// How a canonical text says that any worker with the tags will do.
const UNCONFINED: &str = "unconfined";

/// What a job needs of a worker. Two jobs with the same text are the same to every worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Need {
    capability: Option<Requirement>,
    tags: Vec<Tag>,
    project: Project,
}

/// What a worker has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    pub tags: Vec<Tag>,
    pub capabilities: Vec<Capability>,
}

/// Why a worker does not receive a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the worker does not offer {0}")]
    Capability(Requirement),
    #[error("{0}")]
    Tags(Withheld),
}

/// A tag that only the control plane may grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is granted by the control plane only")]
pub struct ReservedTag(pub Tag);

impl Need {
    pub fn new(capability: Option<Requirement>, mut tags: Vec<Tag>, project: Project) -> Self {
        tags.sort();
        tags.dedup();
        Self { capability, tags, project }
    }

    pub fn of(dispatch: &Dispatch, project: &Project) -> Self {
        Self::new(dispatch.required_capability, dispatch.required_tags.clone(), project.clone())
    }

    /// Reads back what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let capability = match words.next()? {
            UNCONFINED => None,
            name => Some(Requirement::parse(name)?),
        };
        let project = Project::from(Name::parse(words.next()?)?);
        let tags = words.map(Tag::parse).collect::<Option<Vec<_>>>()?;
        let need = Self::new(capability, tags, project);
        (need.to_string() == text).then_some(need)
    }

    pub fn project(&self) -> &Project {
        &self.project
    }

    /// `None` for unconfined work.
    pub fn capability(&self) -> Option<Requirement> {
        self.capability
    }

    pub fn tags(&self) -> &[Tag] {
        &self.tags
    }

    /// `need ⊆ have`, and the rule of `pool:byo`.
    pub fn met_by(&self, have: &Have) -> Result<(), Mismatch> {
        let job = JobTags { required: &self.tags, project: Some(&self.project) };
        may_receive(&have.tags, job).map_err(Mismatch::Tags)?;
        match self.capability {
            Some(wanted) if !wanted.satisfied_by(&have.capabilities) => Err(Mismatch::Capability(wanted)),
            Some(_) | None => Ok(()),
        }
    }

    /// What to tell somebody whose job waits, in view of all workers there are; nothing if one of them will do.
    pub fn unmet<'a>(&self, workers: impl IntoIterator<Item = &'a Have>) -> Option<String> {
        let refused: Option<Vec<Mismatch>> =
            workers.into_iter().map(|have| self.met_by(have).err()).collect();
        let in_the_pool = refused?.iter().any(|mismatch| matches!(mismatch, Mismatch::Capability(_)));
        let offers = self.capability.map(|wanted| format!("offers {wanted}"));
        let place = self.place();
        Some(match (offers, in_the_pool) {
            (Some(offers), true) => format!("no worker {offers} {place}"),
            (Some(offers), false) => format!("no worker is {place}; one that {offers} is needed"),
            (None, _) => format!("no worker is {place}"),
        })
    }

    fn place(&self) -> String {
        let tags: Vec<&str> = self.tags.iter().map(Tag::as_str).collect();
        if tags.is_empty() {
            format!("open to {}", self.project)
        } else {
            format!("in {}", tags.join(" and "))
        }
    }
}

/// The one spelling of a need: capability, project, sorted tags.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.capability {
            Some(capability) => write!(f, "{capability}")?,
            None => f.write_str(UNCONFINED)?,
        }
        write!(f, " {}", self.project)?;
        self.tags.iter().try_for_each(|tag| write!(f, " {tag}"))
    }
}

/// The tags of a new worker: the pool of its tier, its tenant, and what the operator adds. `None` where the tier cannot be
/// granted: `byo` without a tenant, and `any`, which is asked for and never had. Nor does an addition name a pool or tenant.
pub fn granted(tier: Tier, tenant: Option<&Project>, extra: &[Tag]) -> Option<Vec<Tag>> {
    let pool = match (tier, tenant) {
        (Tier::Trusted, None) | (Tier::Byo, Some(_)) => Tag::pool(tier),
        (Tier::Trusted, Some(_)) | (Tier::Byo, None) | (Tier::Any, _) => return None,
    };
    refuse_reserved(extra).ok()?;
    let tenant = tenant.map(Tag::tenant);
    Some([pool].into_iter().chain(tenant).chain(extra.iter().cloned()).collect())
}

/// Refuses tags that somebody other than the control plane asks for.
pub fn refuse_reserved(asked: &[Tag]) -> Result<(), ReservedTag> {
    match asked.iter().find(|tag| tag.is_reserved()) {
        Some(tag) => Err(ReservedTag(tag.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
