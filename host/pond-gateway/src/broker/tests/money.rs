//! The ceiling end to end (cases 108, 128 to 130, 132).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pond_policy::model::{Microcents, built_in};
use serde_json::Value;

use super::world::*;
use crate::broker::{Call, Outcome};

const BODY: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":1000,"messages":[]}"#;

fn spent_report(input: u64, output: u64) -> String {
    format!("{{\"usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}}}}")
}

#[tokio::test]
async fn c130_a_request_over_the_ceiling_is_a_terminal_403_in_the_provider_s_shape() {
    for (at, path, body, place) in [
        (0, "/v1/messages", BODY, "/error/type"),
        (1, "/v1/responses", r#"{"model":"gpt-5","max_output_tokens":90000,"input":"x"}"#, "/error/code"),
        (
            2,
            "/v1beta/models/gemini-2.5-pro:generateContent",
            r#"{"generationConfig":{"maxOutputTokens":90000}}"#,
            "/error/status",
        ),
    ] {
        let world = World::with(order(Microcents(1000)), |_| json_ok("{}")).await;
        let answer = world.ask(at, path, body).await;
        let (line, body) = parts(&answer);
        assert!(line.starts_with("HTTP/1.1 403 pond: the cost ceiling of 0.001 cents"), "{answer}");
        assert!(answer.contains("x-should-retry: false\r\n"), "{answer}");
        let body: Value = serde_json::from_str(body).unwrap();
        let told = body.pointer(place).and_then(Value::as_str).unwrap();
        assert_eq!(told, ["permission_error", "budget_exceeded", "PERMISSION_DENIED"][at]);
        assert_eq!(world.seen().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c128_a_thousand_parallel_requests_at_the_edge_never_cross_it() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let ceiling = price.most(3000, 1000).0 * 40;
    let world =
        Arc::new(World::with(order(Microcents(ceiling)), |_| json_ok(&spent_report(1000, 1000))).await);
    let asks: Vec<_> = (0..1000)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.ask(0, "/v1/messages", BODY).await })
        })
        .collect();
    let mut served = 0;
    for ask in asks {
        let answer = ask.await.unwrap();
        served += u64::from(answer.starts_with("HTTP/1.1 200 "));
        assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    let each = price.cost(&pond_policy::model::Usage { input: 1000, output: 1000, ..Default::default() });
    let standing = world.broker.standing();
    assert_eq!((standing.spent.0, standing.reserved.0), (served * each.0, 0));
    assert!(standing.spent.0 <= ceiling && served >= 40, "{served}: {standing:?}");
    assert_eq!(u64::try_from(world.seen().len()).unwrap(), served);
}

