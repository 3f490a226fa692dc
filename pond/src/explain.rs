//! `pond explain`: why a run did not get what it wanted, each time with the rule that said no and what would change it.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pond_policy::command::ALLOWED_COMMANDS;
use pond_policy::profile::{Hardening, Network, Profile};
use pond_policy::quote::quote;
use serde::Serialize;

use crate::audit::{Denied, denied_last};
use crate::client::ServerArgs;
use crate::run::{Finding, Kind, Verdict};
use crate::{output, remote, runs};

/// Say what a run was refused, by which rule, and the smallest change that would allow it.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The run, of this machine or of a control plane; without it, the newest one on the current directory, or a command
    /// that was denied after it.
    run: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Explanation {
    /// Absent, like the verdict, for a command that was denied before it could become a run.
    run: Option<String>,
    verdict: Option<Verdict>,
    findings: Vec<Finding>,
    /// What was closed to the run from the start, and what nobody counts.
    notes: Vec<&'static str>,
}

const NO_NETWORK: &str = "its profile has no network: names do not resolve and nothing connects. \
    --profile untrusted-code-write reaches a list of hosts (--allow-host adds to it)";
const MODEL_ONLY: &str = "its profile reaches a model, where --model gives it one, and no other host: names do not resolve. \
    --profile untrusted-code-write reaches a list of hosts (--allow-host adds to it)";
const CALLS: &str = "not counted: system calls that the filter refuses, such as mount, unshare, ptrace and perf_event_open; \
    the kernel tells only the job, which gets EPERM or ENOSYS. No flag allows them";
const ROOM: &str = "not counted: a disk or /tmp that was full and had room again, or the /tmp of a container; the job gets ENOSPC. \
    --tmp makes /tmp larger";

/// What a run of this profile was never going to get, and what no finding can say.
fn notes(profile: &str) -> Vec<&'static str> {
    let Some(posture) = Profile::parse(profile).map(Profile::posture) else { return Vec::new() };
    let network = match posture.network {
        Network::Sealed => Some(NO_NETWORK),
        Network::BrokerOnly => Some(MODEL_ONLY),
        Network::Open | Network::Allowlist | Network::Internet => None,
    };
    let uncounted: &[&str] = match posture.hardening {
        Hardening::Full => &[CALLS, ROOM],
        Hardening::Off => &[],
    };
    network.into_iter().chain(uncounted.iter().copied()).collect()
}

pub(crate) fn main(args: &ExplainArgs) -> ExitCode {
    if let Some(run) = args.run.as_deref().filter(|run| remote::explain::is_remote(run)) {
        return remote::explain::main(run, &args.server, args.json);
    }
    match explain(args.run.as_deref()) {
        Ok(explanation) if args.json => output::json(&explanation),
        Ok(explanation) => output::lines(&explanation.text()),
        Err(fault) => output::failed(&fault, args.json),
    }
}

fn explain(run: Option<&str>) -> anyhow::Result<Explanation> {
    let state = runs::state()?;
    let (info, _) = match run {
        Some(name) => runs::named(&state, name)?,
        None => {
            if let Some(denied) = denied_last(&state)? {
                let (findings, notes) = (vec![finding(denied)], Vec::new());
                return Ok(Explanation { run: None, verdict: None, findings, notes });
            }
            let here = std::env::current_dir().context("finding the current directory")?;
            runs::latest_of(&state, &here.to_string_lossy())?
        }
    };
    let notes = notes(&info.profile);
    Ok(Explanation {
        run: Some(info.run.into()),
        verdict: Some(info.verdict),
        findings: info.findings,
        notes,
    })
}

fn finding(denied: Denied) -> Finding {
    Finding {
        kind: Kind::Command,
        what: format!("the command {} was denied before it ran", quote(&denied.command)),
        code: denied.code,
        count: 1,
        rule: format!("{} starts only: {}", denied.profile, ALLOWED_COMMANDS.join(", ")),
        advice: "name one of these by its bare name, or use untrusted-code-write".to_owned(),
    }
}

impl Explanation {
    fn text(&self) -> String {
        let mut lines = match (&self.run, &self.verdict) {
            (Some(run), Some(verdict)) => vec![format!("{run}: {}", verdict.sentence())],
            _ => vec!["the newest command did not run".to_owned()],
        };
        if self.findings.is_empty() {
            lines.push("nothing was refused that pond knows of".to_owned());
        }
        for finding in &self.findings {
            let times = if finding.count == 1 { String::new() } else { format!(", {} times", finding.count) };
            lines.push(format!("\n{}{times}", finding.what));
            lines.push(format!("    why       {}", finding.code));
            lines.push(format!("    rule      {}", finding.rule));
            lines.push(format!("    what now  {}", finding.advice));
        }
        lines.extend(self.notes.iter().map(|note| format!("\n{note}")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    //! What no finding can say is said.
    use super::*;

    #[test]
    fn a_profile_without_a_network_says_so_and_what_would_have_one() {
        assert_eq!(notes("untrusted-code-read"), [MODEL_ONLY, CALLS, ROOM]);
        assert_eq!(notes("untrusted-code-test"), [NO_NETWORK, CALLS, ROOM]);
        assert_eq!(notes("untrusted-code-write"), [CALLS, ROOM]);
        assert_eq!(notes("none"), Vec::<&str>::new());
        let run = Some("r".to_owned());
        let notes = notes("untrusted-code-read");
        let text = Explanation { run, verdict: Some(Verdict::TimedOut), findings: Vec::new(), notes }.text();
        assert!(
            text.contains("nothing was refused") && text.contains("EPERM") && text.contains("--model"),
            "{text}"
        );
    }
}
