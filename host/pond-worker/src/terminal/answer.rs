//! What pond itself answers to a job that asks its terminal what it is.
//!
//! The person's terminal never hears these questions, and programs wait for the answer: one who asks for a keyboard protocol or a
//! version asks for the identity right after, and takes the answer to that alone as "no". The answers are constants: a colour
//! terminal of 1983 that is well. They say nothing of the person's terminal, and hold no byte that a shell would act on.

/// The identity, in its three spellings.
const IDENTITY: &str = "\x1b[?62;22c";
const WELL: &str = "\x1b[0n";

/// The answer to a control sequence with this body and last character.
pub(super) fn to_control(body: &str, last: char) -> Option<&'static str> {
    match (body, last) {
        ("" | "0", 'c') => Some(IDENTITY),
        ("5", 'n') => Some(WELL),
        _ => None,
    }
}

/// The answer to an escape sequence, which is the oldest way to ask.
pub(super) fn to_escape(intermediates: &str, last: char) -> Option<&'static str> {
    (intermediates.is_empty() && last == 'Z').then_some(IDENTITY)
}
