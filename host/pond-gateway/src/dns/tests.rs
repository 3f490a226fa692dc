//! Queries, well-formed and not, and what they are told, byte by byte.

use proptest::prelude::*;

use super::*;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn query(labels: &[&[u8]], kind: u16, class: u16) -> Vec<u8> {
    let mut packet = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend_from_slice(label);
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend(class.to_be_bytes());
    packet
}

fn with_edns(mut packet: Vec<u8>) -> Vec<u8> {
    packet[11] = 1;
    packet.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    packet
}

fn ask(packet: &[u8]) -> Question<'_> {
    match receive(packet) {
        Received::Ask(question) => question,
        other @ (Received::Drop | Received::Answer(..)) => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_repeats_the_question_as_it_was_spelled() {
    let packet = query(&[b"PyPi", b"ORG"], TYPE_A, CLASS_IN);
    let question = ask(&packet);
    assert_eq!(question.name().map(HostName::as_str), Ok("pypi.org"));
    let mut expected = vec![0xAB, 0xCD, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    expected.extend(&packet[12..]);
    expected.extend([0xC0, 0x0C, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 2]);
    assert_eq!(question.found(HERE), expected);
}

#[test]
fn c60_what_is_unknown_has_no_record_of_any_type() {
    for kind in [TYPE_A, 28, 16, 15, 65, 255] {
        let packet = query(&[b"evil", b"com"], kind, CLASS_IN);
        let mut expected = vec![0xAB, 0xCD, 0x85, 0x83, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend(&packet[12..]);
        assert_eq!(ask(&packet).unknown(), expected);
    }
}

#[test]
fn known_names_have_no_record_but_an_address() {
    for kind in [28, 16, 65, 255] {
        let packet = query(&[b"pypi", b"org"], kind, CLASS_IN);
        let mut expected = vec![0xAB, 0xCD, 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend(&packet[12..]);
        assert_eq!(ask(&packet).found(HERE), expected);
    }
}

#[test]
fn edns_is_answered_in_kind() {
    let packet = with_edns(query(&[b"a", b"com"], TYPE_A, CLASS_IN));
    let reply = ask(&packet).unknown();
    assert_eq!(reply[10..12], [0, 1]);
    assert_eq!(reply[reply.len() - 11..], [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn only_an_edns_record_may_follow_the_question() {
    for (at_end, byte) in [(11, 1), (9, 1), (10, 1)] {
        let mut packet = with_edns(query(&[b"a", b"com"], TYPE_A, CLASS_IN));
        let at = packet.len() - at_end;
        packet[at] = byte;
        let malformed = matches!(receive(&packet), Received::Answer(QueryFault::Malformed, _));
        assert!(malformed, "byte {at_end} from the end");
    }
}

/// As RFC 8467 asks of clients that hide how long their questions are.
#[test]
fn a_padded_question_is_one() {
    let mut packet = with_edns(query(&[b"a", b"com"], TYPE_A, CLASS_IN));
    let length = packet.len();
    packet[length - 2..].copy_from_slice(&604_u16.to_be_bytes());
    packet.extend([0, 12, 2, 88]);
    packet.extend([0; 600]);
    assert_eq!(ask(&packet).name().map(HostName::as_str), Ok("a.com"));
}

#[test]
fn another_version_of_edns_is_told_which_one_is_spoken() {
    let mut packet = with_edns(query(&[b"a", b"com"], TYPE_A, CLASS_IN));
    let version = packet.len() - 5;
    packet[version] = 1;
    let mut expected = vec![0xAB, 0xCD, 0x85, 0x80, 0, 0, 0, 0, 0, 0, 0, 1];
    expected.extend([0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0]);
    assert_eq!(receive(&packet), Received::Answer(QueryFault::Version, expected));
}

#[test]
fn what_is_no_single_question_is_told_so() {
    let told = |packet: &[u8], code: u8| {
        let expected = vec![0xAB, 0xCD, packet[2] & 0x79 | 0x84, 0x80 | code, 0, 0, 0, 0, 0, 0, 0, 0];
        let Received::Answer(fault, reply) = receive(packet) else { panic!("{packet:x?}") };
        assert_eq!((fault.answer().bits(), reply), (u16::from(code), expected), "{packet:x?}");
    };
    let whole = query(&[b"a", b"com"], TYPE_A, CLASS_IN);
    for (at, value) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 2), (11, 1)] {
        let mut packet = whole.clone();
        packet[at] = value;
        told(&packet, 1);
    }
    for length in 12..whole.len() {
        told(&whole[..length], 1);
    }
    told(&[&whole[..], &[0]].concat(), 1);
    // A pointer, a label of the reserved kinds, a name too long, a query too long.
    told(&[&whole[..12], &[0xC0, 0x0C, 0, 1, 0, 1]].concat(), 1);
    told(&[&whole[..12], &[0x41, 0, 0, 1, 0, 1]].concat(), 1);
    told(&query(&[&[b'a'; 63][..]; 5], TYPE_A, CLASS_IN), 1);
    let mut long = with_edns(query(&[b"a"], TYPE_A, CLASS_IN));
    let length = long.len();
    long[length - 2..].copy_from_slice(&1300_u16.to_be_bytes());
    long.extend([0; 1300]);
    told(&long, 1);
    told(&query(&[b"a", b"com"], TYPE_A, 3), 5);
    let mut update = whole.clone();
    update[2] |= 0x28;
    told(&update, 4);
}

#[test]
fn answers_and_scraps_are_dropped() {
    let mut answer = query(&[b"a", b"com"], TYPE_A, CLASS_IN);
    answer[2] |= 0x80;
    assert_eq!(receive(&answer), Received::Drop);
    for length in 0..12 {
        assert_eq!(receive(&answer[..length]), Received::Drop);
    }
}

#[test]
fn names_that_are_no_host_names_are_questions_without_one() {
    for labels in [&[&b"a.b"[..], b"com"][..], &[b"_dmarc", b"com"], &[b"a\0b", b"com"], &[b"127", b"1"], &[]]
    {
        let packet = query(labels, TYPE_A, CLASS_IN);
        assert!(ask(&packet).name().is_err(), "{labels:?}");
    }
}

proptest! {
    #[test]
    fn any_packet_is_answered_in_bounds(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
        check(&[&query(&[b"a"], TYPE_A, CLASS_IN)[..12], &bytes].concat());
    }
}

fn check(packet: &[u8]) {
    let reply = match receive(packet) {
        Received::Drop => return,
        Received::Answer(_, reply) => reply,
        Received::Ask(question) => question.found(HERE),
    };
    assert!(reply.len() <= packet.len() + 16 && reply[..2] == packet[..2] && reply[2] & 0x80 != 0);
}
