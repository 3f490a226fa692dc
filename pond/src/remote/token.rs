//! `pond token`: tokens of the API, made and revoked at the control plane, and kept on this machine for its commands.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use pond_wire::api::{NewToken, Scope, TokenKind, TokenReply, TokenView, Tokens};

use super::{age, moment, typed};
use crate::client::body::Content;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs, tokens};
use crate::{output, settings};

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token. It is shown once, and allows no more than the one it is made with.
    Create(CreateArgs),
    /// The tokens there are, without their secrets.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make a token worthless, at once.
    Revoke {
        /// Its id, as `pond token ls` has it.
        id: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Keep a token on this machine for one control plane. It is read from standard input, or typed without echo.
    Save {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What it allows; none implies another.
    #[arg(long = "scope", value_enum, value_name = "SCOPE", required_unless_present = "relay")]
    scopes: Vec<ScopeArg>,
    /// For an orchestrator, which has no scope.
    #[arg(long, conflicts_with_all = ["scopes", "project"])]
    relay: bool,
    /// Only for this project.
    #[arg(long, value_name = "P")]
    project: Option<String>,
    /// How long it is good for, in hours; without it, until it is revoked.
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..=87_600))]
    ttl: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    #[value(name = "runs:read")]
    RunsRead,
    #[value(name = "runs:write")]
    RunsWrite,
    #[value(name = "sandboxes:read")]
    SandboxesRead,
    #[value(name = "sandboxes:write")]
    SandboxesWrite,
    #[value(name = "secrets:write")]
    SecretsWrite,
    #[value(name = "egress:write")]
    EgressWrite,
    #[value(name = "workers:admin")]
    WorkersAdmin,
    #[value(name = "tokens:admin")]
    TokensAdmin,
    #[value(name = "audit:read")]
    AuditRead,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::RunsRead => Self::RunsRead,
            ScopeArg::RunsWrite => Self::RunsWrite,
            ScopeArg::SandboxesRead => Self::SandboxesRead,
            ScopeArg::SandboxesWrite => Self::SandboxesWrite,
            ScopeArg::SecretsWrite => Self::SecretsWrite,
            ScopeArg::EgressWrite => Self::EgressWrite,
            ScopeArg::WorkersAdmin => Self::WorkersAdmin,
            ScopeArg::TokensAdmin => Self::TokensAdmin,
            ScopeArg::AuditRead => Self::AuditRead,
        }
    }
}

pub(crate) fn main(command: &Token) -> ExitCode {
    match command {
        Token::Create(args) => {
            client::ask(&args.server, args.json, async |server| create(server, args).await)
        }
        Token::Ls { json, server } => client::ask(server, *json, async |server| ls(server, *json).await),
        Token::Revoke { id, json, server } => client::ask(server, *json, async |server| {
            server.done(Call::new(Method::DELETE, Target::new(&["tokens", id]), Content::Nothing)).await?;
            if *json {
                return Ok(output::json(&serde_json::json!({ "id": id, "done": "revoked" })));
            }
            Ok(output::lines(&output::plain(&format!("token {id} is revoked"))))
        }),
        Token::Save { json, server } => match save(server) {
            Ok(kept) if *json => output::json(&kept),
            Ok(kept) => output::lines(&format!("the token for {} is kept in {}", kept.server, kept.file)),
            Err(fault) => client::refused(&fault, *json),
        },
    }
}

async fn create(server: &Server, args: &CreateArgs) -> anyhow::Result<ExitCode> {
    let new = NewToken {
        kind: if args.relay { TokenKind::Relay } else { TokenKind::Api },
        scopes: args.scopes.iter().copied().map(Scope::from).collect(),
        project: super::id(args.project.as_deref(), "--project")?,
        ttl_seconds: args.ttl.map(|hours| hours.saturating_mul(3600)),
    };
    let call = Call::new(Method::POST, Target::new(&["tokens"]), Content::json(&new)?);
    let reply: TokenReply = server.json(call).await?;
    if args.json {
        return Ok(output::json(&reply));
    }
    let until = reply
        .expires_at
        .map_or_else(|| "until it is revoked".to_owned(), |at| format!("until {} UTC", moment(at)));
    output::say(&format!("pond: token {} is good {until}; it is not shown again", output::plain(&reply.id)));
    Ok(output::lines(&output::plain(reply.token.expose())))
}

async fn ls(server: &Server, json: bool) -> anyhow::Result<ExitCode> {
    let Tokens { tokens } = server.json(Call::get(Target::new(&["tokens"]))).await?;
    if json {
        return Ok(output::json(&tokens));
    }
    let header = ["TOKEN", "AGE", "FOR", "PROJECT", "STATE"];
    Ok(output::lines(&output::table(header, tokens.iter().map(row))))
}

fn row(token: &TokenView) -> [String; 5] {
    let scopes = |scopes: &[Scope]| scopes.iter().map(name).collect::<Vec<_>>().join(" ");
    let what = match token.kind {
        TokenKind::Api => scopes(&token.scopes),
        TokenKind::Relay => "an orchestrator".to_owned(),
    };
    let project = token.project.clone().unwrap_or_else(|| "(every project)".to_owned());
    let state = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {} ago", age(at)),
        (None, Some(at)) => format!("until {}", moment(at)),
        (None, None) => "good".to_owned(),
    };
    [token.id.clone(), age(token.created_at), what, project, state]
}

/// As the API spells it.
fn name(scope: &Scope) -> String {
    let spelled = serde_json::to_value(scope).ok();
    spelled.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[derive(Debug, serde::Serialize)]
struct Kept {
    server: String,
    file: String,
}

fn save(place: &ServerArgs) -> anyhow::Result<Kept> {
    let address = place.address()?;
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let token = typed::secret(&format!("token for {address}"))?;
    let file = tokens::keep(&state, &address, &token)?;
    Ok(Kept { server: address.to_string(), file: file.display().to_string() })
}
