//! The operator's settings, from text that the edge read from the environment. A setting that cannot be understood is a
//! refusal, never a default: a mistyped `true` must not open a deployment.

use crate::backend::Backend;
use crate::path::Path;
use crate::quote::quote;
use crate::refusal::{Code, Refusal, Refusals};

pub const REQUIRE_SANDBOX: &str = "POND_REQUIRE_SANDBOX";
pub const MIN_BACKEND: &str = "POND_MIN_BACKEND";

const YES: [&str; 4] = ["true", "1", "yes", "on"];
const NO: [&str; 4] = ["false", "0", "no", "off"];

/// What the operator demands of every sandbox. The default demands nothing beyond the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Refuse the unconfined profile.
    pub require_sandbox: bool,
    /// The weakest acceptable backend; set, it also refuses the unconfined profile.
    pub min_backend: Option<Backend>,
}

impl Settings {
    /// Reads the two settings; `None` where the variable is not set.
    pub fn parse(require_sandbox: Option<&str>, min_backend: Option<&str>) -> Result<Self, Refusals> {
        let mut refusals = Refusals::default();
        let settings = Self {
            require_sandbox: require_sandbox.is_some_and(|text| read_switch(text, &mut refusals)),
            min_backend: min_backend.and_then(|text| read_backend(text, &mut refusals)),
        };
        refusals.finish(Some(settings))
    }
}

fn read_switch(text: &str, refusals: &mut Refusals) -> bool {
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if !is_one_of(YES) && !is_one_of(NO) {
        refuse(REQUIRE_SANDBOX, text, &["true", "false"], refusals);
    }
    is_one_of(YES)
}

fn read_backend(text: &str, refusals: &mut Refusals) -> Option<Backend> {
    let backend = Backend::from_name(text);
    if backend.is_none() {
        refuse(MIN_BACKEND, text, Backend::NAMES, refusals);
    }
    backend
}

fn refuse(variable: &str, text: &str, allowed: &[&str], refusals: &mut Refusals) {
    let message =
        format!("{variable} is {}: set it to one of {}, or unset it", quote(text), allowed.join(", "));
    refusals
        .add(Refusal::new(Code::SettingInvalid, &Path::root().key(0, variable), message).allowing(allowed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_in_any_case() {
        for (text, expected) in [("true", true), ("YES", true), ("1", true), ("On", true)]
            .into_iter()
            .chain([("false", false), ("NO", false), ("0", false), ("off", false)])
        {
            let settings = Settings { require_sandbox: expected, min_backend: None };
            assert_eq!(Settings::parse(Some(text), None), Ok(settings), "{text}");
        }
        assert_eq!(Settings::parse(None, None), Ok(Settings::default()));
        let floor = Settings { require_sandbox: false, min_backend: Some(Backend::Gvisor) };
        assert_eq!(Settings::parse(None, Some("gvisor")), Ok(floor));
    }

    #[test]
    fn anything_else_is_refused_never_a_default() {
        for text in ["", " true", "tru", "enabled", "2", "y", "\u{442}rue"] {
            assert_eq!(
                Settings::parse(Some(text), None).unwrap_err().codes(),
                [Code::SettingInvalid],
                "{text:?}"
            );
        }
        for text in ["", "none", "Gvisor", "kata", "sandbox.gvisor", "any"] {
            assert_eq!(
                Settings::parse(None, Some(text)).unwrap_err().codes(),
                [Code::SettingInvalid],
                "{text:?}"
            );
        }
        let both = Settings::parse(Some("maybe"), Some("kata")).unwrap_err();
        assert_eq!(both.codes(), [Code::SettingInvalid; 2]);
    }
}
