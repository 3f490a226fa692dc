//! Hellos as clients send them, and as attackers do.

use proptest::prelude::*;

use super::*;

struct Hello {
    legacy: u16,
    versions: Option<Vec<u16>>,
    names: Option<Vec<Vec<u8>>>,
    extra: Vec<(u16, Vec<u8>)>,
}

fn named(name: &[u8]) -> Hello {
    let versions = Some(vec![0x0a0a, TLS_1_3, TLS_1_2]);
    Hello { legacy: TLS_1_2, versions, names: Some(vec![name.to_vec()]), extra: vec![] }
}

fn u16be(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

fn vec16(bytes: &[u8]) -> Vec<u8> {
    [&u16be(bytes.len())[..], bytes].concat()
}

impl Hello {
    fn message(&self) -> Vec<u8> {
        let mut extensions = self.extra.clone();
        if let Some(names) = &self.names {
            let list: Vec<u8> = names.iter().flat_map(|name| [vec![0], vec16(name)].concat()).collect();
            extensions.push((SERVER_NAME, vec16(&list)));
        }
        if let Some(versions) = &self.versions {
            let list: Vec<u8> = versions.iter().flat_map(|version| version.to_be_bytes()).collect();
            extensions.push((SUPPORTED_VERSIONS, [&[u8::try_from(list.len()).unwrap()][..], &list].concat()));
        }
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vec16(data)].concat())
            .collect();
        let mut body = self.legacy.to_be_bytes().to_vec();
        body.extend([[7; 32].as_slice(), &[0], &vec16(&[0x13, 1]), &[1, 0], &vec16(&extensions)].concat());
        [&[CLIENT_HELLO, 0][..], &vec16(&body)].concat()
    }

    fn bytes(&self) -> Vec<u8> {
        records(&self.message(), MAX_RECORD)
    }
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vec16(part)].concat()).collect()
}

fn name(text: &str) -> Result<Option<HostName>, HelloFault> {
    Ok(Some(HostName::parse(text).unwrap()))
}

#[test]
fn c72_the_one_name_is_found_and_folded() {
    assert_eq!(read(&named(b"pypi.org").bytes()), name("pypi.org"));
    assert_eq!(read(&named(b"PyPI.org.").bytes()), name("pypi.org"));
}

#[test]
fn c72_names_that_are_none_several_or_not_names_are_refused() {
    let names = |names: Option<Vec<Vec<u8>>>| read(&Hello { names, ..named(b"") }.bytes());
    assert_eq!(names(None), Err(HelloFault::NoName));
    assert_eq!(names(Some(vec![])), Err(HelloFault::NoName));
    assert_eq!(names(Some(vec![b"a.com".to_vec(), b"b.com".to_vec()])), Err(HelloFault::SeveralNames));
    assert_eq!(names(Some(vec![b"a.com".to_vec(), b"a.com".to_vec()])), Err(HelloFault::SeveralNames));
    for bad in [&b"1.2.3.4"[..], b"a.com\0b.com", b"a_b.com", b"", b"a com", b"[::1]"] {
        assert!(matches!(read(&named(bad).bytes()), Err(HelloFault::BadName(_))), "{bad:?}");
    }
    let twice = Hello { extra: vec![(SERVER_NAME, vec16(&[]))], ..named(b"a.com") };
    assert_eq!(read(&twice.bytes()), Err(HelloFault::Malformed));
}

#[test]
fn c73_pieces_are_put_together_up_to_the_bound() {
    let message = named(b"pypi.org").message();
    for size in [1, 2, 5, 100] {
        let bytes = records(&message, size);
        assert_eq!(read(&bytes), name("pypi.org"), "records of {size}");
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Ok(None), "{cut} bytes of records of {size}");
        }
    }
    let large = |padding| Hello { extra: vec![(21, vec![0; padding])], ..named(b"pypi.org") };
    assert_eq!(read(&large(MAX_HELLO - 200).bytes()), name("pypi.org"));
    assert_eq!(read(&large(MAX_HELLO).bytes()), Err(HelloFault::TooLarge));
    let slow = records(&large(MAX_HELLO - 200).message(), 1);
    assert_eq!(read(&slow[..MAX_RAW - 1]), Ok(None));
    assert_eq!(read(&slow[..MAX_RAW]), Err(HelloFault::TooLarge));
}

#[test]
fn c74_an_encrypted_inner_hello_changes_nothing() {
    let outer = Hello { extra: vec![(0xfe0d, vec![9; 300])], ..named(b"pypi.org") };
    assert_eq!(read(&outer.bytes()), name("pypi.org"));
}

#[test]
fn c76_old_versions_are_refused_wherever_they_are_said() {
    let versions = |legacy, versions| read(&Hello { legacy, versions, ..named(b"a.com") }.bytes());
    assert_eq!(versions(TLS_1_2, None), name("a.com"));
    assert_eq!(versions(0x0302, None), Err(HelloFault::TooOld));
    assert_eq!(versions(0x0300, None), Err(HelloFault::TooOld));
    assert_eq!(versions(TLS_1_2, Some(vec![0x0302, 0x0301])), Err(HelloFault::TooOld));
    assert_eq!(versions(TLS_1_2, Some(vec![0x0a0a])), Err(HelloFault::TooOld));
    assert_eq!(versions(TLS_1_2, Some(vec![TLS_1_3])), name("a.com"));
}

