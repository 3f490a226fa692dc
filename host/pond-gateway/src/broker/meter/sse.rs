//! Server-sent events, in any pieces: LF, CRLF or CR lines, comments, data over several lines, with or without a space
//! after the colon. Only the data of whole events is handed on.

use super::MOST_EVENT;

/// Collects events from a stream of bytes.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
}

impl Events {
    /// Hands the data of each event that is now whole to `take`; `false` once one is too large to hold.
    pub fn feed(&mut self, bytes: &[u8], take: &mut dyn FnMut(&[u8])) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.line.extend_from_slice(line);
            if self.line.len() + self.data.len() > MOST_EVENT {
                return false;
            }
            let Some((ending, after)) = after.split_first() else { return true };
            self.after_cr = *ending == b'\r';
            self.end_line(take);
            rest = after;
        }
        true
    }

    fn end_line(&mut self, take: &mut dyn FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                take(&self.data);
            }
            self.data.clear();
        } else if let Some(value) = data_of(&line) {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        line.clear();
        self.line = line;
    }
}

/// The value of a `data` line.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}