#[tokio::test]
async fn c108_an_open_length_is_limited_to_what_is_affordable() {
    let price = built_in("gpt-5").unwrap();
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok(&spent_report(1, 1))).await;
    world.ask(1, "/v1/responses", r#"{"model":"gpt-5","store":false,"input":"x"}"#).await;
    let sent: Value = serde_json::from_str(&world.seen()[0].text()).unwrap();
    let limit = sent["max_output_tokens"].as_u64().unwrap();
    assert!(limit > 256 && limit < price.max_output, "{limit}");
    assert!(price.most(0, limit) <= Microcents::from_cents(10));
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    let chat = r#"{"model":"gpt-5-mini","messages":[]}"#;
    world.ask(3, "/v1/chat/completions", chat).await;
    assert!(world.seen()[0].text().starts_with("{\"max_tokens\":"), "{}", world.seen()[0].text());
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    world.ask(2, "/v1beta/models/gemini-2.5-pro:generateContent", r#"{"contents":[]}"#).await;
    assert!(world.seen()[0].text().starts_with("{\"generationConfig\":{\"maxOutputTokens\":"));
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    let config = r#"{"contents":[], "generationConfig": {"temperature":1,"thinkingConfig":{}}}"#;
    world.ask(2, "/v1beta/models/gemini-2.5-pro:generateContent", config).await;
    let sent: Value = serde_json::from_str(&world.seen()[0].text()).unwrap();
    let limit = sent["generationConfig"]["maxOutputTokens"].as_u64().unwrap();
    assert!(limit > 256 && limit < built_in("gemini-2.5-pro").unwrap().max_output, "{limit}");
    assert_eq!(sent["generationConfig"]["temperature"], 1);
}

#[tokio::test]
async fn c108_several_answers_share_what_is_affordable() {
    let price = built_in("gpt-5").unwrap();
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    world.ask(1, "/v1/chat/completions", r#"{"model":"gpt-5","n":3,"best_of":4,"messages":[]}"#).await;
    let sent: Value = serde_json::from_str(&world.seen()[0].text()).unwrap();
    let limit = sent["max_completion_tokens"].as_u64().unwrap();
    assert!(limit > 256 && price.most(0, 4 * limit) <= Microcents::from_cents(10), "{limit}");
    let price = built_in("gemini-2.5-pro").unwrap();
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    let body = r#"{"contents":[],"generationConfig":{"candidateCount":5}}"#;
    world.ask(2, "/v1beta/models/gemini-2.5-pro:generateContent", body).await;
    let sent: Value = serde_json::from_str(&world.seen()[0].text()).unwrap();
    let limit = sent["generationConfig"]["maxOutputTokens"].as_u64().unwrap();
    assert!(limit > 256 && price.most(0, 5 * limit) <= Microcents::from_cents(10), "{limit}");
}

/// Without a place for a limit the whole of what the model can write has to fit.
#[tokio::test]
async fn c108_a_limit_of_null_is_none() {
    let world = World::with(order(Microcents::from_cents(10)), |_| json_ok("{}")).await;
    for config in ["null", r#"{"maxOutputTokens":null}"#] {
        let body = format!(r#"{{"contents":[],"generationConfig":{config}}}"#);
        let answer = world.ask(2, "/v1beta/models/gemini-2.5-pro:generateContent", &body).await;
        assert!(answer.starts_with("HTTP/1.1 403 pond: the cost ceiling"), "{config}: {answer}");
    }
    assert_eq!(world.seen().len(), 0);
}

/// A stream of these, each worth some twenty cents: the third is one too many.
fn flood(deltas: usize) -> Vec<Vec<u8>> {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";
    let text = "x".repeat(60_000);
    let delta = format!("data: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"{text}\"}}}}\n\n");
    sse(&[&[start][..], &vec![delta.as_str(); deltas]].concat())
}

const LONG: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":10,"stream":true,"messages":[]}"#;

fn half_a_dollar() -> Microcents {
    let price = built_in("claude-sonnet-4-5").unwrap();
    Microcents(price.most(2100, 10).0 + Microcents::from_cents(50).0)
}

#[tokio::test]
async fn c129_a_stream_that_crosses_the_ceiling_is_cut_and_the_upstream_hung_up_on() {
    let pieces = flood(50);
    let world = World::with(order(half_a_dollar()), move |_| Reply::Hold(pieces.clone())).await;
    let answer = world.ask(0, "/v1/messages", LONG).await;
    world.hung_up().await;
    let told = unchunk(&answer);
    let last = told.trim_end().rsplit("\n\n").next().unwrap();
    assert!(
        last.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"permission_error\""),
        "{last}"
    );
    assert!(answer.ends_with("0\r\n\r\n"));
    assert_eq!(world.records()[0].outcome, Outcome::Cut);
    let again = world.ask(0, "/v1/messages", LONG).await;
    assert!(again.starts_with("HTTP/1.1 403 "), "{again}");
}

/// Of several tries the fastest counts: the machine may be busy, and the broker may not be slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c129_the_cut_comes_within_a_tenth_of_a_second() {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let pieces = flood(3);
        let all = pieces.len();
        let world = Arc::new(World::with(order(half_a_dollar()), move |_| Reply::Hold(pieces.clone())).await);
        let client = Arc::clone(&world);
        let asked = tokio::spawn(async move { client.ask(0, "/v1/messages", LONG).await });
        let crossed = async {
            while world.pieces_sent() < all {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Instant::now()
        };
        let crossed = tokio::time::timeout(Duration::from_secs(20), crossed).await.unwrap();
        world.hung_up().await;
        fastest = fastest.min(crossed.elapsed());
        assert!(asked.await.unwrap().contains("permission_error"));
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

#[tokio::test]
async fn c132_free_calls_are_limited() {
    let world = World::new(|_| json_ok("{\"input_tokens\":3}")).await;
    let mut statuses = Vec::new();
    for _ in 0..70 {
        let answer =
            world.ask(0, "/v1/messages/count_tokens", r#"{"model":"claude-sonnet-4-5","messages":[]}"#).await;
        statuses.push(answer[9..12].to_owned());
    }
    let limited = statuses.iter().filter(|status| *status == "429").count();
    assert!((5..=10).contains(&limited), "{statuses:?}");
    assert_eq!(world.broker.standing().spent.0, 0);
}

#[tokio::test]
async fn c132_near_the_ceiling_the_provider_s_own_count_decides_and_is_told() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let text = "word ".repeat(20_000);
    let body = format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":10,\"messages\":[\"{text}\"]}}");
    let ceiling = price.most(40_000, 10);
    assert!(ceiling < price.most(100_000, 10));
    for (count, served) in
        [("{\"input_tokens\":20000}", true), ("{\"input_tokens\":38200}", false), ("{}", false)]
    {
        let world =
            World::with(order(ceiling), move |seen| match seen.head.target.ends_with(b"/count_tokens") {
                true => json_ok(count),
                false => json_ok(&spent_report(20_000, 10)),
            })
            .await;
        let answer = world.ask(0, "/v1/messages", &body).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), served, "{count}: {}", parts(&answer).0);
        let standing = world.broker.standing();
        assert!(standing.spent <= ceiling && standing.reserved.0 == 0, "{standing:?}");
        assert_eq!(world.seen().len(), 1 + usize::from(served));
        assert_eq!(world.seen()[0].header("x-api-key"), [KEYS[0]]);
        let told = &world.records()[0];
        let (call, model) = (Some(Call::Count), Some("anthropic"));
        assert_eq!((told.call, told.model.as_deref(), told.status), (call, model, 200));
        assert_eq!((told.outcome, told.cost, world.records().len()), (Outcome::Served, Microcents(0), 2));
    }
}

