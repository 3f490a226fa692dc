//! Sources arrive whole or not at all, and are kept as ciphertext.

use std::io::Read as _;

use pond_seal::bundle::{DataKey, Decrypting};
use pond_seal::tree::{Entry as Named, Listing};
use pond_seal::{Digest, secret::Secret};
use pond_wire::api::TREE_TYPE;
use pond_wire::tree::{Entry, Moment};
use serde_json::json;

use super::client::{Reply, ask};
use super::world::{Set, World, document};

fn send(world: &World, project: &str, body: &[u8]) -> Reply {
    let bearer = format!("Bearer {}", world.admin);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", TREE_TYPE)];
    ask(world.address, "POST", &format!("/v1/sources?project={project}"), &headers, body)
}

fn file(name: &str, mode: u16, content: &[u8]) -> Vec<u8> {
    let size = u64::try_from(content.len()).unwrap();
    let modified = Moment { seconds: 1, nanos: 2 };
    let mut bytes = Entry::File { name: name.into(), mode, modified, size }.encode().unwrap();
    bytes.extend(content);
    bytes
}

fn end() -> Vec<u8> {
    Entry::Leave { mode: 0o755 }.encode().unwrap()
}

/// `a/` with a file in it, `a-b`, which sorts before that file by its path, and a link.
fn tree() -> (Vec<u8>, Digest) {
    let large = vec![b'x'; 200_000];
    let enter = Entry::Enter { name: b"a".to_vec() }.encode().unwrap();
    let link = Entry::Link { name: b"l".to_vec(), target: b"a/x".to_vec() }.encode().unwrap();
    let stream = [enter, file("x", 0o755, &large), end(), file("a-b", 0o644, b""), link, end()].concat();
    let mut listing = Listing::default();
    let named = |executable, content: &[u8]| Named::File {
        executable,
        size: u64::try_from(content.len()).unwrap(),
        sha256: Digest::of(content),
    };
    listing.add(b"a".to_vec(), Named::Directory);
    listing.add(b"a/x".to_vec(), named(true, &large));
    listing.add(b"a-b".to_vec(), named(false, b""));
    listing.add(b"l".to_vec(), Named::Link { target: b"a/x".to_vec() });
    (stream, listing.finish().unwrap())
}

pub(crate) fn a_source_is_kept_as_ciphertext(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let (stream, input) = tree();
    let reply = send(&world, "acme", &stream);
    assert_eq!(reply.status, 201, "{reply:?}");
    let told = reply.json();
    assert_eq!(
        (&told["input_sha256"], &told["bytes"], &told["entries"]),
        (&json!(input.to_string()), &json!(stream.len()), &json!(4))
    );
    let files = world.files();
    assert!(files.len() == 1 && files[0].starts_with("source-"), "{files:?}");
    let kept = std::fs::read(world.plane.files.join(&files[0])).unwrap();
    assert!(!kept.windows(64).any(|window| window == [b'x'; 64]), "the content lies there in the clear");
    let source = told["source"].as_str().unwrap();
    let submit = |project: &str| {
        let body = json!({"document": document(project, &["a"]), "source": source});
        world.ask("POST", "/v1/runs", Some(&body))
    };
    assert_eq!(submit("other").problem(), "source_unknown", "it is another project's");
    let run = submit("acme");
    assert_eq!(run.status, 201);
    let run = run.json()["run"].as_str().unwrap().to_owned();
    assert_eq!(world.ask("GET", &format!("/v1/runs/{run}"), None).json()["source"], source);

    let (worker, now) = (world.worker(), world.plane.now());
    let token = Digest::of(b"one-time");
    let redeemed = world.block_on(async {
        let store = &world.plane.store;
        let lease = store.claim((&worker, 0), 1, now).await.unwrap().remove(0).lease;
        let bundle = pond_control::store::BundleId::parse(source).unwrap();
        let later = now.plus(std::time::Duration::from_secs(60));
        store.issue_bundle_token(&bundle, &lease, &token, later).await.unwrap();
        store.redeem_bundle(&token, &lease, now).await.unwrap()
    });
    assert_eq!((redeemed.place.as_str(), redeemed.digest), (files[0].as_str(), Digest::of(&kept)));
    let key = DataKey::from_secret(&Secret::new(redeemed.key.to_vec())).unwrap();
    let mut plain = Vec::new();
    Decrypting::new(kept.as_slice(), &key, 1 << 30).unwrap().read_to_end(&mut plain).unwrap();
    assert!(plain == stream, "what was sent is what comes out");
}

pub(crate) fn the_same_source_sent_again_is_the_same_run(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let bearer = format!("Bearer {}", world.admin);
    let submit = |content: &[u8]| {
        let sent = send(&world, "acme", &[file("x", 0o644, content), end()].concat()).json();
        let body = json!({"document": document("acme", &["a"]), "source": sent["source"]}).to_string();
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "k"),
        ];
        ask(world.address, "POST", "/v1/runs", &headers, body.as_bytes())
    };
    let first = submit(b"one");
    assert_eq!(first.status, 201);
    let again = submit(b"one");
    assert_eq!((again.status, &again.json()["run"]), (200, &first.json()["run"]));
    assert_eq!(submit(b"other").problem(), "key_reused");
}

pub(crate) fn what_is_no_tree_leaves_nothing(start: &dyn Fn(Set) -> World) {
    let world = start(Set::default());
    let (stream, _) = tree();
    let fifo = Entry::Fifo { name: b"f".to_vec() }.encode().unwrap();
    let far = Entry::Enter { name: b"..".to_vec() }.encode().unwrap();
    for (what, body) in [
        ("empty", Vec::new()),
        ("cut", stream[..stream.len() - 1].to_vec()),
        ("cut early", stream[..1000].to_vec()),
        ("more after the end", [stream.clone(), b"x".to_vec()].concat()),
        ("something else", b"PK\x03\x04 not a tree".to_vec()),
        ("a pipe", [fifo, end()].concat()),
        ("a way out", [far, end(), end()].concat()),
        ("one name twice", [file("x", 0o644, b""), file("x", 0o644, b""), end()].concat()),
    ] {
        let reply = send(&world, "acme", &body);
        assert_eq!((reply.status, reply.problem().as_str()), (400, "source_invalid"), "{what}");
    }
    let modified = Moment { seconds: 1, nanos: 2 };
    let bomb: Vec<u8> = (0..6)
        .flat_map(|number| {
            let name = format!("f{number}").into_bytes();
            Entry::File { name, mode: 0o644, modified, size: 1 << 30 }.encode().unwrap()
        })
        .collect();
    assert_eq!(send(&world, "acme", &bomb).problem(), "source_invalid", "its content is not there");
    assert_eq!(send(&world, "nobodys", &stream).problem(), "project_unknown");
    let bearer = format!("Bearer {}", world.admin);
    let headers =
        [("Authorization", bearer.as_str()), ("Content-Type", TREE_TYPE), ("Content-Length", "99999999999")];
    let huge = ask(world.address, "POST", "/v1/sources?project=acme", &headers, b"");
    assert_eq!(huge.problem(), "body_too_large");
    assert_eq!(world.files(), [""; 0], "something was left behind");
}
