//! A record opens in its own place, whole, under a key of the ring, and not otherwise.

use base64ct::{Base64Url, Encoding};

use super::*;

const HERE: Place<'_> = Place { table: "credential", row: "cred_1", column: "value", tenant: "acme" };

fn sealed() -> (KeyRing, Vec<u8>) {
    let ring = KeyRing::generate().unwrap();
    let record = ring.seal(HERE, b"sk-secret").unwrap();
    (ring, record)
}

#[test]
fn a_record_opens_where_it_was_sealed() {
    let (ring, record) = sealed();
    assert_eq!(ring.open(HERE, &record).unwrap().as_slice(), b"sk-secret");
    assert_eq!(kid_of(&record), Ok(ring.active()));
    assert_eq!(record.len(), HEAD + b"sk-secret".len() + TAG);
    assert_eq!(ring.open(HERE, &ring.seal(HERE, b"").unwrap()).unwrap().as_slice(), b"");
    assert_ne!(ring.seal(HERE, b"sk-secret").unwrap(), record);
    assert!(!record.windows(9).any(|window| window == b"sk-secret"));
}

#[test]
fn a_record_that_moved_does_not_open() {
    let (ring, record) = sealed();
    for place in [
        Place { table: "bundle", ..HERE },
        Place { row: "cred_2", ..HERE },
        Place { column: "valu", tenant: "eacme", ..HERE },
        Place { column: "other", ..HERE },
        Place { tenant: "other", ..HERE },
    ] {
        assert_eq!(ring.open(place, &record), Err(VaultFault::Sealed), "{place:?}");
        let mut later = KeyRing::parse(&ring.to_text()).unwrap();
        later.rotate().unwrap();
        assert_eq!(later.rewrap(place, &record), Err(VaultFault::Sealed), "{place:?}");
    }
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let (ring, record) = sealed();
    for position in 0..record.len() {
        let mut changed = record.clone();
        changed[position] ^= 1;
        let opened = ring.open(HERE, &changed).map(|opened| opened.to_vec());
        let expected = match position {
            0 => Err(VaultFault::Malformed),
            1..=8 => Err(VaultFault::KeyMissing(kid_of(&changed).unwrap())),
            9.. => Err(VaultFault::Sealed),
        };
        assert_eq!(opened, expected, "{position}");
        assert!(ring.open(HERE, &record[..position]).is_err(), "{position}");
    }
}

#[test]
fn rotation_wraps_the_key_anew_and_leaves_the_payload() {
    let (mut ring, record) = sealed();
    let old = ring.active();
    assert_eq!(ring.rewrap(HERE, &record), Ok(None));
    let new = ring.rotate().unwrap();
    let moved = ring.rewrap(HERE, &record).unwrap().unwrap();
    assert_eq!(kid_of(&moved), Ok(new));
    assert_eq!(moved[HEAD - NONCE..], record[HEAD - NONCE..]);
    for either in [&record, &moved] {
        assert_eq!(ring.open(HERE, either).unwrap().as_slice(), b"sk-secret");
    }
    assert_eq!(ring.forget(new, 0), Err(RingFault::Active(new)));
    assert_eq!(ring.forget(old, 1), Err(RingFault::InUse { kid: old, records: 1 }));
    assert_eq!(ring.forget(old, 0), Ok(()));
    assert_eq!(ring.forget(old, 0), Err(RingFault::Unknown(old)));
    assert_eq!(ring.open(HERE, &record), Err(VaultFault::KeyMissing(old)));
    assert_eq!(ring.open(HERE, &moved).unwrap().as_slice(), b"sk-secret");
}

#[test]
fn a_ring_survives_its_file_and_shows_names_only() {
    let (mut ring, record) = sealed();
    ring.rotate().unwrap();
    let text = ring.to_text();
    let again = KeyRing::parse(&text).unwrap();
    assert_eq!(again.kids().collect::<Vec<_>>(), ring.kids().collect::<Vec<_>>());
    assert_eq!(again.open(HERE, &record).unwrap().as_slice(), b"sk-secret");
    assert_eq!(Kid::parse(&ring.active().to_string()), Some(ring.active()));
    assert_eq!(Kid::parse("0123"), None);
    let shown = format!("{ring:?}");
    assert!(shown.contains(&ring.active().to_string()) && !shown.contains(&text[..16]), "{shown}");

    let line = text.lines().next().unwrap();
    let twice = format!("{line}\n{line}\n");
    assert_eq!(KeyRing::parse(&twice).map(|_| ()), Err(RingFault::Twice(ring.active())));
    for bad in ["", "\n", &line[1..], &line.to_uppercase(), &format!("{line}\n\n"), &format!("{line} x")] {
        assert_eq!(KeyRing::parse(bad).map(|_| ()), Err(RingFault::Malformed), "{bad:?}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let (ring, _) = sealed();
    assert_eq!(ring.seal(HERE, &vec![0; MOST_BYTES + 1]), Err(VaultFault::TooLarge));
    let largest = ring.seal(HERE, &vec![7; MOST_BYTES]).unwrap();
    assert_eq!(ring.open(HERE, &largest).unwrap().len(), MOST_BYTES);
    assert_eq!(ring.open(HERE, &[largest, vec![0]].concat()), Err(VaultFault::Malformed));
}

/// The example of the Fernet specification (generate.json, verify.json).
const FERNET_KEY: &str = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=";
const FERNET_TOKEN: &str =
    "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==";

#[test]
fn fernet_values_are_read() {
    let key = FernetKey::parse(FERNET_KEY).unwrap();
    assert_eq!(key.open(FERNET_TOKEN).unwrap().as_slice(), b"hello");
    let other = FernetKey::parse("Aw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=").unwrap();
    assert_eq!(other.open(FERNET_TOKEN), Err(FernetFault::Sealed));
    let mut bytes = Base64Url::decode_vec(FERNET_TOKEN).unwrap();
    for position in 0..bytes.len() {
        bytes[position] ^= 1;
        assert_eq!(key.open(&Base64Url::encode_string(&bytes)), Err(FernetFault::Sealed), "{position}");
        bytes[position] ^= 1;
    }
    for bad in ["", "gAAA", "!", &FERNET_TOKEN[4..]] {
        assert!(key.open(bad).is_err(), "{bad}");
    }
    for bad in ["", "AAAA", FERNET_TOKEN] {
        assert_eq!(FernetKey::parse(bad).map(|_| ()), Err(FernetFault::Key), "{bad}");
    }
}
