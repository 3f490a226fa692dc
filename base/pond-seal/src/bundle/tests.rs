//! A bundle comes back whole or not at all, whatever is done to its chunks.

use std::io::{self, Read, Write};

use proptest::prelude::*;

use super::*;

const AMPLE: u64 = 1 << 30;

fn encrypted(plain: &[u8], key: &DataKey) -> Vec<u8> {
    let mut writer = Encrypting::new(Vec::new(), key).unwrap();
    writer.write_all(plain).unwrap();
    writer.finish().unwrap()
}

fn decrypted(bundle: &[u8], key: &DataKey, most: u64) -> Result<Vec<u8>, &'static str> {
    let mut plain = Vec::new();
    let read = Decrypting::new(bundle, key, most).and_then(|mut reader| reader.read_to_end(&mut plain));
    read.map(|_| plain)
        .map_err(|error| BundleFault::of(&error).map_or("not about the bundle", BundleFault::code))
}

/// Three full chunks and a part, each byte telling where it stands.
fn four_chunks() -> Vec<u8> {
    (0..3 * CHUNK_BYTES + 100).map(|at| u8::try_from((at / 7 + at / CHUNK_BYTES) % 251).unwrap()).collect()
}

#[test]
fn sizes_around_a_chunk_come_back() {
    let key = DataKey::generate().unwrap();
    for size in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 1] {
        let plain = vec![b'x'; size];
        let bundle = encrypted(&plain, &key);
        let chunks = size.div_ceil(CHUNK_BYTES).max(1);
        assert_eq!(bundle.len(), HEADER_BYTES + size + chunks * TAG_BYTES, "{size}");
        assert_eq!(decrypted(&bundle, &key, AMPLE), Ok(plain), "{size}");
    }
}

#[test]
fn chunks_cannot_be_dropped_repeated_moved_or_added() {
    let key = DataKey::generate().unwrap();
    let bundle = encrypted(&four_chunks(), &key);
    let (header, body) = bundle.split_at(HEADER_BYTES);
    let chunks: Vec<&[u8]> = body.chunks(SEALED_BYTES).collect();
    let code = |order: &[usize]| {
        let body: Vec<u8> = order.iter().flat_map(|at| chunks[*at].iter().copied()).collect();
        decrypted(&[header, &body].concat(), &key, AMPLE).map(|plain| plain.len())
    };
    assert_eq!(code(&[0, 1, 2, 3]), Ok(3 * CHUNK_BYTES + 100));
    for (order, expected) in [
        (&[][..], "bundle_cut"),
        (&[0], "bundle_cut"),
        (&[0, 1, 2], "bundle_cut"),
        (&[3], "bundle_chunk"),
        (&[1, 2, 3], "bundle_chunk"),
        (&[0, 2, 1, 3], "bundle_chunk"),
        (&[0, 0, 1, 2, 3], "bundle_chunk"),
        (&[0, 1, 2, 3, 3], "bundle_chunk"),
        (&[0, 1, 2, 3, 0], "bundle_chunk"),
    ] {
        assert_eq!(code(order), Err(expected), "{order:?}");
    }
    let extended = [&bundle[..], b"x"].concat();
    assert_eq!(decrypted(&extended, &key, AMPLE), Err("bundle_chunk"));
}

#[test]
fn chunks_of_two_bundles_under_one_key_do_not_mix() {
    let key = DataKey::generate().unwrap();
    let (one, two) = (encrypted(&four_chunks(), &key), encrypted(&four_chunks(), &key));
    let cut = HEADER_BYTES + SEALED_BYTES;
    assert_eq!(decrypted(&[&one[..cut], &two[cut..]].concat(), &key, AMPLE), Err("bundle_chunk"));
    let other = DataKey::generate().unwrap();
    assert_eq!(decrypted(&one, &other, AMPLE), Err("bundle_chunk"));
}

