//! The same probes on several backends: one table, and where the verdicts differ. Pure.

use std::collections::BTreeMap;

use pond_policy::backend::Backend;
use pond_wire::contained::Transfer;
use serde::Serialize;

use super::Report;
use super::campaign::Fate;
use super::differences::listed;
use super::score::{Count, Row, Verdict, line};

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

/// Against the first of them, which is native where it is there.
fn differences(attacked: &[(Backend, Report)]) -> Vec<Told> {
    let Some(((_, first), others)) = attacked.split_first() else { return Vec::new() };
    let of = |(backend, report): &(Backend, Report)| {
        let pairs = report.probes.iter().zip(&first.probes);
        pairs
            .filter_map(|(row, reference)| told(*backend, report.transfer, row, &reference.verdict))
            .collect::<Vec<_>>()
    };
    others.iter().flat_map(of).collect()
}

fn told(backend: Backend, transfer: Transfer, row: &Row, reference: &Verdict) -> Option<Told> {
    let is_listed = listed(backend, transfer, row.case, row.probe).is_some();
    let (standing, why) = match &row.verdict {
        Verdict::Differs(why) => (Standing::Listed, (*why).to_owned()),
        // What cannot be shown here may be so elsewhere; what was shown not to be so is not.
        Verdict::Held if is_listed => (Standing::NoLonger, "it holds here as well".to_owned()),
        Verdict::Held | Verdict::Breached(_) | Verdict::Broken(_) | Verdict::NoControl(_) => {
            let (here, there) = (row.verdict.name(), reference.name());
            (here != there).then(|| (Standing::Unlisted, format!("{here} here, {there} there")))?
        }
    };
    Some(Told { case: row.case, probe: row.probe, backend: backend.name(), standing, why })
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
        line(text, "total");
        for (at, (name, _)) in Count::default().parts().into_iter().enumerate() {
            let number = |side: &Side| match &side.found {
                Found::Attacked { count, .. } => {
                    count.parts().get(at).map_or(String::new(), |(_, number)| number.to_string())
                }
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

#[cfg(test)]
mod tests {
    //! A difference is told whatever it is, and only a reason for this very one makes it a known one.
    use super::*;

    fn row(case: &'static str, probe: &'static str, verdict: Verdict) -> Row {
        let (inside, control) = (String::new(), String::new());
        Row { case, what: "what", probe, expect: "denied", inside, control, verdict }
    }

    fn attacked(probes: Vec<Row>) -> Fate {
        let count = Count::of(&probes, &[]);
        Fate::Attacked(Report {
            profile: "p",
            backend: "b",
            transfer: Transfer::Bind,
            count,
            canaries: Vec::new(),
            probes,
        })
    }

    fn breached() -> Verdict {
        Verdict::Breached("it worked".to_owned())
    }

    fn told(parity: &Parity) -> Vec<(&str, &str, Standing)> {
        parity.differences.iter().map(|told| (told.backend, told.probe, told.standing)).collect()
    }

    #[test]
    fn what_is_not_natives_verdict_is_told() {
        let native = attacked(vec![
            row("K41", "device", Verdict::Held),
            row("K41", "own name", Verdict::Held),
            row("K05", "char", Verdict::Held),
            row("K06", "null", Verdict::NoControl("no root".to_owned())),
        ]);
        let gvisor = attacked(vec![
            row("K41", "device", Verdict::Differs("no Landlock")),
            row("K41", "own name", Verdict::Held),
            row("K05", "char", breached()),
            row("K06", "null", Verdict::Held),
        ]);
        let docker = Fate::Absent("no engine".to_owned());
        let fates = vec![(Backend::Native, native), (Backend::Docker, docker), (Backend::Gvisor, gvisor)];
        let parity = compare("p", fates);
        let expected = [
            ("gvisor", "device", Standing::Listed),
            ("gvisor", "own name", Standing::NoLonger),
            ("gvisor", "char", Standing::Unlisted),
            ("gvisor", "null", Standing::Unlisted),
        ];
        assert_eq!(told(&parity), expected);
        assert!(!parity.passes());
        let table = parity.table();
        for part in [
            "                                  native       docker       gvisor",
            "     char                         held                      BREACHED",
            "     breached                     0            not here     1",
            "NOT LISTED: K05 char on gvisor: BREACHED here, held there",
            "listed, and not so: K41 own name on gvisor",
            "differs: K41 device on gvisor: no Landlock",
            "docker is not here: no engine",
        ] {
            assert!(table.contains(part), "{part:?} in:\n{table}");
        }
    }

    #[test]
    fn the_same_everywhere_is_no_difference() {
        let rows = || vec![row("K05", "char", Verdict::Held), row("K41", "device", breached())];
        let fates = vec![(Backend::Native, attacked(rows())), (Backend::Docker, attacked(rows()))];
        let parity = compare("p", fates);
        assert_eq!(told(&parity), []);
        // A breach everywhere is one nevertheless.
        assert!(!parity.passes());
    }
}
