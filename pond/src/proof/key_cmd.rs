//! `pond key`: the public half of this machine's signing key, to hand to whoever will verify its runs.

use std::process::ExitCode;

use clap::Subcommand;
use pond_seal::key::PublicKey;
use serde::Serialize;

use super::store;
use crate::{output, runs};

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print the public key this machine signs its runs with; the key is made if there is none yet.
    Show {
        /// Print the key alone, as a PEM file: what `--key` of `pond verify` takes, and other tools.
        #[arg(long, conflicts_with = "json")]
        pem: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Serialize)]
struct Shown {
    key_id: String,
    public_key_hex: String,
    public_key_pem: String,
}

pub(crate) fn main(command: &Key) -> ExitCode {
    let Key::Show { pem, json } = command;
    match public_key() {
        Ok(key) if *pem => output::lines(key.to_pem().trim_end()),
        Ok(key) => show(&key, *json),
        Err(fault) => output::failed(&fault, *json),
    }
}

fn public_key() -> anyhow::Result<PublicKey> {
    Ok(store::signing_key(&runs::state()?)?.public())
}

fn show(key: &PublicKey, json: bool) -> ExitCode {
    let shown =
        Shown { key_id: key.id().to_string(), public_key_hex: key.to_hex(), public_key_pem: key.to_pem() };
    if json {
        return output::json(&shown);
    }
    let Shown { key_id, public_key_hex, public_key_pem } = shown;
    output::lines(&format!("key id  {key_id}\nhex     {public_key_hex}\n{}", public_key_pem.trim_end()))
}
