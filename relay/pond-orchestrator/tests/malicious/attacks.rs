//! One attack at a time, each with the code it ends in.

use pond_seal::bundle::{BundleFault, DataKey, Decrypting, Encrypting};
use pond_seal::enroll::{Challenge, Grant, Identity, JoinToken, Joined};
use pond_seal::envelope::seal;
use pond_seal::key::SigningKey;
use pond_seal::offer::SignedOffer;
use pond_seal::seal::{Release, Subject};
use pond_seal::{Digest, Secret};
use pond_wire::orch::{Blob, Complete, PollReply, Route, SealReply, Version, decode};
use std::io::{Read, Write};

use crate::{Play, Said, Sent, play};

/// What an honest orchestrator brings about: the job runs, with its secret, and its result counts.
fn run(play: &mut Play, worker: usize, job: &str) {
    begin(play, worker, job);
    let asked = play.workers[worker].ask_secret().unwrap();
    let released = play.control.call(Route::Seal, &asked).unwrap();
    let secret = play.workers[worker].released(&released).unwrap();
    assert_eq!(secret, play.control.jobs[job].secret);
    for bytes in [&b"one"[..], b"two"] {
        let chunk = play.workers[worker].chunk(bytes).unwrap();
        play.control.call(Route::Chunks, &chunk).unwrap();
    }
    let complete = play.workers[worker].complete("done").unwrap();
    play.control.call(Route::Complete, &complete).unwrap();
    assert_eq!(play.control.jobs[job].result.as_ref(), play.workers[worker].said.last());
    assert_eq!(play.control.jobs[job].kept, b"onetwo");
}

fn begin(play: &mut Play, worker: usize, job: &str) -> Vec<u8> {
    let polled = play.workers[worker].poll();
    let offer = play.control.grant(job, &polled).unwrap();
    play.workers[worker].offered(&offer).unwrap();
    offer
}

#[test]
fn an_honest_orchestrator_brings_jobs_and_results_across() {
    let mut play = play();
    run(&mut play, 0, "j-trusted");
    run(&mut play, 1, "j-byo");
    run(&mut play, 0, "j-any");
}

#[test]
fn forged_tags_and_capabilities_route_nothing() {
    let mut play = play();
    let polled = play.workers[1].poll();
    assert_eq!(play.control.grant("j-trusted", &polled), Err("withheld"));
    // Each poll is good for one attempt.
    let polled = play.workers[1].poll();
    assert_eq!(play.control.grant("j-any", &polled), Err("withheld"), "another tenant's work");
    let polled = play.workers[0].poll();
    assert_eq!(play.control.grant("j-byo", &polled), Err("withheld"));
    let mut polled = play.workers[0].poll();
    polled.body =
        String::from_utf8(polled.body).unwrap().replace("sandbox.native", "sandbox.gvisor").into_bytes();
    assert_eq!(play.control.grant("j-trusted", &polled), Err("request_signature"));
}

#[test]
fn replayed_messages_have_no_second_effect() {
    let mut play = play();
    let polled = play.workers[0].poll();
    let offer = play.control.grant("j-trusted", &polled).unwrap();
    assert_eq!(play.control.grant("j-any", &polled), Err("request_replayed"));
    play.workers[0].offered(&offer).unwrap();
    assert_eq!(play.workers[0].offered(&offer), Err("not_polling"));
    let asked = play.workers[0].ask_secret().unwrap();
    let released = play.control.call(Route::Seal, &asked).unwrap();
    assert_eq!(play.control.call(Route::Seal, &asked), Err("request_replayed"));
    let complete = play.workers[0].complete("done").unwrap();
    play.control.call(Route::Complete, &complete).unwrap();
    assert_eq!(play.control.call(Route::Complete, &complete), Err("request_replayed"));
    // Later, while the worker asks for more.
    play.workers[0].poll();
    assert_eq!(play.workers[0].offered(&offer), Err("offer_replayed"));
    begin(&mut play, 0, "j-any");
    assert_eq!(play.workers[0].released(&released), Err("release_context"));
}

#[test]
fn a_lease_that_is_over_does_nothing() {
    let mut play = play();
    begin(&mut play, 0, "j-any");
    let (late_secret, late_chunk) =
        (play.workers[0].ask_secret().unwrap(), play.workers[0].chunk(b"x").unwrap());
    let late_result = play.workers[0].complete("late").unwrap();
    // The worker was thought dead, and the job given out again.
    begin(&mut play, 0, "j-any");
    for late in [late_secret, late_chunk, late_result] {
        assert_eq!(play.control.call(late.route, &late), Err("lease_stale"), "{:?}", late.route);
    }
}

