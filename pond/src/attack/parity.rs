//! The same probes on several backends: one table, and where the verdicts differ. Pure.

use std::collections::BTreeMap;

use pond_policy::backend::Backend;
use serde::Serialize;

use super::Report;
use super::campaign::Fate;
use super::differences::DIFFERENCES;
use super::score::{Count, Verdict, line};

/// What an attack on every backend found.
#[derive(Debug, Serialize)]
pub(super) struct Parity {
    profile: &'static str,
    backends: Vec<Side>,
    probes: Vec<Compared>,
    differences: Vec<Told>,
}

#[derive(Debug, Serialize)]
struct Side {
    backend: &'static str,
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
enum Found {
    Attacked {
        #[serde(flatten)]
        count: Count,
        canaries: Vec<String>,
    },
    /// It is not on this host.
    Absent { why: String },
}

/// One probe on every backend that is there.
#[derive(Debug, Serialize)]
struct Compared {
    case: &'static str,
    what: &'static str,
    probe: &'static str,
    expect: &'static str,
    control: String,
    on: BTreeMap<&'static str, Answer>,
}

#[derive(Debug, Serialize)]
struct Answer {
    inside: String,
    verdict: Verdict,
}

/// A probe whose verdict on a backend is not the one it has on the first.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Told {
    case: &'static str,
    probe: &'static str,
    backend: &'static str,
    standing: Standing,
    why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    /// With a reason, in the list of known ones.
    Listed,
    Unlisted,
    /// In the list, and not so.
    NoLonger,
}

pub(super) fn compare(profile: &'static str, fates: Vec<(Backend, Fate)>) -> Parity {
    let mut attacked: Vec<(Backend, Report)> = Vec::new();
    let mut backends = Vec::new();
    for (backend, fate) in fates {
        let found = match fate {
            Fate::Attacked(report) => {
                let found = Found::Attacked { count: report.count, canaries: report.canaries.clone() };
                attacked.push((backend, report));
                found
            }
            Fate::Absent(why) => Found::Absent { why },
        };
        backends.push(Side { backend: backend.name(), found });
    }
    let differences = differences(&attacked);
    Parity { profile, backends, probes: probes(attacked), differences }
}

/// Every attack makes the same probes in the same order.
fn probes(attacked: Vec<(Backend, Report)>) -> Vec<Compared> {
    let mut compared: Vec<Compared> = Vec::new();
    for (backend, report) in attacked {
        for (at, row) in report.probes.into_iter().enumerate() {
            let answer = Answer { inside: row.inside, verdict: row.verdict };
            match compared.get_mut(at) {
                Some(known) => drop(known.on.insert(backend.name(), answer)),
                None => compared.push(Compared {
                    case: row.case,
                    what: row.what,
                    probe: row.probe,
                    expect: row.expect,
                    control: row.control,
                    on: BTreeMap::from([(backend.name(), answer)]),
                }),
            }
        }
    }
    compared
}

fn differences(attacked: &[(Backend, Report)]) -> Vec<Told> {
    let Some(((_, first), others)) = attacked.split_first() else { return Vec::new() };
    let mut told = Vec::new();
    for (backend, report) in others {
        for (row, reference) in report.probes.iter().zip(&first.probes) {
            let standing = match &row.verdict {
                Verdict::Differs(_) => Some(Standing::Listed),
                other if other.name() != reference.verdict.name() => Some(Standing::Unlisted),
                // What cannot be shown here may be so elsewhere.
                Verdict::Held if is_listed(*backend, row.case, row.probe) => Some(Standing::NoLonger),
                Verdict::Held | Verdict::Breached(_) | Verdict::Broken(_) | Verdict::NoControl(_) => None,
            };
            let why = match &row.verdict {
                Verdict::Differs(why) => (*why).to_owned(),
                other => format!("{} here, {} there", other.name(), reference.verdict.name()),
            };
            let (case, probe) = (row.case, row.probe);
            told.extend(standing.map(|standing| Told {
                case,
                probe,
                backend: backend.name(),
                standing,
                why,
            }));
        }
    }
    told
}

fn is_listed(backend: Backend, case: &str, probe: &str) -> bool {
    DIFFERENCES.iter().any(|one| (one.backend, one.case, one.probe) == (backend, case, probe))
}

impl Parity {
    /// Whether nothing was breached on any backend that is there.
    pub(super) fn passes(&self) -> bool {
        self.backends.iter().all(|side| match &side.found {
            Found::Attacked { count, .. } => count.passes(),
            Found::Absent { .. } => true,
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        line(&mut text, &self.row("", |side| side.backend.to_owned()));
        let mut last = "";
        for probe in &self.probes {
            if probe.case != last {
                line(&mut text, &format!("{}  {}", probe.case, probe.what));
                last = probe.case;
            }
            let verdict =
                |side: &Side| probe.on.get(side.backend).map_or("", |on| on.verdict.name()).to_owned();
            line(&mut text, &self.row(&format!("     {}", probe.probe), verdict));
        }
        self.totals(&mut text);
        for told in &self.differences {
            let standing = match told.standing {
                Standing::Listed => "differs",
                Standing::Unlisted => "NOT LISTED",
                Standing::NoLonger => "listed, and not so",
            };
            let Told { case, probe, backend, why, .. } = told;
            line(&mut text, &format!("{standing}: {case} {probe} on {backend}: {why}"));
        }
        for side in &self.backends {
            match &side.found {
                Found::Absent { why } => line(&mut text, &format!("{} is not here: {why}", side.backend)),
                Found::Attacked { canaries, .. } => {
                    for left in canaries {
                        line(&mut text, &format!("host canary after {}  BREACHED: {left}", side.backend));
                    }
                }
            }
        }
        text
    }

    fn totals(&self, text: &mut String) {
        let totals: [(&str, fn(&Count) -> usize); 5] = [
            ("held", |count| count.held),
            ("breached", |count| count.breached),
            ("broken probes", |count| count.broken),
            ("without control", |count| count.without_control),
            ("differing", |count| count.differing),
        ];
        line(text, "total");
        for (name, of) in totals {
            let number = |side: &Side| match &side.found {
                Found::Attacked { count, .. } => of(count).to_string(),
                Found::Absent { .. } => "not here".to_owned(),
            };
            line(text, &self.row(&format!("     {name}"), number));
        }
    }

    fn row(&self, head: &str, cell: impl Fn(&Side) -> String) -> String {
        let cells: String = self.backends.iter().map(|side| format!("{:<13}", cell(side))).collect();
        format!("{head:<34}{cells}")
    }
}
