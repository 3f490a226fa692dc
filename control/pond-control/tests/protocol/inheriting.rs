//! A stage works on what the stages it needs made of the source: by the hash in its offer, and by what comes out of its bundle.

use std::io::{Read as _, Write as _};

use pond_control::store::{Actor, BundleId, NewBundle, RunId};
use pond_seal::Digest;
use pond_seal::bundle::{DataKey, Decrypting, Encrypting};
use pond_seal::offer::{Offer, Source};
use pond_seal::secret::Secret;
use pond_seal::tree::{Entry as Named, Listing};
use pond_wire::orch;
use pond_wire::tree::{Decoder, Entry, Event, Moment, TreeCaps};

use super::said::{digest, said};
use super::worker::Worker;
use super::world::{World, clock, project};

const AGES_AGO: Moment = Moment { seconds: 0, nanos: 0 };

const EXECUTOR: &str = "    executor:\n      kind: swarm\n      command: [make]\n      timeout: 100s\n      sandbox: {profile: untrusted-code-write}\n";

/// Stages written `name needs,needs`.
fn document(stages: &[&str]) -> String {
    let mut text = "project: acme\nstages:\n".to_owned();
    for (name, needs) in stages.iter().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
        text += &format!("  - name: {name}\n    needs: [{needs}]\n{EXECUTOR}");
    }
    text
}

fn file(name: &str, mode: u16, content: &str) -> Vec<u8> {
    let (name, size) = (name.as_bytes().to_vec(), u64::try_from(content.len()).unwrap());
    [&Entry::File { name, mode, modified: AGES_AGO, size }.encode().unwrap(), content.as_bytes()].concat()
}

fn end() -> Vec<u8> {
    Entry::Leave { mode: 0o755 }.encode().unwrap()
}

/// A source of plain files, by name and content.
async fn source(world: &World, files: &[(&str, &str)]) -> BundleId {
    let (mut tree, mut listing) = (Vec::new(), Listing::default());
    for (name, content) in files {
        tree.extend(file(name, 0o644, content));
        listing.add(name.as_bytes().to_vec(), named(false, content));
    }
    tree.extend(end());
    let key = DataKey::generate().unwrap();
    let mut writer = Encrypting::new(Vec::new(), &key).unwrap();
    writer.write_all(&tree).unwrap();
    let ciphertext = writer.finish().unwrap();
    std::fs::write(world.plane.files.join("source-1"), &ciphertext).unwrap();
    let (acme, secret) = (project("acme"), key.to_secret());
    let new = NewBundle {
        project: &acme,
        place: "source-1",
        digest: Digest::of(&ciphertext),
        input: listing.finish().unwrap(),
        size: u64::try_from(ciphertext.len()).unwrap(),
        key: secret.expose(),
    };
    world.plane.store.store_bundle(new, &Actor::System, clock()).await.unwrap()
}

fn named(executable: bool, content: &str) -> Named {
    let (size, sha256) = (u64::try_from(content.len()).unwrap(), Digest::of(content.as_bytes()));
    Named::File { executable, size, sha256 }
}

/// One path of a result: mode and content, or nothing for one that is gone.
type Change<'a> = (&'a str, Option<(&'a str, &'a str)>);

/// Carries a stage out with this result, and says what its offer was.
async fn made(worker: &mut Worker, changes: &[Change<'_>]) -> Offer {
    let offer = worker.begun().await;
    let line = |(path, leaf): &Change<'_>| match leaf {
        None => format!("{{\"path\":\"{path}\",\"deleted\":true}}"),
        Some((mode, content)) => format!(
            "{{\"path\":\"{path}\",\"mode\":\"{mode}\",\"size\":{},\"sha256\":\"{}\"}}",
            content.len(),
            Digest::of(content.as_bytes())
        ),
    };
    let lines: Vec<String> = changes.iter().map(line).collect();
    let manifest = format!("{{\"format\":\"pond-manifest-1\",\"entries\":[\n{}\n]}}\n", lines.join(",\n"));
    let mut objects: Vec<(String, &str)> = Vec::new();
    for (_, leaf) in changes {
        objects.extend(leaf.map(|(_, content)| (Digest::of(content.as_bytes()).to_string(), content)));
    }
    objects.sort();
    objects.dedup();
    let mut packed = file("changes.json", 0o644, "[]");
    packed.extend(file("changes.patch", 0o644, "patch"));
    packed.extend(file("manifest.json", 0o644, &manifest));
    packed.extend(Entry::Enter { name: b"objects".to_vec() }.encode().unwrap());
    objects.iter().for_each(|(name, content)| packed.extend(file(name, 0o600, content)));
    packed.extend([end(), end()].concat());
    let log = worker.stream(&offer, orch::Stream::Result, &packed).await;
    let result = said(&offer, b"patch", vec![log]);
    assert_eq!(digest(b"patch").bytes, 5);
    let envelope = worker.sign(Digest::of(manifest.as_bytes()), result);
    worker.complete(&offer, envelope).await.unwrap();
    offer
}

