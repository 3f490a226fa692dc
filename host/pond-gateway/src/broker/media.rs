//! Pictures and documents in a request. Their tokens do not follow their bytes: a picture is counted by its size in
//! pixels and by its model's own factor, a document by its pages, and a few bytes can describe many of either.

use super::json::Json;

const KINDS: [&str; 16] = [
    "audio",
    "audio_url",
    "base64",
    "computer_screenshot",
    "document",
    "document_url",
    "file",
    "image",
    "image_generation_call",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
    "input_video",
    "video",
    "video_url",
];
const KEYS: [&str; 12] = [
    "audio_url",
    "document_url",
    "fileData",
    "file_data",
    "file_url",
    "image_url",
    "inlineData",
    "inline_data",
    "input_audio",
    "input_video",
    "video",
    "video_url",
];
/// What is heard, alone or beside what is seen.
const SOUND: [&str; 2] = ["audio/", "video/"];

/// Whether a part of this kind is seen, paged or heard.
pub(super) fn is_kind(kind: &str) -> bool {
    KINDS.contains(&kind)
}

/// Whether anything in a part is an address, from which a server would fetch what is not in the request.
pub(super) fn names_address(part: &Json<'_>) -> bool {
    part.text().is_some_and(|text| text.contains("://") && !text.starts_with("data:"))
        || part.entries().iter().any(|(_, value)| names_address(value))
        || part.items().iter().any(names_address)
}

/// Gemini: whether a body brings sound. Looks everywhere, as [`holds_media`] does.
pub(super) fn holds_sound(node: &Json<'_>) -> bool {
    let is_sound = |data: &Json<'_>| {
        let mut kinds = ["mimeType", "mime_type"].into_iter().filter_map(|key| data.get(key)?.text());
        kinds.any(|kind| SOUND.iter().any(|sound| kind.to_ascii_lowercase().contains(sound)))
    };
    let mut data = ["inlineData", "inline_data"].into_iter().filter_map(|key| node.get(key));
    data.any(is_sound)
        || node.entries().iter().any(|(_, value)| holds_sound(value))
        || node.items().iter().any(holds_sound)
}

/// Whether a body holds anything seen, paged or heard. Looks everywhere: a look-alike inside a tool's argument only makes
/// the reservation larger.
pub(super) fn holds_media(node: &Json<'_>) -> bool {
    node.get("type").and_then(Json::text).is_some_and(|kind| KINDS.contains(&kind))
        || node.entries().iter().any(|(key, value)| KEYS.contains(&&**key) || holds_media(value))
        || node.items().iter().any(holds_media)
}
