//! How long a sandbox may be idle, and how long a stopped one is kept: whole seconds or a number with a unit, or `never`.

use std::fmt;
use std::time::Duration;

use crate::duration;
use crate::quote::quote;
use crate::refusal::Code;
use crate::shape::{Kind, Numeric, QuantityForm};

const NEVER: &str = "never";
const MOST_SECONDS: u64 = 365 * 86_400;

/// Time until something happens by itself: one second to 365 days, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ttl(Option<u64>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TtlFault {
    #[error(
        "{0} is not a time: write whole seconds, a number with one unit of s, m, h, d, such as 10m or 15d, or `never`"
    )]
    NotATime(String),
    #[error("{0} is out of bounds: the least is 1s, the most is 365d, or write `never`")]
    OutOfBounds(String),
}

impl Ttl {
    /// Ten minutes without an exec stop a sandbox.
    pub const IDLE: Self = Self(Some(600));
    /// Fifteen days after it stopped, a sandbox is deleted.
    pub const CLEANUP: Self = Self(Some(360 * 3600));

    pub const fn kind() -> Kind {
        let pattern = "^([1-9][0-9]{0,18}[smhdSMHD]?|never)$";
        let rule = "a time such as 10m or 15d, a number of seconds, or never";
        Kind::Quantity {
            form: QuantityForm { pattern, number: Numeric::Integer, rule },
            code: Code::TtlInvalid,
        }
    }

    pub fn parse(text: &str) -> Result<Self, TtlFault> {
        if text == NEVER {
            return Ok(Self(None));
        }
        let seconds = duration::seconds(text).ok_or_else(|| TtlFault::NotATime(quote(text)))?;
        let within = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
        within.map(|seconds| Self(Some(seconds))).ok_or_else(|| TtlFault::OutOfBounds(quote(text)))
    }

    /// `None` when it never happens by itself.
    pub fn duration(self) -> Option<Duration> {
        self.0.map(Duration::from_secs)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => duration::print(seconds, f),
            None => f.write_str(NEVER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_units_or_never_come() {
        for (text, seconds, printed) in [
            ("90", Some(90), "90s"),
            ("10m", Some(600), "10m"),
            ("360H", Some(1_296_000), "15d"),
            ("365d", Some(31_536_000), "365d"),
            ("never", None, "never"),
        ] {
            let ttl = Ttl::parse(text).unwrap();
            assert_eq!(
                (ttl.duration(), ttl.to_string().as_str()),
                (seconds.map(Duration::from_secs), printed)
            );
            assert_eq!(Ttl::parse(printed), Ok(ttl));
        }
        assert_eq!((Ttl::IDLE.to_string(), Ttl::CLEANUP.to_string()), ("10m".into(), "15d".into()));
    }

    #[test]
    fn other_times_are_refused() {
        for text in ["", "s", "-1", "1.5h", "1h30m", "Never", "inf", "01s", "５s", "60ms"] {
            assert_eq!(Ttl::parse(text), Err(TtlFault::NotATime(quote(text))), "{text:?}");
        }
        for text in ["0", "0s", "366d", "99999999999999999999", "9999999999999999999d"] {
            assert_eq!(Ttl::parse(text), Err(TtlFault::OutOfBounds(quote(text))), "{text:?}");
        }
    }
}
