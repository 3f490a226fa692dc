//! Any bytes as a bundle, and any damage to a good one: what is read is a beginning of what was written, and only an untouched
//! bundle comes to its end.
#![no_main]

use std::io::{Read, Write};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_seal::bundle::{BundleFault, CHUNK_BYTES, DataKey, Decrypting, Encrypting};

static KEY: LazyLock<DataKey> = LazyLock::new(|| DataKey::generate().expect("the kernel has random bytes"));
static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=255).cycle().take(CHUNK_BYTES + 300).collect());
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bundle = Encrypting::new(Vec::new(), &KEY).expect("a vector takes everything");
    bundle.write_all(&PLAIN).expect("a vector takes everything");
    bundle.finish().expect("a vector takes everything")
});

fn read(bundle: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::new();
    match Decrypting::new(bundle, &KEY, 1 << 24).and_then(|mut reader| reader.read_to_end(&mut plain)) {
        Ok(_) => (plain, true),
        Err(error) => {
            assert!(BundleFault::of(&error).is_some(), "a slice has no faults of its own: {error}");
            (plain, false)
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(read(bytes), (Vec::new(), false), "nobody else has this key");
    // The first bytes say where to cut the good bundle, the rest replaces or extends what follows.
    let [high, middle, low, rest @ ..] = bytes else { return };
    let at = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
    let at = at % (GOOD.len() + 1);
    let over = GOOD.get(at + rest.len()..).unwrap_or_default();
    for changed in [[&GOOD[..at], rest].concat(), [&GOOD[..at], rest, over].concat()] {
        let (plain, whole) = read(&changed);
        assert!(PLAIN.starts_with(&plain));
        assert_eq!(whole, changed == *GOOD);
    }
});
