//! Any bytes as a model's answer, whole and in pieces: the same reading, and a charge that is never below what was seen.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_gateway::broker::Call;
use pond_gateway::broker::meter::{Meter, Reading, Shape};
use pond_policy::model::{Microcents, built_in};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (pick, step, bytes) = input;
    let calls = [Call::Messages, Call::Responses, Call::Chat, Call::Generate { stream: true }];
    let call = calls[usize::from(pick) % calls.len()];
    let shape = [Shape::Stream, Shape::Document, Shape::Opaque][usize::from(pick / 4) % 3];
    let whole = read(call, shape, bytes, bytes.len());
    assert_eq!(read(call, shape, bytes, usize::from(step)), whole);
    let price = built_in("claude-sonnet-4-5").expect("a built-in price");
    for reserved in [Microcents(0), Microcents(1_000_000)] {
        for hidden in [false, true] {
            assert!(whole.charge(&price, reserved, hidden) >= price.cost(&whole.usage));
        }
    }
});

fn read(call: Call, shape: Shape, bytes: &[u8], step: usize) -> Reading {
    let mut meter = Meter::new(call, shape);
    bytes.chunks(step.max(1)).for_each(|piece| meter.feed(piece));
    meter.finish()
}
