//! Spans of wall-clock time a user may ask for: whole seconds, or a number with a unit of s, m, h or d.

use std::fmt;
use std::time::Duration;

use crate::limits::is_whole;
use crate::quote::quote;
use crate::refusal::Code;
use crate::shape::{Kind, Numeric, QuantityForm};

/// Units of time, largest first.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// How long something may run: one second to seven days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutFault {
    #[error(
        "{0} is not a time: write whole seconds, or a number with one unit of s, m, h, d, such as 90s or 2h"
    )]
    NotATime(String),
    #[error("{0} is out of bounds: the least is 1s, the most is 7d")]
    OutOfBounds(String),
}

impl Timeout {
    pub const LEAST: Self = Self(1);
    pub const MOST: Self = Self(7 * 86_400);

    pub const fn kind(code: Code) -> Kind {
        let pattern = "^[1-9][0-9]{0,18}[smhdSMHD]?$";
        let rule = "a time such as 90s or 2h, or a number of seconds";
        Kind::Quantity { form: QuantityForm { pattern, number: Numeric::Integer, rule }, code }
    }

    pub fn parse(text: &str) -> Result<Self, TimeoutFault> {
        let seconds = seconds(text).ok_or_else(|| TimeoutFault::NotATime(quote(text)))?;
        let timeout = seconds.map(Self).filter(|timeout| (Self::LEAST..=Self::MOST).contains(timeout));
        timeout.ok_or_else(|| TimeoutFault::OutOfBounds(quote(text)))
    }

    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    pub(crate) const fn fixed(seconds: u64) -> Self {
        Self(seconds)
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, f)
    }
}

/// What a number with or without a unit comes to, `Some(None)` if that is beyond counting; `None` for any other text.
#[expect(clippy::option_option, reason = "no time and a time beyond counting are two faults")]
pub(crate) fn seconds(text: &str) -> Option<Option<u64>> {
    let letter = text.chars().next_back().map(|c| c.to_ascii_lowercase());
    let unit = UNITS.iter().find(|(name, _)| Some(*name) == letter).map(|(_, unit)| *unit);
    let digits = if unit.is_some() { text.get(..text.len() - 1).unwrap_or_default() } else { text };
    let count = |digits: &str| digits.parse::<u64>().ok()?.checked_mul(unit.unwrap_or(1));
    is_whole(digits).then(|| count(digits))
}

/// The largest unit that leaves a whole number.
pub(crate) fn print(seconds: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match UNITS.iter().find(|(_, unit)| seconds.is_multiple_of(*unit)) {
        Some((letter, unit)) => write!(f, "{}{letter}", seconds / unit),
        None => write!(f, "{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_units() {
        for (text, seconds, printed) in [
            ("90", 90, "90s"),
            ("60s", 60, "1m"),
            ("5M", 300, "5m"),
            ("2h", 7200, "2h"),
            ("7d", 604_800, "7d"),
        ] {
            let timeout = Timeout::parse(text).unwrap();
            assert_eq!(
                (timeout.duration(), timeout.to_string().as_str()),
                (Duration::from_secs(seconds), printed)
            );
            assert_eq!(Timeout::parse(printed), Ok(timeout));
        }
    }

    #[test]
    fn other_times_are_refused() {
        for text in
            ["", "s", "-1", "1.5h", "1h30m", "1 h", "1e2", "never", "inf", "NaN", "01s", "５s", "60ms"]
        {
            assert_eq!(Timeout::parse(text), Err(TimeoutFault::NotATime(quote(text))), "{text:?}");
        }
        for text in ["0", "0s", "8d", "604801", "99999999999999999999", "9999999999999999999d"] {
            assert_eq!(Timeout::parse(text), Err(TimeoutFault::OutOfBounds(quote(text))), "{text:?}");
        }
    }
}
