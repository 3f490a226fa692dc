//! `pond logs RUN [STAGE]`: what the stages of a run said, and with `-f` what they say until they end.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::follow::{Show, Watched, follow};
use super::screen::{Labels, Screen, Stream, Terminal};
use super::tail::{Tail, Until};
use super::view;
use crate::client::server::Server;
use crate::client::{self, ServerArgs};
use crate::output;

const INTERRUPTED: u8 = 130;

/// Show what the stages of a run said: standard output on standard output, standard error on standard error.
#[derive(Debug, Args)]
#[command(
    after_help = "On a terminal, what a terminal would obey is shown escaped; a pipe gets the bytes as they are."
)]
pub(crate) struct LogsArgs {
    /// The run.
    run: String,
    /// One of its stages; without it all of them, each line with its stage's name.
    stage: Option<String>,
    /// Go on until the run, or the stage, has ended.
    #[arg(long, short)]
    follow: bool,
    /// Print JSON: an array of {stage, stream, text}.
    #[arg(long, conflicts_with = "follow")]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(args: &LogsArgs) -> ExitCode {
    client::ask(&args.server, args.json, async |server| match (&args.stage, args.follow) {
        (None, true) => Ok(match follow(server, &args.run, Show::Output).await? {
            Watched::Over(_) | Watched::Deaf => ExitCode::SUCCESS,
            Watched::Interrupted => ExitCode::from(INTERRUPTED),
        }),
        (Some(stage), true) => each(server, args, &[stage.as_str()], Until::StageEnds).await,
        (Some(stage), false) => each(server, args, &[stage.as_str()], Until::Now).await,
        (None, false) => {
            let run = view(server, &args.run).await?;
            let names: Vec<&str> = run.stages.iter().map(|stage| stage.name.as_str()).collect();
            each(server, args, &names, Until::Now).await
        }
    })
}

#[derive(Debug, serde::Serialize)]
struct Said<'a> {
    stage: &'a str,
    stream: &'static str,
    text: String,
}

async fn each(
    server: &Arc<Server>,
    args: &LogsArgs,
    stages: &[&str],
    until: Until,
) -> anyhow::Result<ExitCode> {
    if args.json {
        return collected(server, args, stages).await;
    }
    let labels = if stages.len() > 1 { Labels::Stage } else { Labels::No };
    let mut screen = Screen::new(labels, Terminal::watched());
    let mut terminal = Terminal::default();
    for stage in stages {
        let [mut out, mut err] = Stream::ALL.map(|stream| Tail::new(server, &args.run, stage, stream, until));
        let (mut is_out, mut is_err) = (true, true);
        while (is_out || is_err) && !terminal.is_deaf() {
            let (stream, piece) = tokio::select! {
                piece = out.next(), if is_out => (Stream::Stdout, piece?),
                piece = err.next(), if is_err => (Stream::Stderr, piece?),
            };
            let shown = match &piece {
                Some(bytes) => screen.take(stage, stream, bytes),
                None => screen.finish(stage, stream),
            };
            terminal.write(stream, &shown)?;
            match stream {
                Stream::Stdout => is_out &= piece.is_some(),
                Stream::Stderr => is_err &= piece.is_some(),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn collected(server: &Arc<Server>, args: &LogsArgs, stages: &[&str]) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for stage in stages {
        for stream in Stream::ALL {
            let mut bytes = Vec::new();
            let mut tail = Tail::new(server, &args.run, stage, stream, Until::Now);
            while let Some(piece) = tail.next().await? {
                bytes.extend_from_slice(&piece);
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            all.push(Said { stage, stream: stream.name(), text });
        }
    }
    Ok(output::json(&all))
}
