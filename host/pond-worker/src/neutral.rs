//! Makes job output safe to show on a person's terminal; raw bytes are kept elsewhere.
//!
//! Text, newline, tab and colour (`ESC [ … m`) pass. Everything else that a terminal would obey or that reorders text
//! becomes a visible escape, so nothing is hidden from the reader: other control sequences show as `\x1b` followed by
//! their own characters. A lone carriage return becomes a newline: a progress bar then scrolls, but no line already
//! shown can be overwritten with a forged one. Concealed text (`ESC [ 8 m`) is not colour and is shown escaped.
//! Invariants: state is a few bytes; how the input is cut into chunks does not change the output.

use std::fmt::Write as _;

use crate::utf8::{Decoder, Piece};

/// Longer colour sequences do not occur in honest output.
const SGR_BYTES: usize = 64;

/// A streaming filter; feed chunks with [`push`](Self::push), then call [`finish`](Self::finish) once.
#[derive(Debug, Default)]
pub struct Neutraliser {
    decoder: Decoder,
    state: State,
    is_coloured: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// A carriage return whose successor decides what it was.
    Return,
    Escape,
    /// `ESC [` and parameters so far.
    Parameters(String),
}

impl Neutraliser {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the safe form of `chunk` to `out`.
    pub fn push(&mut self, chunk: &[u8], out: &mut String) {
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.push(chunk, |piece| self.piece(piece, out));
        self.decoder = decoder;
    }

    /// Ends the stream: what was held back is shown, and colour is switched off if the job left it on.
    pub fn finish(mut self, out: &mut String) {
        std::mem::take(&mut self.decoder).finish(|piece| self.piece(piece, out));
        self.settle(out);
        if self.is_coloured {
            out.push_str("\x1b[0m");
        }
    }

    fn piece(&mut self, piece: Piece<'_>, out: &mut String) {
        match piece {
            Piece::Text(text) => text.chars().for_each(|character| self.character(character, out)),
            Piece::Faulty(byte) => self.byte(byte, out),
        }
    }

    fn byte(&mut self, byte: u8, out: &mut String) {
        self.settle(out);
        escape_byte(byte, out);
    }

    fn character(&mut self, character: char, out: &mut String) {
        match (std::mem::take(&mut self.state), character) {
            (State::Text, _) => self.plain(character, out),
            (State::Return, '\n') => out.push_str("\r\n"),
            (State::Return, _) => {
                out.push('\n');
                self.plain(character, out);
            }
            (State::Escape, '[') => self.state = State::Parameters(String::new()),
            (State::Escape, _) => {
                escape_byte(0x1b, out);
                self.plain(character, out);
            }
            (State::Parameters(parameters), 'm') if is_colour(&parameters) => {
                self.is_coloured = !matches!(parameters.as_str(), "" | "0");
                out.push_str("\x1b[");
                out.push_str(&parameters);
                out.push('m');
            }
            (State::Parameters(mut parameters), '0'..='9' | ';' | ':') if parameters.len() < SGR_BYTES => {
                parameters.push(character);
                self.state = State::Parameters(parameters);
            }
            (state @ State::Parameters(_), _) => {
                self.state = state;
                self.settle(out);
                self.plain(character, out);
            }
        }
    }

    fn plain(&mut self, character: char, out: &mut String) {
        match character {
            '\n' | '\t' => out.push(character),
            '\r' => self.state = State::Return,
            '\x1b' => self.state = State::Escape,
            '\0'..='\x7f' if character.is_ascii_control() => {
                escape_byte(u8::try_from(character).unwrap_or(0), out)
            }
            _ if is_unsafe(character) => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }

    /// Shows what the state held back, as text.
    fn settle(&mut self, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Text => {}
            State::Return => out.push('\n'),
            State::Escape => escape_byte(0x1b, out),
            State::Parameters(parameters) => {
                escape_byte(0x1b, out);
                out.push('[');
                out.push_str(&parameters);
            }
        }
    }
}

fn escape_byte(byte: u8, out: &mut String) {
    // Writing to a string cannot fail.
    write!(out, "\\x{byte:02x}").unwrap_or_default();
}

/// Characters a terminal obeys, that reorder their neighbours, or that are not there to the eye.
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// A select-graphic-rendition parameter list that does not conceal text.
fn is_colour(parameters: &str) -> bool {
    let mut values = parameters.split(';');
    while let Some(value) = values.next() {
        let skipped = match value.trim_start_matches('0') {
            "8" => return false,
            concealed if concealed.starts_with("8:") => return false,
            // Extended colours carry their own values, among which 8 is harmless.
            "38" | "48" | "58" => match values.next().map(|kind| kind.trim_start_matches('0')) {
                Some("5") => 1,
                Some("2") => 3,
                _ => return false,
            },
            _ => 0,
        };
        for _ in 0..skipped {
            if values.next().is_none() {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests;
