//! Documents from users: bytes to [`Node`], as JSON, YAML or TOML.
//!
//! Trust zone: the bytes are hostile. Invariants: size is capped before decoding and depth while decoding; order,
//! duplicate keys and the spelling of numbers reach the parsers of pond-policy unchanged; nothing in a document can make
//! another part of it appear twice (no anchors, no merges) or change its type (no tags).

mod json;
mod toml;
mod yaml;

use pond_policy::node::Node;
use pond_policy::path::Path;
use pond_policy::refusal::{Code, Refusal, Refusals};

/// Largest accepted document.
pub const MOST_BYTES: usize = 1 << 20;
/// Deepest accepted nesting of objects and lists.
pub const MOST_DEPTH: usize = 32;

/// Decodes a document by its look: JSON if it begins with a brace, else YAML.
pub fn decode(bytes: &[u8]) -> Result<Node, Refusals> {
    let begins_with_brace = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if begins_with_brace { decode_json(bytes) } else { decode_yaml(bytes) }
}

pub fn decode_json(bytes: &[u8]) -> Result<Node, Refusals> {
    Ok(text(bytes).and_then(json::decode)?)
}

pub fn decode_yaml(bytes: &[u8]) -> Result<Node, Refusals> {
    Ok(text(bytes).and_then(yaml::decode)?)
}

pub fn decode_toml(bytes: &[u8]) -> Result<Node, Refusals> {
    Ok(text(bytes).and_then(toml::decode)?)
}

fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    // Who reads a file stops at the first byte too many: how long it is, is not known here.
    if bytes.len() > MOST_BYTES {
        let message = format!("the document has more than {MOST_BYTES} bytes");
        return Err(Refusal::new(Code::DocumentTooLarge, &Path::root(), message));
    }
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        return Err(invalid("the document begins with a byte order mark; save it as plain UTF-8"));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        invalid(&format!("line {line}, byte {}: not UTF-8; save the document as UTF-8", error.valid_up_to()))
    })
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(Code::DocumentInvalid, &Path::root(), message)
}

fn too_deep(path: &Path) -> Refusal {
    Refusal::new(Code::DocumentTooDeep, path, format!("nested deeper than {MOST_DEPTH} levels; flatten it"))
}

#[cfg(test)]
mod tests;
