//! The sandbox block: what a stage says about its confinement, parsed once for both sides of the contract.
//!
//! Invariants: there is no block without a profile; overrides touch five quantities and nothing else; a rule that could
//! never take effect is refused; printing a block and parsing it again gives the same block, so a stored block means on
//! the worker exactly what it meant at dispatch.

mod fields;

use crate::backend::Backend;
use crate::capability::Requirement;
use crate::egress::{HostFault, HostFaultCode, HostRule};
use crate::image::Image;
use crate::limits::{Cpus, Limits, Memory, Pids, TmpfsSize};
use crate::node::Node;
use crate::path::Path;
use crate::profile::Profile;
use crate::refusal::{Code, Refusal, Refusals};
use crate::settings::Settings;
use crate::shape::{Field, Item, Object};
use crate::tier::Tier;

pub(crate) use fields::HOST;
use fields::{ALLOW_HOSTS, BACKEND, CPUS, IMAGE, MEMORY, OVERRIDES, PIDS_LIMIT, PROFILE, TIER, TMPFS_SIZE};
pub use fields::{MOST_HOSTS, OVERRIDES_SHAPE, OverrideKey, SANDBOX_SHAPE};

/// A block that means something. Only the parser makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxBlock {
    profile: Profile,
    tier: Tier,
    backend: Option<Backend>,
    allow_hosts: Vec<HostRule>,
    overrides: Overrides,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub image: Option<Image>,
    pub memory: Option<Memory>,
    pub cpus: Option<Cpus>,
    pub pids_limit: Option<Pids>,
    pub tmpfs_size: Option<TmpfsSize>,
}

impl SandboxBlock {
    /// The one door for both sides: the block parsed, and held to the operator's settings.
    pub(crate) fn accept(
        node: Option<&Node>,
        path: &Path,
        settings: &Settings,
        refusals: &mut Refusals,
    ) -> Option<Self> {
        let Some(node) = node else {
            let message = "no sandbox is declared: name a profile, or the explicit opt-out `none`";
            refusals.add(Refusal::new(Code::MissingProfile, path, message).allowing(Profile::SPELLINGS));
            return None;
        };
        let object = SANDBOX_SHAPE.read(node, path, refusals)?;
        let block = read(&object, refusals)?;
        check_settings(&block, &object, settings, refusals);
        Some(block)
    }

    pub const fn profile(&self) -> Profile {
        self.profile
    }

    pub const fn tier(&self) -> Tier {
        self.tier
    }

    pub const fn backend(&self) -> Option<Backend> {
        self.backend
    }

    pub fn allow_hosts(&self) -> &[HostRule] {
        &self.allow_hosts
    }

    pub const fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// What a worker must offer; `None` when the job is not confined.
    pub fn requirement(&self, settings: &Settings) -> Option<Requirement> {
        let floor = settings.min_backend.unwrap_or(Backend::Native).strength();
        let requirement = self.backend.map_or(Requirement::AtLeast(floor), Requirement::Exact);
        self.profile.is_confined().then_some(requirement)
    }

    /// The profile's limits with this block's overrides; `None` when the job is not confined.
    pub fn limits(&self) -> Option<Limits> {
        self.profile.limits().map(|defaults| Limits {
            memory: self.overrides.memory.unwrap_or(defaults.memory),
            cpus: self.overrides.cpus.unwrap_or(defaults.cpus),
            pids: self.overrides.pids_limit.unwrap_or(defaults.pids),
            tmpfs: self.overrides.tmpfs_size.unwrap_or(defaults.tmpfs),
            disk: defaults.disk,
            ulimits: defaults.ulimits,
        })
    }

    /// The canonical form, with every default that decides where the job runs written out.
    pub fn to_node(&self) -> Node {
        let mut entries = vec![
            (PROFILE.name.to_owned(), Node::text(self.profile.name())),
            (TIER.name.to_owned(), Node::text(self.tier.name())),
        ];
        if let Some(backend) = self.backend {
            entries.push((BACKEND.name.to_owned(), Node::text(backend.name())));
        }
        if !self.allow_hosts.is_empty() {
            let hosts = self.allow_hosts.iter().map(|rule| Node::text(rule.to_string())).collect();
            entries.push((ALLOW_HOSTS.name.to_owned(), Node::List(hosts)));
        }
        if self.overrides != Overrides::default() {
            entries.push((OVERRIDES.name.to_owned(), self.overrides.to_node()));
        }
        Node::Map(entries)
    }
}

impl Overrides {
    fn to_node(&self) -> Node {
        let text = |value: &dyn ToString| Node::text(value.to_string());
        let entries = [
            (OverrideKey::Image, self.image.as_ref().map(|image| text(image))),
            (OverrideKey::Memory, self.memory.as_ref().map(|memory| text(memory))),
            (OverrideKey::Cpus, self.cpus.as_ref().map(|cpus| text(cpus))),
            (OverrideKey::PidsLimit, self.pids_limit.map(|pids| Node::Number(pids.get().into()))),
            (OverrideKey::TmpfsSize, self.tmpfs_size.as_ref().map(|size| text(size))),
        ];
        let given = |(key, value): (OverrideKey, Option<Node>)| Some((key.name().to_owned(), value?));
        Node::Map(entries.into_iter().filter_map(given).collect())
    }
}

