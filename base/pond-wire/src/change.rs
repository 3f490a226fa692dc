//! The boundary between a running `pond run` and the person who changes what its job may reach: one request and one answer,
//! each a JSON object in a packet of its own, on a socket in the run's directory.

use serde::{Deserialize, Serialize};

/// Larger packets are refused before they are decoded.
pub const MAX_CHANGE_BYTES: usize = 64 << 10;

/// What should be different from now on. Rules in the contract's spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Hosts to let the job reach; one that was denied while it ran is no longer.
    pub allow: Vec<String>,
    /// Hosts to close, whatever else allows them.
    pub deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Answer {
    /// The new rules hold, and tunnels they do not cover are being closed.
    Changed { notes: Vec<String> },
    /// Nothing was changed. The code is stable.
    Refused { code: String, message: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_anything_unknown_is_none() {
        let good = r#"{"allow":["pypi.org"],"deny":[]}"#;
        let change = Change { allow: vec!["pypi.org".to_owned()], deny: Vec::new() };
        assert_eq!(serde_json::from_str::<Change>(good).unwrap(), change);
        for bad in [r#"{"allow":["pypi.org"]}"#, r#"{"allow":[],"deny":[],"internet":true}"#, "[]"] {
            assert!(serde_json::from_str::<Change>(bad).is_err(), "{bad}");
        }
        let refused = Answer::Refused { code: "c".to_owned(), message: "m".to_owned() };
        let text = r#"{"refused":{"code":"c","message":"m"}}"#;
        assert_eq!(serde_json::to_string(&refused).unwrap(), text);
    }
}
