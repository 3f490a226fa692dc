//! Tokens kept on this machine: one private file that maps the address of a server to the token for it.
//!
//! A token goes to the server it was kept for and to no other, however POND_URL is set.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pond_seal::bearer::{Bearer, Kind};
use zeroize::Zeroizing;

use super::address::Address;
use super::fault::{ClientFault, TokensFault};
use crate::proof::regular;

const FILE: &str = "tokens.json";
const MOST_BYTES: u64 = 256 << 10;
const OPEN_TO_OTHERS: u32 = 0o077;

type Tokens = BTreeMap<String, Zeroizing<String>>;

/// A token as its owner holds it, if it is one.
pub(crate) fn parse(text: &str) -> Result<Zeroizing<String>, ClientFault> {
    match Bearer::parse(text.trim()) {
        Ok(bearer) if bearer.kind() == Kind::Api => Ok(bearer.to_text()),
        Ok(_) | Err(_) => Err(ClientFault::Token),
    }
}

/// The token kept for this server, if there is one.
pub(super) fn kept(state: &Path, address: &Address) -> Result<Option<Zeroizing<String>>, ClientFault> {
    let path = state.join(FILE);
    let tokens = read(&path).map_err(|source| ClientFault::Tokens { path, source })?;
    tokens.get(&address.to_string()).map(|text| parse(text)).transpose()
}

/// Keeps a token for this server, in place of the one there was, and says where.
pub(crate) fn keep(state: &Path, address: &Address, token: &str) -> Result<PathBuf, ClientFault> {
    let token = parse(token)?;
    let path = state.join(FILE);
    let written = read(&path).and_then(|mut tokens| {
        tokens.insert(address.to_string(), token);
        Ok(write(state, &path, &tokens)?)
    });
    match written {
        Ok(()) => Ok(path),
        Err(source) => Err(ClientFault::Tokens { path, source }),
    }
}

fn read(path: &Path) -> Result<Tokens, TokensFault> {
    let file = match regular(path) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Tokens::new()),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & OPEN_TO_OTHERS != 0 {
        return Err(TokensFault::Open);
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    let plain: BTreeMap<String, String> = serde_json::from_str(&text).map_err(|_| TokensFault::Form)?;
    Ok(plain.into_iter().map(|(address, token)| (address, Zeroizing::new(token))).collect())
}

/// Whole or not at all.
fn write(state: &Path, path: &Path, tokens: &Tokens) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let plain: BTreeMap<&str, &str> =
        tokens.iter().map(|(key, token)| (key.as_str(), token.as_str())).collect();
    let text = Zeroizing::new(serde_json::to_vec_pretty(&plain)?);
    let part = path.with_extension(format!("json.{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn token() -> String {
        Bearer::generate(Kind::Api).unwrap().to_text().to_string()
    }

    #[test]
    fn a_token_is_for_one_server_and_for_one_person() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let [here, there] =
            ["http://127.0.0.1:7575", "https://pond.acme.com"].map(|text| Address::parse(text).unwrap());
        let (first, second) = (token(), token());
        assert_eq!(kept(&state, &here).unwrap(), None);
        let path = keep(&state, &here, &first).unwrap();
        assert_eq!(kept(&state, &here).unwrap().as_deref(), Some(&first));
        assert_eq!(kept(&state, &there).unwrap(), None);
        keep(&state, &there, &format!("{second}\n")).unwrap();
        keep(&state, &here, &second).unwrap();
        assert_eq!(kept(&state, &here).unwrap().as_deref(), Some(&second));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(kept(&state, &here).unwrap_err().code(), "token_file");
    }

    #[test]
    fn only_tokens_of_the_api_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let here = Address::parse("http://127.0.0.1:7575").unwrap();
        let relay = Bearer::generate(Kind::Relay).unwrap().to_text();
        for text in ["", "secret", "pond_api_", relay.as_str()] {
            assert_eq!(
                keep(directory.path(), &here, text).unwrap_err().code(),
                "token_malformed",
                "{text:?}"
            );
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
