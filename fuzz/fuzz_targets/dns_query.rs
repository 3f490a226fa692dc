//! A packet at the job's name server: one bounded answer to one question, and an address only where one was given.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use pond_gateway::dns::{Received, receive};

fuzz_target!(|packet: &[u8]| {
    let replies = match receive(packet) {
        Received::Drop => return,
        Received::Answer(_, reply) => vec![reply],
        Received::Ask(question) => {
            let unknown = question.unknown();
            assert_eq!(unknown[6..8], [0, 0], "an answer about an unknown name");
            vec![unknown, question.found(Ipv4Addr::new(127, 0, 0, 2))]
        }
    };
    for reply in replies {
        assert!(reply.len() <= packet.len() + 16 && reply[..2] == packet[..2] && reply[2] & 0x80 != 0);
    }
});
