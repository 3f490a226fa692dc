//! Why a document was refused: a stable code, the place, and what to do next. All faults are reported together, in
//! document order, bounded in number; a value outlives its document only if this list stayed empty.

use std::fmt;

use crate::egress::HostWarningCode;
use crate::path::Path;

named_enum! {
    /// The stable name of a fault; part of the contract, never renamed.
    pub enum Code {
        DocumentUnreadable => "document_unreadable",
        DocumentInvalid => "document_invalid",
        DocumentTooLarge => "document_too_large",
        DocumentTooDeep => "document_too_deep",
        UnknownField => "unknown_field",
        DuplicateField => "duplicate_field",
        MissingField => "missing_field",
        WrongType => "wrong_type",
        TooMany => "too_many",
        TooFew => "too_few",
        TooManyFaults => "too_many_faults",
        MissingSandbox => "missing_sandbox",
        MissingProfile => "missing_profile",
        UnknownProfile => "unknown_profile",
        UnknownTier => "unknown_tier",
        UnknownBackend => "unknown_backend",
        UnknownKind => "unknown_kind",
        OverrideNotAllowed => "override_not_allowed",
        OverrideInvalid => "override_invalid",
        UnconfinedRefused => "unconfined_refused",
        BackendBelowFloor => "backend_below_floor",
        RuleWithoutEffect => "rule_without_effect",
        HostInvalid => "host_invalid",
        HostReserved => "host_reserved",
        HostShared => "host_shared",
        HostDuplicate => "host_duplicate",
        TenantRequired => "tenant_required",
        ProjectInvalid => "project_invalid",
        SettingInvalid => "setting_invalid",
        NameInvalid => "name_invalid",
        StageDuplicate => "stage_duplicate",
        NeedsUnknown => "needs_unknown",
        NeedsDuplicate => "needs_duplicate",
        NeedsCycle => "needs_cycle",
        CommandMissing => "command_missing",
        CommandConflict => "command_conflict",
        CommandInvalid => "command_invalid",
        CommandNotAllowed => "command_not_allowed",
        TimeoutInvalid => "timeout_invalid",
        EnvInvalid => "env_invalid",
        ModelInvalid => "model_invalid",
        HarnessInvalid => "harness_invalid",
        PathInvalid => "path_invalid",
        BudgetInvalid => "budget_invalid",
        BudgetAboveLimit => "budget_above_limit",
        VerifyInvalid => "verify_invalid",
        ImageNotPortable => "image_not_portable",
        UnknownApi => "unknown_api",
        UnknownAuth => "unknown_auth",
        UnknownPreset => "unknown_preset",
        UpstreamMissing => "upstream_missing",
        UpstreamInvalid => "upstream_invalid",
        CredentialInvalid => "credential_invalid",
        PriceInvalid => "price_invalid",
        PriceMissing => "price_missing",
        IdInvalid => "id_invalid",
        LabelInvalid => "label_invalid",
        SourcePathInvalid => "source_path_invalid",
        TargetInvalid => "target_invalid",
        TargetReserved => "target_reserved",
        TargetConflict => "target_conflict",
        ExcludeInvalid => "exclude_invalid",
        UnknownTool => "unknown_tool",
        ToolDuplicate => "tool_duplicate",
        UnknownAgent => "unknown_agent",
        PortInvalid => "port_invalid",
        PortDuplicate => "port_duplicate",
        TtlInvalid => "ttl_invalid",
        AliasInvalid => "alias_invalid",
        CompanionInvalid => "companion_invalid",
        CompanionsUnsupported => "companions_unsupported",
        HealthcheckInvalid => "healthcheck_invalid",
        NotOverApi => "not_over_api",
        FernetKeyInvalid => "fernet_key_invalid",
        FernetTokenMalformed => "fernet_token_malformed",
        FernetTokenUnopened => "fernet_token_unopened",
        SecretInvalid => "secret_invalid",
    }
}

