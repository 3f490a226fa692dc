//! The findings as one Markdown page.

use super::super::report::{Facts, cells, find, goals, left_behind};
use super::super::stats::ratio;
use super::residue::Residue;
use super::{AT_ONCE, Crowd, DOCKER, GVISOR, PLAIN, PLAIN_GVISOR, Turns};

#[derive(Debug)]
pub(super) struct Page {
    pub(super) facts: Facts,
    pub(super) turns: Vec<Turns>,
    pub(super) crowds: Vec<Crowd>,
    pub(super) before: Residue,
    pub(super) after: Residue,
}

/// How many times as long as plain docker a container with a gateway may take.
const BOUND: f64 = 2.0;

impl Page {
    pub(super) fn holds(&self) -> bool {
        let failed = self.turns.iter().map(|turns| turns.failures);
        let failed = failed.chain(self.crowds.iter().map(|crowd| crowd.failures));
        failed.sum::<usize>() == 0 && self.before == self.after
    }

    pub(super) fn markdown(&self) -> String {
        let head = self.facts.markdown("The backends, measured");
        [head, self.first_output(), self.together(), left_behind(&self.before, &self.after)].join("\n")
    }

    fn first_output(&self) -> String {
        let mut text = "## Launch to first output\n\n![p50 and p95 of each contender](backends.svg)\n\n\
            From the start of the command to the first byte of `echo`, in milliseconds; everybody in turns, each launch anew. pond runs \
            its whole policy, with a gateway and its allowlist, on a throwaway copy. `docker run` has the same engine, image and \
            `/usr`, its own defaults and nothing else.\n\n\
            | contender | n | min | p50 | p95 | p99 | failed | ÷ docker run |\n|---|--:|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
        let rows: Vec<_> = self.turns.iter().map(|turns| turns.row.clone()).collect();
        for turns in &self.turns {
            let against = find(&rows, PLAIN).map_or(0.0, |plain| ratio(&turns.row.times, plain));
            let tried = turns.row.times.count() + turns.failures;
            text.push_str(&format!("{} {} of {tried} | {against:.2} |\n", cells(&turns.row), turns.failures));
        }
        let goal = |ours: &str, theirs: &str| {
            Some((format!("{ours} ÷ {theirs}"), ratio(find(&rows, ours)?, find(&rows, theirs)?), BOUND))
        };
        let reached = [goal(DOCKER, PLAIN), goal(GVISOR, PLAIN_GVISOR)];
        text + "\n" + &goals(&reached.into_iter().flatten().collect::<Vec<_>>())
    }

    fn together(&self) -> String {
        let row = |crowd: &Crowd| {
            let each = crowd.took.as_secs_f64() * 1000.0 / f64::from(crowd.launches);
            format!(
                "| {} | {} | {} | {:.1} s | {each:.0} ms |\n",
                crowd.name,
                crowd.launches,
                crowd.failures,
                crowd.took.as_secs_f64()
            )
        };
        format!(
            "## {AT_ONCE} at a time\n\n| contender | launches | failed | all over after | per launch |\n|---|--:|--:|--:|--:|\n{}",
            self.crowds.iter().map(row).collect::<String>()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::race::Row;
    use super::super::super::stats::Sample;
    use super::*;

    fn turns(name: &'static str, milliseconds: u64, failures: usize) -> Turns {
        let times = Sample::of(vec![Duration::from_millis(milliseconds)]).unwrap();
        Turns { row: Row { name, times }, failures }
    }

    fn page(failures: usize, crowd: usize, left: usize) -> Page {
        Page {
            facts: Facts::example(),
            turns: vec![turns(DOCKER, 300, failures), turns(PLAIN, 200, 0)],
            crowds: vec![Crowd {
                name: DOCKER,
                launches: 100,
                failures: crowd,
                took: Duration::from_secs(10),
            }],
            before: vec![("containers", 0)],
            after: vec![("containers", left)],
        }
    }

    #[test]
    fn a_failure_or_a_thing_left_fails_the_bench() {
        assert!(page(0, 0, 0).holds());
        for page in [page(1, 0, 0), page(0, 1, 0), page(0, 0, 1)] {
            assert!(!page.holds());
        }
    }

    #[test]
    fn a_row_has_its_failures_and_its_ratio() {
        let text = page(1, 0, 0).markdown();
        let row = "| pond run --backend docker | 1 | 300.00 | 300.00 | 300.00 | 300.00 | 1 of 2 | 1.50 |\n";
        assert!(text.contains(row), "{text}");
        let goal = "| pond run --backend docker ÷ docker run --network none | 1.500 | 2.000 | reached |\n";
        assert!(text.contains(goal), "{text}");
        assert!(text.contains("| pond run --backend docker | 100 | 0 | 10.0 s | 100 ms |\n"), "{text}");
        assert!(
            text.ends_with("| thing | before | after |\n|---|--:|--:|\n| containers | 0 | 0 |\n"),
            "{text}"
        );
    }
}
