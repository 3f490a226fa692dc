//! A client's first bytes: the verdict on a part is the verdict on the whole, or none yet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_gateway::hello::{MAX_RAW, read};

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    assert!(bytes.len() < MAX_RAW || whole != Ok(None));
    let part = read(&bytes[..bytes.len() / 2]);
    if let Ok(Some(name)) = part {
        assert_eq!(whole, Ok(Some(name)));
    } else if let Err(fault) = part {
        assert_eq!(whole, Err(fault));
    }
});
