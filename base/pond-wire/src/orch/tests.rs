//! Every body has one shape: what is unknown, missing, of another version or too large is refused.

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

fn id(text: &str) -> Id {
    Id::try_from(text.to_owned()).unwrap()
}

fn hash(digit: char) -> Hash {
    Hash::try_from(digit.to_string().repeat(64)).unwrap()
}

fn blob<const MOST: usize>(bytes: &[u8]) -> Blob<MOST> {
    Blob::new(bytes.to_vec()).unwrap()
}

fn lease() -> Lease {
    Lease { job: id("j1"), epoch: 7 }
}

/// Round trip, and then everything that is not quite the same. Returns the body's text.
fn strict<T: Body + Serialize + PartialEq + std::fmt::Debug>(body: &T) -> String {
    let good = serde_json::to_value(body).unwrap();
    let read = |value: &Value| decode::<T>(value.to_string().as_bytes()).map_err(|fault| fault.code());
    assert_eq!(read(&good).as_ref(), Ok(body));
    let mut with = good.clone();
    with["secret"] = json!("x");
    assert_eq!(read(&with), Err("body_malformed"), "{with}");
    for other in [json!(0), json!(2), json!("1"), json!(null)] {
        let mut with = good.clone();
        with["version"] = other;
        assert_eq!(read(&with), Err("body_malformed"), "{with}");
    }
    for name in good.as_object().unwrap().keys() {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(name);
        assert_eq!(read(&without), Err("body_malformed"), "without {name}");
    }
    let padded = format!("{good}{}", " ".repeat(T::MOST_BYTES));
    assert_eq!(decode::<T>(padded.as_bytes()).map_err(|fault| fault.code()), Err("body_too_large"));
    good.to_string()
}

#[test]
fn requests_are_strict() {
    let version = Version;
    let (token, signing_key, seal_key) = (hash('a'), hash('b'), hash('c'));
    strict(&EnrollBegin { version, token, signing_key, seal_key });
    let capabilities = Few::try_from(vec!["sandbox.native".to_owned()]).unwrap();
    strict(&EnrollFinish {
        version,
        enrollment: id("e1"),
        proof: blob(b"{}"),
        capabilities: capabilities.clone(),
    });
    strict(&Rotate { version, rotation: blob(b"{}") });
    strict(&Poll { version, wait_seconds: 25, capabilities });
    strict(&Acknowledge { version, lease: lease() });
    strict(&Seal { version, lease: lease(), credential: id("model") });
    strict(&Redeem { version, lease: lease(), token: "pond_bundle_0_0".to_owned() });
    strict(&Heartbeat {
        version,
        lease: lease(),
        cost_microcents: 1,
        egress_bytes: 2,
        output_bytes: 3,
        wanted: Some(Wanted { least_microcents: 4, most_microcents: 5 }),
        wanted_egress_bytes: Some(6),
    });
    let chunk = Chunk {
        version,
        lease: lease(),
        stream: Stream::Stdout,
        seq: 1,
        offset: 2,
        bytes: blob(b"out"),
        head: hash('d'),
    };
    let written = strict(&chunk);
    let expected = format!(
        r#"{{"version":1,"lease":{{"job":"j1","epoch":7}},"stream":"stdout","seq":1,"offset":2,"bytes":"b3V0","head":"{}"}}"#,
        "d".repeat(64)
    );
    assert_eq!(written, expected);
    let last = Last { seq: 0, offset: 0, bytes: blob(b"tree"), head: hash('e') };
    let next = Some(Next { capabilities: Few::try_from(vec!["sandbox.native".to_owned()]).unwrap() });
    strict(&Complete { version, lease: lease(), last: Some(last), statement: blob(b"{}"), next });
    strict(&Complete { version, lease: lease(), last: None, statement: blob(b"{}"), next: None });
}

