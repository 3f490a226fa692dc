//! An enrollment succeeds for who holds the token and both keys; everybody else gets a code.

use serde_json::json;

use super::*;
use crate::envelope::{Purpose, seal_as};
use crate::key::{PublicKey, SigningKey};
use crate::pem::to_base64;

struct Enrollment {
    control: SigningKey,
    token: JoinToken,
    identity: Identity,
}

fn begin() -> Enrollment {
    let control = SigningKey::generate().unwrap();
    let token = JoinToken::issue(&control.public()).unwrap();
    Enrollment { control, token, identity: Identity::generate().unwrap() }
}

fn grant(worker: &str) -> Grant {
    Grant { worker: worker.to_owned(), tenant: None, tags: vec!["pool:trusted".to_owned()] }
}

fn code<T>(result: Result<T, EnrollFault>) -> Result<(), &'static str> {
    result.map(drop).map_err(|fault| fault.code())
}

#[test]
fn an_enrollment_pins_both_sides() {
    let Enrollment { control, token, identity } = begin();
    let stored = token.hash();
    let token = JoinToken::parse(&token.to_text()).unwrap();
    assert_eq!((token.hash(), token.control()), (stored, control.public().id()));
    let challenge = Challenge::issue(&stored, &identity.keys()).unwrap();
    let (nonce, proof) = answer(&challenge.sealed, &token, &identity).unwrap();
    assert_eq!(nonce, challenge.nonce);
    proof.verify(&challenge.nonce, &stored, &identity.keys()).unwrap();
    let joined = Joined::sign(grant("w1"), &identity.keys(), challenge.nonce, &control).unwrap();
    assert_eq!(joined.verify(&token, &identity.keys(), nonce).unwrap(), (control.public(), grant("w1")));
}

#[test]
fn a_proof_is_of_its_token_its_nonce_and_its_keys() {
    let Enrollment { control, token, identity } = begin();
    let challenge = Challenge::issue(&token.hash(), &identity.keys()).unwrap();
    let (_, proof) = answer(&challenge.sealed, &token, &identity).unwrap();
    let (stranger, other) = (Identity::generate().unwrap(), JoinToken::issue(&control.public()).unwrap());
    let later = Challenge::issue(&token.hash(), &identity.keys()).unwrap().nonce;
    let (hash, keys) = (token.hash(), identity.keys());
    let mixed = IdentityKeys { signing: keys.signing.clone(), seal: stranger.keys().seal };
    assert_eq!(code(proof.verify(&challenge.nonce, &other.hash(), &keys)), Err("token_unknown"));
    assert_eq!(code(proof.verify(&later, &hash, &keys)), Err("token_proof"));
    assert_eq!(code(proof.verify(&challenge.nonce, &hash, &stranger.keys())), Err("token_proof"));
    assert_eq!(code(proof.verify(&challenge.nonce, &hash, &mixed)), Err("token_proof"));
    // A token alone is not enough: its holder must have the identity that it names.
    let field = |name: &str, value: String| {
        let mut fields = serde_json::to_value(&proof).unwrap();
        fields[name] = json!(value);
        serde_json::from_value::<Proof>(fields).unwrap()
    };
    let forged = field("identity_signature", to_base64(&[0; 64]));
    assert_eq!(code(forged.verify(&challenge.nonce, &hash, &keys)), Err("identity_proof"));
    let forged = field("token_signature", "%".to_owned());
    assert_eq!(code(forged.verify(&challenge.nonce, &hash, &keys)), Err("signature_encoding"));
    let forged = field("token", other.public().to_hex());
    assert_eq!(code(forged.verify(&challenge.nonce, &hash, &keys)), Err("token_unknown"));
}

#[test]
fn a_challenge_opens_for_the_key_that_is_claimed() {
    let Enrollment { control, token, identity } = begin();
    let challenge = Challenge::issue(&token.hash(), &identity.keys()).unwrap();
    let stranger = Identity::generate().unwrap();
    let thief = Identity { signing: stranger.signing, opening: identity.opening };
    assert_eq!(code(answer(&challenge.sealed, &token, &thief)), Err("challenge_unopened"));
    let other = JoinToken::issue(&control.public()).unwrap();
    let whole = Identity { signing: identity.signing, opening: thief.opening };
    assert_eq!(code(answer(&challenge.sealed, &other, &whole)), Err("challenge_unopened"));
    assert_eq!(code(answer(&challenge.sealed, &token, &whole)), Ok(()));
}

