//! A command line, one word per line of input: only a listed bare first word passes, and whatever is
//! shown or audited is one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_policy::command::{ALLOWED_COMMANDS, audit_form, check};

fuzz_target!(|text: &str| {
    let argv: Vec<String> = text.split('\n').map(str::to_owned).collect();
    match check(&argv) {
        Ok(allowed) => {
            assert!(ALLOWED_COMMANDS.contains(&allowed.name()));
            assert_eq!(argv.first().map(String::as_str), Some(allowed.name()));
            assert_eq!(allowed.argv(), argv);
        }
        Err(denied) => {
            assert!(!denied.to_string().contains(char::is_control));
            assert!(!denied.hint().contains(char::is_control));
        }
    }
    assert!(!audit_form(&argv).contains(char::is_control));
});
