//! Any bytes as a signed envelope, and any bytes as the payload of a well signed one: a value or a fault, never more than was
//! signed, and never a stranger's word.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_seal::envelope::{Envelope, seal};
use pond_seal::key::SigningKey;
use pond_seal::statement::Statement;

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().expect("the kernel has random bytes"));

fuzz_target!(|bytes: &[u8]| {
    if let Ok(envelope) = Envelope::parse(bytes) {
        assert!(envelope.verify(&KEY.public()).is_err(), "nobody else has this key");
    }
    let Ok(sealed) = seal(bytes, &KEY) else { return };
    let Ok(envelope) = Envelope::parse(&sealed) else { return };
    let verified = envelope.verify(&KEY.public()).expect("just signed");
    assert_eq!(verified.payload(), bytes);
    if let Ok(statement) = Statement::decode(&verified) {
        let again = statement.sign(&KEY).expect("a statement has a text");
        let again = Envelope::parse(&again).expect("our own envelope");
        let again = Statement::decode(&again.verify(&KEY.public()).expect("just signed"));
        assert_eq!(again.ok().as_ref(), Some(&statement));
    }
});
