//! Keys that look right and open nothing. Clients check prefix and length before they call; the broker checks the rest.

use crate::model::Api;

/// Random bytes a dummy key is made from.
pub const DUMMY_ENTROPY: usize = 256;

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key in the shape of the API's own, at least as long as a real one of `real` bytes.
pub fn dummy_key(api: Api, real: usize, entropy: &[u8; DUMMY_ENTROPY]) -> String {
    let (prefix, usual) = match api {
        Api::Anthropic => ("sk-ant-api03-", 108),
        Api::Openai => ("sk-proj-", 164),
        Api::OpenaiChat => ("sk-", 51),
        Api::Gemini => ("AIza", 39),
    };
    let length = usual.max(real).min(prefix.len() + DUMMY_ENTROPY);
    let letters = entropy.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 62)));
    let random = letters.take(length - prefix.len()).copied().map(char::from);
    prefix.chars().chain(random).collect()
}
