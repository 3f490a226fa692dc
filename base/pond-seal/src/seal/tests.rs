//! A box opens for its key, its context and the control plane's signature together; each change has its own code.

use serde_json::{Value, json};

use super::*;
use crate::key::KeyId;

fn context(key: &SealKey) -> SealContext {
    SealContext {
        subject: Subject::Credential("model".to_owned()),
        tenant: "acme".to_owned(),
        worker: "w1".to_owned(),
        worker_key: key.id(),
        job: "j1".to_owned(),
        lease_epoch: 7,
        input: Digest::of(b"input"),
        policy: Digest::of(b"policy"),
        not_after: 1_800_000_000,
    }
}

/// Every field changed, one at a time.
fn neighbours(of: &SealContext) -> Vec<(&'static str, SealContext)> {
    let with = |change: &dyn Fn(&mut SealContext)| {
        let mut other = of.clone();
        change(&mut other);
        other
    };
    vec![
        ("subject", with(&|c| c.subject = Subject::Credential("model2".to_owned()))),
        ("kind", with(&|c| c.subject = Subject::BundleKey)),
        ("tenant", with(&|c| c.tenant = "other".to_owned())),
        ("worker", with(&|c| c.worker = "w2".to_owned())),
        ("worker_key", with(&|c| c.worker_key = KeyId(Digest::of(b"")))),
        ("job", with(&|c| c.job = "j2".to_owned())),
        ("lease_epoch", with(&|c| c.lease_epoch = 8)),
        ("input", with(&|c| c.input = Digest::of(b""))),
        ("policy", with(&|c| c.policy = Digest::of(b""))),
        ("not_after", with(&|c| c.not_after += 1)),
        ("tenant and worker", with(&|c| (c.tenant, c.worker) = ("acmew".to_owned(), "1".to_owned()))),
    ]
}

#[test]
fn a_box_opens_for_its_own_context_only() {
    let (control, key) = (SigningKey::generate().unwrap(), OpenKey::generate().unwrap());
    let context = context(&key.public());
    let release =
        Release::issue(&Secret::new(b"sk-1".to_vec()), Some(&key.public()), &context, &control).unwrap();
    let open = |context: &SealContext| {
        let opened = release.open(&control.public(), &key, context);
        opened.map(|secret| secret.expose().to_vec()).map_err(|fault| fault.code())
    };
    assert_eq!(open(&context), Ok(b"sk-1".to_vec()));
    for (field, other) in neighbours(&context) {
        assert_eq!(open(&other), Err("release_context"), "{field}");
        // The digest beside the box only says why; what keeps the box shut is HPKE's own binding.
        let moved = Release::sign(release.sealed(&control.public()).unwrap(), &other, &control).unwrap();
        let opened = moved.open(&control.public(), &key, &other).map(|_| ()).map_err(|fault| fault.code());
        assert_eq!(opened, Err("release_unopened"), "{field}");
    }
}

#[test]
fn strangers_open_and_forge_nothing() {
    let (control, key) = (SigningKey::generate().unwrap(), OpenKey::generate().unwrap());
    let (other_control, other_key) = (SigningKey::generate().unwrap(), OpenKey::generate().unwrap());
    let context = context(&key.public());
    let secret = Secret::new(b"sk-1".to_vec());
    let release = Release::issue(&secret, Some(&key.public()), &context, &control).unwrap();
    let code = |release: &Release, key: &OpenKey| {
        release.open(&control.public(), key, &context).map(|_| ()).map_err(|fault| fault.code())
    };
    assert_eq!(code(&release, &other_key), Err("release_unopened"));
    let forged = Release::issue(&secret, Some(&key.public()), &context, &other_control).unwrap();
    assert_eq!(code(&forged, &key), Err("key_unknown"));
    let unsigned = serde_json::to_vec(&release.sealed(&control.public()).unwrap()).unwrap();
    assert_eq!(code(&Release::from_bytes(unsigned), &key), Err("envelope_malformed"));
    let repurposed = seal_as(Purpose::Offer, b"{}", &control).unwrap();
    assert_eq!(code(&Release::from_bytes(repurposed), &key), Err("payload_type"));
    let empty = seal_as(Purpose::Release, b"{}", &control).unwrap();
    assert_eq!(code(&Release::from_bytes(empty), &key), Err("release_malformed"));
}

