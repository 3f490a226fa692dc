//! What a token of the user's API may do. A scope grants one thing and implies no other.

named_enum! {
    /// One thing a token allows.
    pub enum Scope {
        RunsRead => "runs:read",
        RunsWrite => "runs:write",
        SandboxesRead => "sandboxes:read",
        SandboxesWrite => "sandboxes:write",
        SecretsWrite => "secrets:write",
        EgressWrite => "egress:write",
        WorkersAdmin => "workers:admin",
        TokensAdmin => "tokens:admin",
        AuditRead => "audit:read",
    }
}

/// Whether a holder of these may hand out those.
pub fn cover(held: &[Scope], wanted: &[Scope]) -> bool {
    wanted.iter().all(|scope| held.contains(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_hands_out_what_he_does_not_have() {
        let held = [Scope::RunsRead, Scope::TokensAdmin];
        assert!(cover(&held, &[Scope::RunsRead]) && cover(&held, &held) && cover(&held, &[]));
        assert!(!cover(&held, &[Scope::RunsRead, Scope::RunsWrite]));
        assert!(Scope::ALL.iter().all(|scope| !cover(&[], &[*scope])));
    }
}