#[test]
fn swapped_messages_fit_nobody_else() {
    let mut play = play();
    let (first, second) = (play.workers[0].poll(), play.workers[1].poll());
    let offers =
        [play.control.grant("j-trusted", &first).unwrap(), play.control.grant("j-byo", &second).unwrap()];
    assert_eq!(play.workers[0].offered(&offers[1]), Err("offer_worker"));
    assert_eq!(play.workers[1].offered(&offers[0]), Err("offer_worker"));
    play.workers[0].offered(&offers[0]).unwrap();
    play.workers[1].offered(&offers[1]).unwrap();
    let asked = [play.workers[0].ask_secret().unwrap(), play.workers[1].ask_secret().unwrap()];
    let releases = asked.map(|asked| play.control.call(Route::Seal, &asked).unwrap());
    assert_eq!(play.workers[0].released(&releases[1]), Err("release_context"));
    assert_eq!(play.workers[1].released(&releases[0]), Err("release_context"));
    // A call moved to another route, a head moved to another body.
    let (chunk, complete) = (play.workers[0].chunk(b"x").unwrap(), play.workers[0].complete("done").unwrap());
    assert_eq!(play.control.call(Route::Complete, &chunk), Err("request_signature"));
    let crossed = Sent { head: chunk.head, ..complete };
    assert_eq!(play.control.call(Route::Complete, &crossed), Err("request_signature"));
    assert_eq!(play.workers[0].released(&offers[0]), Err("body_malformed"));
}

#[test]
fn reordered_and_dropped_output_is_noticed() {
    let mut play = play();
    begin(&mut play, 0, "j-trusted");
    let chunks: Vec<Sent> = [&b"one"[..], b"two", b"three"]
        .into_iter()
        .map(|bytes| play.workers[0].chunk(bytes).unwrap())
        .collect();
    assert_eq!(play.control.call(Route::Chunks, &chunks[1]), Err("chunk_out_of_place"));
    play.control.call(Route::Chunks, &chunks[0]).unwrap();
    assert_eq!(play.control.call(Route::Chunks, &chunks[2]), Err("chunk_out_of_place"));
    let complete = play.workers[0].complete("done").unwrap();
    assert_eq!(play.control.call(Route::Complete, &complete), Err("statement_log"));
}

#[test]
fn results_are_signed_by_who_holds_the_lease() {
    let mut play = play();
    begin(&mut play, 0, "j-trusted");
    let said = |job: &str| Said {
        job: job.to_owned(),
        epoch: 1,
        log: play.control.jobs["j-trusted"].log.at().head,
        output: "forged".to_owned(),
    };
    let forger = SigningKey::generate().unwrap();
    let statement =
        |job: &str, key: &SigningKey| seal(&serde_json::to_vec(&said(job)).unwrap(), key).unwrap();
    let foreign = statement("j-trusted", &forger);
    let moved = statement("j-any", &play.workers[0].identity.signing);
    let honest = play.workers[0].complete("done").unwrap();
    let body: Complete = decode(&honest.body).unwrap();
    let forged =
        serde_json::to_vec(&Complete { statement: Blob::new(foreign.clone()).unwrap(), ..body }).unwrap();
    let forged = Sent { body: forged, ..honest };
    assert_eq!(
        play.control.call(Route::Complete, &forged),
        Err("request_signature"),
        "the body is not its own"
    );
    // Even a worker that was talked into sending them.
    for (statement, expected) in [(foreign, "key_unknown"), (moved, "statement_lease")] {
        let sent = play.workers[0].send_statement(statement);
        assert_eq!(play.control.call(Route::Complete, &sent), Err(expected));
    }
    assert_eq!(play.control.jobs["j-trusted"].result, None);
}

#[test]
fn the_job_that_comes_with_a_result_is_for_that_call_alone() {
    let mut play = play();
    begin(&mut play, 0, "j-trusted");
    let complete = play.workers[0].complete("done").unwrap();
    let reply = play.control.call(Route::Complete, &complete).unwrap();
    assert_eq!(play.control.jobs["j-any"].epoch, 1, "it was granted with the result");
    assert_eq!(play.control.call(Route::Complete, &complete), Err("request_replayed"));
    // Not another worker's, and not once it asked again.
    play.workers[1].poll();
    assert_eq!(play.workers[1].offered(&reply), Err("offer_worker"));
    let asked = play.workers[0].polled;
    play.workers[0].poll();
    assert_eq!(play.workers[0].offered(&reply), Err("offer_replayed"));
    play.workers[0].polled = asked;
    play.workers[0].offered(&reply).unwrap();
    assert_eq!(play.workers[0].offered(&reply), Err("not_polling"));
}

