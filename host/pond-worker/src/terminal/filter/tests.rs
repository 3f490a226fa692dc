//! What a hostile job may still do to a person's terminal, and what an honest one must be able to do.

use proptest::prelude::*;

use super::*;

fn shown(input: &[u8]) -> String {
    shown_and_heard(input).0
}

/// What the terminal sees, and what the job hears.
fn shown_and_heard(input: &[u8]) -> (String, String) {
    let mut out = String::new();
    let heard = Filter::new().push(input, &mut out);
    (out, heard)
}

/// What is shown of one more chunk; the answers are somebody else's concern.
fn push(filter: &mut Filter, chunk: &[u8], out: &mut String) {
    drop(filter.push(chunk, out));
}

#[test]
fn questions_are_answered_by_pond_and_never_reach_the_terminal() {
    let identity = "\x1b[?62;22c";
    let cases: [(&[u8], &str); 9] = [
        (b"\x1b[c", identity),
        (b"\x1b[0c", identity),
        (b"\x1bZ", identity),
        ("\u{9b}c".as_bytes(), identity),
        (b"\x1b[5n", "\x1b[0n"),
        // A keyboard protocol and a version, asked for with the identity behind: the answer to that alone is a no.
        (b"\x1b[?u\x1b[>q\x1b[c", identity),
        (b"\x1b[>c\x1b[=c\x1b[1c\x1b[?5n\x1b[?c\x1b[;c\x1b[?62;22c", ""),
        (b"\x1b]11;?\x07\x1b]0;\x1b\\\x1bP$qm\x1b\\\x05\x1b[18t", ""),
        (b"\x1b[c\x1b[5n\x1b[c", "\x1b[?62;22c\x1b[0n\x1b[?62;22c"),
    ];
    for (input, heard) in cases {
        let told = shown_and_heard(input);
        assert_eq!(told, (String::new(), heard.to_owned()), "{:?}", String::from_utf8_lossy(input));
    }
    // The position of the cursor is the terminal's to tell.
    assert_eq!(shown_and_heard(b"\x1b[6n"), ("\x1b[6n".to_owned(), String::new()));
}

/// Everything after the input: what the end of the job puts back.
fn put_back(input: &str) -> String {
    let mut out = String::new();
    let mut filter = Filter::new();
    push(&mut filter, input.as_bytes(), &mut out);
    out.clear();
    filter.finish(&mut out);
    out
}

#[test]
fn a_full_screen_program_works() {
    let input = concat!(
        "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h\x1b[?1004h\x1b[?2026h\x1b[?7l\x1b[?1h\x1b=",
        "\x1b[H\x1b[2J\x1b[12;40H\x1b[1;31mred\x1b[0m\x1b[38;2;1;2;3mtrue\x1b[4:3mcurly\x1b[m\x1b[K\x1b[3X\x1b[2P",
        "\x1b[1;20r\x1b[2S\x1b[T\x1b[4h\x1b[4l\x1b[5b\x1b[2 q\x1b[s\x1b[u\x1b7\x1b8\x1bM\x1bD\x1b(0lqk\x1b(B\x0e\x0f",
        "caf\u{e9} \u{1f468}\u{200d}\u{1f4bb}\ttab\x08\r\n\x07\x1b[6n\x1b[!p\x1b[G\x1b[999;999H",
    );
    assert_eq!(shown(input.as_bytes()), input);
}

