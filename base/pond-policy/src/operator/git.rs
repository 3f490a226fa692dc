//! `[git.NAME]`: a credential for git over https, by the name that sandbox documents use, and the one host it is good for.
//!
//! The host stands here and not only in the document: whoever writes a document names a secret and never says where it goes.

use crate::egress::HostName;
use crate::name::Name;
use crate::refusal::{Code, Refusals};
use crate::sandboxes::one_host;
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

use super::model::{CA_FILE, CREDENTIAL, Credential, read_credential};

const HOST: Field = Field {
    name: "host",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(crate::block::HOST),
    doc: "The one host it is sent to, such as github.com.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "git",
    doc: "A credential for git over https.",
    fields: &[HOST, CREDENTIAL, CA_FILE],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};

/// A credential that sandboxes may be lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Git {
    pub name: Name,
    pub host: HostName,
    pub credential: Credential,
    pub ca_file: Option<String>,
}

pub(super) fn read(name: &str, item: &Item<'_>, refusals: &mut Refusals) -> Option<Git> {
    let object = item.object(refusals)?;
    let host = object.item(&HOST).and_then(|item| {
        let host = one_host(item.text(refusals)?);
        if host.is_none() {
            let message = "expected the name of one host in lower case, such as github.com";
            refusals.refuse(Code::HostInvalid, item.path(), message);
        }
        host
    });
    let credential = object.item(&CREDENTIAL).and_then(|item| read_credential(item, refusals));
    let ca_file = object.item(&CA_FILE).and_then(|item| item.text(refusals)).map(str::to_owned);
    Some(Git { name: Name::parse(name)?, host: host?, credential: credential?, ca_file })
}