#[test]
fn forged_offers_and_secrets_are_refused() {
    let mut play = play();
    let polled = play.workers[0].poll();
    let reply = play.control.grant("j-trusted", &polled).unwrap();
    let mut offer = play.control.jobs["j-trusted"].offer.clone().unwrap();
    offer.executor = r#"{"command":["sh","-c","attack"]}"#.to_owned();
    let forger = SigningKey::generate().unwrap();
    let forged = SignedOffer::sign(&offer, &forger).unwrap();
    let forged = Blob::new(forged.as_bytes().to_vec()).unwrap();
    let forged = serde_json::to_vec(&PollReply::Offer { version: Version, offer: forged }).unwrap();
    assert_eq!(play.workers[0].offered(&forged), Err("key_unknown"));
    play.workers[0].offered(&reply).unwrap();
    // Everything needed to seal is public: the worker's key, and each field of the context.
    let context = play.workers[0].job.as_ref().unwrap().seal_context(Subject::Credential("model".to_owned()));
    let keys = play.workers[0].identity.keys();
    let secret = Secret::new(b"a key of the attacker's own account".to_vec());
    let release = Release::issue(&secret, Some(&keys.seal), &context, &forger).unwrap();
    let release = SealReply::Released(Blob::new(release.as_bytes().to_vec()).unwrap());
    assert_eq!(play.workers[0].released(&serde_json::to_vec(&release).unwrap()), Err("key_unknown"));
}

#[test]
fn an_enrollment_in_between_gives_nobody_else_anything() {
    let (control, impostor) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let token = JoinToken::issue(&control.public()).unwrap();
    let (worker, thief) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let challenge = Challenge::issue(&token.hash(), &worker.keys()).unwrap();
    let (nonce, proof) = pond_seal::enroll::answer(&challenge.sealed, &token, &worker).unwrap();
    // The proof, read on its way, enrolls no other keys; the answer names no other control plane.
    let stolen = proof.verify(&challenge.nonce, &token.hash(), &thief.keys()).map_err(|fault| fault.code());
    assert_eq!(stolen, Err("token_proof"));
    let grant = Grant { worker: "w9".to_owned(), tenant: None, tags: Vec::new() };
    let joined = Joined::sign(grant, &worker.keys(), nonce, &impostor).unwrap();
    let believed = joined.verify(&token, &worker.keys(), nonce).map(drop).map_err(|fault| fault.code());
    assert_eq!(believed, Err("control_key"));
}

#[test]
fn a_bundle_of_another_job_does_not_open() {
    let keys = [DataKey::generate().unwrap(), DataKey::generate().unwrap()];
    let bundles = keys.each_ref().map(|key| {
        let mut writer = Encrypting::new(Vec::new(), key).unwrap();
        writer.write_all(b"source").unwrap();
        writer.finish().unwrap()
    });
    let read = |bundle: &[u8], key: &DataKey| {
        let mut plain = Vec::new();
        let read =
            Decrypting::new(bundle, key, 1 << 20).and_then(|mut reader| reader.read_to_end(&mut plain));
        read.map_err(|error| BundleFault::of(&error).unwrap().code())
    };
    assert_eq!(read(&bundles[0], &keys[0]), Ok(6));
    assert_eq!(read(&bundles[1], &keys[0]), Err("bundle_chunk"));
}

#[test]
fn who_reads_everything_reads_no_secret() {
    let mut play = play();
    begin(&mut play, 0, "j-trusted");
    let asked = play.workers[0].ask_secret().unwrap();
    let released = play.control.call(Route::Seal, &asked).unwrap();
    let SealReply::Released(release) = decode(&released).unwrap() else { panic!("refused") };
    let release = Release::from_bytes(release.into_bytes());
    let sealed = release.sealed(&play.control.key.public()).unwrap();
    let (text, secret) = (serde_json::to_string(&sealed).unwrap(), &play.control.jobs["j-trusted"].secret);
    assert!(!text.contains(std::str::from_utf8(secret).unwrap()));
    // With every public value at hand, and a key of its own.
    let reader = Identity::generate().unwrap();
    let context = play.workers[0].job.as_ref().unwrap().seal_context(Subject::Credential("model".to_owned()));
    let opened = release.open(&play.control.key.public(), &reader.opening, &context).map(drop);
    assert_eq!(opened.map_err(|fault| fault.code()), Err("release_unopened"));
    assert_eq!(play.workers[0].released(&released).as_ref(), Ok(secret));
    assert_ne!(Digest::of(&released), Digest::of(secret));
}
