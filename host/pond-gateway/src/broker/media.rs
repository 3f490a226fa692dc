//! Pictures and documents in a request. Their tokens do not follow their bytes: a picture is counted by its size in
//! pixels, a document by its pages, and a few bytes can describe many of either.

use super::json::Json;

/// No provider counts more for one picture.
const IMAGE_TOKENS: u64 = 10_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Media {
    pub images: u64,
    /// Anything that is paged or timed.
    pub documents: bool,
}

impl Media {
    pub const fn image_tokens(&self) -> u64 {
        self.images.saturating_mul(IMAGE_TOKENS)
    }

    /// Looks for both everywhere: a look-alike inside a tool's argument only makes the reservation larger.
    pub(super) fn find(node: &Json<'_>) -> Self {
        let mut media = Self::default();
        media.look(node);
        media
    }

    fn look(&mut self, node: &Json<'_>) {
        match node.get("type").and_then(Json::text) {
            Some("image" | "input_image" | "image_url") => self.images += 1,
            Some(
                "document" | "input_file" | "file" | "input_audio" | "input_video" | "video_url"
                | "audio_url",
            ) => {
                self.documents = true;
            }
            Some(_) | None => {}
        }
        for (key, value) in node.entries() {
            if matches!(&**key, "inlineData" | "inline_data") {
                let kind = value.get("mimeType").or_else(|| value.get("mime_type")).and_then(Json::text);
                let picture = kind.is_some_and(|kind| kind.starts_with("image/"));
                self.images += u64::from(picture);
                self.documents |= !picture;
            }
            self.look(value);
        }
        node.items().iter().for_each(|item| self.look(item));
    }
}
