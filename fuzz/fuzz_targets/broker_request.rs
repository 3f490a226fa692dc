//! A request to the broker from a hostile client, as bytes: a head, a route and a body, each a value or a typed refusal;
//! what passes goes upstream in one spelling, without a key, and its body is still what was judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_gateway::broker::{inspect, route};
use pond_gateway::http::{ChunkedDecoder, Framing, Refusal, framing, parse_head};
use pond_policy::model::Api;

fuzz_target!(|bytes: &[u8]| {
    let (head, length) = match parse_head(bytes) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(fault) => return one_line(Refusal::of_head(&fault)),
    };
    let rest = &bytes[length..];
    let Ok(route) = route(&head.method, &head.target) else { return };
    assert!(route.target.starts_with('/') && !route.target.contains("key="), "{route:?}");
    let body = match framing(&head) {
        Err(_) => return,
        Ok(Framing::Empty) => Vec::new(),
        Ok(Framing::Length(length)) => {
            rest[..usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())].to_vec()
        }
        Ok(Framing::Chunked) => {
            let mut body = Vec::new();
            let Ok(fed) = ChunkedDecoder::default().feed(rest, &mut body) else { return };
            assert!(fed.consumed <= rest.len() && body.len() <= rest.len());
            body
        }
    };
    for api in Api::ALL.iter().filter(|api| route.call.belongs_to(**api)) {
        if let Ok(inspected) = inspect(*api, &route, body.clone(), false) {
            let model = inspected.model.clone();
            let again = inspect(*api, &route, inspected.limited(1000), false).expect("an edited body is accepted");
            assert_eq!(again.model, model);
        }
    }
});

fn one_line(refusal: Option<Refusal>) {
    let Some(refusal) = refusal else { return };
    let text = String::from_utf8(refusal.to_bytes()).expect("a refusal is text");
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text:?}");
}
