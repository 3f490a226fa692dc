//! What comes back (cases 114 to 126, 131, 133): bytes unchanged, errors passed on, nothing of the key.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::*;
use crate::broker::Outcome;

const STREAM: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":100,"stream":true,"messages":[]}"#;
const EVENTS: [&str; 4] = [
    "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\r\n\r\n",
    ": ping\n\nevent: content_block_delta\ndata:{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"h\u{e9}llo\"}}\n",
    "\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
];

#[tokio::test]
async fn c119_a_stream_is_relayed_byte_for_byte_and_metered() {
    let world = World::new(|_| sse_whole(&EVENTS)).await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert_eq!(unchunk(&answer), EVENTS.concat());
    let record = &world.records()[0];
    assert_eq!((record.usage.input, record.usage.output, record.estimated), (3, 7, false));
    assert_eq!(world.broker.standing().spent, record.cost);
}

#[tokio::test]
async fn c133_each_event_leaves_before_the_next_arrives() {
    let world = World::new(|_| Reply::Hold(sse(&EVENTS[..1]))).await;
    let mut client = world.client();
    let request = post("/v1/messages", &format!("x-api-key: {}\r\n", DUMMIES[0]), STREAM);
    client.write_all(request.as_bytes()).await.unwrap();
    let mut held = Vec::new();
    while !held.ends_with(b"\r\n\r\n\r\n") {
        held.push(client.read_u8().await.unwrap());
    }
    assert!(String::from_utf8(held).unwrap().contains(EVENTS[0]));
    // c123: the client leaves; the upstream is hung up on and the call charged.
    drop(client);
    world.hung_up().await;
    while world.records().is_empty() {
        tokio::task::yield_now().await;
    }
    let record = &world.records()[0];
    assert_eq!((record.outcome, record.estimated), (Outcome::ClientLeft, false));
    assert!(record.cost.0 > 0 && record.cost == world.broker.standing().spent);
}

#[tokio::test]
async fn c114_redirects_end_here() {
    let world = World::new(|_| {
        Reply::Send(vec![response("307 Temporary Redirect", "location: https://evil.example/\r\n", "")])
    })
    .await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert!(answer.starts_with("HTTP/1.1 502 pond: ") && !answer.contains("evil"), "{answer}");
    assert_eq!(world.seen().len(), 1);
    assert_eq!(world.broker.standing().spent.0, 0);
}

#[tokio::test]
async fn c115_c116_c117_errors_pass_unchanged_but_for_the_key() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let world = World::new(move |_| {
        let fields = "content-type: application/json\r\nset-cookie: a=b\r\nretry-after: 7\r\nrequest-id: req_1\r\n\
            anthropic-organization-id: org\r\n";
        Reply::Send(vec![response("529 Overloaded", fields, error)])
    })
    .await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    let (line, body) = parts(&answer);
    assert!(line.starts_with("HTTP/1.1 529 "), "{answer}");
    assert_eq!(body, error);
    assert!(answer.contains("retry-after: 7\r\n") && answer.contains("request-id: req_1\r\n"), "{answer}");
    assert!(!answer.contains("cookie") && !answer.contains("organization"), "{answer}");
    assert_eq!(world.broker.standing().spent.0, 0);
    assert_eq!(world.seen().len(), 1, "131: relayed once, not retried");

    let echo = World::new(|_| {
        let body = format!("invalid x-api-key: {} or {}", KEYS[0], &KEYS[0][12..22]);
        let fields = format!("content-type: text/plain\r\nrequest-id: {}\r\n", &KEYS[0][7..]);
        Reply::Send(vec![response("401 Unauthorized", &fields, &body)])
    })
    .await;
    let answer = echo.ask(0, "/v1/messages", STREAM).await;
    assert!(parts(&answer).1.starts_with("invalid x-api-key: ****"), "{answer}");
    let fragment = |text: &str| {
        KEYS[0].as_bytes().windows(8).any(|piece| text.contains(std::str::from_utf8(piece).unwrap()))
    };
    assert!(!fragment(&answer), "{answer}");
}

