//! `{{MODEL}}`, `{{BROKER_URL}}` and `{{SECRET:NAME}}` in a text. Other double braces are left alone: files of other
//! languages use them too; a name in capitals that is none of these is a mistake and a fault, and so is every `{{SECRET:` that is
//! not followed by the name of a secret and `}}`.

use thiserror::Error;

use crate::name::Name;
use crate::quote::quote;

/// The secret's name that stands for the model's dummy key.
pub const MODEL_KEY: &str = "MODEL_KEY";

const SECRET: &str = "SECRET:";

/// What the names stand for.
#[derive(Clone, Copy)]
pub struct Values<'v> {
    pub model: &'v str,
    /// Where the broker listens, without a path.
    pub broker_url: &'v str,
    /// The worthless key, as `{{SECRET:MODEL_KEY}}`.
    pub dummy_key: &'v str,
    /// Other secrets by name; asked for nothing else.
    pub secret: &'v dyn Fn(&str) -> Option<String>,
}

/// Secrets are not for printing.
impl std::fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values")
            .field("model", &self.model)
            .field("broker_url", &self.broker_url)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateFault {
    #[error("{0} is not a name this text can use; there are MODEL, BROKER_URL and SECRET:NAME")]
    Unknown(String),
    #[error(
        "{0} is not the name of a secret: `{{{{SECRET:NAME}}}}` has 1 to 64 letters, digits, dots, underscores or dashes"
    )]
    SecretName(String),
    #[error("the secret {0} is not given")]
    NoSecret(String),
}

pub fn fill(text: &str, values: &Values<'_>) -> Result<String, TemplateFault> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let (name, behind) = after.split_once("}}").unwrap_or((after, ""));
        let closed = name.len() < after.len();
        if let Some(secret) = name.strip_prefix(SECRET) {
            let written = Name::parse(secret).filter(|_| closed);
            let written = written.ok_or_else(|| TemplateFault::SecretName(quote(secret)))?;
            out.push_str(&secret_value(written.as_str(), values)?);
            rest = behind;
        } else if closed && is_ours(name) {
            out.push_str(value(name, values)?);
            rest = behind;
        } else {
            // Of three braces the last two may begin a secret.
            let skipped =
                if after.strip_prefix('{').is_some_and(|after| after.starts_with(SECRET)) { 1 } else { 2 };
            out.push_str("{{".get(..skipped).unwrap_or_default());
            rest = rest.get(before.len() + skipped..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a text can be filled in, as far as it can be known without what it names.
pub fn check(text: &str) -> Result<(), TemplateFault> {
    let any = |_: &str| Some(String::new());
    fill(text, &Values { model: "", broker_url: "", dummy_key: "", secret: &any }).map(drop)
}

fn is_ours(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'_' | b':'))
}

fn value<'v>(name: &str, values: &Values<'v>) -> Result<&'v str, TemplateFault> {
    match name {
        "MODEL" => Ok(values.model),
        "BROKER_URL" => Ok(values.broker_url),
        _ => Err(TemplateFault::Unknown(quote(name))),
    }
}

fn secret_value(name: &str, values: &Values<'_>) -> Result<String, TemplateFault> {
    if name == MODEL_KEY {
        return Ok(values.dummy_key.to_owned());
    }
    (values.secret)(name).ok_or_else(|| TemplateFault::NoSecret(quote(name)))
}
