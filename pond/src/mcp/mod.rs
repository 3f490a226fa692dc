//! `pond mcp`: sandboxes as tools for agents, by the Model Context Protocol, on standard input and output or over HTTP on this machine.
//!
//! It is a client of a control plane's API and nothing more: whoever calls a tool does so with a token of that API, so scopes,
//! projects, rates, limits and the audit log are the API's. Trust zone: between an agent and the API. Requests are hostile; what comes
//! back from a sandbox is hostile text, handed to who asked for it and not acted upon.
//!
//! The protocol is spoken here and not by `rmcp`: that crate cannot be built without `chrono`, which deny.toml bans, and brings random
//! numbers, UUIDs, procedural macros and a second SSE reader for what are four methods of JSON-RPC.

mod catalogue;
mod http;
mod rpc;
mod stdio;
mod tools;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;

use crate::client::{self, ServerArgs};

/// Serve sandboxes to agents by the Model Context Protocol.
#[derive(Debug, Args)]
#[command(
    after_help = "On standard input and output the token is POND_TOKEN or the one kept with `pond token save`. Over HTTP every \
                        request brings its own: Authorization: Bearer pond_api_…"
)]
pub(crate) struct McpArgs {
    /// Serve streamable HTTP here, at /mcp, instead of standard input and output; an address of this machine's own only.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(args: &McpArgs) -> ExitCode {
    match args.http {
        Some(address) => http::main(address, &args.server),
        None => client::ask(&args.server, false, async |server| stdio::serve(server).await),
    }
}
