//! Any bytes as a signed release, and any bytes as the payload of a well signed one: a value or a fault, and never a secret.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_seal::Digest;
use pond_seal::envelope::{Purpose, seal_as};
use pond_seal::key::SigningKey;
use pond_seal::seal::{OpenKey, Release, SealContext, Sealed, Subject};

static CONTROL: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().expect("the kernel has random bytes"));
static KEY: LazyLock<OpenKey> = LazyLock::new(|| OpenKey::generate().expect("the kernel has random bytes"));

fuzz_target!(|bytes: &[u8]| {
    let context = SealContext {
        subject: Subject::BundleKey,
        tenant: String::new(),
        worker: String::new(),
        worker_key: KEY.public().id(),
        job: String::new(),
        lease_epoch: 0,
        input: Digest::of(b""),
        policy: Digest::of(b""),
        not_after: 0,
    };
    let open = |release: Release| release.open(&CONTROL.public(), &KEY, &context).is_ok();
    assert!(!open(Release::from_bytes(bytes.to_vec())), "nobody else has this key");
    let signed = seal_as(Purpose::Release, bytes, &CONTROL).expect("bytes have an envelope");
    assert!(!open(Release::from_bytes(signed)), "nobody sealed this");
    if let Ok(sealed) = serde_json::from_slice::<Sealed>(bytes) {
        let written = serde_json::to_vec(&sealed).expect("a box has a text");
        assert_eq!(serde_json::from_slice::<Sealed>(&written).ok().as_ref(), Some(&sealed));
        let release = Release::sign(sealed, &context, &CONTROL).expect("a box has a text");
        assert!(!open(release), "nobody sealed this");
    }
});
