//! Which sequences a job may send to a person's terminal, and how to take back what they switched.
//!
//! An allowlist: what is not named here is dropped. Nothing on it makes the terminal write into the job's input of itself,
//! with one exception: the cursor position report, without which line editors do not work and whose answer is two numbers.
//! Modes that make the keyboard or mouse report differently are allowed when they can be switched off again afterwards.

use std::collections::BTreeSet;

/// A parameter above this is no row, column, colour or mode.
const MOST: u32 = 65_535;

/// Private modes (`ESC [ ? n h`) that may be switched, and which way they stand otherwise.
const MODES: [(u32, Stands); 17] = [
    (1, Stands::Off),    // cursor keys for applications
    (5, Stands::Off),    // reverse video
    (7, Stands::On),     // wrap at the margin
    (9, Stands::Off),    // mouse presses
    (25, Stands::On),    // cursor shown
    (47, Stands::Off),   // alternate screen, and two more of it below
    (1000, Stands::Off), // mouse buttons
    (1002, Stands::Off), // mouse drags
    (1003, Stands::Off), // mouse moves
    (1004, Stands::Off), // focus
    (1006, Stands::Off), // mouse encodings
    (1015, Stands::Off),
    (1016, Stands::Off),
    (1047, Stands::Off),
    (1049, Stands::Off),
    (2004, Stands::Off), // bracketed paste
    (2026, Stands::Off), // draw when complete
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    On,
    Off,
}

/// Save and restore the cursor, line movements, a tab stop, keypad modes, and the two character sets that programs use.
pub(super) fn escape_is_allowed(intermediates: &str, last: char) -> bool {
    match intermediates {
        "" => matches!(last, '7' | '8' | 'D' | 'E' | 'H' | 'M' | '=' | '>'),
        "(" | ")" => matches!(last, '0' | 'A' | 'B'),
        _ => false,
    }
}

/// What the job switched and has not switched back.
#[derive(Debug, Default)]
pub(super) struct Touched {
    modes: BTreeSet<u32>,
    has_margins: bool,
    has_cursor_shape: bool,
    is_inserting: bool,
    has_keypad: bool,
    is_drawn_on: bool,
}

impl Touched {
    /// The body of a control sequence as the terminal may see it; nothing when it may not.
    pub(super) fn control(&mut self, body: &str, last: char) -> Option<String> {
        let parsed = Body::parse(body)?;
        match (parsed.is_private, parsed.intermediates, last) {
            (true, "", 'h') => self.switch(parsed.parameters, Stands::On),
            (true, "", 'l') => self.switch(parsed.parameters, Stands::Off),
            (true, _, _) => None,
            (false, intermediates, _) => {
                self.plain(parsed.parameters, intermediates, last).then(|| body.to_owned())
            }
        }
    }

    fn plain(&mut self, parameters: &str, intermediates: &str, last: char) -> bool {
        let allowed = match (intermediates, last) {
            // Moves the cursor; inserts, deletes, erases, scrolls, repeats; colours.
            (
                "",
                'A'..='I' | 'L' | 'M' | 'P' | 'S' | 'T' | 'X' | 'Z' | '@' | '`' | 'a' | 'b' | 'd' | 'e' | 'f',
            ) => count(parameters) <= 2,
            ("", 'm') => true,
            // Erases the screen or the line; not what has scrolled out, which is the person's.
            ("", 'J' | 'K') => matches!(parameters, "" | "0" | "1" | "2"),
            ("", 'g') => matches!(parameters, "" | "0" | "3"),
            // Saves and restores the cursor.
            ("", 's' | 'u') | ("!", 'p') => parameters.is_empty(),
            ("", 'n') => parameters == "6",
            ("", 'r') => count(parameters) <= 2,
            ("", 'h' | 'l') => parameters == "4",
            (" ", 'q') => count(parameters) <= 1,
            _ => false,
        };
        if allowed {
            self.is_drawn_on = true;
            self.has_margins |= last == 'r';
            self.has_cursor_shape |= last == 'q';
            self.is_inserting = (self.is_inserting || last == 'h') && last != 'l';
        }
        allowed
    }

    /// Keeps the modes that may be switched.
    fn switch(&mut self, parameters: &str, to: Stands) -> Option<String> {
        let mut kept = Vec::new();
        for mode in parameters.split(';').filter_map(|text| text.parse().ok()) {
            let Some((_, default)) = MODES.iter().find(|(known, _)| *known == mode) else { continue };
            if to == *default {
                self.modes.remove(&mode);
            } else {
                self.modes.insert(mode);
            }
            kept.push(mode.to_string());
        }
        self.is_drawn_on |= !kept.is_empty();
        (!kept.is_empty()).then(|| format!("?{}", kept.join(";")))
    }

    pub(super) fn note_escape(&mut self, intermediates: &str, last: char) {
        self.is_drawn_on = true;
        if intermediates.is_empty() {
            self.has_keypad = (self.has_keypad || last == '=') && last != '>';
        }
    }

    pub(super) fn note_control(&mut self, character: char) {
        self.is_drawn_on |= matches!(character, '\x0e' | '\x0f');
    }

    /// Appends what brings the terminal back to where its owner had it. The alternate screen is left first: margins and
    /// colours are then those of the screen that stays.
    pub(super) fn undo(self, out: &mut String) {
        if !self.is_drawn_on {
            return;
        }
        for (mode, default) in MODES.iter().filter(|(mode, _)| self.modes.contains(mode)) {
            let last = match default {
                Stands::On => 'h',
                Stands::Off => 'l',
            };
            out.push_str(&format!("\x1b[?{mode}{last}"));
        }
        let switches = [
            // Setting margins moves the cursor.
            (self.has_margins, "\x1b7\x1b[r\x1b8"),
            (self.has_cursor_shape, "\x1b[ q"),
            (self.is_inserting, "\x1b[4l"),
            (self.has_keypad, "\x1b>"),
            (true, "\x0f\x1b(B\x1b)B\x1b[m"),
        ];
        out.extend(switches.iter().filter(|(on, _)| *on).map(|(_, sequence)| *sequence));
    }
}

/// A control sequence between `ESC [` and its last character.
struct Body<'a> {
    is_private: bool,
    parameters: &'a str,
    intermediates: &'a str,
}

impl<'a> Body<'a> {
    /// Nothing for the other three prefixes (`<`, `=`, `>`): all they start is a query or a keyboard protocol.
    fn parse(body: &'a str) -> Option<Self> {
        let (is_private, rest) = body.strip_prefix('?').map_or((false, body), |rest| (true, rest));
        let end = rest.find(|character| !matches!(character, '0'..=';')).unwrap_or(rest.len());
        let (parameters, intermediates) = rest.split_at_checked(end)?;
        let known = intermediates.chars().all(|character| matches!(character, ' '..='/'));
        let small = |text: &str| text.is_empty() || text.parse::<u32>().is_ok_and(|number| number <= MOST);
        let sound = known && parameters.split([';', ':']).all(small);
        sound.then_some(Self { is_private, parameters, intermediates })
    }
}

fn count(parameters: &str) -> usize {
    parameters.split([';', ':']).count()
}

#[cfg(test)]
impl Touched {
    /// No mode is left switched.
    pub(super) fn is_as_before(&self) -> bool {
        self.modes.is_empty() && !self.is_inserting && !self.has_keypad
    }
}
