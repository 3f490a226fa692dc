//! Any text as the head of a signed request, as a join token and as a bearer token: one spelling each, and no signature holds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pond_seal::Digest;
use pond_seal::bearer::Bearer;
use pond_seal::enroll::JoinToken;
use pond_seal::key::SigningKey;
use pond_seal::request::{Request, SeenNonces, SignedHead};

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().expect("the kernel has random bytes"));

fuzz_target!(|text: &str| {
    if let Ok(head) = SignedHead::parse(text) {
        assert_eq!(head.to_text(), text);
        let request = Request { method: "POST", path: "/orch/poll", body: Digest::of(text.as_bytes()) };
        let mut seen = SeenNonces::new(1);
        let verdict = head.verify(&request, &KEY.public(), KEY.public().id(), 0, &mut seen);
        assert!(verdict.is_err() && seen.is_empty(), "nobody else has this key");
    }
    if let Ok(token) = JoinToken::parse(text) {
        assert_eq!(token.to_text().as_str(), text);
    }
    if let Ok(token) = Bearer::parse(text) {
        assert_eq!(token.to_text().as_str(), text);
        assert!(token.stored().admits(&token));
    }
});
