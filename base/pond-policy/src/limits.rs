//! Resource limits as units, not integers: parsed from what a user types, bounded on both sides, printed canonically.
//!
//! Invariant: a value of these types is within its bounds. `parse` of the printed form gives the same value. Anything
//! else (signs, spaces, exponents, leading zeros, "4gb", other scripts' digits) is a fault that says what to write.

use std::fmt;

use crate::quote::quote;
use crate::refusal::Code;
use crate::shape::{Kind, Numeric, QuantityForm};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// Units of size, largest first.
const UNITS: [(char, u64); 4] = [('t', TIB), ('g', GIB), ('m', MIB), ('k', KIB)];

/// Main memory of a sandbox.
pub type Memory = Size<{ 16 * MIB }, TIB>;
/// The tmpfs on `/tmp`.
pub type TmpfsSize = Size<MIB, { 64 * GIB }>;
/// A budget of bytes produced or sent.
pub type ByteBudget = Size<1, { 1024 * TIB }>;

/// Processes and threads of a sandbox.
pub type Pids = Count<8, 32_768>;

/// A size in bytes, between `LEAST` and `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size<const LEAST: u64, const MOST: u64>(u64);

/// Processor time, in thousandths of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

/// A whole number between `LEAST` and `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count<const LEAST: u64, const MOST: u64>(u64);

/// What a writable copy may hold. Fixed by the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub bytes: u64,
    pub inodes: u64,
}

/// Per-process limits. Fixed for every confined profile; `nproc` follows the pids limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ulimits {
    pub nofile: u64,
    pub core: u64,
    pub stack: u64,
}

/// The limits a sandbox runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub memory: Memory,
    pub cpus: Cpus,
    pub pids: Pids,
    pub tmpfs: TmpfsSize,
    pub disk: Disk,
    pub ulimits: Ulimits,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitFault {
    #[error(
        "{0} is not a size: write whole bytes, or a number with one unit of b, k, m, g, t, such as 512m or 4g"
    )]
    NotASize(String),
    #[error("{0} is not a number of cpus: write a number with at most 3 decimals, such as 2 or 0.5")]
    NotCpus(String),
    #[error("{0} is not a count: write a whole number, such as 512")]
    NotACount(String),
    #[error("{given} is out of bounds: the least is {least}, the most is {most}")]
    OutOfBounds { given: String, least: String, most: String },
}

impl LimitFault {
    fn out_of_bounds(given: &str, least: impl ToString, most: impl ToString) -> Self {
        Self::OutOfBounds { given: quote(given), least: least.to_string(), most: most.to_string() }
    }
}

impl<const LEAST: u64, const MOST: u64> Size<LEAST, MOST> {
    pub const LEAST: Self = Self(LEAST);
    pub const MOST: Self = Self(MOST);

    pub const fn kind(code: Code) -> Kind {
        let pattern = "^[1-9][0-9]{0,18}[bkmgtBKMGT]?$";
        let rule = "a size such as 512m or 4g, or a number of bytes";
        Kind::Quantity { form: QuantityForm { pattern, number: Numeric::Integer, rule }, code }
    }

    pub fn parse(text: &str) -> Result<Self, LimitFault> {
        let out_of_bounds = || LimitFault::out_of_bounds(text, Self::LEAST, Self::MOST);
        let (digits, unit) = split_unit(text);
        if !is_whole(digits) {
            return Err(LimitFault::NotASize(quote(text)));
        }
        let number: u64 = digits.parse().map_err(|_| out_of_bounds())?;
        let bytes = number.checked_mul(unit).ok_or_else(out_of_bounds)?;
        Self::from_bytes(bytes).ok_or_else(out_of_bounds)
    }

    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes >= LEAST && bytes <= MOST { Some(Self(bytes)) } else { None }
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// For the tables of this crate; a test holds them to the bounds.
    pub(crate) const fn fixed(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl<const LEAST: u64, const MOST: u64> fmt::Display for Size<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Cpus {
    pub const LEAST: Self = Self(10);
    pub const MOST: Self = Self(256_000);

    pub const fn kind(code: Code) -> Kind {
        let pattern = "^(0|[1-9][0-9]{0,18})([.][0-9]{1,3})?$";
        let rule = "a number of cpus such as 2 or 0.5";
        Kind::Quantity { form: QuantityForm { pattern, number: Numeric::Decimal, rule }, code }
    }

    pub fn parse(text: &str) -> Result<Self, LimitFault> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if !is_whole(whole) || !is_fraction(fraction) {
            return Err(LimitFault::NotCpus(quote(text)));
        }
        let thousandths = format!("{whole}{fraction:0<3}");
        let cpus =
            thousandths.parse().ok().map(Self).filter(|cpus| (Self::LEAST..=Self::MOST).contains(cpus));
        cpus.ok_or_else(|| LimitFault::out_of_bounds(text, Self::LEAST, Self::MOST))
    }

    pub const fn millis(self) -> u32 {
        self.0
    }

    pub(crate) const fn fixed(cpus: u32) -> Self {
        Self(cpus * 1000)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        match thousandths {
            0 => write!(f, "{whole}"),
            _ => write!(f, "{whole}.{}", format!("{thousandths:03}").trim_end_matches('0')),
        }
    }
}

impl<const LEAST: u64, const MOST: u64> Count<LEAST, MOST> {
    pub const LEAST: Self = Self(LEAST);
    pub const MOST: Self = Self(MOST);

    pub const fn kind(code: Code) -> Kind {
        let pattern = "^(0|[1-9][0-9]{0,18})$";
        let rule = "a whole number such as 512";
        Kind::Quantity { form: QuantityForm { pattern, number: Numeric::Integer, rule }, code }
    }

    pub fn parse(text: &str) -> Result<Self, LimitFault> {
        if !is_whole(text) {
            return Err(LimitFault::NotACount(quote(text)));
        }
        let count = text.parse().ok().map(Self).filter(|count| (Self::LEAST..=Self::MOST).contains(count));
        count.ok_or_else(|| LimitFault::out_of_bounds(text, Self::LEAST, Self::MOST))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// For the tables of this crate; a test holds them to the bounds.
    pub(crate) const fn fixed(count: u64) -> Self {
        Self(count)
    }
}

impl<const LEAST: u64, const MOST: u64> fmt::Display for Count<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn split_unit(text: &str) -> (&str, u64) {
    let unit_of = |letter: char| match letter.to_ascii_lowercase() {
        'b' => Some(1),
        letter => UNITS.iter().find(|(name, _)| *name == letter).map(|(_, unit)| *unit),
    };
    let letter = text.chars().next_back();
    match letter.and_then(unit_of) {
        Some(unit) => (text.get(..text.len() - 1).unwrap_or_default(), unit),
        None => (text, 1),
    }
}

/// ASCII digits without a leading zero: `010` is eight to some readers and ten to others.
pub(crate) fn is_whole(digits: &str) -> bool {
    !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'))
}

fn is_fraction(digits: &str) -> bool {
    (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
