//! `cargo xtask bench dispatch`: a control plane and its workers, measured. From a submission to its first output on `pond up`; no-op
//! jobs a second at the workers' protocol, beside queues of others on the same Postgres; a long queue and four workers; what each
//! role holds while nothing happens. The instrument is `benches/dispatch/`.

mod page;
mod roles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::driver::Driver;
use super::race::Row;
use super::stand::{self, Stand};
use super::stats::Sample;
use super::{Only, chart, report, write};
use page::Page;
use roles::Up;

#[derive(Debug, Args)]
pub(crate) struct DispatchArgs {
    /// How often a run is submitted and its output waited for
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// No-op jobs of one turn
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Workers that have one job at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// How many turns each queue gets
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Runs that wait when four workers begin
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    queue: u32,
    #[command(flatten)]
    only: Only<What>,
    /// Where the table and the chart are written
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// From a submission to its first output
    First,
    /// Jobs a second at the protocol, and those of other queues
    Rates,
    /// A long queue, and four workers with sandboxes
    Queue,
    /// Memory of each role
    Idle,
}

impl DispatchArgs {
    /// The command that repeats this.
    fn command(&self) -> String {
        let Self { runs, jobs, workers, rounds, queue, .. } = self;
        let command = format!(
            "cargo xtask bench dispatch --runs {runs} --jobs {jobs} --workers {workers} --rounds {rounds} --queue {queue}"
        );
        self.only.repeat(command)
    }
}

/// Jobs a second, in every turn, and what a job costs.
#[derive(Debug, Clone, PartialEq)]
struct Rate {
    name: String,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Turn {
    per_second: f64,
    /// Microseconds of a processor for each job: of its own processes, and of Postgres.
    own: f64,
    database: f64,
}

pub(super) fn run(root: &Path, args: &DispatchArgs) -> Result<()> {
    let stand = Stand::set_up(root, "dispatch", &stand::FOR_DISPATCH)?;
    stand.add("pond-control", "dispatch")?;
    let facts = report::Facts::of(&stand, args.command())?;
    let measure = |what: What| args.only.asks_for(&what);
    let page = Page {
        facts,
        first: measure(What::First).map(|()| first(&stand, args.runs)).transpose()?,
        rates: measure(What::Rates).map(|()| rates(&stand, args)).transpose()?,
        queue: measure(What::Queue).map(|()| roles::drain(&stand, args.queue)).transpose()?,
        idle: measure(What::Idle).map(|()| roles::idle(&stand)).transpose()?,
    };
    let text = page.markdown();
    println!("\n{text}");
    write(&root.join(&args.out), "dispatch.md", &text)?;
    match &page.first {
        None => Ok(()),
        Some(row) => {
            let chart = chart::svg("From a submission to its first output", std::slice::from_ref(row));
            write(&root.join(&args.out), "dispatch.svg", &chart)
        }
    }
}

fn first(stand: &Stand, runs: u32) -> Result<Row> {
    let up = Up::start(stand, "first")?;
    let instrument = stand.command(&[&stand.path("dispatch"), "first", &up.address, &up.token]);
    let mut driver = Driver::start(&instrument, &stand.log)?;
    // The first fills caches and makes templates; it is nobody's figure.
    driver.launch()?;
    let times = (0..runs).map(|_| driver.launch()).collect::<Result<Vec<Duration>>>()?;
    Ok(Row { name: page::FIRST, times: Sample::of(times).context("no run was asked for")? })
}

const PEERS: [&str; 3] = ["pg-boss@10.4.2", "graphile-worker@0.16.6", "pg@8.23.1"];

fn rates(stand: &Stand, args: &DispatchArgs) -> Result<Vec<Rate>> {
    let place = stand.root.join("target/xtask/dispatch-peers");
    let place = place.to_str().context("the checkout's path is not UTF-8")?;
    let modules = format!("{place}/node_modules");
    if !Path::new(&modules).join("graphile-worker").exists() {
        let npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", place];
        stand.step(&[&npm[..], &PEERS].concat())?;
    }
    let peers = stand.root.join("benches/dispatch/peers.cjs").to_string_lossy().into_owned();
    let [jobs, workers, rounds] = [args.jobs, args.workers, args.rounds].map(|number| number.to_string());
    let words = [&stand.path("dispatch"), "rates", &jobs, &workers, &rounds, &peers, &modules];
    let mut rates: Vec<Rate> = Vec::new();
    for line in stand.capture(&words)?.lines() {
        let (name, turn) = Turn::parse(line).with_context(|| format!("not a turn: {line}"))?;
        match rates.iter_mut().find(|rate| rate.name == name) {
            Some(rate) => rate.turns.push(turn),
            None => rates.push(Rate { name: name.to_owned(), turns: vec![turn] }),
        }
    }
    Ok(rates)
}

impl Turn {
    /// Who, how many jobs, and nanoseconds: of all, of its own processes, of Postgres. `postgres 2000 1000000000 500000000 0`.
    fn parse(line: &str) -> Option<(&str, Self)> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, jobs, took, own, database] = words.as_slice() else { return None };
        let jobs = f64::from(jobs.parse::<u32>().ok()?);
        let seconds = |word: &str| Some(Duration::from_nanos(word.parse().ok()?).as_secs_f64());
        let each = |word: &str| Some(seconds(word)? * 1e6 / jobs);
        Some((name, Self { per_second: jobs / seconds(took)?, own: each(own)?, database: each(database)? }))
    }
}

impl Rate {
    /// The turn in the middle.
    fn median(&self) -> Turn {
        let mut sorted = self.turns.clone();
        sorted.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        let none = Turn { per_second: 0.0, own: 0.0, database: 0.0 };
        sorted.get(sorted.len() / 2).copied().unwrap_or(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_name_a_rate_and_what_it_cost() {
        let turn = Turn { per_second: 4000.0, own: 250.0, database: 500.0 };
        assert_eq!(Turn::parse("pg-boss 2000 500000000 500000000 1000000000"), Some(("pg-boss", turn)));
        assert_eq!(Turn::parse("pg-boss 2000 500000000"), None);
        let turns = [3.0, 1.0, 2.0].map(|per_second| Turn { per_second, own: 0.0, database: 0.0 }).to_vec();
        assert_eq!(Rate { name: String::new(), turns }.median().per_second, 2.0);
    }
}