#[tokio::test]
async fn c115_a_success_that_echoes_the_key_is_masked() {
    let world = World::new(|seen| json_ok(&format!("{{\"saw\":{:?}}}", seen.header("x-api-key")))).await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert!(answer.contains("***********") && !answer.contains(&KEYS[0][..24]), "{answer}");
}

#[tokio::test]
async fn c118_broken_answers_are_502_and_nothing_is_relayed() {
    for head in [
        "HTTP/1.1 099 Odd\r\n\r\n".to_owned(),
        "HTTP/1.1 1000 Odd\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nrequest-id: a\nx-request-id: b\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nrequest-id: a\n\n{}".to_owned(),
        "HTTP/1.1 200 OK\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\na: b\nc: d\r\ncontent-length: 0\r\n\r\n"
            .to_owned(),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(200)),
        "\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "SSH-2.0-OpenSSH\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
    ] {
        let reply = head.clone().into_bytes();
        let world = World::new(move |_| Reply::Close(vec![reply.clone()])).await;
        let answer = world.ask(0, "/v1/messages", STREAM).await;
        assert!(answer.starts_with("HTTP/1.1 502 pond: "), "{head:?}: {answer}");
    }
}

#[tokio::test]
async fn c118_an_early_hint_is_not_the_answer_and_its_lines_are_no_fault() {
    let world = World::new(|_| {
        let hint = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec();
        let body = "{\n\n\r}";
        Reply::Send(vec![hint, response("200 OK", "content-type: application/json\r\n", body)])
    })
    .await;
    for _ in 0..2 {
        let answer = world.ask(0, "/v1/messages", STREAM).await;
        assert_eq!(parts(&answer), ("HTTP/1.1 200 OK", "{\n\n\r}"));
    }
}

#[tokio::test]
async fn c115_c121_an_encoded_answer_is_not_relayed_and_charged_as_reserved() {
    for (status, field) in [
        ("200 OK", "content-encoding: gzip"),
        ("200 OK", "content-encoding: identity\r\ncontent-encoding: br"),
        ("200 OK", "content-encoding:"),
        ("401 Unauthorized", "content-encoding: gzip"),
    ] {
        let fields = format!("content-type: application/json\r\n{field}\r\n");
        let world = World::new(move |_| Reply::Send(vec![response(status, &fields, "coded key")])).await;
        let answer = world.ask(0, "/v1/messages", STREAM).await;
        assert!(answer.starts_with("HTTP/1.1 502 pond: ") && !answer.contains("coded key"), "{answer}");
        assert!(answer.contains("X-Pond-Denied: upstream_encoded\r\n"), "{answer}");
        assert_eq!(world.seen()[0].header("accept-encoding"), ["identity"]);
        let record = &world.records()[0];
        assert_eq!((record.outcome, record.estimated), (Outcome::Failed("upstream_encoded"), true));
        assert!(record.cost.0 > 0 && record.cost == world.broker.standing().spent);
    }
    let coded = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\ncoded\r\n0\r\n\r\n";
    let world = World::new(move |_| Reply::Send(vec![coded.into()])).await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert!(answer.starts_with("HTTP/1.1 502 pond: "), "{answer}");
    let plain = "content-type: application/json\r\ncontent-encoding: Identity\r\n";
    let world = World::new(move |_| Reply::Send(vec![response("200 OK", plain, "{}")])).await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("content-encoding"), "{answer}");
}

#[tokio::test]
async fn c124_a_stream_that_breaks_off_is_charged_and_not_ended_politely() {
    let world = World::new(|_| Reply::Close(sse(&EVENTS[..2]))).await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
    let record = &world.records()[0];
    assert_eq!(record.outcome, Outcome::Failed("upstream_broken"));
    assert!(record.cost.0 > 0);
}

