//! `pond secret import`: values that another system sealed with Fernet are opened here and stored, each with the call of `pond secret set`.
//!
//! Trust zone: a person's terminal. HOSTILE INPUT: the file. The Fernet keys and what they open stay in this process but for that call, and
//! nothing of either is ever shown: a fault bears the name alone. Every token is opened before the control plane hears of any.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pond_policy::name::Name;
use pond_policy::path::Path;
use pond_policy::refusal::{Code, Refusal, Refusals};
use pond_seal::vault::{FernetFault, FernetKey};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use zeroize::Zeroizing;

use super::{secret, typed};
use crate::client::events::Patience;
use crate::client::server::Server;
use crate::client::{self, ServerArgs};
use crate::proof::store;
use crate::{input, output};

const MOST_KEY_BYTES: usize = 64 << 10;

/// Store secrets that another system sealed with Fernet. They are opened on this machine, all of them before any is stored.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// JSON objects, one or many (one a line, say), of names and Fernet tokens; `-` reads standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// A file with the Fernet key, for its owner alone; of several, one a line, each token is opened by the one that can.
    #[arg(long, value_name = "KEYFILE")]
    fernet_key_file: PathBuf,
    /// Only for this project; without it, for every project that has none of the name.
    #[arg(long, value_name = "P")]
    project: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A name that a secret can have, and its value.
struct Opened {
    name: Name,
    value: Zeroizing<String>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) fn main(args: &ImportArgs) -> ExitCode {
    let keys = match key_text(&args.fernet_key_file) {
        Ok(text) => keys(&text),
        Err(fault) => return output::failed(&fault, args.json),
    };
    let opened = keys.and_then(|keys| open(&input::text(&args.file)?, &keys));
    match opened {
        Err(refusals) => output::refused(refusals, args.json),
        Ok(secrets) => {
            client::ask(&args.server, args.json, async |server| store(server, args, &secrets).await)
        }
    }
}

fn key_text(file: &FilePath) -> anyhow::Result<Zeroizing<String>> {
    let text = store::private("the Fernet key", file, MOST_KEY_BYTES)?;
    text.with_context(|| format!("there is no file {}", file.display()))
}

/// The keys of a file, one a line, in the order in which they are tried.
fn keys(text: &str) -> Result<Vec<FernetKey>, Refusals> {
    let mut refusals = Refusals::default();
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        match FernetKey::parse(line) {
            Ok(key) => keys.push(key),
            Err(fault) => {
                let message = format!("line {number} of the key file: {fault}");
                refusals.refuse(Code::FernetKeyInvalid, &Path::root(), message);
            }
        }
    }
    if keys.is_empty() && refusals.is_empty() {
        refusals.refuse(Code::FernetKeyInvalid, &Path::root(), "the key file has no key");
    }
    refusals.finish(Some(keys))
}

/// Every secret of the file, or every fault of it.
fn open(text: &str, keys: &[FernetKey]) -> Result<Vec<Opened>, Refusals> {
    let mut refusals = Refusals::default();
    let (mut seen, mut secrets) = (BTreeSet::new(), Vec::new());
    for (position, (name, token)) in members(text)?.into_iter().enumerate() {
        let path = Path::root().key(position, &name);
        if !seen.insert(name.clone()) {
            refusals.refuse(Code::DuplicateField, &path, "the name is there twice; keep one");
            continue;
        }
        match open_one(&path, &name, &token, keys) {
            Ok(opened) => secrets.push(opened),
            Err(refusal) => refusals.add(refusal),
        }
    }
    if seen.is_empty() {
        refusals.refuse(Code::TooFew, &Path::root(), "there is no secret in it");
    }
    refusals.finish(Some(secrets))
}

fn open_one(path: &Path, name: &str, token: &Value, keys: &[FernetKey]) -> Result<Opened, Refusal> {
    let refused = |code, message: String| Refusal::new(code, path, message);
    let bad_name = || {
        let rule = Name::form(Code::NameInvalid).rule;
        refused(Code::NameInvalid, format!("the name of a secret is {rule}"))
    };
    let name = Name::parse(name).ok_or_else(bad_name)?;
    let no_text = || refused(Code::WrongType, "a Fernet token is text".to_owned());
    let value = open_with(keys, token.as_str().ok_or_else(no_text)?).map_err(|fault| {
        let code = match fault {
            FernetFault::Key => Code::FernetKeyInvalid,
            FernetFault::Malformed => Code::FernetTokenMalformed,
            FernetFault::Sealed => Code::FernetTokenUnopened,
        };
        refused(code, fault.to_string())
    })?;
    let bad_value = || {
        let rule = format!("what the token holds is no secret: text of 1 to {} bytes", typed::MOST_BYTES);
        refused(Code::SecretInvalid, rule)
    };
    let text = std::str::from_utf8(&value).ok().filter(|text| (1..=typed::MOST_BYTES).contains(&text.len()));
    Ok(Opened { name, value: Zeroizing::new(text.ok_or_else(bad_value)?.to_owned()) })
}

/// With the first key that can. A token that no key fits is said to be another's, unless it is none at all.
fn open_with(keys: &[FernetKey], token: &str) -> Result<Zeroizing<Vec<u8>>, FernetFault> {
    let mut said = FernetFault::Sealed;
    for key in keys {
        match key.open(token) {
            Ok(value) => return Ok(value),
            Err(FernetFault::Sealed) => {}
            Err(fault @ (FernetFault::Key | FernetFault::Malformed)) => said = fault,
        }
    }
    Err(said)
}

/// The members of every object of the file. Of a file that is none only the place of the fault is told.
fn members(text: &str) -> Result<Vec<(String, Value)>, Refusal> {
    let objects = serde_json::Deserializer::from_str(text).into_iter::<Members>();
    let mut all = Vec::new();
    for object in objects {
        let Members(members) = object.map_err(|fault| {
            let place = format!("line {}, column {}", fault.line(), fault.column());
            let message = format!("{place}: not a JSON object of names and Fernet tokens");
            Refusal::new(Code::DocumentInvalid, &Path::root(), message)
        })?;
        all.extend(members);
    }
    Ok(all)
}

/// An object as it is written: a name that is there twice is seen twice.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Each)
    }
}

async fn store(server: &Server, args: &ImportArgs, secrets: &[Opened]) -> anyhow::Result<ExitCode> {
    for (stored, secret) in secrets.iter().enumerate() {
        let put = store_one(server, args.project.as_deref(), secret).await;
        if put.is_err() && stored > 0 {
            let all = secrets.len();
            output::say(&format!(
                "pond: {stored} of {all} secrets are stored; the same command again stores all"
            ));
        }
        put?;
    }
    let names: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
    if args.json {
        let answer = serde_json::json!({ "names": names, "project": args.project, "done": "stored" });
        return Ok(output::json(&answer));
    }
    let lines = names.iter().map(|name| secret::sentence(name, args.project.as_deref(), "stored"));
    Ok(output::lines(&lines.collect::<Vec<_>>().join("\n")))
}

/// Stored again, it is what it was: whatever may pass is waited for.
async fn store_one(server: &Server, project: Option<&str>, secret: &Opened) -> anyhow::Result<()> {
    let mut patience = Patience::default();
    loop {
        let call = secret::put(secret.name.as_str(), project, &secret.value)?;
        match server.done(call).await {
            Err(fault) if fault.may_pass() => patience.wait(fault).await?,
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests;
