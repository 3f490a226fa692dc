//! What a sandbox shows and is lent beyond its files: published ports, and credentials that the gateway uses in its place.
//!
//! Invariants: a port is published on the loopback of the host and nowhere else, so there is no address to give; a credential is named,
//! never written, and belongs to one host.

use crate::block::HOST;
use crate::egress::{HostName, HostRule};
use crate::limits::Count;
use crate::name::Name;
use crate::quote::quote;
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape, TextForm};

const MOST_PORTS: usize = 64;
const MOST_CREDENTIALS: usize = 64;
const DEFAULT_USER: &str = "x-access-token";

type PortNumber = Count<1, 65_535>;

pub(super) const PORTS: Field = Field {
    name: "ports",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Object(&PORT_SHAPE), least: 0, most: MOST_PORTS },
    doc: "Ports of the sandbox that are published on 127.0.0.1 of the host.",
};
const HOST_PORT: Field = Field {
    name: "host",
    need: Need::Required(Code::MissingField),
    kind: PortNumber::kind(Code::PortInvalid),
    doc: "The port on 127.0.0.1, 1 to 65535.",
};
const SANDBOX_PORT: Field = Field {
    name: "sandbox",
    need: Need::Required(Code::MissingField),
    kind: PortNumber::kind(Code::PortInvalid),
    doc: "The port inside, 1 to 65535.",
};
static PORT_SHAPE: Shape = Shape {
    name: "port",
    doc: "A published port.",
    fields: &[HOST_PORT, SANDBOX_PORT],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

pub(super) const CREDENTIALS: Field = Field {
    name: "credentials",
    need: Need::Optional,
    kind: Kind::Map { key: HOST, of: &Kind::Object(&CREDENTIAL_SHAPE), most: MOST_CREDENTIALS },
    doc: "Credentials for git over https, by host; the gateway sends them, the sandbox never has them.",
};
const SECRET: Field = Field {
    name: "secret",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(Name::form(Code::CredentialInvalid)),
    doc: "The name of a `[git.NAME]` table of pond.toml; never the secret itself.",
};
const USERNAME: Field = Field {
    name: "username",
    need: Need::Optional,
    kind: Kind::Text(USERNAME_FORM),
    doc: "The user the credential is of; x-access-token without it.",
};
/// A secret may have been pasted where its name belongs.
static CREDENTIAL_SHAPE: Shape = Shape {
    name: "credential",
    doc: "A credential for one host.",
    fields: &[SECRET, USERNAME],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};
const USERNAME_FORM: TextForm = TextForm {
    pattern: "^[^\\u0000-\\u0020:\\u007f]+$",
    most: 128,
    check: is_username,
    code: Code::CredentialInvalid,
    rule: "a user name of 1 to 128 bytes without `:`, blanks and control characters",
};

/// A port on the host's loopback that leads to one inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub host: u16,
    pub sandbox: u16,
}

/// A credential that the gateway sends for the sandbox to one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCredential {
    pub host: HostName,
    pub secret: Name,
    pub username: String,
}

pub(super) fn read_ports(item: &Item<'_>, refusals: &mut Refusals) -> Vec<Published> {
    let mut ports: Vec<Published> = Vec::new();
    for item in item.list(refusals).unwrap_or_default() {
        let Some(object) = item.object(refusals) else { continue };
        let mut port = |field: &Field| {
            let number = object.item(field)?.quantity(PortNumber::parse, refusals)?;
            u16::try_from(number.get()).ok()
        };
        let (Some(host), Some(sandbox)) = (port(&HOST_PORT), port(&SANDBOX_PORT)) else { continue };
        if ports.iter().any(|known| known.host == host) {
            let message = format!("port {host} of the host is published twice; keep one");
            refusals.refuse(Code::PortDuplicate, item.path(), message);
        }
        ports.push(Published { host, sandbox });
    }
    ports
}

pub(super) fn read_credentials(item: &Item<'_>, refusals: &mut Refusals) -> Vec<GitCredential> {
    let entries = item.map(refusals).unwrap_or_default();
    entries.iter().filter_map(|(host, item)| read_credential(host, item, refusals)).collect()
}

fn read_credential(host: &str, item: &Item<'_>, refusals: &mut Refusals) -> Option<GitCredential> {
    let host_name = one_host(host);
    if host_name.is_none() {
        let message =
            format!("{}: expected the name of one host in lower case, such as github.com", quote(host));
        refusals.refuse(Code::HostInvalid, item.path(), message);
    }
    let object = item.object(refusals)?;
    let secret = object.item(&SECRET).and_then(|item| item.parsed(Name::parse, refusals));
    let username = object.item(&USERNAME).map_or(Some(DEFAULT_USER), |item| item.text(refusals));
    Some(GitCredential { host: host_name?, secret: secret?, username: username?.to_owned() })
}

/// A public name that means one host, as it would have to be written to allow it.
pub(crate) fn one_host(text: &str) -> Option<HostName> {
    let name = HostName::parse(text).ok()?;
    let plain = name.as_str() == text && HostRule::parse_config(text).is_ok();
    plain.then_some(name)
}

fn is_username(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace() || c == ':')
}
