//! The sandbox document: a sandbox that lasts, what of the host enters it, what stands beside it, and when it ends.
//!
//! Trust zone: read by whoever is asked for a sandbox, and again by who keeps it. Invariants: a `Spec` is confined; whatever of the
//! host it holds was declared; there is no field for a network, so none can name the host's; every fault is reported at once.

mod companion;
mod exec;
mod id;
mod ingress;
mod merge;
mod outward;
mod remote;
mod ttl;

use crate::backend::Backend;
use crate::block::SANDBOX_SHAPE;
use crate::capability::Requirement;
use crate::harness::Agent;
use crate::node::Node;
use crate::path::Path;
use crate::profile::{Filesystem, Network, Profile};
use crate::refusal::{Code, Refusal, Refusals};
use crate::run::executor::{ENV_NAME, ENV_VALUE, MODEL_FORM, read_map};
use crate::sandbox::{self, SandboxPolicy};
use crate::settings::Settings;
use crate::shape::{Echo, Field, Item, Kind, Need, Object, Shape, TextForm};

pub use companion::{Companion, CompanionLimits, Healthcheck, Retries};
pub use exec::check_exec;
pub use id::{Alias, SandboxId};
pub use ingress::{Copied, Mount, RESERVED, Tool};
pub use merge::merge;
pub(crate) use outward::one_host;
pub use outward::{GitCredential, Published};
pub use remote::{Share, check_remote};
pub use ttl::{Ttl, TtlFault};

use companion::COMPANIONS;
use ingress::{BUILTIN_TOOLS, COPIES, MOUNTS};
use outward::{CREDENTIALS, PORTS};

/// Labels that begin so are pond's own.
pub const OWN_LABELS: &str = "io.pond.";
/// Where the profile's view of a workspace is inside.
pub const WORKSPACE_TARGET: &str = "/workspace";

const ID: Field = Field {
    name: "id",
    need: Need::Optional,
    kind: Kind::Text(SandboxId::FORM),
    doc: "Its name, never given to another; made up without it.",
};
const LABELS: Field = Field {
    name: "labels",
    need: Need::Optional,
    kind: Kind::Map { key: LABEL_KEY, of: &Kind::Text(LABEL_VALUE), most: 64 },
    doc: "Words of its owner's, to find it by.",
};
const SANDBOX: Field = Field {
    name: "sandbox",
    need: Need::Required(Code::MissingSandbox),
    kind: Kind::Object(&SANDBOX_SHAPE),
    doc: "How it is confined; any profile but none.",
};
const WORKSPACE: Field = Field {
    name: "workspace",
    need: Need::Optional,
    kind: Kind::Text(ingress::SOURCE_FORM),
    doc: "A directory of the host that the profile shows in /workspace: read-only, or as a copy that is thrown away. Not with untrusted-code-internet.",
};
const ENV: Field = Field {
    name: "env",
    need: Need::Optional,
    kind: Kind::Map { key: ENV_NAME, of: &Kind::Text(ENV_VALUE), most: 256 },
    doc: "Environment variables of every command run in it.",
};
const AGENT: Field = Field {
    name: "agent",
    need: Need::Optional,
    kind: Kind::Choice { names: Agent::NAMES, code: Code::UnknownAgent },
    doc: "The agent whose settings are put into its home.",
};
const MODEL: Field = Field {
    name: "model",
    need: Need::Optional,
    kind: Kind::Text(MODEL_FORM),
    doc: "The model the broker serves to it.",
};
const IDLE_TTL: Field = Field {
    name: "idle_ttl",
    need: Need::Optional,
    kind: Ttl::kind(),
    doc: "When it is stopped that nobody used, 1s to 365d or never; 10m without it.",
};
const CLEANUP_TTL: Field = Field {
    name: "cleanup_ttl",
    need: Need::Optional,
    kind: Ttl::kind(),
    doc: "When it is deleted after it stopped, 1s to 365d or never; 15d without it.",
};