#[test]
fn what_reaches_beyond_the_window_is_dropped() {
    let dropped: &[&[u8]] = &[
        // The clipboard, with either end, in either spelling, inside a multiplexer's envelope.
        b"\x1b]52;c;aGk=\x07",
        b"\x1b]52;c;aGk=\x1b\\",
        "\u{9d}52;c;aGk=\u{9c}".as_bytes(),
        b"\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\",
        b"\x1bP\x1b]52;c;aGk=\x07\x1b\\",
        // Titles, links, notifications, file transfer, colours and their queries.
        b"\x1b]0;title\x07",
        b"\x1b]8;;http://x\x1b\\\x1b]8;;\x1b\\",
        b"\x1b]9;note\x07\x1b]777;notify;a;b\x07\x1b]1337;File=:aGk=\x07",
        b"\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;?\x1b\\",
        // Everything else a terminal answers.
        b"\x05",
        b"\x1b[c\x1b[0c\x1b[>c\x1b[=c\x1bZ",
        b"\x1b[5n\x1b[?6n\x1b[?15n\x1b[?996n",
        b"\x1b[>q\x1b[?u\x1b[x\x1b[2$p\x1b[?2004$p\x1b[1;1;1;1;1;1*y",
        b"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\",
        b"\x1b[14t\x1b[18t\x1b[20t\x1b[21t\x1b[22;0t\x1b[8;50;100t\x1b[?1;1S",
        // Programs, keys, printers, keyboard locks and protocols, other encodings.
        b"\x1bP0;1|17/17\x1b\\\x1b_Gf=32;AAAA\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\",
        b"\x1b[5i\x1b[4i\x1b[2h\x1b[12h\x1b[20h\x1b[>4;2m\x1b[>1u\x1b[=1;1u\x1b[<u",
        b"\x1b%@\x1b%G\x1b F\x1b G\x1b#8\x1bn\x1b(K",
        // What is the person's own: what scrolled out, all of the state at once, the width of the window.
        b"\x1b[3J\x1bc\x1b[?3h\x1b[?40h\x1b[?1001h\x1b[?1048h\x1b[?2048h",
        b"\x1b[99999999b\x1b[1;2;3;4;5T",
        b"\x00\x01\x11\x13\x7f",
    ];
    for input in dropped {
        assert_eq!(shown(input), "", "{:?}", String::from_utf8_lossy(input));
    }
}

#[test]
fn what_is_left_over_is_text() {
    let cases: [(&[u8], &str); 9] = [
        (b"\x1b]52;c;aGk=\x07after", "after"),
        (b"\x1b]0;a\x1b[31mred", "\x1b[31mred"),
        (b"\x1b]0;a\x18b", "b"),
        (b"\x1b[?1048;25;12l", "\x1b[?25l"),
        ("\u{9b}31mred".as_bytes(), "\x1b[31mred"),
        (b"\x9b31mred", "\u{fffd}31mred"),
        (b"\xffa\xe2\x82", "\u{fffd}a"),
        (b"\x1b[3\n1m", "\n\x1b[31m"),
        ("\x1b[3\u{e9}1m".as_bytes(), "\u{e9}1m"),
    ];
    for (input, expected) in cases {
        assert_eq!(shown(input), expected, "{:?}", String::from_utf8_lossy(input));
    }
}

#[test]
fn what_was_switched_is_switched_back() {
    assert_eq!(put_back(""), "");
    assert_eq!(put_back("plain\r\n"), "");
    assert_eq!(put_back("plain"), "\r\n");
    let plain = "\x0f\x1b(B\x1b)B\x1b[m";
    assert_eq!(put_back("\x1b[31m\r\n"), plain);
    assert_eq!(put_back("\x1b[?1049h\x1b[?1049l\n"), plain);
    assert_eq!(
        put_back("\x1b[?1049;25;1003;2004h\x1b[?25;7l\x1b[2;5r\x1b[4h\x1b=\x1b[3 q"),
        format!(
            "\x1b[?7h\x1b[?25h\x1b[?1003l\x1b[?1049l\x1b[?2004l\x1b7\x1b[r\x1b8\x1b[ q\x1b[4l\x1b>{plain}"
        ),
    );
}

#[test]
fn state_stays_small() {
    let mut filter = Filter::new();
    let mut out = String::new();
    for (start, more) in [(&b"\x1b["[..], &b"1;"[..]), (b"\x1b", b"("), (b"\x1b]", b"52;"), (b"\x1bP", b"q")]
    {
        push(&mut filter, start, &mut out);
        push(&mut filter, &more.repeat(100_000), &mut out);
        let held = match &filter.state {
            State::Ground | State::Overlong | State::Text | State::TextEscape => 0,
            State::Escape(held) | State::Control(held) => held.len(),
        };
        assert!(held <= SEQUENCE_BYTES && out.is_empty(), "{held} {}", out.len());
        push(&mut filter, b"\x18", &mut out);
    }
}

