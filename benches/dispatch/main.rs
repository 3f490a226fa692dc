//! Measures dispatch, in one of three ways:
//! `rates JOBS WORKERS ROUNDS PEERS MODULES` no-op jobs a second at the workers' protocol, on SQLite and Postgres, beside queues of
//! others on the same Postgres (`rates JOBS WORKERS ROUNDS sqlite` or `postgres`: that alone); `first ADDRESS TOKEN` from a submission to its first output, a line for a line;
//! `drain ADDRESS TOKEN RUNS` submits so many runs, says so, and says when none is active any more.
//! Answers are lines of names and numbers; whoever asked makes a page of them.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "an instrument stops at the first surprise, and starts what it measures"
)]

mod cpu;
mod protocol;
mod rates;
#[path = "../../control/pond-control/tests/store/server.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod server;
mod user;

use std::io::Write as _;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u32>().unwrap();
    match words.as_slice() {
        ["rates", jobs, workers, rounds, peers, modules] => {
            let load = rates::Load { jobs: number(jobs), workers: number(workers) };
            rates::measure(load, number(rounds), Some((peers, modules)), None);
        }
        ["rates", jobs, workers, rounds, only] => {
            let load = rates::Load { jobs: number(jobs), workers: number(workers) };
            rates::measure(load, number(rounds), None, Some(only));
        }
        ["first", address, token] => block_on(user::first(address, token)),
        ["drain", address, token, runs] => block_on(user::drain(address, token, number(runs))),
        _ => panic!(
            "dispatch rates JOBS WORKERS ROUNDS [PEERS MODULES | sqlite | postgres] | first ADDRESS TOKEN | drain ADDRESS TOKEN RUNS"
        ),
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
