//! Text from outside, made safe to show: escaped so that no control, bidirectional or invisible character reaches a
//! terminal or a log, and cut so that a message stays a message.

/// Longest quotation in a message, in characters.
const LONGEST: usize = 64;

/// `text` in double quotes, escaped and cut.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text, LONGEST))
}

/// At most `longest` characters of `text`, escaped.
pub fn escape(text: &str, longest: usize) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(longest) {
        push_escaped(&mut escaped, c);
    }
    if text.chars().nth(longest).is_some() {
        escaped.push('…');
    }
    escaped
}

/// Non-ASCII is shown by number: a look-alike letter is then visible as what it is.
fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' | '\\' => out.extend(['\\', c]),
        ' '..='~' => out.push(c),
        _ => out.extend(c.escape_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_not_obeyed() {
        assert_eq!(quote("plain"), "\"plain\"");
        assert_eq!(quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
        assert_eq!(quote("\u{1b}[2J\n\u{202e}р"), "\"\\u{1b}[2J\\n\\u{202e}\\u{440}\"");
        assert_eq!(quote(&"x".repeat(64)), format!("\"{}\"", "x".repeat(64)));
        assert_eq!(quote(&"x".repeat(65)), format!("\"{}…\"", "x".repeat(64)));
    }
}