/// Bytes that make sequences likely.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&[u8]> = vec![
        b"\x1b",
        b"\x1b[",
        b"\x1b]",
        b"\x1bP",
        b"\x1b\\",
        b"[",
        b"]",
        b"?",
        b">",
        b"$",
        b"!",
        b" ",
        b";",
        b"0",
        b"5",
        b"6",
        b"25",
        b"52",
        b"1049",
        b"2004",
        b"m",
        b"n",
        b"c",
        b"t",
        b"h",
        b"l",
        b"q",
        b"p",
        b"u",
        b"\x07",
        b"\x18",
        b"\r",
        b"\n",
        b"\x05",
        b"\xc2\x9b",
        b"\xc2\x9d",
        b"\xc2\x9c",
        b"\x9b",
        b"\xe2",
        b"\x80",
    ];
    let piece = prop_oneof![
        1 => any::<u8>().prop_map(|byte| vec![byte]),
        4 => prop::sample::select(parts).prop_map(<[u8]>::to_vec),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A judge that shares no code with the filter: nothing but complete sequences of harmless kinds.
fn is_harmless(text: &str) -> bool {
    let mut parts = text.split('\x1b');
    let plain = |part: &str| part.chars().all(|c| !c.is_control() || matches!(c, '\x07'..='\x0f'));
    plain(parts.next().unwrap_or_default()) && parts.all(|part| harmless_start(part).is_some_and(plain))
}

/// What follows one harmless sequence.
fn harmless_start(part: &str) -> Option<&str> {
    if let Some(body) = part.strip_prefix('[') {
        let end = body.find(|c: char| matches!(c, '@'..='~'))?;
        let (inner, rest) = body.split_at(end);
        let last = rest.chars().next()?;
        let answers = matches!(last, 'c' | 't' | 'x' | 'y' | 'i') || last == 'n' && inner != "6";
        let odd = inner.starts_with(['<', '=', '>']) || inner.contains('$') || inner.contains('*');
        let scrollback = last == 'J' && inner.contains('3');
        let private = inner.starts_with('?') && !matches!(last, 'h' | 'l');
        return (!answers && !odd && !scrollback && !private).then(|| &rest[1..]);
    }
    let designates = part.starts_with(['(', ')']);
    let length = if designates { 2 } else { 1 };
    let known = designates || part.starts_with(['7', '8', 'D', 'E', 'H', 'M', '=', '>']);
    part.get(length..).filter(|_| known)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn only_harmless_sequences_however_it_is_cut(input in hostile(), cuts in proptest::collection::vec(0_usize..60, 0..6)) {
        let (once, heard) = shown_and_heard(&input);
        prop_assert!(heard.replace("\x1b[?62;22c", "").replace("\x1b[0n", "").is_empty(), "{heard:?}");
        prop_assert!(is_harmless(&once), "{once:?}");
        prop_assert_eq!(shown(once.as_bytes()), once.clone(), "filtering again changes nothing");
        let mut filter = Filter::new();
        let (mut pieces, mut answers) = (String::new(), String::new());
        let mut rest = input.as_slice();
        for cut in cuts {
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            answers += &filter.push(chunk, &mut pieces);
            rest = after;
        }
        answers += &filter.push(rest, &mut pieces);
        prop_assert_eq!((pieces, answers), (once, heard));
    }

    #[test]
    fn the_end_is_harmless_too_and_ends_every_mode(input in hostile()) {
        let mut out = String::new();
        let mut filter = Filter::new();
        push(&mut filter, &input, &mut out);
        filter.finish(&mut out);
        prop_assert!(is_harmless(&out), "{out:?}");
        let mut again = Filter::new();
        push(&mut again, out.as_bytes(), &mut String::new());
        prop_assert!(again.touched.is_as_before(), "{out:?}");
    }
}
