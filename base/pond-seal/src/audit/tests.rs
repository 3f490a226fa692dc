//! Against the vectors of RFC 6962's first implementation, a tree and proof that PyPI's pymerkle 7.0.0 made, the definition of the
//! RFC written out, and everything a liar could change.

use std::collections::HashMap;

use super::checkpoint::{Checkpoint, CheckpointFault, origin, verifier_key};
use super::entry::{Entry, Read};
use super::evidence::{Evidence, EvidenceFault};
use super::proof::{ProofFault, check_consistency, check_inclusion, consistency, inclusion};
use super::tile::{self, Tile};
use super::tree::{Growing, NotAnEdge, empty, leaf, node};
use crate::Digest;
use crate::digest::from_hex;
use crate::key::SigningKey;

const LEAVES: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
];
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];
/// Of the entries `entry 0`, `entry 1`, …, by pymerkle.
const FOREIGN: [(u64, &str); 6] = [
    (7, "98c97f0ba3175cd08b031dd084b9dc4e649b64d1a28e6ea694646503173ab587"),
    (255, "cf66793e6329dff242eb3cee0a6f36ad3e3a196dcc573a1ec775e102be863f1c"),
    (256, "da6596d95369f5fef322ab8e4e0da3b0b50236aa9c8a3b1d246f7411c9e2e32e"),
    (257, "5c1fdfe835358022f2392de478dbe053fc130cfe1d3a082879a90cf6bf14bf7e"),
    (777, "182ddefd12b8626f2a652b1486a7d45f6d58c3f94739bb8be9d72f194d19c78a"),
    (1000, "346c6b9cb89c4b76fac9dcb20cda86e3a01c0a57417c139028eacd4538fde95b"),
];
/// That `entry 299` is in the thousand, by pymerkle.
const FOREIGN_PATH: [&str; 10] = [
    "6f2cb0a834e37ffc0e62b2afbea2103a89af8e05b2a6166663dc0fdeede6be67",
    "588b7cd2b021cdf2d600c64ab58a8452ab7dcc3b2247c680c26669f794d45b37",
    "305bb6270b248dbe12d2d1715f80fea53609c1b9b342df803ccd569f15e9a52b",
    "0d2044513639844d3f7a5725444b816a9965faaea2e214660e88710c8e9ac5be",
    "809cbf7cb509dcf8b03fa6dd2d168daf153980834eff18a1b76e8fa3b5d41b08",
    "47a3cfbecc97474c55539e0825021f8908ae110b612f3f1f6f9088023223ddd4",
    "df9812eab648e76245ce8945d7ec662c4f848d7df0b60897da98e226db7dfcc3",
    "5f497073519e9407492f5d4bc6c8113c1b8062424e4c368fa9a85253ba0718c0",
    "da6596d95369f5fef322ab8e4e0da3b0b50236aa9c8a3b1d246f7411c9e2e32e",
    "31b0e9caf5c15d4eae3ed55b36abfe1c5d3210873262ece8c21a27ff7a172844",
];

fn digest(hex: &str) -> Digest {
    Digest::from_bytes(from_hex(hex).unwrap())
}

fn entries(count: u64) -> Vec<Digest> {
    (0..count).map(|number| leaf(format!("entry {number}").as_bytes())).collect()
}

/// The root, as the RFC defines it.
fn defined(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => empty(),
        [one] => *one,
        more => {
            let split = more.len().next_power_of_two() / 2;
            node(&defined(&more[..split]), &defined(&more[split..]))
        }
    }
}

/// A log with its tiles, as a store would have them.
struct Log {
    growing: Growing,
    tiles: HashMap<Tile, Vec<Digest>>,
}

impl Log {
    fn of(leaves: &[Digest]) -> Self {
        let (mut growing, mut tiles) = (Growing::default(), HashMap::new());
        for leaf in leaves {
            growing.push(*leaf, |tile, hashes| drop(tiles.insert(tile, hashes.to_vec())));
        }
        tiles.extend(growing.edge().map(|(tile, hashes)| (tile, hashes.to_vec())));
        Self { growing, tiles }
    }

    fn hashes(&self, ranges: Vec<std::ops::Range<u64>>) -> Vec<Digest> {
        ranges.iter().map(|range| tile::hash(range, &self.tiles).unwrap()).collect()
    }
}

#[test]
fn roots_are_those_of_other_implementations() {
    let mut growing = Growing::default();
    assert_eq!(growing.root(), empty());
    for (entry, root) in LEAVES.iter().zip(ROOTS) {
        growing.push(leaf(entry), |_, _| {});
        assert_eq!(growing.root(), digest(root), "{}", growing.size());
    }
    for (size, root) in FOREIGN {
        assert_eq!(Log::of(&entries(size)).growing.root(), digest(root), "{size}");
    }
    let path: Vec<Digest> = FOREIGN_PATH.iter().map(|hex| digest(hex)).collect();
    let log = Log::of(&entries(1000));
    assert_eq!(log.hashes(inclusion(299, 1000).unwrap()), path);
}

