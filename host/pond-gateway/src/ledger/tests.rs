//! The record book under pressure.

use super::*;
use crate::outbox::Told;
use tokio::sync::mpsc;

use pond_policy::egress::{Allowlist, DenialCode, Destination, decide};

fn ledger(places: usize) -> (Ledger, mpsc::Receiver<Told>) {
    let (queue, events) = mpsc::channel(places);
    (Ledger::new("job-1", Outbox::new(queue, tempfile::tempfile().unwrap())), events)
}

fn said(told: &Told) -> Event {
    serde_json::from_slice(&told.line).unwrap()
}

fn denial(target: &str) -> Denial {
    decide(&Allowlist::default(), &Destination::parse(target).unwrap()).unwrap_err()
}

fn approval(host: &str) -> Approval {
    let address = std::net::Ipv4Addr::new(93, 184, 216, 34).into();
    Approval {
        job: "job-1".into(),
        door: Door::Proxy,
        tunnel: 0,
        host: host.into(),
        port: 443,
        rule: None,
        address,
    }
}

#[tokio::test]
async fn an_allowed_connection_waits_for_its_record_and_never_goes_unrecorded() {
    let (ledger, mut events) = ledger(1);
    assert_eq!(ledger.opened(&approval("a.com")).await, Ok(()));
    let second = approval("b.com");
    let mut opening = std::pin::pin!(ledger.opened(&second));
    let waited = tokio::time::timeout(Duration::from_millis(20), &mut opening).await;
    assert!(waited.is_err(), "a full queue did not hold the connection back");
    assert_eq!(said(&events.recv().await.unwrap()), Event::Opened(approval("a.com")));
    assert_eq!(opening.await, Ok(()));
    drop(events);
    assert_eq!(ledger.opened(&approval("c.com")).await, Err(Gone));
}

#[test]
fn c88_refusals_never_wait_and_what_is_not_told_is_counted() {
    let (ledger, mut events) = ledger(10);
    for _ in 0..100 {
        ledger.refused(Door::Proxy, &denial("evil.com:443"));
    }
    assert_eq!(std::iter::from_fn(|| events.try_recv().ok()).count(), 10);
    assert_eq!(ledger.take_flood(), Some(Event::Flood { refusals: 90 }));
    assert_eq!(ledger.take_flood(), None);
}

#[test]
fn c88_c128_a_billed_call_without_a_place_in_the_queue_is_no_refusal() {
    let call = |outcome| ModelCall {
        job: "job-1".into(),
        model: Some("claude".into()),
        call: Some("messages".into()),
        status: 200,
        outcome,
        reason: Some("why".into()),
        input_tokens: 1,
        cached_tokens: 0,
        output_tokens: 1,
        cost_microcents: 7,
        estimated: false,
    };
    let (ledger, _events) = ledger(1);
    for outcome in [ModelOutcome::Served, ModelOutcome::Cut, ModelOutcome::ClientLeft] {
        ledger.model(call(outcome));
    }
    assert_eq!(ledger.take_flood(), None);
    ledger.model(ModelCall { cost_microcents: 0, ..call(ModelOutcome::Refused("unknown_key".into())) });
    assert_eq!(ledger.take_flood(), Some(Event::Flood { refusals: 1 }));
    let (model_calls, model_refusals, model_untold) = (4, 1, 2);
    let totals =
        Totals { model_calls, model_refusals, model_untold, spent_microcents: 21, ..Totals::default() };
    let refusal = |code: &str| Refusal { code: code.into(), count: 1, rule: None, hint: "why".into() };
    let sums = Event::ModelTotals(ModelTotals {
        model: Some("claude".into()),
        calls: 4,
        input_tokens: 4,
        cached_tokens: 0,
        output_tokens: 4,
        cost_microcents: 21,
        refusals: vec![refusal("budget_cut"), refusal("unknown_key")],
    });
    assert_eq!(ledger.summary(), [sums.clone(), Event::Summary(totals)], "told or not, each is in the sums");
    // Nobody ends these calls any more: what was set aside for them is spent.
    ledger.unsettled(0);
    ledger.unsettled(9);
    let totals = Totals { model_untold: 3, spent_microcents: 30, ..totals };
    assert_eq!(ledger.summary(), [sums, Event::Summary(totals)]);
}

#[test]
fn c92_different_reasons_at_one_host_are_told_apart_within_bounds() {
    let (ledger, _events) = ledger(1);
    for number in 0..100 {
        for hint in ["ssh", "old", &format!("name {number}")] {
            ledger.refused(Door::Proxy, &Denial::at_door(DenialCode::TlsExpected, "a.com:443", hint));
        }
    }
    ledger.refused(Door::Proxy, &Denial::at_door(DenialCode::TlsTooOld, "a.com:443", "late"));
    let Some(Event::Host(host)) = ledger.summary().into_iter().next() else { panic!() };
    assert_eq!(host.refusals.len(), MAX_REASONS + 1);
    assert_eq!(host.refusals.iter().map(|refusal| refusal.count).sum::<u64>(), 301);
    assert_eq!((host.refusals[1].hint.as_str(), host.refusals[8].hint.as_str()), ("old", "late"));
}

#[test]
fn c88_the_log_grows_by_a_burst_and_then_by_time_alone() {
    let (ledger, mut events) = ledger(10_000);
    for number in 0..5_000 {
        ledger.refused(Door::DnsUdp, &denial(&format!("n{number}.evil.com:443")));
    }
    let told = std::iter::from_fn(|| events.try_recv().ok()).count();
    assert!((64..128).contains(&told), "{told}");
}

#[tokio::test]
async fn c88_nonsense_does_not_crowd_out_what_was_allowed() {
    let (ledger, _events) = ledger(10_000);
    for number in 0..5_000 {
        ledger.refused(Door::Proxy, &denial(&format!("n{number}.evil.com:443")));
    }
    ledger.opened(&approval("a.com")).await.unwrap();
    let summary = ledger.summary();
    assert_eq!(summary.len(), MAX_REFUSED_HOSTS + 2);
    let refusals = vec![];
    let expected =
        HostTotals { target: "a.com:443".into(), allowed: 1, bytes_up: 0, bytes_down: 0, refusals };
    assert_eq!(summary.first(), Some(&Event::Host(expected)));
    let untold = 5_000 - u64::try_from(MAX_REFUSED_HOSTS).unwrap();
    let totals =
        Totals { allowed: 1, refused: 5_000, bytes_up: 0, bytes_down: 0, untold, ..Totals::default() };
    assert_eq!(summary.last(), Some(&Event::Summary(totals)));
}

#[test]
fn c88_c92_the_largest_event_fits_a_packet() {
    let (ledger, mut events) = ledger(4);
    let hostile = "\u{1b}\u{202e}\"".repeat(3000);
    let fault = Destination::parse(&hostile).unwrap_err();
    ledger.refused(Door::Proxy, &Denial::malformed(&hostile, fault));
    let mut text = events.try_recv().unwrap().line;
    assert_eq!(text.pop(), Some(b'\n'));
    assert!(text.len() < pond_wire::gateway::MAX_EVENT_BYTES, "{}", text.len());
    assert!(text.iter().all(|byte| *byte >= b' '), "{}", String::from_utf8_lossy(&text));
    for event in ledger.summary() {
        assert!(serde_json::to_vec(&event).unwrap().len() < pond_wire::gateway::MAX_EVENT_BYTES);
    }
}