fn read(object: &Object<'_>, refusals: &mut Refusals) -> Option<SandboxBlock> {
    let profile = object.item(&PROFILE).and_then(|item| item.choice(Profile::parse, refusals));
    let tier = object.item(&TIER).map(|item| item.choice(Tier::from_name, refusals));
    let backend = object.item(&BACKEND).and_then(|item| item.choice(Backend::from_name, refusals));
    let allow_hosts = object.item(&ALLOW_HOSTS).map(|item| read_hosts(item, refusals)).unwrap_or_default();
    let overrides = object.item(&OVERRIDES).map(|item| read_overrides(item, refusals)).unwrap_or_default();

    let profile = profile?;
    refuse_idle_rules(profile, object, refusals);
    let tier = tier.unwrap_or(Some(profile.default_tier()))?;
    Some(SandboxBlock { profile, tier, backend, allow_hosts, overrides })
}

pub(crate) fn read_hosts(item: &Item<'_>, refusals: &mut Refusals) -> Vec<HostRule> {
    let mut rules: Vec<HostRule> = Vec::new();
    for host in item.list(refusals).unwrap_or_default() {
        let Some(text) = host.text(refusals) else { continue };
        match HostRule::parse_config(text) {
            Err(fault) => refusals.add(host_refusal(&fault, host.path())),
            Ok(rule) if rules.contains(&rule) => {
                refusals.refuse(
                    Code::HostDuplicate,
                    host.path(),
                    format!("{rule} is listed twice; keep one"),
                );
            }
            Ok(rule) => rules.push(rule),
        }
    }
    rules
}

fn host_refusal(fault: &HostFault, path: &Path) -> Refusal {
    let code = match fault.code() {
        HostFaultCode::HostInvalid => Code::HostInvalid,
        HostFaultCode::HostReserved => Code::HostReserved,
        HostFaultCode::HostShared => Code::HostShared,
    };
    match fault.suggestion() {
        Some(better) => Refusal::new(code, path, format!("{fault}; write `{better}`")).allowing(&[better]),
        None => Refusal::new(code, path, fault.to_string()),
    }
}

fn read_overrides(item: &Item<'_>, refusals: &mut Refusals) -> Overrides {
    let Some(object) = item.object(refusals) else { return Overrides::default() };
    Overrides {
        image: object.item(&IMAGE).and_then(|item| item.parsed(Image::parse, refusals)),
        memory: object.item(&MEMORY).and_then(|item| item.quantity(Memory::parse, refusals)),
        cpus: object.item(&CPUS).and_then(|item| item.quantity(Cpus::parse, refusals)),
        pids_limit: object.item(&PIDS_LIMIT).and_then(|item| item.quantity(Pids::parse, refusals)),
        tmpfs_size: object.item(&TMPFS_SIZE).and_then(|item| item.quantity(TmpfsSize::parse, refusals)),
    }
}

/// A rule that cannot act is a misunderstanding of what confines the job, and is refused as one.
fn refuse_idle_rules(profile: Profile, object: &Object<'_>, refusals: &mut Refusals) {
    let confined = "the unconfined profile enforces nothing";
    let mut idle = |field: &Field, reason: &str| {
        if let Some(item) = object.item(field).filter(|item| !item.is_empty()) {
            let message = format!("`{}` has no effect on {profile}: {reason}; remove it", field.name);
            refusals.refuse(Code::RuleWithoutEffect, item.path(), message);
        }
    };
    if !profile.has_allowlist() {
        idle(&ALLOW_HOSTS, "its network has no allowlist");
    }
    if !profile.is_confined() {
        idle(&BACKEND, confined);
        idle(&OVERRIDES, confined);
    }
}

/// The operator's floor, applied to what was written; it can only refuse.
fn check_settings(block: &SandboxBlock, object: &Object<'_>, settings: &Settings, refusals: &mut Refusals) {
    let place = |field: &Field| object.item(field).map_or(&object.path, Item::path);
    let confinement_required = settings.require_sandbox || settings.min_backend.is_some();
    if confinement_required && !block.profile.is_confined() {
        let message = "this deployment refuses unconfined work; choose a confined profile";
        refusals
            .add(Refusal::new(Code::UnconfinedRefused, place(&PROFILE), message).allowing(&confined_names()));
    }
    if let (Some(floor), Some(backend)) = (settings.min_backend, block.backend)
        && backend.strength() < floor.strength()
    {
        let strong = |backend: &&Backend| backend.strength() >= floor.strength();
        let names: Vec<&str> = Backend::ALL.iter().filter(strong).map(|backend| backend.name()).collect();
        let message =
            format!("{backend} is weaker than this deployment's floor, {floor}; name a stronger backend");
        refusals.add(Refusal::new(Code::BackendBelowFloor, place(&BACKEND), message).allowing(&names));
    }
}

fn confined_names() -> Vec<&'static str> {
    Profile::ALL.iter().filter(|profile| profile.is_confined()).map(|profile| profile.name()).collect()
}

#[cfg(test)]
mod tests;