#[test]
fn every_leaf_and_every_prefix_is_proved_and_no_other() {
    let leaves = entries(300);
    let sizes: Vec<u64> = (0..20).chain([31, 32, 33, 255, 256, 257, 300]).collect();
    let roots: Vec<Digest> =
        sizes.iter().map(|size| defined(&leaves[..usize::try_from(*size).unwrap()])).collect();
    for (new, root) in sizes.iter().copied().zip(&roots) {
        let log = Log::of(&leaves[..usize::try_from(new).unwrap()]);
        assert_eq!(log.growing.root(), *root);
        for index in (0..new).step_by(7) {
            let path = log.hashes(inclusion(index, new).unwrap());
            let own = leaves[usize::try_from(index).unwrap()];
            check_inclusion(&own, index, (new, root), &path).unwrap();
            let other = leaf(b"another");
            let fault = check_inclusion(&other, index, (new, root), &path);
            assert_eq!(fault, Err(ProofFault::NotIncluded));
        }
        for (old, old_root) in sizes.iter().copied().zip(&roots).filter(|(old, _)| *old <= new) {
            let path = log.hashes(consistency(old, new).unwrap());
            check_consistency((old, old_root), (new, root), &path).unwrap();
            let lie = check_consistency((old, &leaf(b"a lie")), (new, root), &path);
            assert_eq!(lie, Err(ProofFault::NotConsistent), "{old} {new}");
            if old > 0 {
                let lie = check_consistency((old, old_root), (new, &leaf(b"a lie")), &path);
                assert_eq!(lie, Err(ProofFault::NotConsistent), "{old} {new}");
            }
        }
    }
}

#[test]
fn a_proof_that_was_touched_does_not_hold() {
    let (leaves, old, new) = (entries(300), 131_u64, 300_u64);
    let log = Log::of(&leaves);
    let (root, old_root) = (defined(&leaves), defined(&leaves[..131]));
    let (index, own) = (200_u64, leaves[200]);
    let path = log.hashes(inclusion(index, new).unwrap());
    let from = log.hashes(consistency(old, new).unwrap());
    for at in 0..path.len() {
        let mut bad = path.clone();
        bad[at] = leaf(b"else");
        assert_eq!(check_inclusion(&own, index, (new, &root), &bad), Err(ProofFault::NotIncluded));
    }
    for at in 0..from.len() {
        let mut bad = from.clone();
        bad[at] = leaf(b"else");
        assert_eq!(check_consistency((old, &old_root), (new, &root), &bad), Err(ProofFault::NotConsistent));
    }
    for bad in [&path[1..], &[path.clone(), vec![own]].concat()] {
        let found = check_inclusion(&own, index, (new, &root), bad);
        assert!(matches!(found, Err(ProofFault::Length { .. })), "{found:?}");
    }
    let short = check_consistency((old, &old_root), (new, &root), &from[1..]);
    assert!(matches!(short, Err(ProofFault::Length { .. })), "{short:?}");
    assert_eq!(check_inclusion(&own, index + 1, (new, &root), &path), Err(ProofFault::NotIncluded));
    let beyond = check_inclusion(&own, new, (new, &root), &path);
    assert_eq!(beyond, Err(ProofFault::Index { index: new, size: new }));
    let backwards = check_consistency((new, &root), (old, &old_root), &from);
    assert_eq!(backwards, Err(ProofFault::Order { old: new, new: old }));
    // A node is no leaf: without the prefixes these two would be the same.
    let pair = [leaves[0].as_bytes().as_slice(), leaves[1].as_bytes()].concat();
    assert_ne!(leaf(&pair), node(&leaves[0], &leaves[1]));
}

#[test]
fn a_tree_goes_on_from_its_edge() {
    for size in [1_u64, 255, 256, 257, 512, 700] {
        let leaves = entries(size + 300);
        let (first, rest) = leaves.split_at(usize::try_from(size).unwrap());
        let log = Log::of(first);
        let stored = |(tile, _): (Tile, usize)| log.tiles.get(&tile).cloned().unwrap_or_default();
        let edge: Vec<Vec<Digest>> = tile::edge(size).into_iter().map(stored).collect();
        let mut again = Growing::from_edge(size, edge.clone()).unwrap();
        assert_eq!(again.root(), log.growing.root());
        rest.iter().for_each(|leaf| again.push(*leaf, |_, _| {}));
        assert_eq!(again.root(), defined(&leaves), "{size}");
        assert_eq!(Growing::from_edge(size + 1, edge), Err(NotAnEdge(size + 1)));
    }
    assert_eq!(tile::decode(&[0; 33]), None);
    assert_eq!(tile::decode(&[]), None);
    assert_eq!(tile::decode(&[0; 257 * 32]), None);
    assert_eq!(tile::decode(&tile::encode(&entries(3))), Some(entries(3)));
}

