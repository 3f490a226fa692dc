//! Where each API reports its usage, and how its counts become disjoint ones: Anthropic's are disjoint already, OpenAI's
//! and Gemini's cached counts lie inside the input.

use pond_policy::model::Usage;
use serde_json::Value;

use super::Reading;
use crate::broker::route::Call;

/// No honest count of tokens is larger.
const MOST_TOKENS: u64 = 1_000_000_000;

pub(super) fn read_document(call: Call, document: &Value, reading: &mut Reading) {
    match call {
        Call::Messages => {
            anthropic(&document["usage"], reading);
            wrote(&document["content"], reading);
        }
        Call::Responses => {
            openai(&document["usage"], ["input_tokens", "output_tokens"], reading);
            for item in document["output"].as_array().into_iter().flatten() {
                wrote_in(item, &["content", "arguments", "input"], reading);
            }
        }
        Call::Chat => {
            openai(&document["usage"], ["prompt_tokens", "completion_tokens"], reading);
            for choice in document["choices"].as_array().into_iter().flatten() {
                wrote_in(&choice["message"], &["content", "reasoning_content", "tool_calls"], reading);
            }
        }
        Call::Generate { .. } => {
            gemini(&document["usageMetadata"], reading);
            for candidate in document["candidates"].as_array().into_iter().flatten() {
                wrote(&candidate["content"]["parts"], reading);
            }
        }
        Call::CountMessages | Call::CountGenerate | Call::Models | Call::Count => {}
    }
}

pub(super) fn read_event(call: Call, event: &Value, reading: &mut Reading) {
    match call {
        Call::Messages => messages_event(event, reading),
        Call::Responses => responses_event(event, reading),
        Call::Chat => {
            openai(&event["usage"], ["prompt_tokens", "completion_tokens"], reading);
            for choice in event["choices"].as_array().into_iter().flatten() {
                wrote(&choice["delta"], reading);
            }
        }
        Call::Generate { .. } => {
            gemini(&event["usageMetadata"], reading);
            for candidate in event["candidates"].as_array().into_iter().flatten() {
                wrote(&candidate["content"], reading);
                reading.complete |= candidate["finishReason"].is_string();
            }
            // A prompt that was refused has no candidate to finish.
            reading.complete |= event["promptFeedback"]["blockReason"].is_string();
        }
        Call::CountMessages | Call::CountGenerate | Call::Models | Call::Count => {}
    }
}

fn messages_event(event: &Value, reading: &mut Reading) {
    match event["type"].as_str() {
        Some("message_start") => {
            // The output count here is a first guess, not a report.
            let saw_output = reading.saw_output;
            anthropic(&event["message"]["usage"], reading);
            reading.saw_output = saw_output;
        }
        Some("message_delta") => anthropic(&event["usage"], reading),
        Some("content_block_start") => wrote(&event["content_block"], reading),
        Some("content_block_delta") => wrote(&event["delta"], reading),
        Some("message_stop") => reading.complete = true,
        Some(_) | None => {}
    }
}

fn responses_event(event: &Value, reading: &mut Reading) {
    match event["type"].as_str() {
        Some("response.completed" | "response.incomplete") => {
            openai(&event["response"]["usage"], ["input_tokens", "output_tokens"], reading);
            reading.complete = true;
        }
        Some("response.failed") => {
            openai(&event["response"]["usage"], ["input_tokens", "output_tokens"], reading);
        }
        Some(kind) if kind.ends_with(".delta") => wrote(&event["delta"], reading),
        Some(_) | None => {}
    }
}

