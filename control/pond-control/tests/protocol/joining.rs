//! Machines become workers, and change their keys.

use pond_policy::tier::Tier;
use pond_seal::enroll::{Identity, JoinToken};

use super::worker::Worker;
use super::world::World;

pub(crate) async fn a_token_is_good_once_and_for_its_holder(world: &mut World) {
    let token = world.token(Tier::Byo, Some("acme")).await;
    let control = world.plane.key.public();
    let new = || Worker::new(world.at, control.clone(), Identity::generate().unwrap(), &["sandbox.native"]);
    let mut worker = new();
    let asked = worker.challenge(&token).await.unwrap();

    // Who knows the token's public half (it was sent) and not the token proves nothing.
    let mut thief = new();
    let guessed = JoinToken::issue(&control).unwrap();
    assert_eq!(thief.prove(&guessed, &asked).await, Err("challenge_unopened".to_owned()));
    assert_eq!(thief.challenge(&guessed).await.map(drop), Err("token_unknown".to_owned()));
    // Nor does one whose keys are not those the challenge was sealed to: it cannot read it.
    assert_eq!(thief.prove(&token, &asked).await, Err("challenge_unopened".to_owned()));

    worker.prove(&token, &asked).await.unwrap();
    assert_eq!(worker.tags, ["pool:byo", "tenant:acme"]);
    let first = worker.name.clone();
    worker.prove(&token, &asked).await.unwrap();
    assert_eq!(worker.name, first, "the answer had got lost");
    assert_eq!(thief.challenge(&token).await.map(drop), Err("token_unknown".to_owned()), "it is used up");
    assert_eq!(worker.poll().await, Ok(None));
    let unknown = JoinToken::issue(&control).unwrap();
    assert_eq!(new().join(&unknown).await, Err("token_unknown".to_owned()));
}

pub(crate) async fn keys_change_hands_with_the_old_one_s_word(world: &mut World) {
    let mut worker = world.worker().await;
    let old = Identity { signing: copy(&worker.identity), opening: Identity::generate().unwrap().opening };
    assert_eq!(worker.rotate(Identity::generate().unwrap(), 2).await, Err("rotation_out_of_turn".to_owned()));
    assert_eq!(worker.rotate(Identity::generate().unwrap(), 1).await, Ok(1));
    assert_eq!(worker.poll().await, Ok(None), "the new key speaks for it");
    assert_eq!(worker.rotate(Identity::generate().unwrap(), 2).await, Ok(2));
    let mut before = Worker::new(world.at, world.plane.key.public(), old, &["sandbox.native"]);
    before.name.clone_from(&worker.name);
    assert_eq!(before.poll().await, Err("request_signature".to_owned()), "the old one no longer");
}

fn copy(identity: &Identity) -> pond_seal::key::SigningKey {
    pond_seal::key::SigningKey::from_pem(&identity.signing.to_pem()).unwrap()
}