/// Names, whether they are executable, and contents of what a begun job was given.
async fn given(worker: &mut Worker, offer: &Offer) -> Vec<(String, bool, String)> {
    let Source::Bundle { token } = &offer.source else { panic!("no source") };
    let (key, ciphertext) = worker.redeem(offer, token).await.unwrap();
    let key = DataKey::from_secret(&Secret::new(key)).unwrap();
    let mut tree = Vec::new();
    Decrypting::new(ciphertext.as_slice(), &key, 1 << 20).unwrap().read_to_end(&mut tree).unwrap();
    let mut decoder = Decoder::new(TreeCaps::SOURCE);
    decoder.push(&tree);
    let (mut files, mut listing) = (Vec::<(String, bool, String)>::new(), Listing::default());
    while let Some(event) = decoder.next_event().unwrap() {
        match event {
            Event::Entry(Entry::File { name, mode, .. }) => {
                files.push((String::from_utf8(name).unwrap(), mode & 0o100 != 0, String::new()));
            }
            Event::Content(content) => {
                files.last_mut().unwrap().2.push_str(&String::from_utf8(content).unwrap());
            }
            Event::Entry(_) | Event::End => {}
        }
    }
    for (name, executable, content) in &files {
        listing.add(name.as_bytes().to_vec(), named(*executable, content));
    }
    assert_eq!(listing.finish().unwrap(), offer.input, "the offer names what is in the bundle");
    files
}

async fn stages(world: &World, run: &RunId) -> Vec<String> {
    let view = world.plane.store.run(run).await.unwrap().unwrap();
    view.stages.iter().map(|stage| format!("{} {} {}", stage.name, stage.state, stage.reason)).collect()
}

pub(crate) async fn a_stage_works_on_what_those_before_it_made(world: &mut World) {
    let source = source(world, &[("gone", "away"), ("kept", "as it was"), ("run", "echo")]).await;
    let run = world.submit_with(&document(&["a", "b a", "c b"]), Some(&source)).await;
    let mut worker = world.worker().await;
    let plain = "100644";
    made(&mut worker, &[("gone", None), ("made", Some((plain, "by a"))), ("run", Some(("100755", "echo")))])
        .await;
    let offer = worker.begun().await;
    let of = |name: &str, executable, content: &str| (name.to_owned(), executable, content.to_owned());
    let expected = [of("kept", false, "as it was"), of("made", false, "by a"), of("run", true, "echo")];
    assert_eq!(given(&mut worker, &offer).await, expected);
    // Handed in, it is the same for who comes next: the tree was made once.
    worker.decline(&offer, orch::Declined::GivenBack {}).await.unwrap();
    world.restart(Default::default()).await;
    worker.at = world.at;
    let again = made(&mut worker, &[("made", Some((plain, "by b")))]).await;
    assert_eq!(again.input, offer.input);
    let last = worker.begun().await;
    let expected = [of("kept", false, "as it was"), of("made", false, "by b"), of("run", true, "echo")];
    assert_eq!(given(&mut worker, &last).await, expected);
    assert_eq!(stages(world, &run).await, ["a succeeded ", "b succeeded ", "c running "]);
}

pub(crate) async fn stages_that_changed_nothing_hand_on_what_they_were_given(world: &mut World) {
    let source = source(world, &[("kept", "as it was")]).await;
    world.submit_with(&document(&["a", "b a"]), Some(&source)).await;
    let mut worker = world.worker().await;
    let first = made(&mut worker, &[]).await;
    assert_eq!(worker.begun().await.input, first.input);
}

pub(crate) async fn what_cannot_be_put_together_ends_the_stage(world: &mut World) {
    let mut worker = world.worker().await;
    let plain = "100644";
    for (first, second, code, path) in [
        (
            ("x", Some((plain, "one"))),
            ("x", Some((plain, "two"))),
            "needs_conflict",
            "a and b each changed x",
        ),
        (
            ("d", Some(("120000", "/etc"))),
            ("d/passwd", Some((plain, "root"))),
            "needs_conflict",
            "d is a file",
        ),
        (
            ("x", Some((plain, "1"))),
            (".git/hooks/x", Some(("100755", "1"))),
            "needs_unusable",
            "what b changed",
        ),
        (("x", Some((plain, "1"))), ("../x", Some((plain, "1"))), "needs_unusable", "what b changed"),
    ] {
        let run = world.submit(&document(&["a", "b", "c a,b"])).await;
        made(&mut worker, &[first]).await;
        made(&mut worker, &[second]).await;
        assert_eq!(worker.poll().await.unwrap(), None);
        let told = stages(world, &run).await.remove(2);
        assert!(told.starts_with("c refused ") && told.contains(path) && told.contains(code), "{told}");
    }
    // Two that agree are no conflict.
    world.submit(&document(&["a", "b", "c a,b"])).await;
    for _ in 0..2 {
        made(&mut worker, &[("x", Some((plain, "same")))]).await;
    }
    let offer = worker.begun().await;
    assert_eq!(given(&mut worker, &offer).await, [("x".to_owned(), false, "same".to_owned())]);
}