#[test]
fn a_checkpoint_is_of_its_key_and_its_log() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let checkpoint = Checkpoint { size: 300, root: leaf(b"root") };
    let note = checkpoint.sign(&key);
    assert_eq!(Checkpoint::verify(&note, &key.public()), Ok(checkpoint));
    assert_eq!(Checkpoint::verify(&note, &other.public()), Err(CheckpointFault::Origin));
    let grown = note.replacen("\n300\n", "\n301\n", 1);
    assert_eq!(Checkpoint::verify(&grown, &key.public()), Err(CheckpointFault::SignatureInvalid));
    let renamed = note.replace(&origin(&key.public()), &origin(&other.public()));
    assert_eq!(Checkpoint::verify(&renamed, &other.public()), Err(CheckpointFault::KeyUnknown));
    let witnessed = format!("{note}\u{2014} witness.example AAAAAAAA\n");
    assert_eq!(Checkpoint::verify(&witnessed, &key.public()), Ok(checkpoint));
    let unsigned: String = note.split_inclusive("\n\n").take(1).collect();
    let longer = note.replacen("\n\n", "\nmore\n\n", 1);
    for bad in ["", "\n\n", &unsigned, &longer, note.trim_end(), &format!("{note}\n"), &note.repeat(200)] {
        assert_eq!(Checkpoint::verify(bad, &key.public()), Err(CheckpointFault::Malformed), "{bad:?}");
    }
    assert!(verifier_key(&key.public()).starts_with(&format!("{}+", origin(&key.public()))));
}

/// Made with Python's hashlib and cryptography from the seed of RFC 8032's first vector.
#[test]
fn a_checkpoint_is_the_bytes_other_tools_make() {
    let seed = from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").unwrap();
    let key = SigningKey::from_seed(&seed);
    let checkpoint = Checkpoint { size: 3, root: digest(ROOTS[2]) };
    assert_eq!(checkpoint.sign(&key), include_str!("checkpoint.txt"));
}

#[test]
fn an_entry_is_one_line_and_every_field_counts() {
    let entry = Entry {
        place: "7-12",
        at: 1_800_000_000_000,
        actor: "system",
        action: "result.accepted",
        project: Some("acme"),
        subject: "say \"hi\"\n",
        detail: r#"{"job":"job_1","envelope":"e"}"#,
    };
    let line = r#"{"place":"7-12","at":1800000000000,"actor":"system","action":"result.accepted","project":"acme","subject":"say \"hi\"\n","detail":{"job":"job_1","envelope":"e"}}"#;
    assert_eq!(entry.line(), line);
    let others = [
        Entry { place: "7-13", ..entry },
        Entry { at: 1, ..entry },
        Entry { actor: "nobody", ..entry },
        Entry { action: "result.rejected", ..entry },
        Entry { project: None, ..entry },
        Entry { project: Some("null"), ..entry },
        Entry { subject: "", ..entry },
        Entry { detail: "{}", ..entry },
        Entry { detail: r#"{"job":"job_1","envelope":"e"} "#, ..entry },
    ];
    assert!(others.iter().all(|other| other.leaf() != entry.leaf()));
    assert_eq!(Read::parse(line.as_bytes()).unwrap().subject, "say \"hi\"\n");
    assert_eq!(Read::parse(b"{}"), None);
}

#[test]
fn evidence_survives_its_file_and_no_change() {
    let key = SigningKey::generate().unwrap();
    let envelope = Digest::of(b"envelope");
    let detail = format!(r#"{{"envelope":"{envelope}","job":"job_1"}}"#);
    let accepted = Entry {
        place: "0-5",
        at: 1,
        actor: "w",
        action: "result.accepted",
        project: None,
        subject: "s",
        detail: &detail,
    };
    let mut leaves = entries(5);
    leaves[3] = accepted.leaf();
    let log = Log::of(&leaves);
    let checkpoint = Checkpoint { size: 5, root: log.growing.root() };
    let evidence = Evidence {
        entry: accepted.line().into_bytes(),
        index: 3,
        path: log.hashes(inclusion(3, 5).unwrap()),
        checkpoint: checkpoint.sign(&key),
    };
    let text = evidence.to_text();
    assert_eq!(Evidence::parse(&text), Ok(evidence.clone()));
    assert_eq!(evidence.verify(&key.public()), Ok(checkpoint));
    let read = Read::parse(&evidence.entry).unwrap();
    assert!(read.accepts("job_1", &envelope));
    assert!(!read.accepts("job_2", &envelope) && !read.accepts("job_1", &Digest::of(b"another")));
    let rejected = Read { action: "result.rejected".to_owned(), ..read };
    assert!(!rejected.accepts("job_1", &envelope));
    let other = Evidence { entry: b"{}".to_vec(), ..evidence.clone() };
    assert_eq!(other.verify(&key.public()), Err(EvidenceFault::Proof(ProofFault::NotIncluded)));
    let moved = Evidence { index: 2, ..evidence };
    assert_eq!(moved.verify(&key.public()), Err(EvidenceFault::Proof(ProofFault::NotIncluded)));
    for bad in
        ["", &text.replace("@v1", "@v2"), &text.replace("index 3", "index 03"), &text.replace("extra ", "")]
    {
        assert_eq!(Evidence::parse(bad), Err(EvidenceFault::Malformed), "{bad}");
    }
}