#[test]
fn a_worker_believes_only_the_control_plane_its_token_names() {
    let Enrollment { control, token, identity } = begin();
    let challenge = Challenge::issue(&token.hash(), &identity.keys()).unwrap();
    let sign =
        |by: &SigningKey, keys: &IdentityKeys, nonce| Joined::sign(grant("w1"), keys, nonce, by).unwrap();
    let check = |joined: &Joined| code(joined.verify(&token, &identity.keys(), challenge.nonce));
    let impostor = SigningKey::generate().unwrap();
    let mut forged = sign(&impostor, &identity.keys(), challenge.nonce);
    assert_eq!(check(&forged), Err("control_key"));
    forged.control = control.public().to_hex();
    assert_eq!(check(&forged), Err("key_unknown"));
    let stranger = Identity::generate().unwrap().keys();
    assert_eq!(check(&sign(&control, &stranger, challenge.nonce)), Err("enrollment_other"));
    let earlier = Challenge::issue(&token.hash(), &identity.keys()).unwrap().nonce;
    assert_eq!(check(&sign(&control, &identity.keys(), earlier)), Err("enrollment_other"));
    let offer = seal_as(Purpose::Offer, b"{}", &control).unwrap();
    let confused = Joined { control: control.public().to_hex(), envelope: offer };
    assert_eq!(check(&confused), Err("payload_type"));
}

#[test]
fn keys_rotate_forward_by_the_old_key_only() {
    let (old, new) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let rotation = Rotation::sign(&old.signing, &new, "w1", 3).unwrap();
    let check = |rotation: &Rotation, key: &PublicKey, worker: &str, generation: u64| {
        rotation.verify(key, worker, generation).map_err(|fault| fault.code())
    };
    let public = old.keys().signing;
    assert_eq!(check(&rotation, &public, "w1", 3), Ok(new.keys()));
    assert_eq!(check(&rotation, &public, "w2", 3), Err("rotation_out_of_turn"));
    for generation in [2, 4] {
        assert_eq!(check(&rotation, &public, "w1", generation), Err("rotation_out_of_turn"));
    }
    assert_eq!(check(&rotation, &new.keys().signing, "w1", 3), Err("key_unknown"));
    let foreign = seal_as(
        Purpose::Rotation,
        &serde_json::to_vec(&json!({
            "worker": "w1", "generation": 3, "keys": new.keys(), "proof": to_base64(&[0; 64]),
        }))
        .unwrap(),
        &old.signing,
    );
    assert_eq!(check(&Rotation(foreign.unwrap()), &public, "w1", 3), Err("identity_proof"));
}

#[test]
fn keys_that_are_weak_or_no_keys_are_refused_by_name() {
    let good = Identity::generate().unwrap().keys();
    let (signing, seal, zero) = (good.signing.to_hex(), good.seal.to_hex(), "0".repeat(64));
    let weak = format!("01{}", "0".repeat(62));
    for (signing, seal, expected) in [
        (&signing, &zero, "seal_key_unsealable"),
        (&weak, &seal, "signing_key_weak"),
        (&"x".to_owned(), &seal, "signing_key_malformed"),
        (&signing, &"x".to_owned(), "seal_key_malformed"),
    ] {
        assert_eq!(code(IdentityKeys::parse(signing, seal)), Err(expected));
    }
}

#[test]
fn a_token_has_one_spelling_and_does_not_print_itself() {
    let Enrollment { token, .. } = begin();
    let text = token.to_text();
    let secret = text.rsplit('_').next().unwrap();
    assert!(!format!("{token:?}").contains(secret));
    assert!(!text.contains(&token.hash().to_string()), "the hash is not part of the token");
    for bad in
        ["", "pond_join_", &text[..text.len() - 1], &text.to_uppercase(), &format!("{}0", text.as_str())]
    {
        assert_eq!(code(JoinToken::parse(bad)), Err("token_malformed"), "{bad}");
    }
}
