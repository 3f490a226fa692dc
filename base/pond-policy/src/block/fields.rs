//! The fields of a sandbox block: the one table its parser, its printer and the published schema share.

use crate::backend::Backend;
use crate::image::Image;
use crate::limits::{Cpus, Memory, Pids, TmpfsSize};
use crate::profile::Profile;
use crate::refusal::Code;
use crate::shape::{Echo, Field, Kind, Need, Shape, TextForm};
use crate::tier::Tier;

/// More hosts than this in one stage is a list nobody reviewed.
pub const MOST_HOSTS: usize = 256;

pub(super) const PROFILE: Field = Field {
    name: "profile",
    need: Need::Required(Code::MissingProfile),
    kind: Kind::Choice { names: Profile::SPELLINGS, code: Code::UnknownProfile },
    doc: "The isolation posture; nothing can loosen it.",
};
pub(super) const TIER: Field = Field {
    name: "tier",
    need: Need::Optional,
    kind: Kind::Choice { names: Tier::NAMES, code: Code::UnknownTier },
    doc: "Which pool may run the stage; confined profiles default to trusted.",
};
pub(super) const BACKEND: Field = Field {
    name: "backend",
    need: Need::Optional,
    kind: Kind::Choice { names: Backend::NAMES, code: Code::UnknownBackend },
    doc: "The boundary required; without it, any sandbox-capable worker.",
};
pub(super) const ALLOW_HOSTS: Field = Field {
    name: "allow_hosts",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Text(HOST), least: 0, most: MOST_HOSTS },
    doc: "Hosts added to the default allowlist: a name, or *.name for its subdomains, with an optional :port.",
};
pub(super) const OVERRIDES: Field = Field {
    name: "overrides",
    need: Need::Optional,
    kind: Kind::Object(&OVERRIDES_SHAPE),
    doc: "Quantities that differ from the profile's; never the posture.",
};

/// What a host is, `egress` decides; the form only bounds it.
pub(crate) const HOST: TextForm = TextForm {
    pattern: "^[a-z0-9*][a-z0-9.:*-]*$",
    most: 300,
    check: |_| true,
    code: Code::HostInvalid,
    rule: "a host name such as git.example.com",
};

/// The `sandbox` object.
pub static SANDBOX_SHAPE: Shape = Shape {
    name: "sandbox",
    doc: "How a stage is confined.",
    fields: &[PROFILE, TIER, BACKEND, ALLOW_HOSTS, OVERRIDES],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

named_enum! {
    /// What overrides may touch. This list is the whole of it.
    pub enum OverrideKey {
        Image => "image",
        Memory => "memory",
        Cpus => "cpus",
        PidsLimit => "pids_limit",
        TmpfsSize => "tmpfs_size",
    }
}

impl OverrideKey {
    pub(crate) const fn field(self) -> Field {
        let code = Code::OverrideInvalid;
        let (kind, doc) = match self {
            Self::Image => (Image::kind(code), "The OCI image the job runs in."),
            Self::Memory => (Memory::kind(code), "Main memory, 16m to 1t."),
            Self::Cpus => (Cpus::kind(code), "Processors, 0.01 to 256."),
            Self::PidsLimit => (Pids::kind(code), "Processes and threads, 8 to 32768."),
            Self::TmpfsSize => (TmpfsSize::kind(code), "Size of /tmp, 1m to 64g."),
        };
        Field { name: self.name(), need: Need::Optional, kind, doc }
    }
}

pub(super) const IMAGE: Field = OverrideKey::Image.field();
pub(super) const MEMORY: Field = OverrideKey::Memory.field();
pub(super) const CPUS: Field = OverrideKey::Cpus.field();
pub(super) const PIDS_LIMIT: Field = OverrideKey::PidsLimit.field();
pub(super) const TMPFS_SIZE: Field = OverrideKey::TmpfsSize.field();

/// The `overrides` object.
pub static OVERRIDES_SHAPE: Shape = Shape {
    name: "overrides",
    doc: "Quantities that differ from the profile's.",
    fields: &[IMAGE, MEMORY, CPUS, PIDS_LIMIT, TMPFS_SIZE],
    unknown: Code::OverrideNotAllowed,
    echo: Echo::Given,
};
