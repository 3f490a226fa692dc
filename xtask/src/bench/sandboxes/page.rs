//! The findings as one Markdown page.

use super::super::backends::residue::Residue;
use super::super::race::Row;
use super::super::report::{Facts, Goal, cells, find, goals, kib_each, left_behind};
use super::super::stats::{milliseconds, ratio};
use super::idle::Idle;
use super::{DOCKER, EXEC, NATIVE, RUN};

#[derive(Debug)]
pub(super) struct Page {
    pub(super) facts: Facts,
    pub(super) create: Option<Vec<Row>>,
    pub(super) exec: Option<Vec<Row>>,
    pub(super) idle: Option<Idle>,
    pub(super) before: Residue,
    pub(super) after: Residue,
}

/// Milliseconds from the order for a native sandbox to the first output of a program in it.
const MAKING: f64 = 25.0;
/// How many times as long as `docker run` a sandbox in a container may take.
const MAKING_BESIDE_DOCKER: f64 = 1.5;
/// Milliseconds for a program in a native sandbox that runs.
const PROGRAM: f64 = 5.0;
const PROGRAM_BESIDE_DOCKER: f64 = 1.0;

impl Page {
    pub(super) fn holds(&self) -> bool {
        self.before == self.after
    }

    pub(super) fn markdown(&self) -> String {
        let sections = [
            Some(self.facts.markdown("Sandboxes that last, measured")),
            self.create.as_deref().map(create),
            self.exec.as_deref().map(exec),
            self.idle.as_ref().map(idle),
            Some(left_behind(&self.before, &self.after)),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

fn create(rows: &[Row]) -> String {
    let head = "## Order to first output\n\n![p50 and p95 of each contender](sandboxes.svg)\n\n\
        From the start of `pond sandbox create` to the first byte of `echo` in it, in milliseconds: two commands, one after the other, \
        with a sandbox of its own each time, its whole policy, a disk that stays and a gateway. `docker run` is one command, with the \
        same engine, image and `/usr`, its own defaults and no network. In turns.\n\n";
    let [native, docker] = [absolute(rows, NATIVE, MAKING), beside(rows, DOCKER, RUN, MAKING_BESIDE_DOCKER)];
    head.to_owned()
        + &table(rows, RUN)
        + "\n"
        + &goals(&[native, docker].into_iter().flatten().collect::<Vec<_>>())
}

fn exec(rows: &[Row]) -> String {
    let head = "## A program in one that runs\n\nFrom the start of `pond sandbox exec … echo`, or of `docker exec … echo`, to its \
        end, in milliseconds. pond keeps what the program wrote, and writes an event and a line of the audit log.\n\n";
    let [native, docker] =
        [absolute(rows, NATIVE, PROGRAM), beside(rows, DOCKER, EXEC, PROGRAM_BESIDE_DOCKER)];
    head.to_owned()
        + &table(rows, EXEC)
        + "\n"
        + &goals(&[native, docker].into_iter().flatten().collect::<Vec<_>>())
}

fn table(rows: &[Row], other: &str) -> String {
    let mut text =
        format!("| contender | n | min | p50 | p95 | p99 | ÷ {other} |\n|---|--:|--:|--:|--:|--:|--:|\n");
    for row in rows {
        let against = find(rows, other).map_or(0.0, |other| ratio(&row.times, other));
        text.push_str(&format!("{} {against:.3} |\n", cells(row)));
    }
    text
}

fn absolute(rows: &[Row], name: &str, bound: f64) -> Option<Goal> {
    Some((format!("{name}, ms"), milliseconds(find(rows, name)?.median()), bound))
}

fn beside(rows: &[Row], ours: &str, theirs: &str, bound: f64) -> Option<Goal> {
    Some((format!("{ours} ÷ {theirs}"), ratio(find(rows, ours)?, find(rows, theirs)?), bound))
}

fn idle(idle: &Idle) -> String {
    let count = u32::try_from(idle.each.len()).unwrap_or(u32::MAX);
    let row = |name: &str, kib: i64| format!("| {name} | {:.0} |\n", kib_each(kib, count));
    let kernel: String = idle.kernel.iter().map(|(name, kib)| row(name, *kib)).collect();
    let each: Vec<String> = idle.each.iter().map(i64::to_string).collect();
    format!(
        "## {count} idle sandboxes\n\nNative, each with a keeper, pid 1, a gateway and a disk, after one program. Processes by their \
         proportional share; the kernel's part is what it holds more than before, whole machine.\n\n\
         | part | KiB each |\n|---|--:|\n{}{kernel}{}\nProcesses of each, in KiB: least {}, p50 {}, most {}. All of them: {}.\n",
        row("processes (PSS)", idle.processes()),
        row("together", idle.total()),
        idle.quantile(0),
        idle.quantile(50),
        idle.quantile(100),
        each.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::stats::Sample;
    use super::*;

    fn row(name: &'static str, milliseconds: u64) -> Row {
        Row { name, times: Sample::of(vec![Duration::from_millis(milliseconds)]).unwrap() }
    }

    fn page(left: usize) -> Page {
        Page {
            facts: Facts::example(),
            create: Some(vec![row(NATIVE, 20), row(DOCKER, 400), row(RUN, 200)]),
            exec: Some(vec![row(NATIVE, 4), row(DOCKER, 8), row(EXEC, 80)]),
            idle: Some(Idle { each: vec![1000, 3000], kernel: vec![("Percpu", 400)] }),
            before: vec![("containers", 0)],
            after: vec![("containers", left)],
        }
    }

    #[test]
    fn a_thing_left_fails_the_bench() {
        assert!(page(0).holds() && !page(1).holds());
    }

    #[test]
    fn each_goal_is_judged_by_its_figure() {
        let text = page(0).markdown();
        for line in [
            "| pond sandbox, native | 1 | 20.00 | 20.00 | 20.00 | 20.00 | 0.100 |\n",
            "| pond sandbox, native, ms | 20.000 | 25.000 | reached |\n",
            "| pond sandbox, docker ÷ docker run | 2.000 | 1.500 | not reached |\n",
            "| pond sandbox, native, ms | 4.000 | 5.000 | reached |\n",
            "| pond sandbox, docker ÷ docker exec | 0.100 | 1.000 | reached |\n",
            "| processes (PSS) | 2000 |\n| Percpu | 200 |\n| together | 2200 |\n",
            "least 1000, p50 1000, most 3000. All of them: 1000, 3000.\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
