//! Any bytes as a signed offer, a grant of enrollment or a rotation, and as the payload of a well signed one.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_seal::enroll::{Identity, Rotation};
use pond_seal::envelope::{Purpose, seal_as};
use pond_seal::key::SigningKey;
use pond_seal::offer::{Addressee, SignedOffer};
use pond_seal::request::RequestNonce;

static CONTROL: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().expect("the kernel has random bytes"));
static WORKER: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("the kernel has random bytes"));
static POLLED: LazyLock<RequestNonce> =
    LazyLock::new(|| RequestNonce::generate().expect("the kernel has random bytes"));

fuzz_target!(|bytes: &[u8]| {
    let me = Addressee { worker: "w1", worker_key: WORKER.keys().seal.id(), polled: *POLLED };
    let believed = |offer: SignedOffer| offer.verify(&CONTROL.public(), me).is_ok();
    assert!(!believed(SignedOffer::from_bytes(bytes.to_vec())), "nobody else has this key");
    let signed = seal_as(Purpose::Offer, bytes, &CONTROL).expect("bytes have an envelope");
    assert!(!believed(SignedOffer::from_bytes(signed)), "no such nonce was ever told");
    let old = WORKER.keys().signing;
    assert!(Rotation(bytes.to_vec()).verify(&old, "w1", 1).is_err(), "nobody else has this key");
    let signed = seal_as(Purpose::Rotation, bytes, &WORKER.signing).expect("bytes have an envelope");
    assert!(Rotation(signed).verify(&old, "w1", 1).is_err(), "no new key signed its own proof");
});
