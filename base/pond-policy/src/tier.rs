//! Which pool of machines may run the work.

use crate::name::Project;
use crate::tags::Tag;

named_enum! {
    /// The trust asked of the machine.
    pub enum Tier {
        /// Machines the operator runs.
        Trusted => "trusted",
        /// A machine its owner brought, for its owner's work only.
        Byo => "byo",
        /// Any machine that may see the work.
        Any => "any",
    }
}

impl Tier {
    /// The tags a machine must carry; `None` when the tier needs a project and there is none.
    pub fn required_tags(self, project: Option<&Project>) -> Option<Vec<Tag>> {
        match self {
            Self::Trusted => Some(vec![Tag::pool(Self::Trusted)]),
            Self::Byo => project.map(|project| vec![Tag::pool(Self::Byo), Tag::tenant(project)]),
            Self::Any => Some(Vec::new()),
        }
    }
}
