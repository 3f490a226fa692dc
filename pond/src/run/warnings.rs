//! What a person should know of the rules of a run before they act: what a host can be used for besides what it is allowed
//! for. Said, never enforced.

use pond_policy::egress::{HostRule, lint};
use pond_policy::operator::Operator;
use pond_policy::profile::Network;
use pond_policy::sandbox::SandboxPolicy;

/// Nothing where no rule acts. A rule with a fault is refused elsewhere.
pub(super) fn warnings(policy: &SandboxPolicy, operator: &Operator, asked: &[String]) -> Vec<String> {
    if policy.posture().network != Network::Allowlist {
        return Vec::new();
    }
    let of_file = operator.warnings.iter();
    let of_file =
        of_file.map(|said| format!("pond.toml: {}: {} [{}]", said.path, said.message, said.code.name()));
    let rules = asked.iter().filter_map(|text| HostRule::parse_config(text).ok());
    let of_flags = rules.flat_map(|rule| lint(&rule));
    let of_flags = of_flags.map(|said| format!("--allow-host: {} [{}]", said.message, said.code.name()));
    of_file.chain(of_flags).collect()
}

#[cfg(test)]
mod tests {
    //! Flags and file alike, and only where they act.
    use super::*;
    use pond_policy::node::Node;
    use pond_policy::settings::Settings;
    use pond_wire::decode::decode_toml;

    fn said(profile: &str, file: &str, asked: &[&str]) -> Vec<String> {
        let block = Node::Map(vec![("profile".to_owned(), Node::text(profile))]);
        let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default()).unwrap();
        let operator = Operator::read(&decode_toml(file.as_bytes()).unwrap()).unwrap();
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        warnings(&policy, &operator, &asked)
    }

    #[test]
    fn c137_c138_c141_rules_of_a_run_are_linted_wherever_they_come_from() {
        let file = "[egress]\nallow = [\"api.github.com\", \"git.acme.com\"]\n";
        let lines = said("untrusted-code-write", file, &["*.github.com", "pypi.org", "*"]);
        let places: Vec<bool> =
            lines.iter().map(|line| line.starts_with("pond.toml: egress.allow[0]: ")).collect();
        assert_eq!(places, [true, false, false, false], "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with(" [host_write_channel]")), "{lines:?}");
        assert!(lines[1].starts_with("--allow-host: `*.github.com` covers "), "{lines:?}");
        assert_eq!(said("untrusted-code-read", file, &[]), Vec::<String>::new());
        assert_eq!(said("untrusted-code-write", "", &["git.acme.com"]), Vec::<String>::new());
    }
}
