//! `pond sandbox cp`: files into a sandbox or out of it. This side opens what is the person's; the keeper opens what is inside, and
//! follows no link there.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_policy::life::Operation;
use rustix::fs::{Mode, OFlags};

use super::{SandboxFault, find};
use crate::keeper::client::{Call, lost};
use crate::keeper::converge;
use crate::keeper::protocol::{Answer, Request};
use crate::output;

/// Copy files into a sandbox or out of it.
#[derive(Debug, Args)]
#[command(
    after_help = "One of the two is ID:PATH, absolute inside or below /workspace. A file inside is replaced; a directory, and anything \
                  outside, is not. Links that lead out of what is copied out are left behind."
)]
pub(crate) struct CpArgs {
    /// PATH, or ID:PATH.
    source: String,
    /// PATH, or ID:PATH.
    target: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn main(args: &CpArgs) -> Result<ExitCode, SandboxFault> {
    let (id, request, descriptor) = match (inside(&args.source), inside(&args.target)) {
        (None, Some((id, target))) => {
            let (opened, name) = opened(Path::new(&args.source))?;
            let target = if target.ends_with('/') { format!("{target}{name}") } else { target };
            (id, Request::CopyIn { target }, opened)
        }
        (Some((id, source)), None) => {
            let (directory, name) = place_for(Path::new(&args.target), &source)?;
            (id, Request::CopyOut { source, name, most: None }, directory)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(anyhow::anyhow!("one of the two is ID:PATH, and the other is not").into());
        }
    };
    let seen = find(&id)?;
    converge::permit(&seen, Operation::Copy)?;
    let mut call = Call::open(seen.place.directory()).map_err(|_| lost())?;
    call.say_with(&request, descriptor.as_fd())?;
    match call.answer()? {
        Answer::Copied { entries, bytes, skipped } => Ok(told(entries, bytes, &skipped, args.json)),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Status(_) | Answer::Began { .. } | Answer::Ended(_) | Answer::Done => Err(lost().into()),
    }
}

fn told(entries: u64, bytes: u64, skipped: &[String], as_json: bool) -> ExitCode {
    if as_json {
        return output::json(&serde_json::json!({ "entries": entries, "bytes": bytes, "skipped": skipped }));
    }
    for name in skipped {
        output::say(&format!("pond: left behind: {}", output::plain(name)));
    }
    ExitCode::SUCCESS
}

/// `ID:PATH`; a path of the host begins with `/` or `.`, or has no colon.
fn inside(text: &str) -> Option<(String, String)> {
    let (id, path) = text.split_once(':').filter(|(id, _)| !id.contains('/') && !id.starts_with('.'))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/workspace/{path}") };
    let path = if path == "/workspace/" { "/workspace".to_owned() } else { path };
    Some((id.to_owned(), path))
}

/// What is to be copied in, and its own name.
fn opened(path: &Path) -> anyhow::Result<(OwnedFd, String)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).with_context(|| path.display().to_string())?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("copy");
    Ok((opened, name.to_owned()))
}

/// Where a copy goes: into the directory that is named, or beside it under its name.
fn place_for(target: &Path, source: &str) -> anyhow::Result<(OwnedFd, String)> {
    let own = source.rsplit('/').next().unwrap_or_default().to_owned();
    let (directory, name) = if target.is_dir() {
        (target, own)
    } else {
        let name = target.file_name().and_then(|name| name.to_str());
        let Some(name) = name else { bail!("{} has no name to copy to", target.display()) };
        let above = target.parent().filter(|above| !above.as_os_str().is_empty());
        (above.unwrap_or(Path::new(".")), name.to_owned())
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    Ok((opened.with_context(|| directory.display().to_string())?, name))
}
