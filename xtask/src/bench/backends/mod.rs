//! `cargo xtask bench backends`: the same job on every backend, with its whole policy and a gateway, to the first byte of its output,
//! beside plain `docker run` of the same image on the same engine. All take turns; then crowds, and a count of what is left.

mod page;
pub(super) mod residue;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::docker::{self, Daemon};
use super::driver::Driver;
use super::race::Row;
use super::stand::{self, Stand};
use super::stats::Sample;
use super::{chart, report, write};
use crate::run::Invocation;
use crate::test;
use page::Page;

const NATIVE: &str = "pond run --backend native";
const DOCKER: &str = "pond run --backend docker";
const GVISOR: &str = "pond run --backend gvisor";
const PLAIN: &str = "docker run --network none";
const PLAIN_GVISOR: &str = "docker run --network none, runsc";

#[derive(Debug, Args)]
pub(crate) struct BackendsArgs {
    /// How many turns each contender gets
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How many launches a crowd makes, eight at a time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    crowd: u32,
    /// Where the table and the chart are written
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    out: PathBuf,
}

/// What a contender took, and how often it failed.
#[derive(Debug)]
struct Turns {
    row: Row,
    failures: usize,
}

/// Launches of one backend, several at a time.
#[derive(Debug)]
struct Crowd {
    name: &'static str,
    launches: u32,
    failures: usize,
    took: Duration,
}

#[derive(Debug)]
struct Contender {
    name: &'static str,
    words: Vec<String>,
}

/// Whether nothing failed and nothing is left.
pub(crate) fn run(root: &Path, args: &BackendsArgs) -> Result<bool> {
    let stand = Stand::set_up(root, "backends", &stand::FOR_BACKENDS)?;
    let runsc = test::gvisor(root, &stand.log)?;
    let docker = Daemon::start(&stand, &docker::with_runsc(&runsc))?;
    let contenders = contenders(&stand, &docker)?;
    let command = format!("cargo xtask bench backends --runs {} --crowd {}", args.runs, args.crowd);
    let facts = report::Facts::of(&stand, command)?;
    let before = residue::count(&stand, &docker)?;
    let turns = race(&stand, &docker, &contenders, args.runs)?;
    let crowds = contenders
        .iter()
        .filter(|contender| [NATIVE, DOCKER, GVISOR].contains(&contender.name))
        .map(|contender| crowd(&stand, &docker, contender, args.crowd))
        .collect::<Result<_>>()?;
    let after = residue::settled(&stand, &docker, &before)?;
    docker.stop()?;
    let page = Page { facts, turns, crowds, before, after };
    let table = page.markdown();
    println!("\n{table}");
    write(&root.join(&args.out), "backends.md", &table)?;
    let rows: Vec<Row> = page.turns.iter().map(|turns| turns.row.clone()).collect();
    write(&root.join(&args.out), "backends.svg", &chart::svg("Launch to first output", &rows))?;
    Ok(page.holds())
}

fn contenders(stand: &Stand, docker: &Daemon<'_>) -> Result<Vec<Contender>> {
    let checkout = stand.path("checkout");
    let pond = |name, backend| Contender {
        name,
        words: stand.pond(&checkout, &["--backend", backend, "--", "echo", "here"]),
    };
    let [native, on_docker, on_gvisor] =
        [pond(NATIVE, "native"), pond(DOCKER, "docker"), pond(GVISOR, "gvisor")];
    // It brings the image that all containers stand on.
    Driver::start(&instrument(stand, docker, &on_docker), &stand.log)?.launch()?;
    let listed = docker.client(&["image", "ls", "--quiet", "--no-trunc", "pond-root"]).capture()?;
    let image = listed.lines().next().context("pond gave the engine no image")?;
    let usr = ["--mount=type=bind,source=/usr,target=/usr,readonly"];
    let plain = |name, runtime: &str| Contender {
        name,
        words: docker.plain(&[&usr[..], &[&format!("--runtime={runtime}"), image, "echo", "here"]].concat()),
    };
    Ok(vec![native, on_docker, on_gvisor, plain(PLAIN, "runc"), plain(PLAIN_GVISOR, docker::RUNSC)])
}

fn instrument(stand: &Stand, docker: &Daemon<'_>, contender: &Contender) -> Invocation {
    let words = [vec![stand.path("launch"), "speak".to_owned()], contender.words.clone()].concat();
    on_engine(stand, docker, &words)
}

fn on_engine(stand: &Stand, docker: &Daemon<'_>, words: &[String]) -> Invocation {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    stand.with_state(&words).env("DOCKER_HOST", docker.address())
}

/// In turns. A launch that fails is counted; its complaint is in the log.
fn race(stand: &Stand, docker: &Daemon<'_>, contenders: &[Contender], rounds: u32) -> Result<Vec<Turns>> {
    let mut racers = Vec::new();
    for contender in contenders {
        let instrument = instrument(stand, docker, contender);
        let mut driver = Driver::start(&instrument, &stand.log)?;
        // The first launch fills caches and makes templates; it is nobody's figure.
        driver.launch()?;
        racers.push((contender.name, instrument, driver, Vec::new(), 0));
    }
    for _ in 0..rounds {
        for (_, instrument, driver, times, failures) in &mut racers {
            match driver.launch() {
                Ok(took) => times.push(took),
                Err(_logged) => {
                    *failures += 1;
                    *driver = Driver::start(instrument, &stand.log)?;
                }
            }
        }
    }
    let turns = racers.into_iter().map(|(name, _, _, times, failures)| {
        let times = Sample::of(times).with_context(|| format!("every launch of {name} failed"))?;
        Ok(Turns { row: Row { name, times }, failures })
    });
    turns.collect()
}

/// How many of a crowd are under way at once.
const AT_ONCE: usize = 8;
/// A launch that hangs has failed.
const PATIENCE: [&str; 3] = ["timeout", "--kill-after=10", "120"];

fn crowd(stand: &Stand, docker: &Daemon<'_>, contender: &Contender, launches: u32) -> Result<Crowd> {
    println!("    {launches} × {}, {AT_ONCE} at a time …", contender.name);
    let command = on_engine(stand, docker, &[&PATIENCE.map(str::to_owned)[..], &contender.words].concat());
    let (taken, failures) = (AtomicU32::new(0), AtomicUsize::new(0));
    let one_by_one = || -> Result<()> {
        while taken.fetch_add(1, Ordering::Relaxed) < launches {
            if !command.start(&stand.log)?.wait()?.success() {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one_by_one)).collect();
        let panicked = |_| anyhow::anyhow!("a thread of the crowd panicked");
        threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked)?)
    })?;
    let took = started.elapsed();
    Ok(Crowd { name: contender.name, launches, failures: failures.into_inner(), took })
}