#[test]
fn replies_are_strict() {
    let version = Version;
    strict(&EnrollChallenge { version, enrollment: id("e1"), sealed: blob(b"{}") });
    strict(&EnrollReply { version, control: hash('a'), joined: blob(b"{}") });
    strict(&RotateReply { version, generation: 2 });
    strict(&PollReply::Nothing { version, retry_milliseconds: 100 });
    strict(&PollReply::Offer { version, offer: blob(b"{}") });
    strict(&PollReply::Drain { version });
    strict(&AcknowledgeReply { version, lease_seconds: 60 });
    let refused = SealReply::Refused(Code::try_from("no_pinned_key".to_owned()).unwrap());
    assert_eq!(strict(&refused), r#"{"version":1,"ok":false,"code":"no_pinned_key"}"#);
    assert_eq!(strict(&SealReply::Released(blob(b"{}"))), r#"{"version":1,"ok":true,"release":"e30="}"#);
    strict(&RedeemReply { version, key: refused, bytes: 9 });
    strict(&HeartbeatReply {
        version,
        verdict: Verdict::Continue { lease_seconds: 60, lent_microcents: 1, lent_egress_bytes: 2 },
    });
    strict(&HeartbeatReply { version, verdict: Verdict::Lost {} });
    strict(&ChunkReply::Stored { version, pause_milliseconds: 0, cancel: false });
    strict(&ChunkReply::Expected { version, seq: 1, offset: 2 });
    strict(&ChunkReply::Full { version });
    strict(&CompleteReply::Accepted { version, next: None });
    strict(&CompleteReply::Accepted { version, next: Some(blob(b"{}")) });
    for declined in [
        Declined::GivenBack {},
        Declined::Lost {},
        Declined::Refused { reason: Code::try_from("job_failed".to_owned()).unwrap() },
    ] {
        strict(&Decline { version, lease: lease(), declined });
    }
    strict(&DeclineReply { version });
}

#[test]
fn a_refusal_holds_no_payload_and_a_release_no_excuse() {
    for text in [
        r#"{"version":1,"ok":false,"release":"e30="}"#,
        r#"{"version":1,"ok":false,"release":"e30=","code":"no_pinned_key"}"#,
        r#"{"version":1,"ok":true,"code":"no_pinned_key"}"#,
        r#"{"version":1,"ok":true}"#,
        r#"{"version":1,"ok":false}"#,
        r#"{"version":1,"ok":true,"release":"e30=","secret":"sk-1"}"#,
    ] {
        let read = decode::<SealReply>(text.as_bytes()).map_err(|fault| fault.code());
        assert_eq!(read, Err("body_malformed"), "{text}");
    }
}

#[test]
fn values_have_bounds() {
    let read = |text: &str| serde_json::from_str::<Blob<4>>(text).map(Blob::into_bytes).ok();
    assert_eq!(read(r#""AAAAAA==""#), Some(vec![0; 4]));
    for bad in [r#""AAAAAAA=""#, r#""AAAAAA""#, r#""AAAAAB==""#, r#""%""#, r#""AA=\n=""#, "1"] {
        assert_eq!(read(bad), None, "{bad}");
    }
    assert_eq!(Blob::<4>::new(vec![0; 5]), Err(NotAValue::Blob(4)));
    assert_eq!(format!("{:?}", blob::<4>(b"abc")), "Blob(3 bytes)");
    assert_eq!(Few::<u8, 2>::try_from(vec![1, 2, 3]), Err(NotAValue::TooMany(2)));
    for bad in ["", "a b", "../x", &"a".repeat(65)] {
        assert_eq!(Id::try_from(bad.to_owned()), Err(NotAValue::Id), "{bad}");
    }
    for bad in ["", "0", &"A".repeat(64), &"g".repeat(64)] {
        assert_eq!(Hash::try_from(bad.to_owned()), Err(NotAValue::Hash), "{bad}");
    }
    let long = r#"{"version":1,"wait_seconds":61,"capabilities":[]}"#;
    assert_eq!(decode::<Poll>(long.as_bytes()).map_err(|fault| fault.code()), Err("body_malformed"));
    let crowd = format!(r#"{{"version":1,"wait_seconds":1,"capabilities":{}}}"#, json!(vec!["x"; 17]));
    assert_eq!(decode::<Poll>(crowd.as_bytes()).map_err(|fault| fault.code()), Err("body_malformed"));
}

#[test]
fn the_largest_blobs_fit_their_bodies() {
    let chunk = Chunk {
        version: Version,
        lease: Lease { job: id(&"j".repeat(64)), epoch: u64::MAX },
        stream: Stream::Terminal,
        seq: u64::MAX,
        offset: u64::MAX,
        bytes: blob(&vec![0; MOST_CHUNK_BYTES]),
        head: hash('f'),
    };
    assert!(
        decode::<Chunk>(serde_json::to_string(&chunk).unwrap().as_bytes()).is_ok_and(|read| read == chunk)
    );
    let reply = SealReply::Released(blob(&vec![0; seal::MOST_RELEASE_BYTES]));
    assert!(
        decode::<SealReply>(serde_json::to_string(&reply).unwrap().as_bytes())
            .is_ok_and(|read| read == reply)
    );
}

#[test]
fn routes_have_paths_of_their_own() {
    for route in Route::ALL {
        assert_eq!(Route::from_path(route.path()), Some(route));
    }
    assert_eq!(Route::from_path("/orch/poll/"), None);
    let by_token: Vec<Route> =
        Route::ALL.into_iter().filter(|route| route.proven() == Proven::ByToken).collect();
    assert_eq!(by_token, [Route::EnrollBegin, Route::EnrollFinish], "everything else is signed");
}

proptest! {
    #[test]
    fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // Only that it returns.
        let _: (bool, bool) = (decode::<Chunk>(&bytes).is_ok(), decode::<PollReply>(&bytes).is_ok());
    }
}
