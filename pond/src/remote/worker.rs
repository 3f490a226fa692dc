//! `pond worker token|ls|revoke|drain|release`: the workers of a control plane, as its operator sees them.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use pond_wire::api::{JoinTokenReply, NewJoinToken, Tier, WorkerState, WorkerView, Workers};

use super::{age, moment};
use crate::client::body::Content;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Make a token with which one machine joins as a worker. It is shown once.
    Token(TokenArgs),
    /// The workers, what each can enforce, and which work it may have.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// End a worker for good: its leases are over at once, its keys are worth nothing.
    Revoke(One),
    /// Give a worker no more work; it ends what it has.
    Drain(One),
    /// Give a drained or quarantined worker work again.
    Release(One),
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The pool the worker joins.
    #[arg(long, value_enum, default_value = "trusted")]
    tier: TierArg,
    /// The one project a `byo` worker serves.
    #[arg(long, value_name = "P", required_if_eq("tier", "byo"))]
    tenant: Option<String>,
    /// How long the token can be used, in minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    ttl: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TierArg {
    Trusted,
    Byo,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The worker's id, as `pond worker ls` has it.
    worker: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(command: &WorkerCommand) -> ExitCode {
    match command {
        WorkerCommand::Token(args) => {
            client::ask(&args.server, args.json, async |server| token(server, args).await)
        }
        WorkerCommand::Ls { json, server } => {
            client::ask(server, *json, async |server| ls(server, *json).await)
        }
        WorkerCommand::Revoke(one) => change(one, "revoke"),
        WorkerCommand::Drain(one) => change(one, "drain"),
        WorkerCommand::Release(one) => change(one, "release"),
    }
}

async fn token(server: &Server, args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let tier = match args.tier {
        TierArg::Trusted => Tier::Trusted,
        TierArg::Byo => Tier::Byo,
    };
    if args.tier == TierArg::Trusted && args.tenant.is_some() {
        let words = "--tenant: a trusted worker serves every project; for one that serves a single project give --tier byo too";
        return Err(Failure::Usage.because(words));
    }
    let tenant = super::id(args.tenant.as_deref(), "--tenant")?;
    let new = NewJoinToken { tier, tenant, ttl_seconds: args.ttl.saturating_mul(60) };
    let target = Target::new(&["workers", "tokens"]);
    let reply: JoinTokenReply = server.json(Call::new(Method::POST, target, Content::json(&new)?)).await?;
    if args.json {
        return Ok(output::json(&reply));
    }
    output::say(&format!(
        "pond: good for one worker until {} UTC; it is not shown again",
        moment(reply.expires_at)
    ));
    Ok(output::lines(&output::plain(reply.token.expose())))
}

async fn workers(server: &Server) -> anyhow::Result<Vec<WorkerView>> {
    let Workers { workers } = server.json(Call::get(Target::new(&["workers"]))).await?;
    Ok(workers)
}

async fn ls(server: &Server, json: bool) -> anyhow::Result<ExitCode> {
    let workers = workers(server).await?;
    if json {
        return Ok(output::json(&workers));
    }
    if workers.is_empty() {
        return Ok(output::lines("no workers: `pond worker token` makes a token for one"));
    }
    let row = |worker: &WorkerView| {
        let state = match worker.reason.as_str() {
            "" => state(worker.state).to_owned(),
            why => format!("{}: {why}", state(worker.state)),
        };
        let (tags, can) = (worker.tags.join(" "), worker.capabilities.join(" "));
        [worker.id.clone(), worker.name.clone(), age(worker.seen_at), tags, can, state]
    };
    let header = ["WORKER", "NAME", "SEEN", "TAGS", "CAN", "STATE"];
    Ok(output::lines(&output::table(header, workers.iter().map(row))))
}

const fn state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Active => "active",
        WorkerState::Draining => "draining",
        WorkerState::Quarantined => "quarantined",
        WorkerState::Revoked => "revoked",
    }
}

fn change(one: &One, verb: &str) -> ExitCode {
    client::ask(&one.server, one.json, async |server| {
        let target = Target::new(&["workers", &one.worker, verb]);
        server.done(Call::new(Method::POST, target, Content::Nothing)).await?;
        let found = workers(server).await?.into_iter().find(|worker| worker.id == one.worker);
        if one.json {
            return Ok(output::json(&found));
        }
        let now = found.map_or("gone", |worker| state(worker.state));
        Ok(output::lines(&output::plain(&format!("{} is {now}", one.worker))))
    })
}