/// A count is of what was counted: the rest of a body, such as the schema of an answer, is input as well.
#[tokio::test]
async fn c128_what_a_count_leaves_out_is_paid_for_by_its_bytes() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let rest = "x".repeat(100_000);
    let body = format!(
        "{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":10,\"messages\":[],\"output_format\":\"{rest}\"}}"
    );
    for (ceiling, served) in [(price.most(40_000, 10), false), (price.most(102_000, 10), true)] {
        let world = World::with(order(ceiling), |seen| match seen.head.target.ends_with(b"/count_tokens") {
            true => json_ok("{\"input_tokens\":8}"),
            false => json_ok(&spent_report(50_000, 10)),
        });
        let world = world.await;
        let answer = world.ask(0, "/v1/messages", &body).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), served, "{}", parts(&answer).0);
        assert!(world.broker.standing().spent <= ceiling, "{:?}", world.broker.standing());
    }
}

/// A limit above the model's own is not paid for, so it is not sent either.
#[tokio::test]
async fn c108_no_limit_goes_up_that_is_higher_than_what_is_set_aside() {
    let sent = |at: usize, path: &'static str, body: &'static str| async move {
        let world = World::new(|_| json_ok("{}")).await;
        world.ask(at, path, body).await;
        serde_json::from_str::<Value>(&world.seen()[0].text()).unwrap()
    };
    let most = |id| built_in(id).unwrap().max_output;
    let body = r#"{"model":"claude-sonnet-4-5","max_tokens":9000000000,"messages":[]}"#;
    assert_eq!(sent(0, "/v1/messages", body).await["max_tokens"], most("claude-sonnet-4-5"));
    let body = r#"{"model":"gpt-5","max_output_tokens":9000000000,"input":"x"}"#;
    assert_eq!(sent(1, "/v1/responses", body).await["max_output_tokens"], most("gpt-5"));
    let body = r#"{"model":"gpt-5","max_completion_tokens":9000000000,"max_tokens":7,"messages":[]}"#;
    let chat = sent(1, "/v1/chat/completions", body).await;
    assert_eq!((&chat["max_completion_tokens"], &chat["max_tokens"]), (&most("gpt-5").into(), &7.into()));
    let body = r#"{"model":"gpt-5-mini","max_completion_tokens":9000000000,"messages":[]}"#;
    let compatible = sent(3, "/v1/chat/completions", body).await;
    let (newer, older) = (&compatible["max_completion_tokens"], &compatible["max_tokens"]);
    assert_eq!((newer, older), (&most("gpt-5-mini").into(), &most("gpt-5-mini").into()));
    let body = r#"{"generationConfig":{"topK":4,"maxOutputTokens":9000000000}}"#;
    let config = sent(2, "/v1beta/models/gemini-2.5-pro:generateContent", body).await;
    let config = &config["generationConfig"];
    assert_eq!((&config["maxOutputTokens"], &config["topK"]), (&most("gemini-2.5-pro").into(), &4.into()));
}

#[tokio::test]
async fn c108_a_compatible_server_is_always_told_the_older_limit() {
    let world = World::with(order(Microcents::from_cents(1000)), |_| json_ok("{}")).await;
    let most = built_in("gpt-5-mini").unwrap().max_output;
    for fields in [
        r#""max_completion_tokens":70"#,
        r#""max_completion_tokens":70,"max_tokens":50"#,
        r#""max_completion_tokens":50,"max_tokens":70"#,
        r#""max_tokens":null"#,
        r#""max_tokens":9000000000"#,
    ] {
        world.ask(3, "/v1/chat/completions", &format!("{{\"model\":\"gpt-5-mini\",{fields}}}")).await;
    }
    let sent = |seen: &Seen| -> (Value, Value) {
        let body: Value = serde_json::from_str(&seen.text()).unwrap();
        (body["max_tokens"].clone(), body["max_completion_tokens"].clone())
    };
    let none = Value::Null;
    assert_eq!(
        world.seen().iter().map(sent).collect::<Vec<_>>(),
        [
            (70.into(), 70.into()),
            (50.into(), 70.into()),
            (70.into(), 50.into()),
            (most.into(), none.clone()),
            (most.into(), none),
        ]
    );
}

