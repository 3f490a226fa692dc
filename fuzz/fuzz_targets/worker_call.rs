//! Any bytes as the body of every call of a worker and of every answer: a value that is written as it was read, or a fault; and as a
//! chunk of output, nothing a chain accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pond_seal::Digest;
use pond_seal::chain::{Chain, Link};
use pond_seal::result::Stream;
use pond_wire::orch::{self, Body, decode};
use serde::Serialize;

fn stable<T: Body + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let read: T = decode(bytes).ok()?;
    let written = serde_json::to_vec(&read).expect("a body has a text");
    assert_eq!(decode::<T>(&written).ok().as_ref(), Some(&read));
    Some(read)
}

fuzz_target!(|bytes: &[u8]| {
    stable::<orch::EnrollBegin>(bytes);
    stable::<orch::EnrollChallenge>(bytes);
    stable::<orch::EnrollFinish>(bytes);
    stable::<orch::EnrollReply>(bytes);
    stable::<orch::Rotate>(bytes);
    stable::<orch::RotateReply>(bytes);
    stable::<orch::Poll>(bytes);
    stable::<orch::PollReply>(bytes);
    stable::<orch::Acknowledge>(bytes);
    stable::<orch::AcknowledgeReply>(bytes);
    stable::<orch::Seal>(bytes);
    stable::<orch::SealReply>(bytes);
    stable::<orch::Redeem>(bytes);
    stable::<orch::RedeemReply>(bytes);
    stable::<orch::Heartbeat>(bytes);
    stable::<orch::HeartbeatReply>(bytes);
    stable::<orch::ChunkReply>(bytes);
    stable::<orch::Complete>(bytes);
    stable::<orch::CompleteReply>(bytes);
    stable::<orch::Decline>(bytes);
    stable::<orch::DeclineReply>(bytes);
    if let Some(chunk) = stable::<orch::Chunk>(bytes) {
        let head = Digest::try_from(chunk.head.as_str().to_owned()).expect("both spell a digest alike");
        let link = Link { seq: chunk.seq, offset: chunk.offset, head };
        let mut chain = Chain::begin("j1", 1, Stream::Stdout);
        assert!(chain.accept(link, chunk.bytes.as_bytes(), 1 << 20).is_err(), "a head nobody computed");
    }
});
