//! The built-in prices: list prices in US dollars, without promotions. An operator's `[price."id"]` replaces an entry; an id
//! that is in neither is refused. Exact ids only: an alias may move to a dearer model overnight.
//!
//! Invariant: a price that was compared with nothing is not here. Each row says what it was compared with.

use super::price::{LongContext, Price, Rates};

/// When the table below was last compared.
pub const BUILT_IN_DATE: &str = "2026-11-16";

/// What a price was compared with on that day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The provider's own page on prices or on the model.
    Provider,
    /// Published tables of others, who name the provider's page: less than the page itself.
    SecondHand,
}

/// Thousandths of a dollar per million tokens, in the order of the price pages.
struct Row {
    evidence: Evidence,
    ids: &'static [&'static str],
    input: u64,
    cache_read: u64,
    cache_write_5m: u64,
    cache_write_1h: u64,
    output: u64,
    long: Option<Long>,
    max_input: u64,
    max_output: u64,
}

struct Long {
    above: u64,
    input: u64,
    cache_read: u64,
    cache_write_5m: u64,
    cache_write_1h: u64,
    output: u64,
}

/// Anthropic: a five-minute cache entry costs 1.25 times the input rate, one of an hour twice.
const fn anthropic(ids: &'static [&'static str], input: u64, cache_read: u64, output: u64) -> Row {
    Row {
        evidence: Evidence::Provider,
        ids,
        input,
        cache_read,
        cache_write_5m: input * 5 / 4,
        cache_write_1h: input * 2,
        output,
        long: None,
        max_input: 1_000_000,
        max_output: 128_000,
    }
}

/// Providers whose cache is filled at the input rate.
const fn plain(ids: &'static [&'static str], input: u64, cache_read: u64, output: u64) -> Row {
    Row {
        evidence: Evidence::SecondHand,
        ids,
        input,
        cache_read,
        cache_write_5m: input,
        cache_write_1h: input,
        output,
        long: None,
        max_input: 1_050_000,
        max_output: 128_000,
    }
}

/// Twice the input rates and one and a half times the output rate above a size of prompt.
const fn long(mut row: Row, above: u64) -> Row {
    row.long = Some(Long {
        above,
        input: row.input * 2,
        cache_read: row.cache_read * 2,
        cache_write_5m: row.cache_write_5m * 2,
        cache_write_1h: row.cache_write_1h * 2,
        output: row.output * 3 / 2,
    });
    row
}

/// A limit of its own on what it writes. It is set where a client leaves its limit open, and the API refuses a larger one.
const fn writing(mut row: Row, max_output: u64) -> Row {
    row.max_output = max_output;
    row
}

/// Not every rate of it is on a page of the provider's that was at hand.
const fn second_hand(mut row: Row) -> Row {
    row.evidence = Evidence::SecondHand;
    row
}

const CLAUDE_4_5_OUTPUT: u64 = 64_000;
const GEMINI_OUTPUT: u64 = 65_535;
const GPT_4O_OUTPUT: u64 = 16_384;

/// Its page says from what its rates begin; the step is second-hand.
const HAIKU_5_5: Row = Row {
    evidence: Evidence::SecondHand,
    ids: &["claude-haiku-5-5"],
    input: 100,
    cache_read: 10,
    cache_write_5m: 125,
    cache_write_1h: 200,
    output: 500,
    long: Some(Long {
        above: 100_000,
        input: 500,
        cache_read: 50,
        cache_write_5m: 625,
        cache_write_1h: 1000,
        output: 2500,
    }),
    max_input: 1_000_000,
    max_output: 128_000,
};

/// Its page has a promotion, what it is a reduction from, and the surcharges for long prompts and cache writes.
const GPT_5_6_SOL: Row = Row {
    evidence: Evidence::Provider,
    cache_write_5m: 6250,
    cache_write_1h: 6250,
    ..plain(&["gpt-5.6-sol"], 5000, 500, 30_000)
};