/// The whole document.
pub static SPEC_SHAPE: Shape = Shape {
    name: "sandbox_document",
    doc: "A sandbox that lasts.",
    fields: &[
        ID,
        LABELS,
        SANDBOX,
        WORKSPACE,
        MOUNTS,
        COPIES,
        BUILTIN_TOOLS,
        ENV,
        PORTS,
        AGENT,
        MODEL,
        CREDENTIALS,
        COMPANIONS,
        IDLE_TTL,
        CLEANUP_TTL,
    ],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

const LABEL_KEY: TextForm = TextForm {
    pattern: "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$",
    most: 63,
    check: is_label_key,
    code: Code::LabelInvalid,
    rule: "a key of 1 to 63 letters, digits, dots, slashes, underscores or dashes, beginning with a letter or digit and not with io.pond.",
};
const LABEL_VALUE: TextForm = TextForm {
    pattern: "^[^\\u0000-\\u001f\\u007f]*$",
    most: 256,
    check: |text| !text.chars().any(char::is_control),
    code: Code::LabelInvalid,
    rule: "text of at most 256 bytes without control characters; put numbers in quotes",
};

/// A sandbox that may be made. Only `read` makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub id: Option<SandboxId>,
    /// In document order, none of them pond's own.
    pub labels: Vec<(String, String)>,
    pub policy: SandboxPolicy,
    /// A directory of the host.
    pub workspace: Option<String>,
    pub mounts: Vec<Mount>,
    pub copies: Vec<Copied>,
    pub tools: Vec<Tool>,
    pub env: Vec<(String, String)>,
    pub ports: Vec<Published>,
    pub agent: Option<Agent>,
    pub model: Option<String>,
    pub credentials: Vec<GitCredential>,
    pub companions: Vec<Companion>,
    pub idle_ttl: Ttl,
    pub cleanup_ttl: Ttl,
}

/// Reads a document and decides it, with what the operator demands of every sandbox.
pub fn read(document: &Node, settings: &Settings) -> Result<Spec, Refusals> {
    let mut refusals = Refusals::default();
    let object = SPEC_SHAPE.read(document, &Path::root(), &mut refusals);
    let spec = object.and_then(|object| judge(&object, settings, &mut refusals));
    refusals.finish(spec)
}

fn judge(object: &Object<'_>, settings: &Settings, refusals: &mut Refusals) -> Option<Spec> {
    let id = object.item(&ID).map(|item| item.parsed(SandboxId::parse, refusals));
    let labels = read_map(object, &LABELS, refusals);
    let workspace = object.item(&WORKSPACE).and_then(|item| item.text(refusals)).map(str::to_owned);
    let mut placed = Vec::new();
    let mounts = members(object, &MOUNTS, refusals);
    let mounts = mounts.iter().filter_map(|item| ingress::read_mount(item, &mut placed, refusals)).collect();
    let copies = members(object, &COPIES, refusals);
    let copies = copies.iter().filter_map(|item| ingress::read_copy(item, &mut placed, refusals)).collect();
    let tools = object.item(&BUILTIN_TOOLS).map(|item| ingress::read_tools(item, refusals));
    let env = read_map(object, &ENV, refusals);
    let ports = object.item(&PORTS).map(|item| outward::read_ports(item, refusals));
    let agent = object.item(&AGENT).and_then(|item| item.choice(Agent::from_name, refusals));
    let model = object.item(&MODEL).and_then(|item| item.text(refusals)).map(str::to_owned);
    let credentials = object.item(&CREDENTIALS).map(|item| outward::read_credentials(item, refusals));
    let companions = object.item(&COMPANIONS).map(|item| companion::read(item, refusals));
    let (idle_ttl, cleanup_ttl) = (
        read_ttl(object, &IDLE_TTL, Ttl::IDLE, refusals),
        read_ttl(object, &CLEANUP_TTL, Ttl::CLEANUP, refusals),
    );
    let policy = object.item(&SANDBOX).and_then(|item| read_policy(item, settings, refusals));

    let profile = policy.as_ref().map(SandboxPolicy::profile);
    let own = profile.is_none_or(shows_workspace).then_some(WORKSPACE_TARGET);
    ingress::check_targets(&placed, own, refusals);
    check_joint(object, policy.as_ref()?, refusals);
    Some(Spec {
        id: id.map_or(Some(None), |id| id.map(Some))?,
        labels,
        policy: policy?,
        workspace,
        mounts,
        copies,
        tools: tools.unwrap_or_default(),
        env,
        ports: ports.unwrap_or_default(),
        agent,
        model,
        credentials: credentials.unwrap_or_default(),
        companions: companions.unwrap_or_default(),
        idle_ttl: idle_ttl?,
        cleanup_ttl: cleanup_ttl?,
    })
}