#[tokio::test]
async fn c108_what_bytes_do_not_bound_is_reserved_as_the_whole_window() {
    let inline = r#"{"type":"image","source":{"type":"base64","data":"aGk="}}"#;
    let url = r#"{"image_url":{"url":"data:image/png;base64,aGk="}}"#;
    let shot =
        r#"{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:x"}}"#;
    for (at, path, body, tools) in [
        (0, "/v1/messages", format!("{{\"model\":\"claude-sonnet-4-5\",\"messages\":[{inline}]}}"), false),
        (0, "/v1/messages", "{\"model\":\"claude-sonnet-4-5\",\"messages\":[]}".to_owned(), true),
        (1, "/v1/responses", format!("{{\"model\":\"gpt-5\",\"input\":[{shot}]}}"), false),
        (3, "/v1/chat/completions", format!("{{\"model\":\"gpt-5-mini\",\"messages\":[{url}]}}"), false),
        (
            2,
            "/v1beta/models/gemini-2.5-pro:generateContent",
            r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png"}}]}]}"#.to_owned(),
            false,
        ),
    ] {
        let id = ["claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro", "gpt-5-mini"][at];
        let price = built_in(id).unwrap();
        let window = price.most(price.max_input, 256);
        for (ceiling, served) in [(window, true), (Microcents(window.0 - 1), false)] {
            let mut order = order(ceiling);
            order.models[at].provider_tools = tools;
            let world = World::with(order, |_| json_ok("{\"input_tokens\":\"no count\"}")).await;
            let answer = world.ask(at, path, &body).await;
            assert_eq!(answer.starts_with("HTTP/1.1 200 "), served, "{body}: {answer}");
            assert!(served || answer.contains("budget_exceeded"), "{answer}");
            assert!(!tools || served || world.seen().is_empty(), "the provider's tools cannot be counted");
        }
    }
}

#[tokio::test]
async fn c132_a_count_that_does_not_come_is_given_up_and_told() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let body =
        format!("{{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":10,\"x\":\"{}\"}}", "x".repeat(90_000));
    let world = Arc::new(World::with(order(price.most(40_000, 10)), |_| Reply::Hold(vec![])).await);
    let asking = Arc::clone(&world);
    let ask = tokio::spawn(async move { asking.ask(0, "/v1/messages", &body).await });
    while world.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    // From here the clock moves only to the next deadline that something waits for.
    tokio::time::pause();
    let asked = tokio::time::Instant::now();
    let answer = ask.await.unwrap();
    assert!(asked.elapsed() <= std::time::Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let told: Vec<_> = world.records().iter().map(|told| (told.call, told.status, told.outcome)).collect();
    let refused = Outcome::Refused("budget_exceeded");
    let late = Outcome::Failed("upstream_late");
    assert_eq!(told, [(Some(Call::Count), 504, late), (Some(Call::Messages), 403, refused)]);
}

#[tokio::test]
async fn a_call_that_does_not_fit_what_was_lent_asks_before_it_is_refused() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let most = price.most(u64::try_from(BODY.len()).unwrap() + 2000, 1000);
    let served = |_: &Seen| json_ok(&spent_report(10, 10));
    let world = World::lent(order(Microcents(1)), Microcents::from_cents(100), served).await;
    let answer = world.ask(0, "/v1/messages", BODY).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(world.broker.standing().ceiling, most, "what the call could cost, and no more");
    // Whoever lends no more has said no.
    let world = World::lent(order(Microcents(1)), Microcents(2), served).await;
    let answer = world.ask(0, "/v1/messages", BODY).await;
    assert!(answer.starts_with("HTTP/1.1 403 pond: the cost ceiling"), "{answer}");
    assert_eq!((world.broker.standing().ceiling, world.seen().len()), (Microcents(2), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_calls_ask_in_turn_and_stay_below_what_was_lent() {
    let price = built_in("claude-sonnet-4-5").unwrap();
    let purse = Microcents(price.most(3000, 1000).0 * 10);
    let served = |_: &Seen| json_ok(&spent_report(1000, 1000));
    let world = Arc::new(World::lent(order(Microcents(1)), purse, served).await);
    let asks: Vec<_> = (0..100)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.ask(0, "/v1/messages", BODY).await })
        })
        .collect();
    for ask in asks {
        let answer = ask.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    let standing = world.broker.standing();
    assert!(standing.spent <= purse && standing.ceiling <= purse, "{standing:?}");
    assert!(world.seen().len() >= 10, "{}", world.seen().len());
}
