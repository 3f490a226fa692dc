//! Chaos: a whole site of real processes and real sandboxes, to which things happen that were thrown from a seed. Whatever happens,
//! every stage ends once, no result of a lease that is over counts, what was acknowledged is there, and nothing is left on workers.
//!
//! `POND_CHAOS_SEED` repeats a failure, `POND_CHAOS_ROUNDS` makes it longer; `cargo xtask chaos` sets both.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and starts what it tests against"
)]

mod dice;
mod http;
mod log;
mod lossy;
mod plan;
mod residue;
mod round;
#[path = "../../control/pond-control/tests/store/server.rs"]
#[expect(dead_code, reason = "the tests of the store need more of it")]
mod server;
mod site;
mod work;

use dice::Dice;
use plan::{Act, Work};
use round::{Played, Tally};
use site::{Ground, Site};

const USUAL_SEED: u64 = 20_261_116;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|fault| panic!("{variable}={text}: {fault}")))
}

/// Rounds on one site, each from a seed of its own; those of a shorter run are the first of a longer one.
fn chaos(ground: Ground, usual_rounds: u64) {
    play(ground, usual_rounds, |dice| plan::plan(ground, dice));
}

fn play(ground: Ground, usual_rounds: u64, plan: impl Fn(&mut Dice) -> plan::Plan) {
    let seed = number("POND_CHAOS_SEED").unwrap_or(USUAL_SEED);
    let rounds = number("POND_CHAOS_ROUNDS").unwrap_or(usual_rounds);
    let mut dice = Dice::new(seed);
    let mut site = Site::build(ground, &mut dice);
    let mut tally = Tally::default();
    let mut played = Played::new(&mut site);
    for round in 0..rounds {
        let plan = plan(&mut dice.apart());
        eprintln!("{ground:?} round {round} of {rounds}, POND_CHAOS_SEED={seed}");
        let wrong = played.play(&plan, &mut tally);
        assert!(
            wrong.is_empty(),
            "{ground:?}, round {round}, POND_CHAOS_SEED={seed}: {wrong:#?}\nafter {plan:?}\n{}",
            played.logs()
        );
        eprintln!("{tally:?}, {} mishaps on the way", played.mishaps());
    }
    assert_eq!(tally.rounds, rounds);
}

#[test]
fn processes_die_and_requests_get_lost() {
    chaos(Ground::Sqlite, 2);
}

#[test]
fn so_does_the_postgres_below() {
    chaos(Ground::Postgres, 1);
}

#[test]
fn the_disk_is_full_for_a_while() {
    chaos(Ground::SmallDisk, 1);
}

/// The fence itself, with nothing else going on: break it, and this fails every time.
#[test]
fn a_result_that_comes_too_late_does_not_count() {
    play(Ground::Sqlite, 1, |_| vec![(0, Act::Submit(Work::Slow)), (0, Act::Limbo)]);
}
