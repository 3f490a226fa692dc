//! One attack from beginning to end: the stage, the controls, the sandboxes, the canaries, the judgement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pond_policy::backend::Backend;
use pond_policy::profile::{Network, Profile};
use pond_policy::settings::Settings;
use pond_sandbox::native::{Ending, Native, remedy};
use pond_sandbox::provider::{Provider, ProviderFault};
use pond_sandbox::state::StateDir;
use pond_wire::contained::Transfer;

use super::canary::Canaries;
use super::case::{Case, Control, Probe, Room, Stage};
use super::differences::listed;
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
    profile: Profile,
    picks: Vec<Pick>,
    props: Props,
    executable: PathBuf,
    canaries: Canaries,
    settings: Settings,
}

const PROOF: Stage = Stage { command: &["/bin/true"], ..Stage::PLAIN };

/// What became of an attack on one backend.
#[derive(Debug)]
pub(super) enum Fate {
    Attacked(Report),
    /// The backend is not there, and why.
    Absent(String),
}

/// Attacks each of these backends, with one control for all.
pub(super) fn run(
    args: &AttackArgs,
    profile: Profile,
    backends: &[Backend],
) -> anyhow::Result<Vec<(Backend, Fate)>> {
    if profile.is_confined() && profile.posture().network == Network::Internet {
        bail!("this command starts no gateway, and without one {} has no network to attack", profile.name());
    }
    let mut picks = pick(&args.cases)?;
    if !profile.is_confined() {
        picks.retain(Pick::has_control);
    }
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    if profile.is_confined() {
        let fates: Vec<Option<Fate>> =
            backends.iter().map(|backend| absence(*backend, &executable)).collect::<Result<_, _>>()?;
        if fates.iter().all(Option::is_some) {
            return Ok(backends.iter().copied().zip(fates.into_iter().flatten()).collect());
        }
    }
    let canaries = Canaries::take(&executable).context("looking at the host before the attack")?;
    let props = Props::set(&executable).context("setting the stage")?;
    let settings = Settings::default();
    let campaign = Campaign { args, profile, picks, props, executable, canaries, settings };
    let control = campaign.unconfined()?;
    backends.iter().map(|backend| Ok((*backend, campaign.attack(*backend, &control)?))).collect()
}

/// A backend of this host, or why it is none.
fn provider(backend: Backend, executable: &Path) -> anyhow::Result<Result<Provider, ProviderFault>> {
    let directory = settings::state_dir()?;
    let state = StateDir::open(&directory)?;
    crate::runs::clean_up(&state)?;
    Ok(match backend {
        Backend::Native => Native::open(state, executable).map(Provider::Native).map_err(ProviderFault::from),
        Backend::Docker | Backend::Gvisor | Backend::Firecracker => {
            Provider::container(backend, state, executable, &settings::engine())
        }
    })
}

/// Why this host does not have the backend, if that is plain before anything runs.
fn absence(backend: Backend, executable: &Path) -> anyhow::Result<Option<Fate>> {
    Ok(provider(backend, executable)?
        .err()
        .map(|fault| Fate::Absent(format!("{:#}", anyhow::Error::from(fault)))))
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

    fn attack(&self, backend: Backend, control: &Found<Outcome>) -> anyhow::Result<Fate> {
        let mut transfer = Transfer::Bind;
        let (met, mut residue) = if self.profile.is_confined() {
            match provider(backend, &self.executable)? {
                Ok(provider) => {
                    transfer = provider.transfer();
                    let range = self.range(backend, &provider);
                    // Its name proves nothing: it is there if it runs a job.
                    if let Err(fault) = range.confined(&PROOF, &[]).and_then(|seen| launched(&seen)) {
                        return Ok(Fate::Absent(format!("{fault:#}")));
                    }
                    self.confined(&range).with_context(|| format!("attacking {backend}"))?
                }
                Err(fault) => return Ok(Fate::Absent(format!("{:#}", anyhow::Error::from(fault)))),
            }
        } else {
            self.say("the same again in place of a sandbox: every attempt that works is a breach");
            (only_outcomes(self.unconfined()?), Vec::new())
        };
        residue.extend(self.props.is_tripped().then(|| "the host ran what a job left".to_owned()));
        residue.extend(self.canaries.changed().context("looking at the host after the attack")?);
        let probes = self.judge((backend, transfer), &met, control)?;
        let count = Count::of(&probes, &residue);
        let (profile, backend) = (self.profile.name(), backend.name());
        Ok(Fate::Attacked(Report { profile, backend, transfer, count, canaries: residue, probes }))
    }

    fn range<'b>(&'b self, backend: Backend, provider: &'b Provider) -> Range<'b> {
        Range {
            backend,
            provider,
            props: &self.props,
            executable: &self.executable,
            profile: self.profile.name(),
            settings: &self.settings,
        }
    }

    fn confined(&self, range: &Range<'_>) -> anyhow::Result<(Found<Met>, Vec<String>)> {
        let (mut met, mut residue) = self.together(range)?;
        for pick in &self.picks {
            let alone = match pick.probe.room {
                Room::Shared => continue,
                Room::Own(stage) => {
                    self.say(&format!("{}, in a sandbox of its own on {}", pick.key, range.backend));
                    let seen = range.confined(&stage, std::slice::from_ref(&pick.key))?;
                    let evidence = score::evidence(&stage, &seen);
                    residue.extend(seen.residue);
                    Met { outcome: outcomes(&seen.lines).remove(&pick.key), evidence }
                }
                Room::Host(act) => {
                    self.say(&format!("{}, done by the host to {}", pick.key, range.backend));
                    let evidence = act(range)?;
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
        self.say(&format!("{} probes inside one sandbox of {}", keys.len(), range.backend));
        let seen = range.confined(&Stage::PLAIN, &keys)?;
        launched(&seen)?;
        Ok((only_outcomes(outcomes(&seen.lines)), seen.residue))
    }

    fn judge(
        &self,
        (backend, transfer): (Backend, Transfer),
        met: &Found<Met>,
        control: &Found<Outcome>,
    ) -> anyhow::Result<Vec<Row>> {
        let caller = Caller {
            is_root: rustix::process::geteuid().is_root(),
            capabilities: rustix::thread::capabilities(None)?.effective,
        };
        let nothing = Met { outcome: None, evidence: None };
        let row = |pick: &Pick| {
            let met = met.get(&pick.key).unwrap_or(&nothing);
            let control = control.get(&pick.key).copied();
            let verdict = score::judge(pick.probe, met, control, caller);
            let known = listed(backend, transfer, pick.case.id, pick.probe.name);
            let known = known.filter(|_| self.profile.is_confined());
            Row {
                case: pick.case.id,
                what: pick.case.what,
                probe: pick.probe.name,
                expect: pick.probe.expect.name(),
                inside: met.evidence.clone().unwrap_or_else(|| score::words(met.outcome)),
                control: score::control_words(pick.probe, control),
                verdict: known.map_or(verdict.clone(), |known| known.explains(verdict)),
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
