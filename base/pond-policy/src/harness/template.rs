//! `{{MODEL}}`, `{{BROKER_URL}}` and `{{SECRET:NAME}}` in a text. Other double braces are left alone: files of other
//! languages use them too; a name in capitals that is none of these is a mistake and a fault.

use thiserror::Error;

use crate::quote::quote;

/// The secret's name that stands for the model's dummy key.
pub const MODEL_KEY: &str = "MODEL_KEY";

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
    #[error("the secret {0} is not given")]
    NoSecret(String),
}

pub fn fill(text: &str, values: &Values<'_>) -> Result<String, TemplateFault> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let name = after.split_once("}}").map(|(name, _)| name).filter(|name| is_ours(name));
        match name {
            Some(name) => {
                out.push_str(&value(name, values)?);
                rest = after.get(name.len() + 2..).unwrap_or_default();
            }
            None => {
                out.push_str("{{");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn is_ours(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'_' | b':'))
}

fn value(name: &str, values: &Values<'_>) -> Result<String, TemplateFault> {
    match (name, name.strip_prefix("SECRET:")) {
        ("MODEL", _) => Ok(values.model.to_owned()),
        ("BROKER_URL", _) => Ok(values.broker_url.to_owned()),
        (_, Some(MODEL_KEY)) => Ok(values.dummy_key.to_owned()),
        (_, Some(secret)) => (values.secret)(secret).ok_or_else(|| TemplateFault::NoSecret(quote(secret))),
        (_, None) => Err(TemplateFault::Unknown(quote(name))),
    }
}
