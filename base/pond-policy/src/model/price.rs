//! What tokens cost. A rate is micro-cents per million tokens, so that every published price is a whole number; a cost is
//! rounded up to a whole micro-cent. Counts in a [`Usage`] are disjoint whatever the provider's own habit.

use std::fmt;

use thiserror::Error;

/// A millionth of a cent; sums stop at the largest value instead of wrapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Microcents(pub u64);

/// Micro-cents per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub input: u64,
    pub cache_read: u64,
    /// Writing a cache entry that lives five minutes, and one that lives an hour.
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub output: u64,
}

/// Other rates for a request whose whole input is larger than `above`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongContext {
    pub above: u64,
    pub rates: Rates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub rates: Rates,
    pub long: Option<LongContext>,
    /// The most tokens the model reads, and writes, in one request.
    pub max_input: u64,
    pub max_output: u64,
}

/// Tokens of one request, each counted in exactly one field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub output: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PriceFault {
    #[error("expected dollars per million tokens, such as 3.75, with at most 8 decimals")]
    Spelling,
    #[error("more than 100000 dollars per million tokens")]
    TooHigh,
    #[error("expected a whole number of tokens from 1 to 100000000")]
    Tokens,
}

const MILLION: u128 = 1_000_000;
const MOST_DOLLARS: u64 = 100_000;

impl Microcents {
    pub const PER_CENT: u64 = 1_000_000;

    pub const fn from_cents(cents: u64) -> Self {
        Self(cents.saturating_mul(Self::PER_CENT))
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Cents with the digits that matter: `12.5 cents`.
impl fmt::Display for Microcents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cents, rest) = (self.0 / Self::PER_CENT, self.0 % Self::PER_CENT);
        if rest == 0 {
            return write!(f, "{cents} cents");
        }
        let digits = format!("{rest:06}");
        write!(f, "{cents}.{} cents", digits.trim_end_matches('0'))
    }
}

impl Rates {
    /// A rate as people write it: dollars per million tokens.
    pub fn parse(text: &str) -> Result<u64, PriceFault> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 8 {
            return Err(PriceFault::Spelling);
        }
        let dollars: u64 = whole.parse().map_err(|_| PriceFault::TooHigh)?;
        let fraction: u64 = format!("{fraction:0<8}").parse().map_err(|_| PriceFault::Spelling)?;
        if dollars > MOST_DOLLARS {
            return Err(PriceFault::TooHigh);
        }
        Ok(dollars * 100 * Microcents::PER_CENT + fraction)
    }

    fn cost(&self, usage: &Usage) -> Microcents {
        let parts = [
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write_5m, self.cache_write_5m),
            (usage.cache_write_1h, self.cache_write_1h),
            (usage.output, self.output),
        ];
        let part = |(tokens, rate): (u64, u64)| u128::from(tokens) * u128::from(rate);
        let sum = parts.into_iter().map(part).fold(0u128, u128::saturating_add);
        Microcents(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
    }

    /// The dearest way one token of input can be counted.
    fn dearest_input(&self) -> u64 {
        self.input.max(self.cache_read).max(self.cache_write_5m).max(self.cache_write_1h)
    }
}

impl Price {
    /// A count of tokens as configuration spells it.
    pub fn parse_tokens(text: &str) -> Result<u64, PriceFault> {
        let count: u64 = text.parse().map_err(|_| PriceFault::Tokens)?;
        if (1..=100_000_000).contains(&count) { Ok(count) } else { Err(PriceFault::Tokens) }
    }

    pub fn cost(&self, usage: &Usage) -> Microcents {
        self.rates_for(usage.all_input()).cost(usage)
    }

    /// The most that `input` tokens in and `output` tokens out can cost, however the provider files them: a client
    /// chooses by its cache markers which input rate applies.
    pub fn most(&self, input: u64, output: u64) -> Microcents {
        let input = input.min(self.max_input);
        let tier = |rates: &Rates| {
            let dearest = Rates { input: rates.dearest_input(), ..*rates };
            dearest.cost(&Usage { input, output, ..Usage::default() })
        };
        match &self.long {
            Some(long) if input > long.above => tier(&long.rates).max(tier(&self.rates)),
            Some(_) | None => tier(&self.rates),
        }
    }

