//! Pictures and documents in a request. Their tokens do not follow their bytes: a picture is counted by its size in
//! pixels and by its model's own factor, a document by its pages, and a few bytes can describe many of either.

use super::json::Json;

const KINDS: [&str; 12] = [
    "audio_url",
    "base64",
    "computer_screenshot",
    "document",
    "file",
    "image",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
    "input_video",
    "video_url",
];
const KEYS: [&str; 10] = [
    "audio_url",
    "fileData",
    "file_data",
    "file_url",
    "image_url",
    "inlineData",
    "inline_data",
    "input_audio",
    "input_video",
    "video_url",
];

/// Whether a body holds anything seen, paged or heard. Looks everywhere: a look-alike inside a tool's argument only makes
/// the reservation larger.
pub(super) fn holds_media(node: &Json<'_>) -> bool {
    node.get("type").and_then(Json::text).is_some_and(|kind| KINDS.contains(&kind))
        || node.entries().iter().any(|(key, value)| KEYS.contains(&&**key) || holds_media(value))
        || node.items().iter().any(holds_media)
}