/// One candidate may be done while another is still written: only the end of the body ends it.
#[tokio::test]
async fn c124_a_candidate_s_end_is_not_the_end_of_a_stream() {
    const STREAM: &str = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    const BODY: &str = r#"{"contents":[],"generationConfig":{"maxOutputTokens":1000,"candidateCount":2}}"#;
    const DONE: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}],\
        \"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":1}}\n\n";
    let paid = |reply: Reply| async move {
        let world = World::new(move |_| reply.clone()).await;
        world.ask(2, STREAM, BODY).await;
        let record = &world.records()[0];
        (record.cost, record.estimated)
    };
    let (whole, estimated) = paid(sse_whole(&[DONE])).await;
    assert!(!estimated && whole.0 > 0);
    let (broken, estimated) = paid(Reply::Close(sse(&[DONE]))).await;
    assert!(estimated && broken.0 > 100 * whole.0, "{broken:?} for {whole:?}");
}

#[tokio::test]
async fn c125_the_report_the_client_did_not_ask_for_is_not_shown() {
    let chat = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\n",
        "data: [DONE]\n\n",
    ];
    let world = World::new(move |_| sse_whole(&chat)).await;
    let body = r#"{"model":"gpt-5","stream":true,"max_completion_tokens":9,"messages":[]}"#;
    assert_eq!(unchunk(&world.ask(1, "/v1/chat/completions", body).await), [chat[0], chat[2]].concat());
    let asked = body.replace("\"messages\"", "\"stream_options\":{\"include_usage\":true},\"messages\"");
    assert_eq!(unchunk(&world.ask(1, "/v1/chat/completions", &asked).await), chat.concat());
    let used: Vec<u64> = world.records().iter().map(|record| record.usage.output).collect();
    assert_eq!(used, [2, 2]);
}

#[tokio::test]
async fn c131_a_stale_connection_is_replaced_and_a_broken_request_is_not_repeated() {
    let ok = r#"{"usage":{"input_tokens":1,"output_tokens":1}}"#;
    let world =
        World::new(move |_| Reply::Close(vec![response("200 OK", "content-type: application/json\r\n", ok)]))
            .await;
    for _ in 0..3 {
        assert!(world.ask(0, "/v1/messages", STREAM).await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(world.seen().len(), 3);
    let broken = World::new(|_| Reply::Close(vec![])).await;
    let answer = broken.ask(0, "/v1/messages", STREAM).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(broken.seen().len(), 1);
    assert!(broken.broker.standing().spent.0 > 0, "the provider may charge for it");
}

#[tokio::test]
async fn c134_a_client_that_does_not_read_holds_the_upstream_back() {
    let piece = "x".repeat(60 << 10);
    let mut pieces = sse(&[]);
    (0..2000).for_each(|_| pieces.push(format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes()));
    let world = World::new(move |_| Reply::Hold(pieces.clone())).await;
    let mut client = world.client();
    let request = post("/v1/messages", &format!("x-api-key: {}\r\n", DUMMIES[0]), STREAM);
    client.write_all(request.as_bytes()).await.unwrap();
    // The pipe to the client fills and nothing more is taken from the upstream: its 120 MB never all leave.
    let sent = tokio::time::timeout(std::time::Duration::from_millis(500), world.hung_up()).await;
    sent.expect_err("the upstream sent everything to a client that read nothing");
    assert!(world.pieces_sent() < 1000, "{}", world.pieces_sent());
}

#[tokio::test]
async fn c117_an_error_is_passed_on_up_to_a_bound() {
    let world = World::new(|_| {
        let long = "x".repeat(3 << 20);
        Reply::Send(vec![response("500 Internal Server Error", "content-type: text/plain\r\n", &long)])
    });
    let world = world.await;
    let answer = world.ask(0, "/v1/messages", STREAM).await;
    let (line, body) = parts(&answer);
    assert_eq!((line, body.len()), ("HTTP/1.1 500 Internal Server Error", 1 << 20));
}
