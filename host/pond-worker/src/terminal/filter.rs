//! The stream from a job to a person's terminal, reduced to an allowlist of sequences.
//!
//! Every control string (OSC, DCS, APC, PM, SOS) is swallowed whole; every other sequence is collected, looked up in
//! [`super::sequence`], and written out complete or not at all, so that the terminal is never left inside one. The 8-bit
//! forms are read as what they stand for and written in the 7-bit form. Bytes that are not UTF-8 become U+FFFD.
//! Invariants: state is bounded; how the input is cut into chunks changes neither the output nor the answers.

use super::answer;
use super::sequence::{Touched, escape_is_allowed};
use crate::utf8::{Decoder, Piece};

/// Longer control sequences do not occur in honest output.
const SEQUENCE_BYTES: usize = 128;

const BELL: char = '\x07';
const CANCEL: char = '\x18';
const SUBSTITUTE: char = '\x1a';
const ESCAPE: char = '\x1b';
const DELETE: char = '\x7f';
const STRING_END: char = '\u{9c}';
/// Between an 8-bit control and the character that follows ESC in its 7-bit form.
const C1_OFFSET: u32 = 0x40;

/// Feed chunks with [`push`](Self::push), then call [`finish`](Self::finish) once.
#[derive(Debug, Default)]
pub struct Filter {
    decoder: Decoder,
    state: State,
    touched: Touched,
    is_mid_line: bool,
    /// To questions of the chunk at hand.
    answers: String,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Ground,
    /// ESC and intermediate characters so far.
    Escape(String),
    /// `ESC [` and everything after it so far.
    Control(String),
    /// A sequence too long to be honest, dropped up to its last character.
    Overlong,
    /// Inside a control string.
    Text,
    /// Inside a control string, after an ESC that may end it.
    TextEscape,
}

impl Filter {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what the terminal may see of `chunk` to `out`, and returns what the job is to hear: answers of pond's own.
    #[must_use]
    pub fn push(&mut self, chunk: &[u8], out: &mut String) -> String {
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.push(chunk, |piece| self.piece(piece, out));
        self.decoder = decoder;
        std::mem::take(&mut self.answers)
    }

    /// Ends the stream: an unfinished sequence is dropped, and whatever the job switched is switched back.
    pub fn finish(mut self, out: &mut String) {
        std::mem::take(&mut self.decoder).finish(|piece| self.piece(piece, out));
        self.touched.undo(out);
        if self.is_mid_line {
            out.push_str("\r\n");
        }
    }

    fn piece(&mut self, piece: Piece<'_>, out: &mut String) {
        match piece {
            Piece::Text(text) => text.chars().for_each(|character| self.character(character, out)),
            Piece::Faulty(_) => self.character(char::REPLACEMENT_CHARACTER, out),
        }
    }

    fn character(&mut self, character: char, out: &mut String) {
        match (std::mem::take(&mut self.state), character) {
            (_, CANCEL | SUBSTITUTE) => {}
            (State::Text, ESCAPE) => self.state = State::TextEscape,
            (_, ESCAPE) => self.state = State::Escape(String::new()),
            (State::Text, BELL | STRING_END) | (State::TextEscape, '\\') => {}
            (_, '\u{80}'..='\u{9f}') => self.eight_bit(character, out),
            (State::Text, _) => self.state = State::Text,
            (State::TextEscape, _) => self.escape(String::new(), character, out),
            (State::Ground, _) => self.ground(character, out),
            // A terminal obeys a control character inside a sequence at once, and the sequence goes on.
            (state, '\0'..='\x1f' | DELETE) => {
                self.ground(character, out);
                self.state = state;
            }
            (State::Escape(intermediates), ' '..='~') => self.escape(intermediates, character, out),
            (State::Control(body), ' '..='~') => self.control(body, character, out),
            (State::Overlong, '@'..='~') => {}
            (State::Overlong, ' '..='~') => self.state = State::Overlong,
            (State::Escape(_) | State::Control(_) | State::Overlong, _) => self.ground(character, out),
        }
    }

    fn ground(&mut self, character: char, out: &mut String) {
        match character {
            // Bell, backspace, tab, the three line feeds, return, and the two shifts between character sets.
            '\x07'..='\x0f' => {}
            // Among the rest is ENQ, which a terminal answers.
            '\0'..='\x1f' | DELETE => return,
            _ => {}
        }
        self.touched.note_control(character);
        self.is_mid_line = character != '\n' && (self.is_mid_line || character != '\r');
        out.push(character);
    }

    fn eight_bit(&mut self, character: char, out: &mut String) {
        let seven_bit = u32::from(character).checked_sub(C1_OFFSET).and_then(char::from_u32);
        if let Some(last) = seven_bit {
            self.escape(String::new(), last, out);
        }
    }

    fn escape(&mut self, mut intermediates: String, character: char, out: &mut String) {
        match character {
            '[' if intermediates.is_empty() => self.state = State::Control(String::new()),
            ']' | 'P' | 'X' | '^' | '_' if intermediates.is_empty() => self.state = State::Text,
            ' '..='/' if intermediates.len() < SEQUENCE_BYTES => {
                intermediates.push(character);
                self.state = State::Escape(intermediates);
            }
            ' '..='/' => self.state = State::Overlong,
            _ if escape_is_allowed(&intermediates, character) => {
                self.touched.note_escape(&intermediates, character);
                out.push(ESCAPE);
                out.push_str(&intermediates);
                out.push(character);
            }
            _ => self.answers.extend(answer::to_escape(&intermediates, character)),
        }
    }

    fn control(&mut self, mut body: String, character: char, out: &mut String) {
        match character {
            '@'..='~' => {
                if let Some(allowed) = self.touched.control(&body, character) {
                    out.push_str("\x1b[");
                    out.push_str(&allowed);
                    out.push(character);
                }
                self.answers.extend(answer::to_control(&body, character));
            }
            _ if body.len() < SEQUENCE_BYTES => {
                body.push(character);
                self.state = State::Control(body);
            }
            _ => self.state = State::Overlong,
        }
    }
}

#[cfg(test)]
mod tests;
