//! Takes the usage report out of a chat stream when the broker asked for it and the client did not: whole events pass
//! unchanged, the one extra event does not. Only a piece of an event that is still coming is kept back.

use serde_json::Value;

use super::meter::Events;

/// A longer event is not the report; it passes in pieces.
const MOST: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct HideUsage {
    held: Vec<u8>,
    gave_up: bool,
}

impl HideUsage {
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(end) = event_end(&self.held) {
            let event: Vec<u8> = self.held.drain(..end).collect();
            if self.gave_up || !is_report(&event) {
                out.extend(event);
            }
            self.gave_up = false;
        }
        if self.gave_up || self.held.len() > MOST {
            self.gave_up = true;
            out.append(&mut self.held);
        }
        out
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Where the first event ends, its empty line included.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let find = |ending: &[u8]| {
        bytes.windows(ending.len()).position(|found| found == ending).map(|at| at + ending.len())
    };
    [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].into_iter().filter_map(find).min()
}

fn is_report(event: &[u8]) -> bool {
    let (mut found, mut events) = (false, Events::default());
    events.feed(event, &mut |data| {
        let value: Value = serde_json::from_slice(data).unwrap_or_default();
        let no_choices = value["choices"].as_array().is_none_or(Vec::is_empty);
        found |= no_choices && value["usage"].is_object();
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c125_only_the_report_is_taken_out_whatever_the_pieces() {
        let first = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{}\"}}],\"usage\":null}\n\n";
        let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";
        let last = "data: [DONE]\n\n";
        for ending in ["\n", "\r\n"] {
            let lines = |text: &str| text.replace('\n', ending);
            let whole = lines(&format!("{first}{report}{last}"));
            for step in 1..whole.len() {
                let mut hide = HideUsage::default();
                let mut out: Vec<u8> =
                    whole.as_bytes().chunks(step).flat_map(|piece| hide.feed(piece)).collect();
                out.extend(hide.finish());
                assert_eq!(String::from_utf8(out).unwrap(), lines(&format!("{first}{last}")), "{step}");
            }
        }
    }
}
