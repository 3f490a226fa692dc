//! One attack from beginning to end: the stage, the controls, the sandboxes, the canaries, the judgement.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use pond_policy::profile::{Network, Profile};
use pond_policy::settings::Settings;
use pond_sandbox::native::{Ending, Native, remedy};
use pond_sandbox::state::StateDir;

use super::canary::Canaries;
use super::case::{Case, Control, Probe, Room, Stage};
use super::probe::{Line, Outcome, selector};
use super::props::Props;
use super::sandbox::{Range, Seen, unconfined};
use super::score::{self, Caller, Count, Met, Row};
use super::{AttackArgs, Report, catalogue};
use crate::settings;

/// A probe, the case it belongs to, and the name both have together.
struct Pick {
    case: &'static Case,
    probe: &'static Probe,
    key: String,
}

impl Pick {
    fn has_control(&self) -> bool {
        matches!(self.probe.control, Control::Attempt(_))
    }
}

/// What happened, by the probe's key.
type Found<T> = BTreeMap<String, T>;

struct Campaign<'a> {
    args: &'a AttackArgs,
    picks: Vec<Pick>,
    props: Props,
    executable: PathBuf,
}

pub(super) fn run(args: &AttackArgs) -> anyhow::Result<Report> {
    let profile =
        Profile::parse(&args.profile).with_context(|| format!("no profile is called {:?}", args.profile))?;
    let mut picks = pick(&args.cases)?;
    if !profile.is_confined() {
        picks.retain(Pick::has_control);
    }
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    let canaries = Canaries::take(&executable).context("looking at the host before the attack")?;
    let props = Props::set(&executable).context("setting the stage")?;
    let campaign = Campaign { args, picks, props, executable };
    let control = campaign.unconfined()?;
    let (met, mut residue) = if profile.is_confined() {
        campaign.confined(profile)?
    } else {
        campaign.say("the same again in place of a sandbox: every attempt that works is a breach");
        (only_outcomes(campaign.unconfined()?), Vec::new())
    };
    residue.extend(campaign.props.is_tripped().then(|| "the host ran what a job left".to_owned()));
    residue.extend(canaries.changed().context("looking at the host after the attack")?);
    let probes = campaign.judge(&met, &control)?;
    let count = Count::of(&probes, &residue);
    Ok(Report { profile: profile.name(), count, canaries: residue, probes })
}

fn pick(cases: &[String]) -> anyhow::Result<Vec<Pick>> {
    if let Some(unknown) = cases.iter().find(|id| !catalogue().any(|case| case.id == id.as_str())) {
        bail!("this command runs no case {unknown:?}; `pond attack --uncovered` lists those it does not run");
    }
    let wanted = |case: &&Case| cases.is_empty() || cases.iter().any(|id| id == case.id);
    let of_case = |case: &'static Case| {
        case.probes.iter().map(move |probe| Pick { case, probe, key: selector(case, probe) })
    };
    Ok(catalogue().filter(wanted).flat_map(of_case).collect())
}

impl Campaign<'_> {
    /// Progress, for a person.
    fn say(&self, what: &str) {
        if !self.args.json {
            eprintln!("pond: {what}");
        }
    }

    fn unconfined(&self) -> anyhow::Result<Found<Outcome>> {
        let controlled = self.picks.iter().filter(|pick| pick.has_control());
        let keys: Vec<String> = controlled.map(|pick| pick.key.clone()).collect();
        self.say(&format!("{} probes unconfined", keys.len()));
        Ok(outcomes(&unconfined(&self.executable, &self.props, &keys)?))
    }

    fn confined(&self, profile: Profile) -> anyhow::Result<(Found<Met>, Vec<String>)> {
        if profile.posture().network == Network::Internet {
            bail!(
                "this command starts no gateway, and without one {} has no network to attack",
                profile.name()
            );
        }
        let directory =
            settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
        let native = Native::open(StateDir::open(&directory)?, &self.executable)?;
        crate::runs::clean_up(native.state())?;
        let range = Range {
            native: &native,
            props: &self.props,
            executable: &self.executable,
            profile: profile.name(),
            settings: &Settings::default(),
        };
        let (mut met, mut residue) = self.together(&range)?;
        for pick in &self.picks {
            let alone = match pick.probe.room {
                Room::Shared => continue,
                Room::Own(stage) => {
                    self.say(&format!("{}, in a sandbox of its own", pick.key));
                    let seen = range.confined(&stage, std::slice::from_ref(&pick.key))?;
                    let evidence = score::evidence(&stage, &seen);
                    residue.extend(seen.residue);
                    Met { outcome: outcomes(&seen.lines).remove(&pick.key), evidence }
                }
                Room::Host(act) => {
                    self.say(&format!("{}, done by the host", pick.key));
                    let evidence = act(&range)?;
                    Met { outcome: evidence.is_none().then_some(Outcome::Succeeded), evidence }
                }
            };
            met.insert(pick.key.clone(), alone);
        }
        Ok((met, residue))
    }

    /// The probes that can share a sandbox.
    fn together(&self, range: &Range<'_>) -> anyhow::Result<(Found<Met>, Vec<String>)> {
        let shared = |pick: &&Pick| matches!(pick.probe.room, Room::Shared);
        let keys: Vec<String> = self.picks.iter().filter(shared).map(|pick| pick.key.clone()).collect();
        if keys.is_empty() {
            return Ok((Found::new(), Vec::new()));
        }
        self.say(&format!("{} probes inside one sandbox", keys.len()));
        let seen = range.confined(&Stage::PLAIN, &keys)?;
        launched(&seen)?;
        Ok((only_outcomes(outcomes(&seen.lines)), seen.residue))
    }

    fn judge(&self, met: &Found<Met>, control: &Found<Outcome>) -> anyhow::Result<Vec<Row>> {
        let caller = Caller {
            is_root: rustix::process::geteuid().is_root(),
            capabilities: rustix::thread::capabilities(None)?.effective,
        };
        let nothing = Met { outcome: None, evidence: None };
        let row = |pick: &Pick| {
            let met = met.get(&pick.key).unwrap_or(&nothing);
            let control = control.get(&pick.key).copied();
            Row {
                case: pick.case.id,
                what: pick.case.what,
                probe: pick.probe.name,
                expect: pick.probe.expect.name(),
                inside: met.evidence.clone().unwrap_or_else(|| score::words(met.outcome)),
                control: score::control_words(pick.probe, control),
                verdict: score::judge(pick.probe, met, control, caller),
            }
        };
        Ok(self.picks.iter().map(row).collect())
    }
}

fn outcomes(lines: &[Line]) -> Found<Outcome> {
    lines.iter().map(|line| (format!("{}/{}", line.case, line.probe), line.outcome)).collect()
}

fn only_outcomes(outcomes: Found<Outcome>) -> Found<Met> {
    outcomes.into_iter().map(|(key, outcome)| (key, Met { outcome: Some(outcome), evidence: None })).collect()
}

/// A sandbox that does not start holds everything and shows nothing.
fn launched(seen: &Seen) -> anyhow::Result<()> {
    match seen.ended.over.ending {
        Ending::NotLaunched { step, errno } => {
            let remedy = remedy(step, errno).unwrap_or("see `pond doctor`");
            let reason = std::io::Error::from_raw_os_error(errno);
            bail!("the sandbox did not start: could not {}: {reason}; {remedy}", step.describe())
        }
        Ending::NotBegun => bail!("the sandbox did not start: a process of pond's own was killed"),
        Ending::Exited { .. } | Ending::Signaled { .. } | Ending::Lost => Ok(()),
    }
}
