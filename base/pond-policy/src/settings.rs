//! The operator's settings, from text that the edge read from the environment. A setting that cannot be understood is a
//! refusal, never a default: a mistyped `true` must not open a deployment.

use core::net::SocketAddr;
use core::time::Duration;

use crate::backend::Backend;
use crate::duration::Timeout;
use crate::limits::ByteBudget;
use crate::path::Path;
use crate::quote::quote;
use crate::refusal::{Code, Refusal, Refusals};
use crate::run::Allowance;

pub const REQUIRE_SANDBOX: &str = "POND_REQUIRE_SANDBOX";
pub const MIN_BACKEND: &str = "POND_MIN_BACKEND";

/// How fast a job may use the disk, each way.
pub const DISK_RATE: &str = "POND_DISK_BYTES_PER_SECOND";

pub const RESOLVER: &str = "POND_RESOLVER";

pub const OFFER_TIME: &str = "POND_OFFER_TIME";
pub const LEASE_TIME: &str = "POND_LEASE_TIME";
pub const GRACE_TIME: &str = "POND_GRACE_TIME";
pub const UNMATCHED_TIME: &str = "POND_UNMATCHED_TIME";

/// More name servers than any resolver asks.
const MOST_RESOLVERS: usize = 8;
const DNS_PORT: u16 = 53;

const YES: [&str; 4] = ["true", "1", "yes", "on"];
const NO: [&str; 4] = ["false", "0", "no", "off"];

/// What the operator demands of every sandbox. The default demands nothing beyond the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Refuse the unconfined profile.
    pub require_sandbox: bool,
    /// The weakest acceptable backend; set, it also refuses the unconfined profile.
    pub min_backend: Option<Backend>,
    /// What every run has of each budget, unless its document asks for less.
    pub run: Allowance,
}

impl Settings {
    /// Reads the two settings of sandboxes; `None` where the variable is not set. Budgets of runs come from elsewhere.
    pub fn parse(require_sandbox: Option<&str>, min_backend: Option<&str>) -> Result<Self, Refusals> {
        let mut refusals = Refusals::default();
        let settings = Self {
            require_sandbox: require_sandbox.is_some_and(|text| read_switch(text, &mut refusals)),
            min_backend: min_backend.and_then(|text| read_backend(text, &mut refusals)),
            run: Allowance::default(),
        };
        refusals.finish(Some(settings))
    }
}

/// How long a control plane waits for workers; `None` where the operator does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// From an offer to the word that the job starts.
    pub offer: Option<Duration>,
    /// From one sign of life to the moment the worker counts as lost.
    pub lease: Option<Duration>,
    /// What a job gets beyond its time limit to end and report.
    pub grace: Option<Duration>,
    /// From being queued to the end of a stage that no worker may take.
    pub unmatched: Option<Duration>,
}

impl Waits {
    /// Reads the four settings from what each variable holds.
    pub fn parse(text: impl Fn(&str) -> Option<String>) -> Result<Self, Refusals> {
        let mut refusals = Refusals::default();
        let mut span = |variable: &str| read_span(variable, &text(variable)?, &mut refusals);
        let waits = Self {
            offer: span(OFFER_TIME),
            lease: span(LEASE_TIME),
            grace: span(GRACE_TIME),
            unmatched: span(UNMATCHED_TIME),
        };
        refusals.finish(Some(waits))
    }
}

