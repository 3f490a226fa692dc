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
    "needs a far side that answers; tests/egress makes one, and tries this with and without the gateway";
const INJECTED: &str = "needs a fault injected into a build of its own; a user's host cannot show it";
const KILLED: &str =
    "would kill the attack itself; tests/e2e/killed.rs kills each process of a run of its own, at each step";
const COLLECTOR: &str =
    "shown by the collector's own tests on trees made for it (host/pond-worker/src/collect/tests)";
const GIT: &str =
    "pond runs no git on a job's tree, so there is nothing to trigger; the collector's tests hold it to that";
const CONTAINERS: &str = "about backends other than native";

pub(super) const UNCOVERED: &[Uncovered] = &[
    not("E19", "the native backend does not limit disk bandwidth: control groups v1 cannot"),
    not("N03", GATEWAY),
    not("N05", GATEWAY),
    not("N06", GATEWAY),
    not("N07", GATEWAY),
    not("N08", GATEWAY),
    not("N09", GATEWAY),
    not("N10", GATEWAY),
    not("L02", KILLED),
    not("L04", KILLED),
    not("L07", "a process stuck in the kernel needs a broken device"),
    not("L10", INJECTED),
    not(
        "L11",
        "takes the host's last loop device, process and byte; tests/e2e/shortage.rs does it to a pond of its own",
    ),
    not("L12", "needs a host without the layer; `pond doctor` says what this one has"),
    not("L13", "needs the host's clock to jump"),
    not("L14", "the thread that launches a job stays with it to its end"),
    not("L15", "needs kernel calls to fail; tests/e2e/injected.rs makes them fail for a pond of its own"),
    not(
        "C01",
        "only a snapshot copies the checkout; its own tests lead it astray (host/pond-worker/src/snapshot/tests.rs)",
    ),
    not("C16", "everything inside is dead before collection begins (L08), so nothing can grow"),
    not("C17", "results are no archives"),
    not("G04", GIT),
    not("G08", GIT),
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
        [('E', 30), ('K', 44), ('N', 11), ('L', 15), ('C', 18), ('G', 14), ('P', 4)];

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
