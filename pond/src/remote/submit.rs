//! `pond submit FILE`: judge the document at the server, send the source, submit, and with `--follow` watch to the end.
//!
//! Nothing is sent before the server has found no fault in the document. The request that submits bears a key, so that it can be
//! sent again when its answer is lost, and makes one run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use http::Method;
use pond_wire::api::{Accepted, Document, RunView, Submit, SubmitReply, Warning};
use pond_wire::orch::Id;
use serde::Serialize;

use super::follow::{Show, Watched, follow};
use super::{source, state_of_run, state_of_stage, statement};
use crate::client::body::Content;
use crate::client::events::Patience;
use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::{input, output};

const INTERRUPTED: u8 = 130;
/// How long a server that does not take the run is asked again without a word: most of what passes is over by then.
const SILENT: Duration = Duration::from_millis(500);

/// Submit a run document to the control plane, with the current directory as what its stages work on.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 submitted, and with --follow succeeded. With --follow otherwise: that of the first stage that \
failed; 124 its time was up; 130 cancelled, or somebody interrupted this command (the run goes on); 137 a limit killed it; 125 \
refused, or nothing ran."
)]
pub(crate) struct SubmitArgs {
    /// The run document, as JSON or YAML; `-` reads standard input.
    file: PathBuf,
    /// The directory the stages work on, in copies.
    #[arg(long, value_name = "DIR", default_value = ".")]
    source: PathBuf,
    /// The stages work on an empty directory.
    #[arg(long, conflicts_with = "source")]
    no_source: bool,
    /// Stay until the run is over: show what happens to its stages and what they say.
    #[arg(long, short)]
    follow: bool,
    /// How often a stage that failed is tried again.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10))]
    retries: u32,
    /// A name for this submission: sent again with the same document and source, it makes no second run.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Submitted<'a> {
    run: &'a str,
    source: Option<&'a str>,
    input_sha256: Option<&'a str>,
    warnings: &'a [Warning],
}

/// What `pond show --json` has at the end, with what only the submission knows. Run and source are in the view.
#[derive(Debug, Serialize)]
struct Followed<'a> {
    input_sha256: Option<&'a str>,
    warnings: &'a [Warning],
    exit_code: u8,
    #[serde(flatten)]
    view: &'a RunView,
}

pub(crate) fn main(args: &SubmitArgs) -> ExitCode {
    let text = match input::text(&args.file) {
        Ok(text) => text,
        Err(refusals) => return output::refused(refusals, args.json),
    };
    client::ask(&args.server, args.json, async |server| submit(server, args, &text).await)
}

async fn submit(server: &Arc<Server>, args: &SubmitArgs, text: &str) -> anyhow::Result<ExitCode> {
    let accepted = preflight(server, text).await?;
    if !args.json {
        accepted.warnings.iter().for_each(warn);
    }
    let sent = if args.no_source { None } else { Some(send(server, args, &accepted.project).await?) };
    let id = sent.as_ref().map(|sent| Id::try_from(sent.source.clone())).transpose();
    let id = id.context("the server's name for the source")?;
    let body = Submit { document: Document::from_text(text)?, source: id, retries: args.retries };
    let reply = submit_once(server, &body, args).await?;
    let submitted = Submitted {
        run: &reply.run,
        source: sent.as_ref().map(|sent| sent.source.as_str()),
        input_sha256: sent.as_ref().map(|sent| sent.input_sha256.as_str()),
        warnings: &reply.warnings,
    };
    if args.follow {
        return watch(server, submitted, args.json).await;
    }
    if args.json {
        return Ok(output::json(&submitted));
    }
    output::say(&format!("pond: submitted; to watch it: pond logs -f {}", output::plain(&reply.run)));
    Ok(output::lines(&output::plain(&reply.run)))
}

/// The server's verdict on a document; its faults are the fault.
pub(crate) async fn preflight(server: &Server, text: &str) -> Result<Accepted, ClientFault> {
    let content = Content::Document(text.into());
    server.json(Call::new(Method::POST, Target::new(&["preflight"]), content)).await
}