const ROWS: &[Row] = &[
    anthropic(&["claude-fable-5-1"], 10_000, 250, 50_000),
    anthropic(&["claude-fable-5"], 10_000, 1000, 50_000),
    anthropic(&["claude-opus-5-5"], 4000, 200, 20_000),
    anthropic(&["claude-opus-5", "claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6"], 5000, 500, 25_000),
    writing(
        long(anthropic(&["claude-opus-4-5", "claude-opus-4-5-20251101"], 5000, 500, 25_000), 200_000),
        CLAUDE_4_5_OUTPUT,
    ),
    second_hand(anthropic(&["claude-sonnet-5-5"], 2000, 100, 10_000)),
    anthropic(&["claude-sonnet-5"], 2000, 200, 10_000),
    writing(
        long(
            anthropic(
                &["claude-sonnet-4-6", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929"],
                3000,
                300,
                15_000,
            ),
            200_000,
        ),
        CLAUDE_4_5_OUTPUT,
    ),
    HAIKU_5_5,
    writing(
        anthropic(&["claude-haiku-4-5", "claude-haiku-4-5-20251001"], 1000, 100, 5000),
        CLAUDE_4_5_OUTPUT,
    ),
    long(GPT_5_6_SOL, 272_000),
    long(plain(&["gpt-5.4"], 2500, 250, 15_000), 272_000),
    plain(&["gpt-5.4-mini"], 750, 75, 4500),
    plain(&["gpt-5"], 1250, 125, 10_000),
    plain(&["gpt-5-mini"], 250, 25, 2000),
    writing(plain(&["gpt-4o"], 2500, 1250, 10_000), GPT_4O_OUTPUT),
    writing(plain(&["gpt-4o-mini"], 150, 75, 600), GPT_4O_OUTPUT),
    writing(long(plain(&["gemini-3.1-pro-preview"], 2000, 200, 12_000), 200_000), GEMINI_OUTPUT),
    writing(long(plain(&["gemini-2.5-pro"], 1250, 125, 10_000), 200_000), GEMINI_OUTPUT),
    writing(plain(&["gemini-2.5-flash"], 300, 30, 2500), GEMINI_OUTPUT),
    writing(plain(&["gemini-2.5-flash-lite"], 100, 10, 400), GEMINI_OUTPUT),
];

/// A thousandth of a dollar in micro-cents.
const MILL: u64 = 100_000;

/// The price of exactly this model.
pub fn built_in(id: &str) -> Option<Price> {
    ROWS.iter().find(|row| row.ids.contains(&id)).map(price)
}

/// What the price of this model was compared with.
pub fn evidence(id: &str) -> Option<Evidence> {
    ROWS.iter().find(|row| row.ids.contains(&id)).map(|row| row.evidence)
}

/// Every priced model, for tests and listings.
#[cfg(test)]
pub(super) fn all() -> Vec<(&'static str, Price)> {
    ROWS.iter().flat_map(|row| row.ids.iter().map(|id| (*id, price(row)))).collect()
}

fn price(row: &Row) -> Price {
    let rates = |input, cache_read, cache_write_5m, cache_write_1h, output| Rates {
        input: input * MILL,
        cache_read: cache_read * MILL,
        cache_write_5m: cache_write_5m * MILL,
        cache_write_1h: cache_write_1h * MILL,
        output: output * MILL,
    };
    let tier = |long: &Long| LongContext {
        above: long.above,
        rates: rates(long.input, long.cache_read, long.cache_write_5m, long.cache_write_1h, long.output),
    };
    Price {
        rates: rates(row.input, row.cache_read, row.cache_write_5m, row.cache_write_1h, row.output),
        long: row.long.as_ref().map(tier),
        max_input: row.max_input,
        max_output: row.max_output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_priced_once_and_no_rate_is_free() {
        let all = all();
        for (position, (id, price)) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|(other, _)| other == id), Some(position), "{id} twice");
            let Rates { input, cache_read, cache_write_5m, cache_write_1h, output } = price.rates;
            let in_order = 0 < cache_read
                && cache_read <= input
                && input <= cache_write_5m
                && cache_write_5m <= cache_write_1h
                && input < output;
            assert!(in_order, "{id}");
        }
    }

    #[test]
    fn a_limit_that_the_api_would_refuse_is_never_set() {
        let limits = ["gpt-4o-mini", "gpt-5", "gemini-2.5-pro", "claude-haiku-4-5"]
            .map(|id| built_in(id).map(|price| price.max_output));
        assert_eq!(limits, [Some(16_384), Some(128_000), Some(65_535), Some(64_000)]);
    }

    /// The page that users read says which prices are second-hand.
    #[test]
    fn docs_name_what_was_compared_with_what() {
        let page = include_str!("../../../../docs/broker.md");
        assert!(page.contains(BUILT_IN_DATE), "the date");
        let listed = |evidence| page.lines().find(|line| line.starts_with(evidence)).unwrap_or_default();
        for (id, _) in all() {
            let line = match evidence(id).unwrap() {
                Evidence::Provider => listed("| the provider's page |"),
                Evidence::SecondHand => listed("| second-hand |"),
            };
            assert!(line.contains(&format!("`{id}`")), "{id}");
        }
    }

    #[test]
    fn c107_aliases_and_other_cases_have_no_price() {
        for id in
            ["", "sonnet", "claude-sonnet-latest", "Claude-Sonnet-4-5", "gpt-5.4 ", "models/gemini-2.5-pro"]
        {
            assert_eq!(built_in(id), None, "{id}");
        }
    }
}