#[test]
fn c70_what_is_no_hello_is_known_by_its_first_byte() {
    for bytes in [&b"SSH-2.0"[..], b"GET / HTTP/1.1", b"\x80\x2e\x01", b"\x17\x03\x03", b"\x15\x03\x01"] {
        assert_eq!(read(bytes), Err(HelloFault::NotTls));
        assert_eq!(read(&bytes[..1]), Err(HelloFault::NotTls));
    }
    assert_eq!(read(&[22, 2]), Err(HelloFault::NotTls));
    assert_eq!(read(&[22, 3, 1, 0, 0]), Err(HelloFault::Malformed));
    assert_eq!(read(&[22, 3, 1, 0x40, 1]), Err(HelloFault::Malformed));
    assert_eq!(read(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Err(HelloFault::NotTls));
}

#[test]
fn a_second_message_behind_the_hello_is_refused() {
    let mut message = named(b"a.com").message();
    message.extend(named(b"evil.com").message());
    assert_eq!(read(&records(&message, MAX_RECORD)), Err(HelloFault::Malformed));
    assert_eq!(read(&records(&message, 100)), Err(HelloFault::Malformed));
    // Nor is one believed while its record is not whole: what is missing may be such a message.
    let mut longer = named(b"a.com").bytes();
    longer[4] += 1;
    assert_eq!(read(&longer), Ok(None));
    longer.push(1);
    assert_eq!(read(&longer), Err(HelloFault::Malformed));
    // What follows in a record of its own is the client's business: the name was said.
    let mut bytes = named(b"a.com").bytes();
    bytes.extend([23, 3, 3, 0, 1, 0]);
    assert_eq!(read(&bytes), name("a.com"));
}

/// The fixed part of a hello: session, cipher suites, compressions.
#[test]
fn c73_a_hello_without_what_every_hello_has_is_malformed() {
    let hello = |session: &[u8], suites: &[u8], compressions: &[u8]| {
        let whole = named(b"a.com").message();
        let vec8 = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat();
        let fixed = [vec8(session), vec16(suites), vec8(compressions)].concat();
        // Kind and length, version and random stand before them; one session byte, two suites and a compression after.
        let body = [&whole[4..38], &fixed, &whole[38 + 1 + 4 + 2..]].concat();
        read(&records(&[&[CLIENT_HELLO, 0][..], &vec16(&body)].concat(), MAX_RECORD))
    };
    assert_eq!(hello(&[1; 32], &[0x13, 1], &[0]), name("a.com"));
    for odd in [
        hello(&[1; 33], &[0x13, 1], &[0]),
        hello(&[], &[], &[0]),
        hello(&[], &[0x13, 1, 0x13], &[0]),
        hello(&[], &[0x13, 1], &[]),
    ] {
        assert_eq!(odd, Err(HelloFault::Malformed));
    }
}

#[test]
fn c72_c73_nothing_may_hide_behind_or_between_what_is_read() {
    let bare = |kind: u16, data: Vec<u8>| Hello {
        names: None,
        versions: None,
        extra: vec![(kind, data)],
        ..named(b"")
    };
    let entry = |kind: u8| [vec![kind], vec16(b"a.com")].concat();
    assert_eq!(read(&bare(SERVER_NAME, vec16(&entry(HOST_NAME))).bytes()), name("a.com"));
    for data in [
        vec16(&entry(1)),
        vec16(&[entry(HOST_NAME), entry(1)].concat()),
        [vec16(&entry(HOST_NAME)), vec![0]].concat(),
        vec16(&[entry(HOST_NAME), vec![0]].concat()),
    ] {
        assert_eq!(read(&bare(SERVER_NAME, data.clone()).bytes()), Err(HelloFault::Malformed), "{data:?}");
    }
    let versions = |data: &[u8]| {
        let extra = vec![(SUPPORTED_VERSIONS, data.to_vec())];
        read(&Hello { versions: None, extra, ..named(b"a.com") }.bytes())
    };
    assert_eq!(versions(&[2, 3, 4]), name("a.com"));
    assert_eq!(versions(&[2, 3, 4, 0]), Err(HelloFault::Malformed));
    let mut longer = named(b"a.com").message();
    longer.push(0);
    longer[3] += 1;
    assert_eq!(read(&records(&longer, MAX_RECORD)), Err(HelloFault::Malformed));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        drop(read(&bytes));
        drop(read(&[&[22, 3, 1, 1, 0, 1, 0][..], &bytes].concat()));
    }

    /// A damaged hello never yields a name the whole one did not have at that place.
    #[test]
    fn a_damaged_hello_is_read_without_a_panic(at in 0usize..120, byte: u8, cut in 0usize..120) {
        let mut bytes = named(b"pypi.org").bytes();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        drop(read(&bytes));
    }

    /// However the bytes arrive, the verdict is the one on the whole, or not yet.
    #[test]
    fn the_verdict_does_not_depend_on_the_cut(size in 1usize..60, cut in 0usize..600) {
        let bytes = records(&named(b"a.b.pypi.org").message(), size);
        let part = bytes.get(..cut).unwrap_or(&bytes);
        let verdict = read(part);
        prop_assert!(verdict == Ok(None) || verdict == name("a.b.pypi.org"));
    }
}