#[test]
fn without_the_pinned_key_nothing_is_released() {
    let (control, key) = (SigningKey::generate().unwrap(), OpenKey::generate().unwrap());
    let context = context(&key.public());
    let issue = |bytes: usize, pinned: Option<&SealKey>| {
        let secret = Secret::new(vec![b'x'; bytes]);
        Release::issue(&secret, pinned, &context, &control).map(|_| ()).map_err(|fault| fault.code())
    };
    assert_eq!(issue(4, None), Err("no_pinned_key"));
    let newer = OpenKey::generate().unwrap().public();
    assert_eq!(issue(4, Some(&newer)), Err("other_key"));
    assert_eq!(issue(MOST_SECRET_BYTES + 1, Some(&key.public())), Err("secret_too_large"));
    assert_eq!(issue(MOST_SECRET_BYTES, Some(&key.public())), Ok(()));
}

#[test]
fn keys_nothing_can_be_sealed_to_are_refused() {
    // The points of small order on Curve25519 and on its twist, each in its one canonical spelling, and the two that reduce to them.
    let small = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for text in small {
        assert_eq!(SealKey::parse(text), Err(SealKeyFault::Unsealable), "{text}");
    }
    let good = OpenKey::generate().unwrap().public();
    assert_eq!(SealKey::parse(&good.to_hex()), Ok(good.clone()));
    for text in ["", "00", &good.to_hex().to_uppercase(), &format!("{}00", good.to_hex())] {
        assert_eq!(SealKey::parse(text), Err(SealKeyFault::NotPublic), "{text}");
    }
}

#[test]
fn a_box_has_one_spelling_and_bounds() {
    let key = OpenKey::generate().unwrap();
    let sealed = Sealed::make(b"sk-1", &key.public(), b"info").unwrap();
    let good = serde_json::to_value(&sealed).unwrap();
    let read =
        |value: &Value| serde_json::from_value::<Sealed>(value.clone()).map_err(|fault| fault.to_string());
    assert_eq!(read(&good), Ok(sealed));
    let with = |name: &str, value: Value| {
        let mut other = good.clone();
        other[name] = value;
        other
    };
    let huge = to_base64(&vec![0; MOST_SECRET_BYTES + TAG_BYTES + 1]);
    for (value, expected) in [
        (with("suite", json!(2)), NotSealed::Suite.to_string()),
        (with("enc", json!("AA==")), NotSealed::Encapsulated.to_string()),
        (with("enc", json!("%")), NotSealed::Encapsulated.to_string()),
        (with("ct", json!("AA==")), NotSealed::Ciphertext.to_string()),
        (with("ct", json!(huge)), NotSealed::Ciphertext.to_string()),
    ] {
        assert_eq!(read(&value), Err(expected), "{value}");
    }
    assert!(read(&with("secret", json!("x"))).unwrap_err().starts_with("unknown field `secret`"));
}

#[test]
fn every_byte_of_a_box_counts() {
    let key = OpenKey::generate().unwrap();
    let sealed = Sealed::make(b"sk-1", &key.public(), b"info").unwrap();
    let opens = |sealed: &Sealed| sealed.open(&key, b"info").is_ok();
    assert!(opens(&sealed));
    for at in 0..sealed.ct.len() {
        let mut other = sealed.clone();
        other.ct[at] ^= 1;
        assert!(!opens(&other), "ciphertext byte {at}");
    }
    for at in 0..31 {
        let mut other = sealed.clone();
        other.enc[at] ^= 1;
        assert!(!opens(&other), "encapsulated key byte {at}");
    }
    for length in 0..sealed.ct.len() {
        let mut other = sealed.clone();
        other.ct.truncate(length);
        assert!(!opens(&other), "cut to {length}");
    }
}

#[test]
fn keys_survive_their_files_and_do_not_print_themselves() {
    let key = OpenKey::generate().unwrap();
    let pem = key.to_pem();
    assert_eq!(OpenKey::from_pem(&pem).unwrap().public(), key.public());
    let signing = SigningKey::generate().unwrap().to_pem();
    for text in ["", pem.trim_end_matches("-\n"), signing.as_str()] {
        let read = OpenKey::from_pem(text).map(|key| key.public());
        assert_eq!(read, Err(SealKeyFault::NotPrivate), "{text}");
    }
    assert_eq!(format!("{key:?}"), format!("OpenKey({})", key.public().id()));
}
