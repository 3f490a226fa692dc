//! Limits as users type them: a value within its bounds that prints to itself, or a fault.
#![no_main]

use std::fmt::{Debug, Display};

use libfuzzer_sys::fuzz_target;
use pond_policy::duration::Timeout;
use pond_policy::limits::{ByteBudget, Cpus, Memory, Pids, TmpfsSize};

fuzz_target!(|text: &str| {
    round_trip(text, Memory::parse, Memory::LEAST, Memory::MOST);
    round_trip(text, TmpfsSize::parse, TmpfsSize::LEAST, TmpfsSize::MOST);
    round_trip(text, ByteBudget::parse, ByteBudget::LEAST, ByteBudget::MOST);
    round_trip(text, Pids::parse, Pids::LEAST, Pids::MOST);
    round_trip(text, Cpus::parse, Cpus::LEAST, Cpus::MOST);
    round_trip(text, Timeout::parse, Timeout::LEAST, Timeout::MOST);
});

fn round_trip<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>, least: T, most: T)
where
    T: Copy + PartialOrd + Display + Debug,
    E: Display + Debug,
{
    match parse(text) {
        Ok(value) => {
            assert!(least <= value && value <= most, "{text:?} gave {value}");
            assert_eq!(parse(&value.to_string()).expect("a printed value parses"), value);
        }
        Err(fault) => assert!(!fault.to_string().contains(char::is_control)),
    }
}