fn anthropic(usage: &Value, reading: &mut Reading) {
    let input = count(&usage["input_tokens"], reading);
    let output = count(&usage["output_tokens"], reading);
    let cache_read = count(&usage["cache_read_input_tokens"], reading).unwrap_or(0);
    let written = count(&usage["cache_creation_input_tokens"], reading).unwrap_or(0);
    let hour = count(&usage["cache_creation"]["ephemeral_1h_input_tokens"], reading).unwrap_or(0);
    let minutes = count(&usage["cache_creation"]["ephemeral_5m_input_tokens"], reading).unwrap_or(0);
    let reported = Usage {
        input: input.unwrap_or(0),
        cache_read,
        cache_write_5m: minutes.max(written.saturating_sub(hour)),
        cache_write_1h: hour,
        output: output.unwrap_or(0),
    };
    note(&reported, input.is_some(), output.is_some(), reading);
}

fn openai(usage: &Value, [input_field, output_field]: [&str; 2], reading: &mut Reading) {
    let input = count(&usage[input_field], reading);
    let output = count(&usage[output_field], reading);
    let details = &usage[input_field.replace("tokens", "tokens_details")];
    let cached = count(&details["cached_tokens"], reading).unwrap_or(0);
    let written = count(&details["cache_write_tokens"], reading).unwrap_or(0);
    let total = count(&usage["total_tokens"], reading).unwrap_or(0);
    let all = input.unwrap_or(0);
    let cached = at_most(cached, all, reading);
    let written = at_most(written, all - cached, reading);
    let reported = Usage {
        input: all - cached - written,
        cache_read: cached,
        cache_write_5m: written,
        cache_write_1h: 0,
        output: written_by_someone(output.unwrap_or(0), total, all),
    };
    note(&reported, input.is_some(), output.is_some(), reading);
}

fn gemini(usage: &Value, reading: &mut Reading) {
    let prompt = count(&usage["promptTokenCount"], reading);
    let shown = count(&usage["candidatesTokenCount"], reading);
    let thought = count(&usage["thoughtsTokenCount"], reading);
    let tools = count(&usage["toolUsePromptTokenCount"], reading).unwrap_or(0);
    let cached = count(&usage["cachedContentTokenCount"], reading).unwrap_or(0);
    let total = count(&usage["totalTokenCount"], reading).unwrap_or(0);
    let all = prompt.unwrap_or(0).saturating_add(tools);
    let cached = at_most(cached, all, reading);
    let named = shown.unwrap_or(0).saturating_add(thought.unwrap_or(0));
    let reported = Usage {
        input: all - cached,
        cache_read: cached,
        cache_write_5m: 0,
        cache_write_1h: 0,
        output: written_by_someone(named, total, all),
    };
    note(&reported, prompt.is_some(), shown.is_some() || thought.is_some() || total > 0, reading);
}

/// The output: what is named as such, or what the total holds beyond the input. Some servers count a model's thoughts nowhere else.
fn written_by_someone(named: u64, total: u64, input: u64) -> u64 {
    named.max(total.saturating_sub(input))
}

fn note(reported: &Usage, saw_input: bool, saw_output: bool, reading: &mut Reading) {
    reading.usage = reading.usage.at_least(reported);
    // A question of no tokens was not counted.
    let Usage { input, cache_read, cache_write_5m, cache_write_1h, .. } = *reported;
    reading.saw_input |=
        saw_input && [input, cache_read, cache_write_5m, cache_write_1h].iter().any(|count| *count > 0);
    reading.saw_output |= saw_output;
}

/// A count of tokens; anything else that stands there is remembered and not believed.
fn count(value: &Value, reading: &mut Reading) -> Option<u64> {
    let tokens = value.as_u64().filter(|tokens| *tokens <= MOST_TOKENS);
    reading.odd_count |= tokens.is_none() && !value.is_null();
    tokens
}

fn at_most(value: u64, most: u64, reading: &mut Reading) -> u64 {
    reading.odd_count |= value > most;
    value.min(most)
}

/// Counts the text in a piece of answer.
fn wrote(value: &Value, reading: &mut Reading) {
    reading.output_bytes = reading.output_bytes.saturating_add(text_bytes(value));
}

fn wrote_in(value: &Value, keys: &[&str], reading: &mut Reading) {
    keys.iter().for_each(|key| wrote(&value[*key], reading));
}

fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(entries) => entries.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
