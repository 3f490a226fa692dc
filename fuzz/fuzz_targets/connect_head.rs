//! A request head at the proxy: a destination that the target alone decided, or a refusal on one printable line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_gateway::connect::destination;
use pond_gateway::http::parse_head;
use pond_policy::egress::Destination;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((head, length))) = parse_head(bytes) else { return };
    assert!(length <= bytes.len());
    match destination(&head) {
        Ok(destination) => {
            assert_eq!(head.method, b"CONNECT");
            let target = std::str::from_utf8(&head.target).expect("a target that was parsed");
            assert_eq!(Destination::parse(target), Ok(destination));
        }
        Err(denial) => {
            let phrase = denial.reason_phrase();
            assert!(phrase.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{phrase:?}");
        }
    }
});
