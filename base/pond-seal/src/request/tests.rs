//! A request passes once, in time, as it was signed, at the control plane it was signed for.

use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_800_000_000;

struct Bench {
    key: SigningKey,
    control: KeyId,
    nonce: RequestNonce,
}

fn bench() -> Bench {
    let control = SigningKey::generate().unwrap().public().id();
    Bench { key: SigningKey::generate().unwrap(), control, nonce: RequestNonce::generate().unwrap() }
}

fn request() -> Request<'static> {
    Request { method: "POST", path: "/orch/poll?wait=25", body: Digest::of(b"{}") }
}

impl Bench {
    fn head(&self, time: u64) -> SignedHead {
        SignedHead::sign(&request(), "w1", self.control, time, self.nonce, &self.key)
    }

    fn check(
        &self,
        head: &SignedHead,
        request: &Request<'_>,
        seen: &mut SeenNonces,
    ) -> Result<(), &'static str> {
        head.verify(request, &self.key.public(), self.control, NOW, seen).map_err(RequestFault::code)
    }
}

#[test]
fn every_part_of_a_request_is_signed() {
    let bench = bench();
    let head = bench.head(NOW);
    let good = request();
    let mut seen = SeenNonces::new(8);
    for other in [
        Request { method: "GET", ..good },
        Request { path: "/orch/poll?wait=26", ..good },
        Request { path: "/orch/poll", ..good },
        Request { body: Digest::of(b"{ }"), ..good },
    ] {
        assert_eq!(bench.check(&head, &other, &mut seen), Err("request_signature"), "{other:?}");
    }
    for other in [
        SignedHead { worker: "w2".to_owned(), ..head.clone() },
        SignedHead { time: NOW + 1, ..head.clone() },
        SignedHead { nonce: RequestNonce::generate().unwrap(), ..head.clone() },
    ] {
        assert_eq!(bench.check(&other, &good, &mut seen), Err("request_signature"), "{other:?}");
    }
    let elsewhere = SigningKey::generate().unwrap().public().id();
    let replayed_elsewhere = head.verify(&good, &bench.key.public(), elsewhere, NOW, &mut seen);
    assert_eq!(replayed_elsewhere, Err(RequestFault::Signature));
    assert!(seen.is_empty(), "nobody without the key fills the memory");
    assert_eq!(bench.check(&head, &good, &mut seen), Ok(()));
}

#[test]
fn a_request_passes_once() {
    let bench = bench();
    let mut seen = SeenNonces::new(8);
    let head = bench.head(NOW);
    assert_eq!(bench.check(&head, &request(), &mut seen), Ok(()));
    for _ in 0..2 {
        assert_eq!(bench.check(&head, &request(), &mut seen), Err("request_replayed"));
    }
}

#[test]
fn the_servers_clock_decides() {
    let bench = bench();
    for (time, expected) in [
        (NOW - WINDOW_SECONDS, Ok(())),
        (NOW + WINDOW_SECONDS, Ok(())),
        (NOW - WINDOW_SECONDS - 1, Err("request_time")),
        (NOW + WINDOW_SECONDS + 1, Err("request_time")),
        (0, Err("request_time")),
        (u64::MAX, Err("request_time")),
    ] {
        let outcome = bench.check(&bench.head(time), &request(), &mut SeenNonces::new(1));
        assert_eq!(outcome, expected, "{time}");
    }
}

#[test]
fn a_full_memory_refuses_and_forgets_only_what_can_no_longer_pass() {
    let nonces: Vec<_> = (0..4).map(|_| RequestNonce::generate().unwrap()).collect();
    let mut seen = SeenNonces::new(2);
    let mut admit =
        |at: usize, until: u64, now: u64| seen.admit(nonces[at], until, now).map_err(RequestFault::code);
    assert_eq!(admit(0, 10, 0), Ok(()));
    assert_eq!(admit(1, 20, 0), Ok(()));
    assert_eq!(admit(2, 20, 10), Err("request_flood"));
    assert_eq!(admit(0, 10, 10), Err("request_replayed"), "still within its time");
    assert_eq!(admit(2, 20, 11), Ok(()), "the first one's time is over");
    assert_eq!(admit(3, 20, 11), Err("request_flood"));
}

#[test]
fn a_head_has_one_spelling() {
    let bench = bench();
    let head = bench.head(NOW);
    let text = head.to_text();
    assert_eq!(SignedHead::parse(&text), Ok(head));
    let other_alphabet = text.replace('+', "-").replace('/', "_");
    let with_zero = text.replace(&format!(" {NOW} "), &format!(" 0{NOW} "));
    let mut bad = vec![
        String::new(),
        text.replace("v1", "v2"),
        text.replace("v1 w1", "v1 "),
        format!("{text} "),
        format!("{text} x"),
        text.replace(' ', "  "),
        with_zero,
        text.replacen(&bench.nonce.to_string(), "00", 1),
        format!("v1 {} {NOW}", "w".repeat(600)),
        text.trim_end_matches('=').to_owned(),
    ];
    if other_alphabet != text {
        bad.push(other_alphabet);
    }
    for text in bad {
        assert_eq!(SignedHead::parse(&text), Err(RequestFault::Malformed), "{text}");
    }
}

proptest! {
    #[test]
    fn reading_a_head_is_total_and_exact(text in "(v1 )?[a-z0-9 =+/_-]{0,200}") {
        if let Ok(head) = SignedHead::parse(&text) {
            prop_assert_eq!(head.to_text(), text);
        }
    }

    /// However requests are replayed and reordered, each passes at most once, and the memory keeps its bound.
    #[test]
    fn no_order_lets_a_request_pass_twice(steps in proptest::collection::vec((0..6_usize, 0..400_u64), 0..60)) {
        let made: Vec<_> = (0..6_u64).map(|at| (RequestNonce::generate().unwrap(), at * 50)).collect();
        let mut seen = SeenNonces::new(4);
        let (mut passed, mut now) = ([0; 6], 0);
        for (which, advance) in steps {
            now += advance / 10;
            let (nonce, time) = made[which];
            if u64::abs_diff(time, now) <= WINDOW_SECONDS && seen.admit(nonce, time + WINDOW_SECONDS, now).is_ok() {
                passed[which] += 1;
            }
            prop_assert!(seen.len() <= 4);
        }
        prop_assert!(passed.iter().all(|count| *count <= 1), "{:?}", passed);
    }
}
