//! The cases of the catalogue that `pond attack` does not run, each with its reason. This list may only shrink.

use std::process::ExitCode;

use serde::Serialize;

use crate::output;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Uncovered {
    pub(super) id: &'static str,
    pub(super) why: &'static str,
}

const GATEWAY: &str =
    "needs the gateway, which the native backend does not start yet; its own suite tests it";
const INJECTED: &str = "needs a fault injected into a build of its own; a user's host cannot show it";
const COLLECTOR: &str =
    "shown by the collector's own tests on trees made for it (host/pond-worker/src/collect/tests)";
const GIT: &str =
    "pond runs no git on a job's tree, so there is nothing to trigger; the collector's tests hold it to that";
const CONTAINERS: &str = "about backends other than native";

pub(super) const UNCOVERED: &[Uncovered] = &[
    not("E19", "the native backend does not limit disk bandwidth: control groups v1 cannot"),
    not("E28", "200 sandboxes at once take minutes; `cargo xtask bench native` runs them"),
    not("E29", "10,000 launches take minutes; `cargo xtask bench native` runs them"),
    not("N03", GATEWAY),
    not("N05", GATEWAY),
    not("N06", GATEWAY),
    not("N07", GATEWAY),
    not("N08", GATEWAY),
    not("N09", GATEWAY),
    not("N10", GATEWAY),
    not("L01", "kills the process that runs the attack; tests/e2e/residue.rs kills a pond of its own"),
    not(
        "L02",
        "kills the launcher of the attack itself; a job without its launcher is still ended by its lifeline",
    ),
    not(
        "L03",
        "nothing a job can do: E18 shows that it cannot kill init; every time limit kills init from outside",
    ),
    not("L04", INJECTED),
    not("L07", "a process stuck in the kernel needs a broken device"),
    not("L10", INJECTED),
    not("L11", INJECTED),
    not("L12", "needs a host without the layer; `pond doctor` says what this one has"),
    not("L13", "needs the host's clock to jump"),
    not("L14", "the supervisor has one thread"),
    not("L15", INJECTED),
    not("C01", "the checkout is opened once and never copied, so there is no copy to race with"),
    not("C04", COLLECTOR),
    not("C07", COLLECTOR),
    not("C10", COLLECTOR),
    not("C11", COLLECTOR),
    not("C12", COLLECTOR),
    not("C15", COLLECTOR),
    not("C16", "everything inside is dead before collection begins (L08), so nothing can grow"),
    not("C17", "results are no archives"),
    not("C18", "shown by the neutraliser's own tests (host/pond-worker/src/neutral/tests.rs)"),
    not("G01", GIT),
    not("G02", GIT),
    not("G04", GIT),
    not("G05", GIT),
    not("G06", GIT),
    not("G07", GIT),
    not("G08", GIT),
    not("G09", GIT),
    not("G10", COLLECTOR),
    not("G11", GIT),
    not("G13", "shown by the tests of applying a patch (host/pond-worker/src/apply/tests)"),
    not("G14", COLLECTOR),
    not("P01", CONTAINERS),
    not("P02", CONTAINERS),
    not("P03", CONTAINERS),
    not("P04", "there are no receipts yet"),
];

const fn not(id: &'static str, why: &'static str) -> Uncovered {
    Uncovered { id, why }
}

pub(super) fn print(json: bool) -> ExitCode {
    if json {
        return output::json(&UNCOVERED);
    }
    let lines: Vec<String> = UNCOVERED.iter().map(|Uncovered { id, why }| format!("{id}  {why}")).collect();
    output::lines(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    //! The catalogue has no gaps: every case is run, or its reason stands here, and never both.
    use std::collections::BTreeSet;

    use super::super::catalogue;
    use super::UNCOVERED;

    const SECTIONS: [(char, u32); 7] =
        [('E', 30), ('K', 43), ('N', 11), ('L', 15), ('C', 18), ('G', 14), ('P', 4)];

    #[test]
    fn covered_and_uncovered_are_the_whole_catalogue() {
        let every: Vec<String> = SECTIONS
            .into_iter()
            .flat_map(|(letter, count)| (1..=count).map(move |number| format!("{letter}{number:02}")))
            .collect();
        let listed = catalogue().map(|case| case.id).chain(UNCOVERED.iter().map(|case| case.id));
        let mut listed: Vec<String> = listed.map(str::to_owned).collect();
        listed.sort_by_key(|id| every.iter().position(|other| other == id));
        assert_eq!(listed, every);
    }

    #[test]
    fn every_probe_of_a_case_has_a_name_of_its_own() {
        for case in catalogue() {
            let names: BTreeSet<&str> = case.probes.iter().map(|probe| probe.name).collect();
            assert!(names.len() == case.probes.len() && !names.is_empty(), "{}", case.id);
        }
    }
}
