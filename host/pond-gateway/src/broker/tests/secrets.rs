//! A key planted everywhere an upstream can put it, and a search of everything the broker writes (cases 98, 115, 135).

use std::sync::Arc;

use super::world::*;
use crate::broker::{Broker, Connect, DialFault, Key};

#[tokio::test]
async fn c135_no_record_answer_or_error_holds_a_key() {
    let bodies = [
        (0, "/v1/messages", r#"{"model":"claude-sonnet-4-5","max_tokens":9}"#),
        (1, "/v1/responses", r#"{"model":"gpt-5","max_output_tokens":9,"input":"x"}"#),
        (1, "/v1/chat/completions", r#"{"model":"gpt-5","max_completion_tokens":9,"stream":true}"#),
        (2, "/v1beta/models/gemini-2.5-pro:generateContent", r#"{"contents":[]}"#),
        (3, "/v1/chat/completions", r#"{"model":"gpt-5-mini","max_tokens":9}"#),
    ];
    let mut written = String::new();
    for status in ["200 OK", "400 Bad", "401 Unauthorized", "302 Found", "500 Oops"] {
        let world = World::new(move |_| {
            let all = KEYS.join(" ");
            let fields =
                format!("content-type: application/json\r\nrequest-id: {all}\r\nlocation: /{}\r\n", KEYS[0]);
            Reply::Send(vec![response(status, &fields, &format!("{{\"k\":\"{all}\"}}"))])
        })
        .await;
        for (at, path, body) in bodies {
            let answer = world.ask(at, path, body).await;
            // Each model's answer is cleaned of that model's key; the others are planted as noise.
            written.push_str(&answer.replace("\r\n", "\n"));
            assert!(!answer.contains(&KEYS[at][..20]), "{status} {path}: {answer}");
        }
        written.push_str(&format!("{:?} {:?}", world.records(), world.broker));
        let told = format!("{:?} {:?}", world.records(), world.broker);
        assert!(KEYS.iter().all(|key| !told.contains(&key[..8])), "{told}");
    }
    assert!(written.contains("****"));
}

#[tokio::test]
async fn c135_a_fault_at_start_holds_no_key() {
    let connect: Connect = Arc::new(|_| Box::pin(async { Err(DialFault::Dns) }));
    let key = || Key::read(&mut KEYS[0].as_bytes()).unwrap();
    let base = order(pond_policy::model::Microcents(1));
    let mut orders = Vec::new();
    for spoil in 0..5 {
        let mut order = base.clone();
        order.models.truncate(1);
        match spoil {
            0 => order.models[0].api = "nope".into(),
            1 => order.models[0].upstream = "http://api.model.test".into(),
            2 => order.models[0].ca_pem = Some("not pem".into()),
            3 => order.models[0].ids.clear(),
            _ => order.models[0].dummy_key = "short".into(),
        }
        orders.push(order);
    }
    for order in orders {
        let fault = Broker::new(&order, vec![key()], &connect, Arc::new(|_| {})).unwrap_err();
        assert!(!format!("{fault:?} {fault}").contains(&KEYS[0][..8]), "{fault:?}");
    }
}