fn members<'n>(object: &Object<'n>, field: &Field, refusals: &mut Refusals) -> Vec<Item<'n>> {
    object.item(field).and_then(|item| item.list(refusals)).unwrap_or_default()
}

fn read_ttl(object: &Object<'_>, field: &Field, otherwise: Ttl, refusals: &mut Refusals) -> Option<Ttl> {
    object.item(field).map_or(Some(otherwise), |item| item.quantity(Ttl::parse, refusals))
}

fn read_policy(item: &Item<'_>, settings: &Settings, refusals: &mut Refusals) -> Option<SandboxPolicy> {
    let policy = match sandbox::resolve_at(item.path(), Some(item.node()), settings) {
        Ok(policy) => policy,
        Err(faults) => {
            refusals.append(faults);
            return None;
        }
    };
    if !policy.profile().is_confined() {
        let message = "a sandbox that lasts is confined; choose a confined profile";
        let confined: Vec<&str> = confined().map(Profile::name).collect();
        let place = item.path().field("profile");
        refusals.add(Refusal::new(Code::UnconfinedRefused, &place, message).allowing(&confined));
    }
    if let Node::Map(entries) = item.node()
        && let Some(position) = entries.iter().position(|(key, _)| key == "tier")
    {
        let message = "`tier` has no effect here: a sandbox that lasts is on the machine that is asked for it; remove it";
        refusals.refuse(Code::RuleWithoutEffect, &item.path().key(position, "tier"), message);
    }
    Some(policy)
}

fn confined() -> impl Iterator<Item = Profile> {
    Profile::ALL.iter().copied().filter(|profile| profile.is_confined())
}

const fn shows_workspace(profile: Profile) -> bool {
    !matches!(profile.posture().filesystem, Filesystem::DeclaredOnly)
}

/// Rules between the profile or the backend and the rest of the document.
fn check_joint(object: &Object<'_>, policy: &SandboxPolicy, refusals: &mut Refusals) {
    let profile = policy.profile();
    let mut idle = |field: &Field, reason: &str| {
        if let Some(item) = object.item(field).filter(|item| !item.is_empty()) {
            let message = format!("`{}` has no effect on {profile}: {reason}; remove it", field.name);
            refusals.refuse(Code::RuleWithoutEffect, item.path(), message);
        }
    };
    if !shows_workspace(profile) {
        idle(&WORKSPACE, "it shows only what mounts, copies and builtin_tools declare");
    }
    match profile.posture().network {
        Network::Sealed => {
            let sealed = "nothing is reachable from it, and it from nowhere";
            [&MODEL, &AGENT, &PORTS, &COMPANIONS, &CREDENTIALS]
                .into_iter()
                .for_each(|field| idle(field, sealed));
        }
        Network::BrokerOnly => idle(&CREDENTIALS, "it reaches no host but the model's"),
        Network::Open | Network::Allowlist | Network::Internet => {}
    }
    check_companions(object, policy, refusals);
}

/// Companions are containers, so the sandbox beside them must be one, and must say so: none is chosen for it.
fn check_companions(object: &Object<'_>, policy: &SandboxPolicy, refusals: &mut Refusals) {
    let Some(item) = object.item(&COMPANIONS).filter(|item| !item.is_empty()) else { return };
    let named = match policy.requirement() {
        Some(Requirement::Exact(backend)) => Some(backend),
        Some(Requirement::AtLeast(_)) | None => None,
    };
    let able = [Backend::Docker, Backend::Gvisor];
    if !named.is_some_and(|backend| able.contains(&backend)) {
        let message =
            "companions are containers beside the sandbox: name `backend: docker` or `backend: gvisor`";
        let names = able.map(Backend::name);
        refusals.add(Refusal::new(Code::CompanionsUnsupported, item.path(), message).allowing(&names));
    }
}

fn is_label_key(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(plain)
        && !text.to_ascii_lowercase().starts_with(OWN_LABELS)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
