//! The metering cases of the egress catalogue, by number.

use pond_policy::model::built_in;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(call: Call, shape: Shape, bytes: &[u8], step: usize) -> Reading {
    let mut meter = Meter::new(call, shape);
    bytes.chunks(step.max(1)).for_each(|chunk| meter.feed(chunk));
    meter.finish()
}

fn stream(call: Call, events: &[Value]) -> Reading {
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    read(call, Shape::Stream, text.as_bytes(), 7)
}

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":7,
    "cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,
    "ephemeral_1h_input_tokens":20},"output_tokens":1}}}"#;

fn anthropic_stream() -> Vec<Value> {
    vec![
        serde_json::from_str(START).unwrap(),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello"}}),
        json!({"type": "ping"}),
        json!({"type": "message_delta", "usage": {"output_tokens": 15}}),
        json!({"type": "message_delta", "usage": {"output_tokens": 40, "input_tokens": null}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn c122_cumulative_deltas_are_not_summed() {
    let reading = stream(Call::Messages, &anthropic_stream());
    let usage = Usage { input: 25, cache_read: 7, cache_write_5m: 10, cache_write_1h: 20, output: 40 };
    assert_eq!((reading.usage, reading.complete), (usage, true));
}

#[test]
fn every_api_reports_in_its_own_place() {
    let responses = json!({"type": "response.completed", "response": {"usage": {"input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 4}}}});
    let usage = Usage { input: 30, cache_read: 60, cache_write_5m: 10, cache_write_1h: 0, output: 5 };
    let reading = stream(Call::Responses, std::slice::from_ref(&responses));
    assert_eq!((reading.usage, reading.complete), (usage, true));
    let document = serde_json::to_vec(&responses["response"]).unwrap();
    assert_eq!(read(Call::Responses, Shape::Document, &document, 3).usage, usage);

    let chat = b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\
        \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
    let reading = read(Call::Chat, Shape::Stream, chat, 5);
    let usage = Usage { input: 5, cache_read: 4, output: 2, ..Usage::default() };
    assert_eq!((reading.usage, reading.complete, reading.output_bytes), (usage, true, 2));

    let chunk = |thoughts: u64, finish: Option<&str>| {
        json!({"candidates": [{"content": {"parts": [{"text": "ab"}]}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 50, "cachedContentTokenCount": 20,
            "candidatesTokenCount": 3, "thoughtsTokenCount": thoughts, "totalTokenCount": 53 + thoughts}})
    };
    let reading = stream(Call::Generate { stream: true }, &[chunk(2, None), chunk(9, Some("STOP"))]);
    let usage = Usage { input: 30, cache_read: 20, output: 12, ..Usage::default() };
    assert_eq!((reading.usage, reading.complete), (usage, true));
}

#[test]
fn c122_c127_what_a_report_says_in_another_place_is_counted_too() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    // The output in the first event is a guess: without a report at the end there was none.
    let guessed =
        stream(Call::Messages, &[serde_json::from_str(START).unwrap(), json!({"type": "message_stop"})]);
    assert!(guessed.complete && guessed.saw_input && !guessed.saw_output);
    assert_eq!(guessed.charge(&price, Microcents(9_000_000), true), Microcents(9_000_000));
    let written = json!({"usage": {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_1h_input_tokens": 10}}});
    let reading = read(Call::Messages, Shape::Document, written.to_string().as_bytes(), 9);
    assert_eq!((reading.usage.cache_write_5m, reading.usage.cache_write_1h), (20, 10));
    let more = json!({"usageMetadata": {"promptTokenCount": 50, "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 3, "totalTokenCount": 100}});
    let reading = read(Call::Generate { stream: false }, Shape::Document, more.to_string().as_bytes(), 9);
    assert_eq!((reading.usage.input, reading.usage.output), (57, 43));
    // Thoughts that are in no count but the total.
    for (call, [input, output]) in [
        (Call::Chat, ["prompt_tokens", "completion_tokens"]),
        (Call::Responses, ["input_tokens", "output_tokens"]),
    ] {
        let thought = json!({"usage": {input: 10, output: 1, "total_tokens": 7011}});
        let reading = read(call, Shape::Document, thought.to_string().as_bytes(), 9);
        assert_eq!((reading.usage.input, reading.usage.output), (10, 7001), "{call:?}");
    }
}

#[test]
fn c127_an_answer_that_counts_nothing_is_charged_as_reserved() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let reserved = Microcents(9_000_000);
    let (nothing, some) = (
        json!({"prompt_tokens": 0, "completion_tokens": 0}),
        json!({"prompt_tokens": 9, "completion_tokens": 0}),
    );
    for usage in [&nothing, &some] {
        let answer =
            json!({"choices": [{"message": {"role": "assistant", "content": "text"}}], "usage": usage});
        let reading = read(Call::Chat, Shape::Document, answer.to_string().as_bytes(), 9);
        assert_eq!(reading.charge(&price, reserved, true), reserved, "{answer}");
    }
    // One that says nothing may cost nothing.
    let silent = json!({"choices": [{"message": {"role": "assistant", "content": null}}], "usage": some});
    let reading = read(Call::Chat, Shape::Document, silent.to_string().as_bytes(), 9);
    assert_eq!(reading.charge(&price, reserved, true), price.cost(&Usage { input: 9, ..Usage::default() }));
}

#[test]
fn c119_every_legal_spelling_of_a_stream_reads_the_same() {
    let start: Value = serde_json::from_str(START).unwrap();
    let expected = stream(Call::Messages, &[start.clone(), json!({"type": "message_stop"})]);
    let (first, second) = START.split_once(",\n").unwrap();
    for text in [
        format!("event: message_start\r\ndata:{start}\r\n\r\ndata: {{\"type\":\"message_stop\"}}\r\n\r\n"),
        format!(": comment\rdata: {start}\r\rdata:{{\"type\":\"message_stop\"}}\r\r"),
        format!(
            "data: {first},\ndata: {}\n\nid: 7\ndata: {{\"type\":\"message_stop\"}}\n\n",
            second.replace('\n', "")
        ),
        format!("\u{feff}data: {start}\n\ndata\n\ndata: {{\"type\":\"message_stop\"}}\n\n"),
    ] {
        for step in [1, 2, 3, 50, 10_000] {
            let mut reading = read(Call::Messages, Shape::Stream, text.as_bytes(), step);
            reading.unread = false;
            assert_eq!(reading, expected, "{text:?} by {step}");
        }
    }
}

#[test]
fn c120_an_event_of_megabytes_is_read_and_a_larger_one_charged_as_reserved() {
    let big = json!({"type": "response.completed", "response": {"output": "x".repeat(5 << 20),
        "usage": {"input_tokens": 1, "output_tokens": 2}}});
    assert_eq!(stream(Call::Responses, &[big]).usage.output, 2);
    let mut meter = Meter::new(Call::Responses, Shape::Stream);
    meter.feed(b"data: ");
    (0..17).for_each(|_| meter.feed(&vec![b'x'; 1 << 20]));
    meter.feed(b"\n\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n");
    let reading = meter.finish();
    assert!(reading.unread && !reading.complete);
    let price = built_in("gpt-5").unwrap();
    assert_eq!(reading.charge(&price, Microcents(777), true), Microcents(777));
}

#[test]
fn c120_a_document_that_is_too_large_is_not_read() {
    let document = |padding: usize| {
        let text =
            json!({"x": "x".repeat(padding), "usage": {"input_tokens": 1, "output_tokens": 2}}).to_string();
        read(Call::Messages, Shape::Document, text.as_bytes(), 1 << 20)
    };
    assert_eq!((document(1 << 20).usage.output, document(1 << 20).unread), (2, false));
    assert_eq!((document(MOST_EVENT).usage.output, document(MOST_EVENT).unread), (0, true));
}

/// Each of the things a report has to be before it is believed.
#[test]
fn c123_c124_c127_only_a_whole_report_is_believed() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let reserved = Microcents::from_cents(10);
    let usage = Usage { input: 10, output: 20, ..Usage::default() };
    let (saw_input, saw_output, complete, output_bytes) = (true, true, true, 60);
    let whole = Reading { usage, saw_input, saw_output, complete, output_bytes, ..Reading::default() };
    assert_eq!(whole.charge(&price, reserved, true), price.cost(&usage));
    for lacking in [
        Reading { complete: false, ..whole },
        Reading { saw_input: false, ..whole },
        Reading { saw_output: false, ..whole },
        Reading { usage: Usage { output: 0, ..usage }, ..whole },
    ] {
        assert_eq!(lacking.charge(&price, reserved, true), reserved, "{lacking:?}");
    }
    // Where every token shows, what was seen bounds an answer that broke off, unless part of it was not understood.
    let cut = Reading { complete: false, ..whole };
    assert_eq!(cut.charge(&price, reserved, false), price.cost(&Usage { output: 60, ..usage }));
    for odd in [
        Reading { unread: true, ..cut },
        Reading { odd_count: true, ..cut },
        Reading { saw_input: false, ..cut },
    ] {
        assert_eq!(odd.charge(&price, reserved, false), reserved, "{odd:?}");
    }
    // The end of a chat is no end of any other stream.
    for (call, ends) in [(Call::Chat, true), (Call::Messages, false), (Call::Responses, false)] {
        assert_eq!(read(call, Shape::Stream, b"data: [DONE]\n\n", 3).complete, ends, "{call:?}");
    }
}

#[test]
fn c121_what_cannot_be_read_is_charged_as_reserved() {
    let reading = read(Call::Messages, Shape::Opaque, b"\x1f\x8b\x08", 1);
    let price = built_in("claude-sonnet-4-5").unwrap();
    assert_eq!(reading.charge(&price, Microcents(500), false), Microcents(500));
}

#[test]
fn c123_c124_a_stream_without_its_end_is_never_cheaper_than_what_was_seen() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let reserved = Microcents::from_cents(10);
    let mut events = anthropic_stream();
    events.truncate(2);
    let reading = stream(Call::Messages, &events);
    let bytes = u64::try_from("text_delta".len() + "Hello".len()).unwrap();
    let shown = price.cost(&Usage { output: bytes, ..reading.usage });
    assert_eq!(reading.charge(&price, reserved, false), shown);
    assert_eq!(reading.charge(&price, reserved, true), reserved);
    assert_eq!(stream(Call::Messages, &[]).charge(&price, reserved, false), reserved);
    events.push(json!({"type": "error", "error": {"type": "overloaded_error"}}));
    assert_eq!(stream(Call::Messages, &events).charge(&price, reserved, false), shown);
    let failed = json!({"type": "response.failed", "response": {"usage": null}});
    assert_eq!(stream(Call::Responses, &[failed]).charge(&price, reserved, true), reserved);
}

#[test]
fn c126_what_a_model_writes_is_not_a_report() {
    let mut events = anthropic_stream();
    let fake =
        "\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":999999}}\n\ndata: [DONE]\n\n";
    events.insert(
        2,
        json!({"type": "content_block_delta", "usage": {"output_tokens": 888},
        "delta": {"text": fake, "usage": {"output_tokens": 777}}}),
    );
    assert_eq!(stream(Call::Messages, &events).usage.output, 40);
    let chat =
        json!({"choices": [{"delta": {"content": "data: [DONE]\n\n\"usage\":{\"completion_tokens\":1}"}}]});
    let reading = stream(Call::Chat, &[chat]);
    assert!(!reading.complete && !reading.saw_output);
}

#[test]
fn c127_odd_counts_are_cut_marked_and_never_lower_the_spend() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    for odd in
        [json!(-5), json!(1.5), json!("12"), json!(u64::MAX), json!([1]), json!(9_223_372_036_854_775_808u64)]
    {
        let document =
            serde_json::to_vec(&json!({"usage": {"input_tokens": 10, "output_tokens": odd}})).unwrap();
        let reading = read(Call::Messages, Shape::Document, &document, 9);
        assert!(reading.odd_count, "{odd}");
        assert_eq!(reading.charge(&price, Microcents(100_000), false), Microcents(100_000), "{odd}");
    }
    for missing in [json!({}), json!({"usage": null}), json!({"usage": {"input_tokens": 3}})] {
        let document = serde_json::to_vec(&missing).unwrap();
        let reading = read(Call::Messages, Shape::Document, &document, 9);
        assert_eq!(reading.charge(&price, Microcents(100_000), true), Microcents(100_000), "{missing}");
    }
    let falling = [
        json!({"type": "message_delta", "usage": {"input_tokens": 9, "output_tokens": 50}}),
        json!({"type": "message_delta", "usage": {"input_tokens": 3, "output_tokens": 2}}),
    ];
    assert_eq!(stream(Call::Messages, &falling).usage, Usage { input: 9, output: 50, ..Usage::default() });
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_read_the_same(
        bytes in proptest::collection::vec(prop_oneof![
            Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>()], 0..200),
        step in 1usize..20, pick in 0usize..4,
    ) {
        let call = [Call::Messages, Call::Responses, Call::Chat, Call::Generate { stream: true }][pick];
        for shape in [Shape::Document, Shape::Stream, Shape::Opaque] {
            prop_assert_eq!(read(call, shape, &bytes, step), read(call, shape, &bytes, bytes.len()));
        }
    }

    #[test]
    fn a_real_stream_in_any_pieces_reads_the_same(cuts in proptest::collection::vec(1usize..60, 1..40)) {
        let text: String = anthropic_stream().iter().map(|event| format!("data: {event}\r\n\r\n")).collect();
        let mut meter = Meter::new(Call::Messages, Shape::Stream);
        let (mut rest, mut cuts) = (text.as_bytes(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
            meter.feed(now);
            rest = later;
        }
        prop_assert_eq!(meter.finish(), read(Call::Messages, Shape::Stream, text.as_bytes(), text.len()));
    }
}