async fn send(
    server: &Server,
    args: &SubmitArgs,
    project: &str,
) -> anyhow::Result<pond_wire::api::SourceReply> {
    let sent = source::send(server, project, Path::new(&args.source)).await?;
    if !args.json {
        let kib = sent.bytes.div_ceil(1024);
        output::say(&format!("pond: source sent: {} entries, {kib} KiB", sent.entries));
    }
    Ok(sent)
}

/// One run, however often the answer is lost on the way. Who waits is told once what for.
async fn submit_once(server: &Server, body: &Submit, args: &SubmitArgs) -> anyhow::Result<SubmitReply> {
    let key = args.idempotency_key.clone().map_or_else(random_key, Ok)?;
    let body = serde_json::to_vec(body)?;
    let (mut patience, began) = (Patience::default(), Instant::now());
    let mut is_told = args.json;
    loop {
        let call = Call::new(Method::POST, Target::new(&["runs"]), Content::Json(body.clone()));
        match server.json(call.header("idempotency-key", key.clone())).await {
            Ok(reply) => return Ok(reply),
            Err(fault) if fault.may_pass() => {
                if !is_told && began.elapsed() >= SILENT {
                    waits(&fault);
                    is_told = true;
                }
                patience.wait(fault).await?;
            }
            Err(fault) => return Err(fault.into()),
        }
    }
}

fn waits(fault: &ClientFault) {
    let line =
        format!("pond: the run is not taken yet: {fault} [{}]; asking again, for ten minutes", fault.code());
    output::say(&output::plain(&line));
}

fn random_key() -> Result<String, ClientFault> {
    let mut bytes = [0; 16];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    read.map_err(|errno| ClientFault::Prepare(errno.into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn warn(warning: &Warning) {
    let Warning { code, path, message } = warning;
    output::say(&output::plain(&format!("pond: warning: {path}: {message} [{code}]")));
}

async fn watch(server: &Arc<Server>, submitted: Submitted<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let run = submitted.run;
    let show = if json { Show::Nothing } else { Show::OutputAndStages };
    if !json {
        output::say(&format!("pond: run {}", output::plain(run)));
    }
    let view = match follow(server, run, show).await.with_context(|| format!("watching run {run}"))? {
        Watched::Over(view) => view,
        Watched::Interrupted | Watched::Deaf => {
            let run = output::plain(run);
            output::say(&format!("pond: {run} goes on: pond logs -f {run}, or pond cancel {run}"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    let exit_code = statement::code(server, &view).await?;
    if json {
        let Submitted { input_sha256, warnings, .. } = submitted;
        output::json(&Followed { input_sha256, warnings, exit_code, view: &view });
    } else {
        output::say(&summary(&view));
    }
    Ok(ExitCode::from(exit_code))
}

/// The end of a run, in a few lines.
fn summary(view: &RunView) -> String {
    let run = output::plain(&view.run.id);
    let mut first = vec![format!("{run} {}", state_of_run(view.run.state))];
    first.extend(view.run.ended_at.map(|at| seconds(at.saturating_sub(view.run.created_at))));
    first.extend(view.run.cancel.iter().map(|why| output::plain(why)));
    let mut lines = vec![format!("pond: {}", first.join(" · "))];
    for stage in &view.stages {
        let why = if stage.reason.is_empty() { String::new() } else { format!(": {}", stage.reason) };
        let line = format!("{} {}{why}", stage.name, state_of_stage(stage.state));
        lines.push(format!("pond: {}", output::plain(&line)));
    }
    if view.stages.iter().any(|stage| !stage.results.is_empty()) {
        let stage = if view.stages.len() > 1 { " STAGE" } else { "" };
        lines.push(format!("pond: to have what it made: pond fetch {run}{stage} --out DIR"));
    }
    lines.join("\n")
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}
