//! `[model.NAME]`: where a model is, how it is spoken to, which ids may be asked for and where its key is read from.

use crate::model::{Api, Auth, Price, Upstream, built_in};
use crate::name::Name;
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Object, Shape, TextForm};

/// A model's id as its provider spells it.
pub(super) const ID: TextForm = TextForm {
    pattern: "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$",
    most: 128,
    check: is_id,
    code: Code::ModelInvalid,
    rule: "a model id of at most 128 plain characters",
};
const UPSTREAM_FORM: TextForm = TextForm {
    pattern: "^https://",
    most: 600,
    check: |_| true,
    code: Code::UpstreamInvalid,
    rule: "an address such as https://models.example.com",
};
/// Any text: a key pasted here by mistake must not be quoted back, as a form would.
const CREDENTIAL_FORM: TextForm = TextForm {
    pattern: "^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$",
    most: 1 << 20,
    check: |_| true,
    code: Code::CredentialInvalid,
    rule: "env:NAME or file:/absolute/path",
};
const FILE_FORM: TextForm = TextForm {
    pattern: "^/[^\\u0000-\\u001f]+$",
    most: 4096,
    check: is_absolute,
    code: Code::PathInvalid,
    rule: "an absolute path",
};

const API: Field = Field {
    name: "api",
    need: Need::Required(Code::MissingField),
    kind: Kind::Choice { names: Api::NAMES, code: Code::UnknownApi },
    doc: "What the upstream speaks.",
};
const UPSTREAM: Field = Field {
    name: "upstream",
    need: Need::Optional,
    kind: Kind::Text(UPSTREAM_FORM),
    doc: "Where it is; without it the API's own provider. The API's path is added to it.",
};
const UPSTREAM_PRIVATE: Field = Field {
    name: "upstream_private",
    need: Need::Optional,
    kind: Kind::Flag,
    doc: "Whether the upstream may have an address that is not public.",
};
pub(super) const CA_FILE: Field = Field {
    name: "ca_file",
    need: Need::Optional,
    kind: Kind::Text(FILE_FORM),
    doc: "Certificates, in PEM, to trust instead of the built-in authorities.",
};
const AUTH: Field = Field {
    name: "auth",
    need: Need::Optional,
    kind: Kind::Choice { names: Auth::NAMES, code: Code::UnknownAuth },
    doc: "The header the key goes in; without it the API's own.",
};
pub(super) const CREDENTIAL: Field = Field {
    name: "credential",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(CREDENTIAL_FORM),
    doc: "Where the key is read from: env:NAME, or file:/path of a file only its owner can read.",
};
const MODELS: Field = Field {
    name: "models",
    need: Need::Required(Code::MissingField),
    kind: Kind::List { of: &Kind::Text(ID), least: 1, most: 64 },
    doc: "The ids a job may ask for; the first is the one it is told of.",
};
const PROVIDER_TOOLS: Field = Field {
    name: "provider_tools",
    need: Need::Optional,
    kind: Kind::Flag,
    doc: "Whether the provider may be asked to search, fetch and run things itself.",
};

pub(super) static SHAPE: Shape = Shape {
    name: "model",
    doc: "A model the broker can serve.",
    fields: &[API, UPSTREAM, UPSTREAM_PRIVATE, CA_FILE, AUTH, CREDENTIAL, MODELS, PROVIDER_TOOLS],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub name: Name,
    pub api: Api,
    pub upstream: Upstream,
    /// The upstream as it was written, for the gateway to read again.
    pub upstream_text: String,
    pub upstream_private: bool,
    pub ca_file: Option<String>,
    pub auth: Auth,
    pub credential: Credential,
    /// Ids and prices; the first is the default. Never empty.
    pub ids: Vec<(String, Price)>,
    pub provider_tools: bool,
}

/// Where a key is read from when a run starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Env(String),
    /// A file that must belong to the reader and be closed to everyone else.
    File(String),
}

impl Credential {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let fits = plain && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
            return fits.then(|| Self::Env(name.to_owned()));
        }
        let path = text.strip_prefix("file:")?;
        is_absolute(path).then(|| Self::File(path.to_owned()))
    }
}

