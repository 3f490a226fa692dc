//! The findings as one Markdown page.

use super::super::race::Row;
use super::super::report::{Facts, Goal, cells, goals};
use super::super::stats::milliseconds;
use super::roles::{Drained, Held};
use super::{Rate, Turn};

pub(super) const FIRST: &str = "pond up, submit to first output";

#[derive(Debug)]
pub(super) struct Page {
    pub(super) facts: Facts,
    pub(super) first: Option<Row>,
    pub(super) rates: Option<Vec<Rate>>,
    pub(super) queue: Option<Drained>,
    pub(super) idle: Option<Vec<Held>>,
}

impl Page {
    pub(super) fn markdown(&self) -> String {
        let sections = [
            Some(self.facts.markdown("Dispatch, measured")),
            self.first.as_ref().map(first),
            self.rates.as_deref().map(rates),
            self.queue.as_ref().map(queue),
            self.idle.as_deref().map(idle),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

fn first(row: &Row) -> String {
    let goal = ("p50 in ms".to_owned(), milliseconds(row.times.median()), 15.0);
    format!(
        "## From a submission to its first output\n\n![p50 and p95](dispatch.svg)\n\nOne run at a time on `pond up` with SQLite, over \
         HTTP: from the first byte of the request that submits `echo` for the native sandbox to the first byte of what it wrote, as \
         somebody who follows its output gets it. Milliseconds.\n\n\
         | | n | min | p50 | p95 | p99 |\n|---|--:|--:|--:|--:|--:|\n{}\n\n{}",
        cells(row),
        goals(&[goal])
    )
}

fn rates(rates: &[Rate]) -> String {
    let of = |name: &str| rates.iter().find(|rate| rate.name == name).map(|rate| rate.median().per_second);
    let ours = of("postgres");
    let line = |rate: &Rate| {
        let turns: Vec<String> = rate.turns.iter().map(|turn| format!("{:.0}", turn.per_second)).collect();
        let Turn { per_second, own, database } = rate.median();
        let ratio = ours.map_or("–".to_owned(), |ours| format!("{:.2}", ours / per_second));
        let (name, turns) = (shown(&rate.name), turns.join(", "));
        format!("| {name} | {per_second:.0} | {turns} | {own:.0} | {database:.0} | {ratio} |\n")
    };
    let goal = |name: &str, least: f64| {
        let rate = of(name)?;
        Some((format!("{least:.0} jobs a second ÷ {}", shown(name)), least / rate, 1.0))
    };
    let goals_of: Vec<Goal> =
        [goal("sqlite", 1000.0), goal("postgres", 2500.0)].into_iter().flatten().collect();
    format!(
        "## No-op jobs a second\n\nIn turns, on one machine with everything on it. pond: what its workers' protocol takes, through its \
         doors, without a sandbox: a signed poll that waits at the orchestrator, the signed offer checked, the \
         packed result as a chained piece with a signed statement, which says that the job began and asks for the next, the result judged \
         and the run ended, with audit entries and events. \
         The others: fetched and completed, on the same Postgres with its commits on disk. Everybody has one job at a time per worker and \
         8 connections. Microseconds of a processor for each job, in the turn in the middle: of its own processes (of pond: the workers, who \
         sign twice and verify once, the orchestrator and the control plane; of a peer: from its start on), and of Postgres.\n\n\
         | | median | turns | own µs | Postgres µs | pond on Postgres ÷ this |\n|---|--:|--:|--:|--:|--:|\n{}\n{}",
        rates.iter().map(line).collect::<String>(),
        goals(&goals_of)
    )
}

fn shown(name: &str) -> &str {
    match name {
        "sqlite" => "pond, SQLite",
        "postgres" => "pond, Postgres",
        other => other,
    }
}

fn queue(drained: &Drained) -> String {
    let seconds = drained.took.as_secs_f64();
    format!(
        "## {} queued runs, {} workers\n\nThe control plane, an orchestrator and the workers in processes of their own; each run is \
         `echo` in a native sandbox. From the start of the workers, which first look at what their host can do, all were over after \
         {seconds:.1} s: {:.0} a second.\n",
        drained.runs,
        drained.workers,
        f64::from(drained.runs) / seconds
    )
}

fn idle(roles: &[Held]) -> String {
    let mib = |kib: i64| f64::from(i32::try_from(kib).unwrap_or(i32::MAX)) / 1024.0;
    let line = |held: &Held| {
        format!("| `pond {}` | {:.1} | {:.1} |\n", held.role, mib(held.proportional), mib(held.resident))
    };
    let control = roles.iter().filter(|held| ["serve", "up"].contains(&held.role));
    let goal = |held: &Held| (format!("`pond {}`, MiB", held.role), mib(held.proportional), 40.0);
    format!(
        "## Memory of each role, idle\n\nMiB of all its processes after a start and five seconds without work, PSS and RSS; a worker has the process of its \
         next job waiting.\n\n\
         | role | PSS | RSS |\n|---|--:|--:|\n{}\n{}",
        roles.iter().map(line).collect::<String>(),
        goals(&control.map(goal).collect::<Vec<_>>())
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::stats::Sample;
    use super::*;

    fn rate(name: &str, per_second: f64) -> Rate {
        Rate { name: name.to_owned(), turns: vec![Turn { per_second, own: 400.0, database: 300.0 }] }
    }

    #[test]
    fn every_finding_has_its_place_and_its_goal() {
        let times = Sample::of(vec![Duration::from_millis(12)]).unwrap();
        let page = Page {
            facts: Facts::example(),
            first: Some(Row { name: FIRST, times }),
            rates: Some(vec![rate("sqlite", 500.0), rate("postgres", 3000.0), rate("pg-boss", 1500.0)]),
            queue: Some(Drained { runs: 1000, workers: 4, took: Duration::from_secs(20) }),
            idle: Some(vec![Held { role: "serve", proportional: 20 << 10, resident: 30 << 10 }]),
        };
        let text = page.markdown();
        for line in [
            "| p50 in ms | 12.000 | 15.000 | reached |\n",
            "| pg-boss | 1500 | 1500 | 400 | 300 | 2.00 |\n",
            "| 1000 jobs a second ÷ pond, SQLite | 2.000 | 1.000 | not reached |\n",
            "| 2500 jobs a second ÷ pond, Postgres | 0.833 | 1.000 | reached |\n",
            "all were over after 20.0 s: 50 a second.\n",
            "| `pond serve` | 20.0 | 30.0 |\n",
            "| `pond serve`, MiB | 20.000 | 40.000 | reached |\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