#[test]
fn the_header_is_part_of_every_chunk() {
    let key = DataKey::generate().unwrap();
    let bundle = encrypted(b"source", &key);
    for at in 0..HEADER_BYTES {
        let mut other = bundle.clone();
        other[at] ^= 1;
        let expected = if at < MAGIC.len() { "bundle_header" } else { "bundle_chunk" };
        assert_eq!(decrypted(&other, &key, AMPLE), Err(expected), "byte {at}");
    }
    for length in 0..HEADER_BYTES {
        assert_eq!(decrypted(&bundle[..length], &key, AMPLE), Err("bundle_header"), "cut to {length}");
    }
    for length in HEADER_BYTES + 1..bundle.len() {
        assert_eq!(decrypted(&bundle[..length], &key, AMPLE), Err("bundle_chunk"), "cut to {length}");
    }
}

#[test]
fn a_bundle_over_the_limit_ends_there() {
    let key = DataKey::generate().unwrap();
    let plain = four_chunks();
    let bundle = encrypted(&plain, &key);
    let size = u64::try_from(plain.len()).unwrap();
    assert_eq!(decrypted(&bundle, &key, size), Ok(plain));
    for most in [0, 1, size - 1] {
        assert_eq!(decrypted(&bundle, &key, most), Err("bundle_too_large"), "{most}");
    }
}

#[test]
fn a_reader_that_failed_stays_failed() {
    let key = DataKey::generate().unwrap();
    let mut bundle = encrypted(&four_chunks(), &key);
    bundle[HEADER_BYTES + SEALED_BYTES] ^= 1;
    let mut reader = Decrypting::new(&bundle[..], &key, AMPLE).unwrap();
    let mut first = vec![0; CHUNK_BYTES];
    reader.read_exact(&mut first).unwrap();
    let mut next = || BundleFault::of(&reader.read(&mut [0; 1]).unwrap_err());
    assert_eq!(next(), Some(BundleFault::Chunk(1)));
    assert_eq!(next(), Some(BundleFault::Failed));
}

#[test]
fn an_error_of_the_source_is_its_own_and_fails_the_reader() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::ConnectionReset))
        }
    }
    let key = DataKey::generate().unwrap();
    let bundle = encrypted(&four_chunks(), &key);
    let mut reader = Decrypting::new(bundle[..HEADER_BYTES + 5].chain(Broken), &key, AMPLE).unwrap();
    let first = reader.read(&mut [0; 1]).unwrap_err();
    assert_eq!((first.kind(), BundleFault::of(&first)), (io::ErrorKind::ConnectionReset, None));
    assert_eq!(BundleFault::of(&reader.read(&mut [0; 1]).unwrap_err()), Some(BundleFault::Failed));
}

#[test]
fn a_key_travels_as_a_secret_of_its_size() {
    let key = DataKey::generate().unwrap();
    let bundle = encrypted(b"source", &key);
    let again = DataKey::from_secret(&key.to_secret()).unwrap();
    assert_eq!(decrypted(&bundle, &again, AMPLE), Ok(b"source".to_vec()));
    for size in [0, 31, 33] {
        let short = DataKey::from_secret(&Secret::new(vec![0; size]));
        assert_eq!(short.map(drop), Err(BundleFault::NotAKey));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// However it is cut into writes and reads, and whichever bit is changed.
    #[test]
    fn any_writes_any_reads_any_bit(
        writes in proptest::collection::vec(0..CHUNK_BYTES + 2, 0..4),
        step in 1..2 * CHUNK_BYTES,
        bit in any::<prop::sample::Index>(),
    ) {
        let key = DataKey::generate().unwrap();
        let mut writer = Encrypting::new(Vec::new(), &key).unwrap();
        let mut plain = Vec::new();
        for (at, size) in writes.into_iter().enumerate() {
            let part = vec![u8::try_from(at).unwrap(); size];
            writer.write_all(&part).unwrap();
            plain.extend(part);
        }
        let mut bundle = writer.finish().unwrap();
        let mut reader = Decrypting::new(&bundle[..], &key, AMPLE).unwrap();
        let (mut read, mut part) = (Vec::<u8>::new(), vec![0; step]);
        loop {
            match reader.read(&mut part).unwrap() {
                0 => break,
                count => read.extend(&part[..count]),
            }
        }
        prop_assert!(read == plain);
        let at = bit.index(bundle.len() * 8);
        bundle[at / 8] ^= 1 << (at % 8);
        prop_assert!(decrypted(&bundle, &key, AMPLE).is_err());
    }
}
