//! The client of a control plane's API: which server, with which token, and how its answers and its refusals are told.
//!
//! Every command that asks a server goes through [`ask`], so that each of them finds the server, refuses and exits in the same way.

pub(crate) mod address;
pub(crate) mod body;
pub(crate) mod events;
pub(crate) mod fault;
pub(crate) mod server;
pub(crate) mod target;
mod tls;
pub(crate) mod tokens;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use crate::output::{self, REFUSED};
use crate::settings;
use address::{Address, Scheme, USUAL};
use fault::ClientFault;
use server::Server;

/// Which control plane.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The control plane; else POND_URL, else http://127.0.0.1:7575.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Believe a server whose certificate these authorities signed, and no other.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Show the token to another machine in the clear.
    #[arg(long)]
    plain_http: bool,
}

impl ServerArgs {
    /// Whether the person named a server, here or in the environment.
    pub(crate) fn is_named(&self) -> bool {
        self.server.is_some() || settings::server().url.is_some()
    }

    /// Whether it was named here.
    pub(crate) fn is_given(&self) -> bool {
        self.server.is_some()
    }

    /// Whose certificates are believed.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        self.ca_file.clone()
    }

    pub(crate) fn address(&self) -> Result<Address, ClientFault> {
        let text = self.server.clone().or(settings::server().url).unwrap_or_else(|| USUAL.to_owned());
        let address = Address::parse(&text).ok_or(ClientFault::Address { text })?;
        match address.scheme {
            Scheme::Http if !self.plain_http && !address.is_this_machine() => {
                Err(ClientFault::PlainHttp(address))
            }
            Scheme::Http | Scheme::Https => Ok(address),
        }
    }

    fn open(&self) -> Result<Server, ClientFault> {
        let address = self.address()?;
        let token = match settings::server().token {
            Some(text) => Some(tokens::parse(&text)?),
            None => match settings::state_dir() {
                Ok(state) => tokens::kept(&state, &address)?,
                Err(_nowhere_to_keep_one) => None,
            },
        };
        let token = token.ok_or_else(|| ClientFault::NoToken(address.clone()))?;
        Server::new(address, token, self.ca_file.as_deref())
    }
}

/// Does `work` with the server these arguments name, and says what kept it from an end.
pub(crate) fn ask(
    place: &ServerArgs,
    json: bool,
    work: impl AsyncFnOnce(&Arc<Server>) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let asked = || -> anyhow::Result<ExitCode> {
        let server = Arc::new(place.open()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(ClientFault::Prepare)?.block_on(work(&server))
    };
    asked().unwrap_or_else(|fault| refused(&fault, json))
}

/// Every fault a server found, or the one that kept us from asking.
pub(crate) fn refused(fault: &anyhow::Error, json: bool) -> ExitCode {
    match fault.downcast_ref::<ClientFault>() {
        Some(ClientFault::Problem(problem)) if json => {
            output::json(&serde_json::json!({ "error": problem.shown() }));
        }
        Some(ClientFault::Problem(problem)) if !problem.faults.is_empty() => {
            for fault in &problem.faults {
                output::say(&fault.lines());
            }
            let count = problem.faults.len();
            let faults = if count == 1 { "fault" } else { "faults" };
            output::say(&format!("refused: {count} {faults}, nothing was run"));
        }
        Some(known) => {
            let code = known.code().to_owned();
            return output::failed_with(&code, fault, json);
        }
        None => return output::failed(fault, json),
    }
    ExitCode::from(REFUSED)
}