/// The stable name of something allowed that its author should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningCode {
    UnconfinedSandbox,
    Host(HostWarningCode),
}

impl WarningCode {
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnconfinedSandbox => "unconfined_sandbox",
            Self::Host(code) => code.name(),
        }
    }
}

/// One fault. `allowed` lists what would have been accepted there, where that is a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message} [{code}]")]
pub struct Refusal {
    pub code: Code,
    pub path: Path,
    pub message: String,
    pub allowed: Vec<String>,
}

impl Refusal {
    pub fn new(code: Code, path: &Path, message: impl Into<String>) -> Self {
        Self { code, path: path.clone(), message: message.into(), allowed: Vec::new() }
    }

    #[must_use]
    pub fn allowing(mut self, allowed: &[&str]) -> Self {
        self.allowed = allowed.iter().map(|&name| name.to_owned()).collect();
        self
    }
}

/// Something accepted, with a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub code: WarningCode,
    pub path: Path,
    pub message: String,
}

/// Every fault found in one document.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Refusals {
    kept: Vec<Refusal>,
    omitted: usize,
}

impl Refusals {
    /// More faults than this are counted, not kept: a hostile document must not buy memory with them.
    pub const MOST: usize = 100;

    pub fn add(&mut self, refusal: Refusal) {
        if self.kept.len() < Self::MOST {
            self.kept.push(refusal);
        } else {
            self.omitted += 1;
        }
    }

    pub fn refuse(&mut self, code: Code, path: &Path, message: impl Into<String>) {
        self.add(Refusal::new(code, path, message));
    }

    pub fn append(&mut self, other: Self) {
        self.omitted += other.omitted;
        other.kept.into_iter().for_each(|refusal| self.add(refusal));
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Ends the reading of a document: the value stands only when nothing was refused.
    ///
    /// A missing value without a fault would be a bug in a reader; it is refused rather than trusted.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<T, Self> {
        if let (true, Some(value)) = (self.is_empty(), value) {
            return Ok(value);
        }
        if self.is_empty() {
            self.refuse(Code::DocumentInvalid, &Path::root(), "the document could not be read");
        }
        self.kept.sort_by(|a, b| a.path.cmp(&b.path));
        Err(self)
    }

    /// The faults in document order, closed by one entry that counts those left out.
    pub fn into_list(self) -> Vec<Refusal> {
        let mut list = self.kept;
        if self.omitted > 0 {
            let message = format!("{} more faults are not shown; mend these first", self.omitted);
            list.push(Refusal::new(Code::TooManyFaults, &Path::root(), message));
        }
        list
    }

    pub fn codes(&self) -> Vec<Code> {
        self.kept.iter().map(|refusal| refusal.code).collect()
    }
}

impl From<Refusal> for Refusals {
    fn from(refusal: Refusal) -> Self {
        Self { kept: vec![refusal], omitted: 0 }
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, refusal) in self.clone().into_list().iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{refusal}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_sorted_bounded_and_counted() {
        let mut refusals = Refusals::default();
        for index in (0..130).rev() {
            refusals.refuse(Code::WrongType, &Path::root().index(index), "no");
        }
        let list = refusals.finish(Some(())).unwrap_err().into_list();
        assert_eq!(list.len(), 101);
        assert_eq!(list[0].path, Path::root().index(30));
        assert_eq!(list[100].code, Code::TooManyFaults);
        assert_eq!(list[100].message, "30 more faults are not shown; mend these first");
    }

    #[test]
    fn a_value_stands_only_without_faults() {
        assert_eq!(Refusals::default().finish(Some(7)), Ok(7));
        let refused = Refusals::from(Refusal::new(Code::WrongType, &Path::root(), "no"));
        assert_eq!(refused.clone().finish(Some(7)), Err(refused));
        assert_eq!(Refusals::default().finish::<u8>(None).unwrap_err().codes(), [Code::DocumentInvalid]);
    }
}
