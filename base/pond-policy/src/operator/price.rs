//! `[price."ID"]`: dollars per million tokens. A rate that is left out is the input rate, never a discount.

use crate::model::{LongContext, Price, Rates};
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Numeric, Object, QuantityForm, Shape};

const RATE: Kind = Kind::Quantity {
    form: QuantityForm {
        pattern: "^[0-9]+(\\.[0-9]{1,8})?$",
        number: Numeric::Decimal,
        rule: "dollars per million tokens, such as 3.75",
    },
    code: Code::PriceInvalid,
};
const TOKENS: Kind = Kind::Quantity {
    form: QuantityForm { pattern: "^[0-9]+$", number: Numeric::Integer, rule: "a whole number of tokens" },
    code: Code::PriceInvalid,
};
const REQUIRED: Need = Need::Required(Code::MissingField);

const INPUT: Field = Field { name: "input", need: REQUIRED, kind: RATE, doc: "Input tokens." };
const OUTPUT: Field =
    Field { name: "output", need: REQUIRED, kind: RATE, doc: "Output tokens, reasoning included." };
const CACHE_READ: Field =
    Field { name: "cache_read", need: Need::Optional, kind: RATE, doc: "Input read from a cache." };
const CACHE_WRITE_5M: Field = Field {
    name: "cache_write_5m",
    need: Need::Optional,
    kind: RATE,
    doc: "Input written to a cache for five minutes.",
};
const CACHE_WRITE_1H: Field = Field {
    name: "cache_write_1h",
    need: Need::Optional,
    kind: RATE,
    doc: "Input written to a cache for an hour.",
};
const MAX_INPUT: Field =
    Field { name: "max_input", need: REQUIRED, kind: TOKENS, doc: "The most tokens the model reads." };
const MAX_OUTPUT: Field =
    Field { name: "max_output", need: REQUIRED, kind: TOKENS, doc: "The most tokens the model writes." };
const ABOVE: Field = Field {
    name: "above",
    need: REQUIRED,
    kind: TOKENS,
    doc: "The size of input above which these rates apply.",
};
const LONG: Field = Field {
    name: "long",
    need: Need::Optional,
    kind: Kind::Object(&LONG_SHAPE),
    doc: "Other rates for long inputs.",
};

static LONG_SHAPE: Shape = Shape {
    name: "long",
    doc: "Rates for long inputs.",
    fields: &[ABOVE, INPUT, OUTPUT, CACHE_READ, CACHE_WRITE_5M, CACHE_WRITE_1H],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};

pub(super) static SHAPE: Shape = Shape {
    name: "price",
    doc: "What a model's tokens cost.",
    fields: &[INPUT, OUTPUT, CACHE_READ, CACHE_WRITE_5M, CACHE_WRITE_1H, MAX_INPUT, MAX_OUTPUT, LONG],
    unknown: Code::UnknownField,
    echo: Echo::Nothing,
};

pub(super) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Option<Price> {
    let object = item.object(refusals)?;
    let tokens = |field: &Field, refusals: &mut Refusals| {
        object.item(field).and_then(|item| item.quantity(Price::parse_tokens, refusals))
    };
    let (max_input, max_output) = (tokens(&MAX_INPUT, refusals), tokens(&MAX_OUTPUT, refusals));
    let rates = rates(&object, refusals);
    let long = match object.item(&LONG) {
        None => None,
        Some(item) => Some(read_long(item, refusals)?),
    };
    Some(Price { rates: rates?, long, max_input: max_input?, max_output: max_output? })
}

fn read_long(item: &Item<'_>, refusals: &mut Refusals) -> Option<LongContext> {
    let object = item.object(refusals)?;
    let above = object.item(&ABOVE).and_then(|item| item.quantity(Price::parse_tokens, refusals));
    let rates = rates(&object, refusals);
    Some(LongContext { above: above?, rates: rates? })
}

fn rates(object: &Object<'_>, refusals: &mut Refusals) -> Option<Rates> {
    let mut rate = |field: &Field| object.item(field).map(|item| item.quantity(Rates::parse, refusals));
    let (input, output) = (rate(&INPUT).flatten(), rate(&OUTPUT).flatten());
    let [read, minutes, hour] = [rate(&CACHE_READ), rate(&CACHE_WRITE_5M), rate(&CACHE_WRITE_1H)];
    let input = input?;
    let cache_write_5m = minutes.unwrap_or(Some(input))?;
    Some(Rates {
        input,
        cache_read: read.unwrap_or(Some(input))?,
        cache_write_5m,
        cache_write_1h: hour.unwrap_or(Some(cache_write_5m))?,
        output: output?,
    })
}
