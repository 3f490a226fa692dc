//! Runs that ended on this machine: what each left in its directory, and which one is meant.
//!
//! A run's directory is complete once `run.json` stands in it, which is written last. Anything else in `runs/` belongs to
//! a job that still has its record, or is debris.

pub(crate) mod gc;
pub(crate) mod list;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use pond_sandbox::native::{Swept, sweep};
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run::{Finding, Verdict};
use crate::{output, settings};

const FILE: &str = "run.json";
const PART: &str = "run.json.part";
const MOST_BYTES: u64 = 4 << 20;

/// What `run.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunInfo {
    pub(crate) run: JobName,
    pub(crate) command: Vec<String>,
    /// The directory the job worked on, as the kernel names it.
    pub(crate) checkout: String,
    pub(crate) profile: String,
    pub(crate) verdict: Verdict,
    /// In UTC, to the second.
    pub(crate) started: String,
    pub(crate) elapsed_ms: u64,
    /// Files changed; none when there is no result.
    pub(crate) changed: Option<usize>,
    /// What the job wanted and did not get.
    #[serde(default)]
    pub(crate) findings: Vec<Finding>,
}

/// Removes what killed runs left, and names them. What cannot be removed now is told and keeps nothing else from going on.
pub(crate) fn clean_up(state: &StateDir) -> anyhow::Result<Swept> {
    let mut swept = sweep(state).context("cleaning up after runs that were killed")?;
    for fault in swept.stuck.drain(..) {
        let fault = anyhow::Error::from(fault);
        output::say(&format!("pond: warning: {}", output::plain(&format!("{fault:#}"))));
    }
    Ok(swept)
}

impl RunInfo {
    pub(crate) fn save(&self, run: &Path) -> anyhow::Result<()> {
        let part = run.join(PART);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        std::fs::rename(&part, run.join(FILE)).context("writing run.json")
    }

    /// Nothing when the run has not ended.
    pub(crate) fn load(run: &Path) -> anyhow::Result<Option<Self>> {
        let path = run.join(FILE);
        let file = match File::open(&path) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.with_context(|| format!("opening {}", path.display()))?,
        };
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text)?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display())).map(Some)
    }

    /// How long ago it started; nothing for a time nobody wrote.
    pub(crate) fn age(&self, now: Timestamp) -> Option<std::time::Duration> {
        let started: Timestamp = self.started.parse().ok()?;
        now.duration_since(started).try_into().ok()
    }
}

#[expect(clippy::disallowed_methods, reason = "the command line is the edge where time is read")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The state directory, which need not hold anything yet.
pub(crate) fn state() -> anyhow::Result<StateDir> {
    let directory = settings::state_dir()?;
    Ok(StateDir::open(&directory)?)
}

/// Names of run directories, newest first: a name begins with its time.
pub(crate) fn names(state: &StateDir) -> anyhow::Result<Vec<JobName>> {
    let runs = state.runs();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&runs).with_context(|| format!("listing {}", runs.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().into_string().ok();
            names.extend(name.and_then(|name| JobName::try_from(name).ok()));
        }
    }
    names.sort_by(|one, other| other.as_str().cmp(one.as_str()));
    Ok(names)
}

/// The run named, which must have ended.
pub(crate) fn named(state: &StateDir, text: &str) -> anyhow::Result<(RunInfo, PathBuf)> {
    let name = JobName::try_from(text.to_owned()).map_err(anyhow::Error::msg)?;
    let directory = state.runs().join(name.as_str());
    if !directory.is_dir() {
        return Err(Failure::RunUnknown.because(format!("there is no run {text}; `pond runs` lists them")));
    }
    match RunInfo::load(&directory)? {
        Some(info) => Ok((info, directory)),
        None => bail!("run {text} has not ended"),
    }
}

/// The newest run that ended on this checkout.
pub(crate) fn latest_of(state: &StateDir, checkout: &str) -> anyhow::Result<(RunInfo, PathBuf)> {
    for name in names(state)? {
        let directory = state.runs().join(name.as_str());
        if let Some(info) = RunInfo::load(&directory)?
            && info.checkout == checkout
        {
            return Ok((info, directory));
        }
    }
    Err(Failure::RunUnknown.because(format!("no run on {checkout:?}; name one that `pond runs` lists")))
}