fn read_span(variable: &str, text: &str, refusals: &mut Refusals) -> Option<Duration> {
    match Timeout::parse(text) {
        Ok(span) => Some(span.duration()),
        Err(fault) => {
            let path = Path::root().key(0, variable);
            refusals.add(Refusal::new(Code::SettingInvalid, &path, format!("{variable}: {fault}")));
            None
        }
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

/// Reads `ip:port,…`; a bare address means the usual port. Empty is a mistake: unset it to use the machine's own resolvers.
pub fn parse_resolvers(text: &str) -> Result<Vec<SocketAddr>, Refusals> {
    let one = |part: &str| {
        let with_port = part.parse::<SocketAddr>().ok();
        with_port.or_else(|| Some(SocketAddr::new(part.parse().ok()?, DNS_PORT)))
    };
    let found: Option<Vec<SocketAddr>> = text.split(',').map(one).collect();
    match found {
        Some(list) if list.len() <= MOST_RESOLVERS && list.iter().all(|server| server.port() != 0) => {
            Ok(list)
        }
        Some(_) | None => {
            let message = format!(
                "{RESOLVER} is {}: set it to up to {MOST_RESOLVERS} addresses as ip:port, separated by commas, or unset it",
                quote(text)
            );
            let mut refusals = Refusals::default();
            refusals.add(Refusal::new(Code::SettingInvalid, &Path::root().key(0, RESOLVER), message));
            Err(refusals)
        }
    }
}

/// Reads how many bytes a second a job may write to and read from its disk.
pub fn parse_disk_rate(text: &str) -> Result<ByteBudget, Refusals> {
    ByteBudget::parse(text).map_err(|fault| {
        let mut refusals = Refusals::default();
        refuse_text(DISK_RATE, &fault.to_string(), &mut refusals);
        refusals
    })
}

/// A setting whose value is no quantity, or out of bounds; `fault` says what to write.
pub(crate) fn refuse_text(variable: &str, fault: &str, refusals: &mut Refusals) {
    let message = format!("{variable}: {fault}; or unset it");
    refusals.add(Refusal::new(Code::SettingInvalid, &Path::root().key(0, variable), message));
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
    fn resolvers_are_addresses() {
        let read = |text: &str| parse_resolvers(text).ok();
        let server = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(read("192.0.2.1"), Some(vec![server("192.0.2.1:53")]));
        assert_eq!(
            read("192.0.2.1:5353,[2001:db8::1]:53,2001:db8::2"),
            Some(vec![server("192.0.2.1:5353"), server("[2001:db8::1]:53"), server("[2001:db8::2]:53")])
        );
        for wrong in ["", ",", "192.0.2.1,", "dns.example", "192.0.2.1:0", "192.0.2.1:99999", " 192.0.2.1"] {
            let codes = parse_resolvers(wrong).map_err(|refusals| refusals.into_list().remove(0).code);
            assert_eq!(codes, Err(Code::SettingInvalid), "{wrong:?}");
        }
    }

    #[test]
    fn a_disk_rate_is_a_size_or_refused() {
        assert_eq!(parse_disk_rate("20m").map(ByteBudget::bytes), Ok(20 << 20));
        for wrong in ["", "0", "fast", "20m/s", "-1"] {
            assert_eq!(parse_disk_rate(wrong).unwrap_err().codes(), [Code::SettingInvalid], "{wrong:?}");
        }
    }

    #[test]
    fn waits_are_times_or_refused() {
        let set = |pairs: &'static [(&str, &str)]| {
            move |variable: &str| {
                pairs.iter().find(|(name, _)| *name == variable).map(|(_, text)| (*text).to_owned())
            }
        };
        assert_eq!(Waits::parse(set(&[])), Ok(Waits::default()));
        let some = Waits {
            lease: Some(Duration::from_secs(5)),
            unmatched: Some(Duration::from_secs(7200)),
            ..Waits::default()
        };
        assert_eq!(Waits::parse(set(&[(LEASE_TIME, "5s"), (UNMATCHED_TIME, "2h")])), Ok(some));
        let wrong = Waits::parse(set(&[(OFFER_TIME, ""), (LEASE_TIME, "0s"), (GRACE_TIME, "soon")]));
        assert_eq!(wrong.unwrap_err().codes(), [Code::SettingInvalid; 3]);
    }

    #[test]
    fn switches_are_read_in_any_case() {
        for (text, expected) in [("true", true), ("YES", true), ("1", true), ("On", true)]
            .into_iter()
            .chain([("false", false), ("NO", false), ("0", false), ("off", false)])
        {
            let settings = Settings { require_sandbox: expected, ..Settings::default() };
            assert_eq!(Settings::parse(Some(text), None), Ok(settings), "{text}");
        }
        assert_eq!(Settings::parse(None, None), Ok(Settings::default()));
        let floor = Settings { min_backend: Some(Backend::Gvisor), ..Settings::default() };
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
