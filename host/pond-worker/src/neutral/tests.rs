//! What a hostile stream may still put on a screen.

use proptest::prelude::*;

use super::*;

fn whole(input: &[u8]) -> String {
    let mut out = String::new();
    let mut filter = Neutraliser::new();
    filter.push(input, &mut out);
    filter.finish(&mut out);
    out
}

#[test]
fn honest_output_is_untouched() {
    let input = "plain\ttext\n\x1b[1;31merror\x1b[0m: caf\u{e9} \u{1f468}\u{200d}\u{1f4bb} \x1b[38;5;8mgrey\x1b[m\r\n";
    assert_eq!(whole(input.as_bytes()), input);
}

#[test]
fn what_a_terminal_would_obey_becomes_visible() {
    let cases: [(&[u8], &str); 20] = [
        (b"\x1b[2J", r"\x1b[2J"),
        (b"\x1b[31", r"\x1b[31"),
        (b"\x1b[?25l", r"\x1b[?25l"),
        (b"\x1b[6n", r"\x1b[6n"),
        (b"\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        (b"\x1b]8;;http://x\x1b\\here", r"\x1b]8;;http://x\x1b\here"),
        (b"\x1bP$q\x1b\\", r"\x1bP$q\x1b\"),
        (b"\x1b_app\x1b\\", r"\x1b_app\x1b\"),
        (b"\x1b^pm\x1bXsos", r"\x1b^pm\x1bXsos"),
        (b"\x1bc", r"\x1bc"),
        (b"\x9b2J", r"\x9b2J"),
        (b"\xc2\x9b2J", r"\u{9b}2J"),
        (b"a\x08b\x7f\x00", r"a\x08b\x7f\x00"),
        (b"\xff\xe2\x82", r"\xff\xe2\x82"),
        (b"\x1b\x1b[31mx", "\\x1b\x1b[31mx\x1b[0m"),
        (b"\x1b[8mhidden", r"\x1b[8mhidden"),
        (b"\x1b[1;08mhidden", r"\x1b[1;08mhidden"),
        (b"\x1b[38;5;1;8mhidden", r"\x1b[38;5;1;8mhidden"),
        ("a\u{202e}b\u{2066}c".as_bytes(), r"a\u{202e}b\u{2066}c"),
        ("\u{e0041}\u{feff}".as_bytes(), r"\u{e0041}\u{feff}"),
    ];
    for (input, expected) in cases {
        assert_eq!(whole(input), expected, "{input:?}");
    }
}

#[test]
fn a_lone_return_cannot_overwrite_a_line() {
    assert_eq!(whole(b"real: 3 failed\rfake: all ok\r\n\r"), "real: 3 failed\nfake: all ok\r\n\n");
}

#[test]
fn colour_left_on_is_switched_off() {
    assert_eq!(whole(b"\x1b[31mred"), "\x1b[31mred\x1b[0m");
}

#[test]
fn state_stays_small() {
    let mut filter = Neutraliser::new();
    let mut out = String::new();
    filter.push(b"\x1b[", &mut out);
    filter.push(&b"1;".repeat(100_000), &mut out);
    assert!(out.len() > 199_000, "parameters are let go once they cannot be colour: {}", out.len());
}

/// Bytes that make sequences likely.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(vec![
            &b"\x1b"[..],
            b"[",
            b"m",
            b"8",
            b"38;5;",
            b"\r",
            b"\n",
            b"\xe2",
            b"\x80",
            b"\xae",
            b"]",
            b"\xc2\x9b"
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn only_colour_escapes(text: &str) -> bool {
    let mut parts = text.split('\x1b');
    let head = parts.next().unwrap_or_default();
    let colour = |part: &str| {
        let end = part.find(|c: char| !matches!(c, '[' | ';' | ':' | '0'..='9'));
        part.starts_with('[') && end.is_some_and(|end| part[end..].starts_with('m'))
    };
    let quiet =
        |part: &str| !part.replace("\r\n", "\n").chars().any(|c| c != '\n' && c != '\t' && is_unsafe(c));
    quiet(head) && parts.all(|part| colour(part) && quiet(part))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_escape_but_colour_however_it_is_cut(input in hostile(), cuts in proptest::collection::vec(0_usize..60, 0..6)) {
        let once = whole(&input);
        prop_assert!(only_colour_escapes(&once), "{once:?}");
        let mut filter = Neutraliser::new();
        let mut pieces = String::new();
        let mut rest = input.as_slice();
        for cut in cuts {
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            filter.push(chunk, &mut pieces);
            rest = after;
        }
        filter.push(rest, &mut pieces);
        filter.finish(&mut pieces);
        prop_assert_eq!(pieces, once);
    }
}
