//! A result and the question for the next job in one call: the offer in the answer is as good as one that was polled for and no better,
//! and a job of which nobody said that it began has begun with its end, if its offer still stands.

use pond_control::store::{Actor, WorkerId};
use pond_control::ticker::{Pace, Ticked, tick};
use pond_seal::Digest;
use pond_seal::offer::{Addressee, Offer, SignedOffer};
use pond_seal::request::RequestNonce;
use pond_seal::result::Stream;
use pond_wire::orch::{self, Blob, CompleteReply, Few, MOST_OFFER_BYTES, Next, Route, Verdict};

use super::ending::{end, log, whole};
use super::whole::{MANIFEST, packed, said};
use super::worker::{Answer, Sent, Worker, deliver, piece_of};
use super::world::{World, clock, later, plain};

/// The end of a job that said nothing before, and the question for the next.
pub(crate) fn turning(worker: &Worker, offer: &Offer) -> (orch::Complete, Vec<u8>) {
    let said = said(offer, vec![log(Stream::Result, &packed())]);
    let envelope = worker.sign(Digest::of(MANIFEST), said);
    let next = Some(Next { capabilities: Few::try_from(worker.can.clone()).unwrap() });
    let body = orch::Complete {
        last: Some(whole(offer, &packed())),
        next,
        ..worker.completion(offer, envelope.clone())
    };
    (body, envelope)
}

fn opened(
    worker: &Worker,
    offer: Blob<MOST_OFFER_BYTES>,
    polled: RequestNonce,
) -> Result<Offer, &'static str> {
    let me = Addressee { worker: &worker.name, worker_key: worker.identity.keys().seal.id(), polled };
    let signed = SignedOffer::from_bytes(offer.into_bytes());
    signed.verify(&worker.control, me).map_err(|fault| fault.code())
}

/// Hands it in; what comes next.
async fn turn(worker: &mut Worker, offer: &Offer) -> Answer<Option<Offer>> {
    let (sent, nonce) = worker.signed(Route::Complete, &turning(worker, offer).0);
    let CompleteReply::Accepted { next, .. } = orch::decode(&worker.send(&sent).await?).unwrap();
    Ok(next.map(|next| opened(worker, next, nonce).unwrap()))
}

async fn leased(world: &World) -> usize {
    world.audit().await.iter().filter(|(action, _)| action == "stage.leased").count()
}

pub(crate) async fn a_result_brings_the_next_job(world: &mut World) {
    let runs = [world.submit(&plain()).await, world.submit(&plain()).await];
    let mut worker = world.worker().await;
    let first = worker.poll().await.unwrap().unwrap();
    let second = turn(&mut worker, &first).await.unwrap().unwrap();
    assert_ne!(first.job, second.job);
    assert_eq!(world.stage(&runs[0]).await.0, "succeeded");
    assert_eq!(world.stage(&runs[1]).await.0, "leased");
    assert_eq!(turn(&mut worker, &second).await, Ok(None));
    assert_eq!(world.stage(&runs[1]).await.0, "succeeded");
    let told: Vec<String> = world.audit().await.into_iter().map(|(action, _)| action).collect();
    let of_one = ["stage.leased", "stage.running", "result.accepted", "stage.ended", "run.ended"];
    assert_eq!(
        told[told.len() - 10..],
        [of_one, of_one].concat(),
        "each move is told, also the one nobody said"
    );
}

/// The orchestrator keeps the answer of one call for another, sends the call again, or lets the answer get lost.
pub(crate) async fn the_next_job_is_for_the_call_that_brought_the_result(world: &mut World) {
    for _ in 0..3 {
        world.submit(&plain()).await;
    }
    let mut worker = world.worker().await;
    let first = worker.poll().await.unwrap().unwrap();
    let (body, _) = turning(&worker, &first);
    let (sent, nonce) = worker.signed(Route::Complete, &body);
    let CompleteReply::Accepted { next, .. } = orch::decode(&worker.send(&sent).await.unwrap()).unwrap();
    let next = next.unwrap();
    let other = RequestNonce::generate().unwrap();
    assert_eq!(opened(&worker, next.clone(), other), Err("offer_replayed"));
    let stranger = world.worker().await;
    assert_eq!(opened(&stranger, next.clone(), nonce), Err("offer_worker"));
    let second = opened(&worker, next, nonce).unwrap();
    assert_eq!((worker.send(&sent).await, leased(world).await), (Err("request_replayed".to_owned()), 2));
    // Whoever did not hear the answer says it again, and is answered the same of the result; it brings no second job.
    let (again, _) = worker.signed(Route::Complete, &body);
    let CompleteReply::Accepted { next, .. } = orch::decode(&worker.send(&again).await.unwrap()).unwrap();
    assert_eq!((next, leased(world).await), (None, 2));
    let third = worker.poll().await.unwrap().unwrap();
    assert!(![&first.job, &second.job].contains(&&third.job));
    let results = world.audit().await.iter().filter(|(action, _)| action == "result.accepted").count();
    assert_eq!(results, 1);
}