/// `priced` names every `[price]` entry, also those that could not be read: their fault is told once, there.
pub(super) fn read(
    name: &str,
    item: &Item<'_>,
    prices: &[(String, Price)],
    priced: &[&str],
    refusals: &mut Refusals,
) -> Option<Model> {
    let object = item.object(refusals)?;
    let api = object.item(&API).and_then(|item| item.choice(Api::from_name, refusals));
    let auth = object.item(&AUTH).map(|item| item.choice(Auth::from_name, refusals));
    let credential = object.item(&CREDENTIAL).and_then(|item| read_credential(item, refusals));
    let ca_file = object.item(&CA_FILE).and_then(|item| item.text(refusals)).map(str::to_owned);
    let upstream_private = flag(&object, &UPSTREAM_PRIVATE, refusals);
    let provider_tools = flag(&object, &PROVIDER_TOOLS, refusals);
    let ids = object.item(&MODELS).map(|item| read_ids(item, prices, priced, refusals)).unwrap_or_default();
    let api = api?;
    let (upstream_text, upstream) = read_upstream(&object, api, upstream_private, refusals)?;
    Some(Model {
        name: Name::parse(name)?,
        api,
        upstream,
        upstream_text,
        upstream_private,
        ca_file,
        auth: auth.unwrap_or(Some(api.auth()))?,
        credential: credential?,
        ids,
        provider_tools,
    })
}

pub(super) fn read_credential(item: &Item<'_>, refusals: &mut Refusals) -> Option<Credential> {
    let credential = Credential::parse(item.text(refusals)?);
    if credential.is_none() {
        let message =
            format!("expected {}; the key itself does not belong in this file", CREDENTIAL_FORM.rule);
        refusals.refuse(Code::CredentialInvalid, item.path(), message);
    }
    credential
}

fn read_upstream(
    object: &Object<'_>,
    api: Api,
    private: bool,
    refusals: &mut Refusals,
) -> Option<(String, Upstream)> {
    let (text, path) = match (object.item(&UPSTREAM), api.home()) {
        (Some(item), _) => (item.text(refusals)?, item.path().clone()),
        (None, Some(home)) => (home, object.path.field(UPSTREAM.name)),
        (None, None) => {
            let message = format!("`upstream` is missing: {api} has no one provider");
            refusals.refuse(Code::UpstreamMissing, &object.path.field(UPSTREAM.name), message);
            return None;
        }
    };
    match Upstream::parse(text, private) {
        Ok(upstream) => Some((text.to_owned(), upstream)),
        Err(fault) => {
            refusals.refuse(Code::UpstreamInvalid, &path, fault.to_string());
            None
        }
    }
}

fn read_ids(
    item: &Item<'_>,
    prices: &[(String, Price)],
    priced: &[&str],
    refusals: &mut Refusals,
) -> Vec<(String, Price)> {
    let mut ids: Vec<(String, Price)> = Vec::new();
    for item in item.list(refusals).unwrap_or_default() {
        let Some(id) = item.text(refusals) else { continue };
        let own = prices.iter().find(|(own, _)| own == id).map(|(_, price)| *price);
        match own.or_else(|| built_in(id)) {
            _ if ids.iter().any(|(seen, _)| seen == id) => {
                refusals.refuse(Code::DuplicateField, item.path(), "it is listed twice; keep one");
            }
            Some(price) => ids.push((id.to_owned(), price)),
            None if priced.contains(&id) => {}
            None => {
                let message = "this id has no built-in price: add a [price.\"ID\"] table for it";
                refusals.refuse(Code::PriceMissing, item.path(), message);
            }
        }
    }
    ids
}

fn flag(object: &Object<'_>, field: &Field, refusals: &mut Refusals) -> bool {
    object.item(field).and_then(|item| item.flag(refusals)).unwrap_or(false)
}

fn is_id(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'/' | b'@' | b'-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

fn is_absolute(text: &str) -> bool {
    text.len() > 1 && text.starts_with('/') && !text.chars().any(char::is_control)
}