    /// How many tokens of output `money` buys after `input` tokens have been paid for; at most the model's own limit.
    pub fn affordable_output(&self, money: Microcents, input: u64) -> u64 {
        let left = u128::from(money.minus(self.most(input, 0)).0) * MILLION;
        let rate = match &self.long {
            Some(long) if input.min(self.max_input) > long.above => long.rates.output.max(self.rates.output),
            Some(_) | None => self.rates.output,
        };
        // One micro-cent of slack covers the two roundings.
        let tokens = left.saturating_sub(MILLION).checked_div(u128::from(rate));
        tokens
            .map_or(self.max_output, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX))
            .min(self.max_output)
    }

    fn rates_for(&self, input: u64) -> &Rates {
        match &self.long {
            Some(long) if input > long.above => &long.rates,
            Some(_) | None => &self.rates,
        }
    }
}

impl Usage {
    pub const fn all_input(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write_5m)
            .saturating_add(self.cache_write_1h)
    }

    /// The larger count of each field: what was once reported is never taken back.
    #[must_use]
    pub fn at_least(&self, other: &Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write_5m: self.cache_write_5m.max(other.cache_write_5m),
            cache_write_1h: self.cache_write_1h.max(other.cache_write_1h),
            output: self.output.max(other.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::built_in;

    #[test]
    fn dollars_are_read_exactly_or_not_at_all() {
        for (text, rate) in
            [("3", 300_000_000), ("3.75", 375_000_000), ("0.075", 7_500_000), ("0.00000001", 1), ("0", 0)]
        {
            assert_eq!(Rates::parse(text), Ok(rate), "{text}");
        }
        for text in ["", ".5", "5.", "-1", "+1", "1e3", "1,5", "0x1", "1.123456789", "nan", " 1"] {
            assert_eq!(Rates::parse(text), Err(PriceFault::Spelling), "{text}");
        }
        assert_eq!(Rates::parse("100001"), Err(PriceFault::TooHigh));
        assert_eq!(Rates::parse("99999999999999999999999"), Err(PriceFault::TooHigh));
    }

    #[test]
    fn money_prints_as_cents() {
        assert_eq!(Microcents(12_500_000).to_string(), "12.5 cents");
        assert_eq!(Microcents::from_cents(7).to_string(), "7 cents");
        assert_eq!(Microcents(1).to_string(), "0.000001 cents");
    }

    #[test]
    fn every_count_has_its_own_rate() {
        let price = built_in("claude-sonnet-4-5").unwrap();
        let usage = Usage {
            input: 1_000_000,
            cache_read: 1_000_000,
            cache_write_5m: 1_000_000,
            cache_write_1h: 1_000_000,
            output: 1_000_000,
        };
        let short = Price { long: None, ..price };
        assert_eq!(short.cost(&usage), Microcents::from_cents(300 + 30 + 375 + 600 + 1500));
    }

    #[test]
    fn a_long_prompt_is_dearer_from_its_first_token() {
        let price = built_in("gemini-2.5-pro").unwrap();
        let cost = |input| price.cost(&Usage { input, ..Usage::default() });
        assert_eq!(cost(200_000), Microcents::from_cents(25));
        assert_eq!(cost(200_001), Microcents(200_001 * 250));
    }

    proptest! {
        #[test]
        fn no_usage_within_bounds_costs_more_than_the_most(
            input in 0u64..3_000_000, split in 0u64..5, output in 0u64..200_000, pick in 0usize..1000,
        ) {
            let all = crate::model::catalogue::all();
            let price = all[pick % all.len()].1;
            let input = input.min(price.max_input);
            let mut usage = Usage { output, ..Usage::default() };
            match split {
                0 => usage.input = input,
                1 => usage.cache_read = input,
                2 => usage.cache_write_5m = input,
                3 => usage.cache_write_1h = input,
                _ => { usage.input = input / 2; usage.cache_write_1h = input - input / 2; }
            }
            prop_assert!(price.cost(&usage) <= price.most(input, output));
        }

        #[test]
        fn what_is_affordable_can_be_paid(money in 0u64..10_000_000_000, input in 0u64..3_000_000, pick in 0usize..1000) {
            let all = crate::model::catalogue::all();
            let price = all[pick % all.len()].1;
            let output = price.affordable_output(Microcents(money), input);
            prop_assert!(output == 0 || price.most(input, output) <= Microcents(money));
        }
    }
}