pub(crate) async fn who_asks_with_a_result_gets_no_more_than_who_polls(world: &mut World) {
    for _ in 0..4 {
        world.submit(&plain()).await;
    }
    // It can enforce nothing any more.
    let mut weak = world.worker().await;
    let offer = weak.poll().await.unwrap().unwrap();
    weak.can.clear();
    assert_eq!(turn(&mut weak, &offer).await, Ok(None));
    let mut drained = world.worker().await;
    let offer = drained.poll().await.unwrap().unwrap();
    let id = WorkerId::parse(&drained.name).unwrap();
    world.plane.store.drain(&id, &Actor::System, clock()).await.unwrap();
    assert_eq!(turn(&mut drained, &offer).await, Ok(None), "the result counts");
    // One whose result does not, and one that was revoked.
    let mut liar = world.worker().await;
    let offer = liar.poll().await.unwrap().unwrap();
    let (mut body, _) = turning(&liar, &offer);
    body.statement = Blob::new(liar.sign(Digest::of(MANIFEST), said(&offer, Vec::new()))).unwrap();
    let refused = liar.call::<CompleteReply>(Route::Complete, &body).await;
    assert_eq!(refused.map(drop), Err("statement_stream".to_owned()));
    let mut revoked = world.worker().await;
    let offer = revoked.poll().await.unwrap().unwrap();
    let id = WorkerId::parse(&revoked.name).unwrap();
    world.plane.store.revoke(&id, &Actor::System, clock()).await.unwrap();
    assert_eq!(turn(&mut revoked, &offer).await, Err("worker_revoked".to_owned()));
    assert_eq!(leased(world).await, 4, "nobody was given another");
}

pub(crate) async fn a_job_nobody_began_has_nothing_but_its_end(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.poll().await.unwrap().unwrap();
    let unsaid = || Err("lease_unacknowledged".to_owned());
    assert_eq!(worker.seal(&offer, "claude").await.map(drop), unsaid());
    assert_eq!(worker.redeem(&offer, "pond_bundle_0_0").await.map(drop), unsaid());
    assert_eq!(worker.heartbeat(&offer, 0).await, Ok(Verdict::Lost {}));
    let mut chain = pond_seal::chain::Chain::begin(&offer.job, offer.lease_epoch, Stream::Stderr);
    let chunk = piece_of(&offer, orch::Stream::Stderr, &mut chain, b"x");
    assert_eq!(worker.chunk(&chunk).await.map(drop), Err("lease_stale".to_owned()));
    // One that does not verify ends the stage, as it would have after it began.
    let lie = said(&offer, Vec::new());
    let ended = end(&mut worker, &offer, whole(&offer, &packed()), lie).await;
    assert_eq!(ended, Err("statement_stream".to_owned()));
    assert_eq!(world.stage(&run).await.0, "failed");
    // An offer that lapsed is nobody's, whatever is said under it, and the next one's holder is not hindered.
    let run = world.submit(&plain()).await;
    let late = worker.poll().await.unwrap().unwrap();
    let ticked =
        tick(&world.plane, Pace::default(), pond_control::store::Moment(0), later(11)).await.unwrap();
    assert_eq!(ticked, Ticked { lapsed: 1, ..Ticked::default() });
    assert_eq!(turn(&mut worker, &late).await, Err("lease_stale".to_owned()));
    let mut other = world.worker().await;
    let again = other.poll().await.unwrap().unwrap();
    assert_eq!((again.job.as_str(), again.lease_epoch), (late.job.as_str(), late.lease_epoch + 1));
    assert_eq!(turn(&mut worker, &again).await, Err("lease_stale".to_owned()));
    assert_eq!(turn(&mut other, &again).await, Ok(None));
    assert_eq!(world.stage(&run).await.0, "succeeded");
}

/// Of every call that is on its way the answer is one; two at once count once.
pub(crate) async fn one_result_sent_twice_at_once_counts_once(world: &mut World) {
    let run = world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let offer = worker.poll().await.unwrap().unwrap();
    let (body, _) = turning(&worker, &offer);
    let [one, two]: [Sent; 2] = [0, 1].map(|_| worker.signed(Route::Complete, &body).0);
    let ((first, _), (second, _)) = tokio::join!(deliver(world.at, &one), deliver(world.at, &two));
    assert_eq!((first, second), (200, 200));
    assert_eq!(world.stage(&run).await.0, "succeeded");
    let audit = world.audit().await;
    for told in ["stage.running", "result.accepted", "run.ended"] {
        assert_eq!(audit.iter().filter(|(action, _)| action == told).count(), 1, "{told}");
    }
}

/// Where a stage comes next whose tree is still to be put together, a poll waits for that and no result does.
pub(crate) async fn a_result_waits_for_no_tree(world: &mut World) {
    let executor = "    executor: {kind: swarm, command: [make], timeout: 100s, sandbox: {profile: untrusted-code-write}}\n";
    let two =
        format!("project: acme\nstages:\n  - name: a\n{executor}  - name: b\n    needs: [a]\n{executor}");
    let state = async |world: &World, run| {
        world.plane.store.run(run).await.unwrap().unwrap().stages[1].state.to_string()
    };
    let mut worker = world.worker().await;
    // Of the same run it is not even taken.
    let run = world.submit(&two).await;
    let first = worker.poll().await.unwrap().unwrap();
    assert_eq!(turn(&mut worker, &first).await, Ok(None));
    assert_eq!((state(world, &run).await, leased(world).await), ("queued".to_owned(), 1));
    // Of another it is given back.
    let other = world.submit(&plain()).await;
    let id = WorkerId::parse(&worker.name).unwrap();
    let waiting = world.plane.store.claim((&id, 0), 1, clock()).await.unwrap().remove(0);
    let mut second = world.worker().await;
    let alone = second.poll().await.unwrap().unwrap();
    world.plane.store.give_back(&waiting.lease, clock()).await.unwrap();
    assert_eq!(turn(&mut second, &alone).await, Ok(None));
    assert_eq!(
        (world.stage(&other).await.0, state(world, &run).await),
        ("succeeded".to_owned(), "queued".to_owned())
    );
    assert_eq!(leased(world).await, 4, "it was taken, and is there for whoever polls");
}
