//! What a response used, read while it passes by and never from its text: an event is parsed as JSON and only the fields
//! where the provider reports usage are believed, so a model that writes `"usage"` or `data: [DONE]` changes nothing.
//!
//! Pure. Any bytes in any pieces end in the same reading; memory is bounded; what was once reported is never taken back.

mod sse;
mod usage;

use pond_policy::model::{Microcents, Price, Usage};
use serde_json::Value;

pub use sse::Events;

use super::route::Call;

/// The largest event or document that is read; a longer one is relayed unread and charged as reserved.
pub const MOST_EVENT: usize = 16 << 20;

/// How a response arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Document,
    Stream,
    /// Of an unexpected type: relayed, not read.
    Opaque,
}

#[derive(Debug)]
pub struct Meter {
    call: Call,
    source: Source,
    reading: Reading,
}

#[derive(Debug)]
enum Source {
    Document(Vec<u8>),
    Stream(Events),
    Unread,
}

/// What is known so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// What the provider reported, field by field the most it ever said.
    pub usage: Usage,
    /// Whether it said how large the input was, and how large the output.
    pub saw_input: bool,
    pub saw_output: bool,
    /// Whether the response came to its proper end.
    pub complete: bool,
    /// Bytes of text the model has written so far.
    pub output_bytes: u64,
    /// A count that was no count: negative, a fraction, text, absurdly large.
    pub odd_count: bool,
    /// An event that was no JSON, or too large to read.
    pub unread: bool,
}

impl Meter {
    pub fn new(call: Call, shape: Shape) -> Self {
        let source = match shape {
            Shape::Document => Source::Document(Vec::new()),
            Shape::Stream => Source::Stream(Events::default()),
            Shape::Opaque => Source::Unread,
        };
        let unread = shape == Shape::Opaque;
        Self { call, source, reading: Reading { unread, ..Reading::default() } }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let (call, reading) = (self.call, &mut self.reading);
        let fits = match &mut self.source {
            Source::Unread => return,
            Source::Document(held) => {
                held.extend_from_slice(bytes);
                held.len() <= MOST_EVENT
            }
            Source::Stream(events) => events.feed(bytes, &mut |data| read_event(call, data, reading)),
        };
        if !fits {
            self.reading.unread = true;
            self.source = Source::Unread;
        }
    }

    pub fn so_far(&self) -> &Reading {
        &self.reading
    }

    /// The end of the response.
    pub fn finish(mut self) -> Reading {
        if let Source::Document(held) = &self.source {
            match serde_json::from_slice(held) {
                Ok(document) => {
                    usage::read_document(self.call, &document, &mut self.reading);
                    self.reading.complete = true;
                }
                Err(_) => self.reading.unread = true,
            }
        }
        self.reading
    }
}

fn read_event(call: Call, data: &[u8], reading: &mut Reading) {
    if data == b"[DONE]" {
        reading.complete |= call == Call::Chat;
        return;
    }
    match serde_json::from_slice::<Value>(data) {
        Ok(event) => usage::read_event(call, &event, reading),
        Err(_) => reading.unread = true,
    }
}

impl Reading {
    /// What has been spent for sure: the report, and output at four bytes a token where the report lags behind.
    pub fn spent_so_far(&self, price: &Price) -> Microcents {
        let output = self.usage.output.max(self.output_bytes / 4);
        price.cost(&Usage { output, ..self.usage })
    }

    /// What the call is charged when it is over.
    ///
    /// A complete report is believed. Without one the charge is what the call could have cost: the reservation, or,
    /// where every token shows in the stream, the known input and one token per byte of output.
    pub fn charge(&self, price: &Price, reserved: Microcents, hides_output: bool) -> Microcents {
        let reported = price.cost(&self.usage);
        let silent = self.usage.output == 0 && self.output_bytes > 0;
        if self.complete && self.saw_input && self.saw_output && !silent {
            return reported;
        }
        let shown = self.saw_input && !hides_output && !self.unread && !self.odd_count;
        let bound = if shown {
            let output = self.usage.output.max(self.output_bytes);
            price.cost(&Usage { output, ..self.usage }).min(reserved)
        } else {
            reserved
        };
        bound.max(self.spent_so_far(price))
    }
}

#[cfg(test)]
mod cases;
