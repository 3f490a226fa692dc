//! For `cargo xtask test --only proof`: writes keys, a sealed box and a bundle for programs that are not ours to judge, and opens
//! what they sealed. A tool of the tests; nothing of it ships.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use pond_seal::bundle::{CHUNK_BYTES, DataKey, Encrypting};
use pond_seal::enroll::Identity;
use pond_seal::key::SigningKey;
use pond_seal::seal::{OpenKey, Release, SealContext, SealKey, Sealed, Subject};
use pond_seal::vault::FernetKey;
use pond_seal::{Digest, Secret};

const SECRET: &[u8] = b"sk-planted-0123456789 \x00\xff";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["make", directory] => make(Path::new(directory)),
        ["open", directory] => open(Path::new(directory)),
        _ => bail!("seal_oracle make|open DIRECTORY"),
    }
}

fn context(key: &SealKey) -> SealContext {
    SealContext {
        subject: Subject::Credential("model".to_owned()),
        tenant: "acme".to_owned(),
        worker: "oracle-worker".to_owned(),
        worker_key: key.id(),
        job: "oracle-job".to_owned(),
        lease_epoch: u64::MAX - 1,
        input: Digest::of(b"input"),
        policy: Digest::of(b"policy"),
        not_after: 1_800_000_000,
    }
}

fn make(directory: &Path) -> anyhow::Result<()> {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(directory.join(name), bytes).with_context(|| format!("writing {name}"))
    };
    let (identity, control) = (Identity::generate()?, SigningKey::generate()?);
    let keys = identity.keys();
    write("signing.pem", identity.signing.to_pem().as_bytes())?;
    write("opening.pem", identity.opening.to_pem().as_bytes())?;
    write("signing.hex", keys.signing.to_hex().as_bytes())?;
    write("opening.hex", keys.seal.to_hex().as_bytes())?;
    let context = context(&keys.seal);
    let release = Release::issue(&Secret::new(SECRET.to_vec()), Some(&keys.seal), &context, &control)?;
    write("ours.json", &serde_json::to_vec(&release.sealed(&control.public())?)?)?;
    write("info", &context.info())?;
    write("secret", SECRET)?;

    let (key, plain) = (DataKey::generate()?, vec![b'x'; 2 * CHUNK_BYTES + 100]);
    let mut bundle = Encrypting::new(Vec::new(), &key)?;
    bundle.write_all(&plain)?;
    write("bundle", &bundle.finish()?)?;
    write("bundle.key", key.to_secret().expose())?;
    write("bundle.plain", &plain)
}

fn open(directory: &Path) -> anyhow::Result<()> {
    let key = OpenKey::from_pem(&fs::read_to_string(directory.join("opening.pem"))?)?;
    let (context, control) = (context(&key.public()), SigningKey::generate()?);
    for library in ["cryptography", "pyhpke"] {
        let theirs: Sealed =
            serde_json::from_slice(&fs::read(directory.join(format!("theirs-{library}.json")))?)?;
        let release = Release::sign(theirs, &context, &control)?;
        let secret = release.open(&control.public(), &key, &context).context(library)?;
        ensure!(secret.expose() == SECRET, "{library} sealed something else");
        let mut other = context.clone();
        other.lease_epoch += 1;
        let moved = Release::sign(release.sealed(&control.public())?, &other, &control)?;
        ensure!(
            moved.open(&control.public(), &key, &other).is_err(),
            "a box of {library} opens for another lease"
        );
    }
    let read = |name: &str| fs::read_to_string(directory.join(name));
    let fernet = FernetKey::parse(&read("theirs-fernet.key")?)?.open(&read("theirs-fernet.token")?)?;
    ensure!(fernet.as_slice() == SECRET, "cryptography's Fernet token holds something else");
    println!("what cryptography and pyhpke sealed opens, Fernet tokens too");
    Ok(())
}
