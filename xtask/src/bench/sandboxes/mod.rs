//! `cargo xtask bench sandboxes`: sandboxes that last, with their whole policy and a gateway each. Making one and hearing a program in
//! it, beside plain `docker run`; a program in one that runs, beside `docker exec`; what idle ones hold. All take turns.

mod idle;
mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::backends::residue;
use super::docker::{self, Daemon};
use super::race::{self, Contender, Pace, Row};
use super::stand::{self, Stand};
use super::{Only, chart, report, write};
use crate::run::Invocation;
use crate::test;
use page::Page;

const NATIVE: &str = "pond sandbox, native";
const DOCKER: &str = "pond sandbox, docker";
const GVISOR: &str = "pond sandbox, gvisor";
const RUN: &str = "docker run";
const RUN_GVISOR: &str = "docker run, runsc";
const EXEC: &str = "docker exec";
const EXEC_GVISOR: &str = "docker exec, runsc";

/// Each kind of sandbox, and its backend.
const KINDS: [(&str, &str); 3] = [(NATIVE, "native"), (DOCKER, "docker"), (GVISOR, "gvisor")];
/// What every program says.
const WORDS: [&str; 2] = ["echo", "here"];
/// Containers take hundreds of times as long as what they are beside.
const SELDOM: Pace = Pace::EveryNth(2);

#[derive(Debug, Args)]
pub(crate) struct SandboxesArgs {
    /// How many sandboxes of each kind are made
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How many programs run in each that is there already
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    execs: u32,
    /// How many idle ones there are at once
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    #[command(flatten)]
    only: Only<What>,
    /// Where the table and the charts are written
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// From the order for a sandbox to the first output of a program in it
    Create,
    /// A program in a sandbox that runs
    Exec,
    /// Memory of idle sandboxes
    Idle,
}

impl SandboxesArgs {
    /// The command that repeats this.
    fn command(&self) -> String {
        let Self { runs, execs, idle, .. } = self;
        self.only.repeat(format!("cargo xtask bench sandboxes --runs {runs} --execs {execs} --idle {idle}"))
    }
}

/// Whether nothing is left.
pub(crate) fn run(root: &Path, args: &SandboxesArgs) -> Result<bool> {
    let stand = Stand::set_up(root, "sandboxes", &stand::FOR_BACKENDS)?;
    let runsc = test::gvisor(root, &stand.log)?;
    let docker = Daemon::start(&stand, &docker::with_runsc(&runsc))?;
    let ground = Ground::set_up(&stand, &docker)?;
    let facts = report::Facts::of(&stand, args.command())?;
    let before = residue::count(&stand, &docker)?;
    let measure = |what: What| args.only.asks_for(&what);
    let create = measure(What::Create).map(|()| ground.create(args.runs)).transpose()?;
    let exec = measure(What::Exec).map(|()| ground.exec(args.execs)).transpose()?;
    let idle = measure(What::Idle).map(|()| idle::measure(&ground, args.idle)).transpose()?;
    let after = residue::settled(&stand, &docker, &before)?;
    docker.stop()?;
    let page = Page { facts, create, exec, idle, before, after };
    let table = page.markdown();
    println!("\n{table}");
    let out = root.join(&args.out);
    write(&out, "sandboxes.md", &table)?;
    if let Some(rows) = &page.create {
        let title = "Order to first output of a program";
        write(&out, "sandboxes.svg", &chart::svg(title, rows))?;
    }
    Ok(page.holds())
}

/// An engine that has the image all containers stand on.
struct Ground<'a> {
    stand: &'a Stand,
    docker: &'a Daemon<'a>,
    image: String,
}

impl<'a> Ground<'a> {
    /// The first sandboxes fill caches, make templates and bring the image; they are nobody's figure.
    fn set_up(stand: &'a Stand, docker: &'a Daemon<'a>) -> Result<Self> {
        let mut ground = Self { stand, docker, image: String::new() };
        for (_, backend) in KINDS {
            ground.pond(&["create", "--id", &format!("first-{backend}"), "--backend", backend]).capture()?;
            ground.remove(&format!("first-{backend}"))?;
        }
        let listed = docker.client(&["image", "ls", "--quiet", "--no-trunc", "pond-root"]).capture()?;
        listed.lines().next().context("pond gave the engine no image")?.clone_into(&mut ground.image);
        Ok(ground)
    }

    fn on_engine(&self, words: &[&str]) -> Invocation {
        self.stand.with_state(words).env("DOCKER_HOST", self.docker.address())
    }

    fn pond(&self, words: &[&str]) -> Invocation {
        self.on_engine(&[&[self.stand.path("pond").as_str(), "sandbox"], words].concat())
    }

    fn remove(&self, id: &str) -> Result<()> {
        self.pond(&["rm", id]).capture().map(drop)
    }

    /// The instrument in one of its modes.
    fn instrument(&self, mode: &str, words: &[&str]) -> Invocation {
        self.on_engine(&[&[self.stand.path("launch").as_str(), mode], words].concat())
    }

    /// A container of docker's own making: the same image and `/usr`, its own defaults, no network.
    fn plain(&self, verb: &[&str], runtime: &str, rest: &[&str]) -> Vec<String> {
        let usr = "--mount=type=bind,source=/usr,target=/usr,readonly";
        let runtime = format!("--runtime={runtime}");
        let words = [verb, &["--network=none", usr, &runtime, &self.image], rest].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    fn create(&self, rounds: u32) -> Result<Vec<Row>> {
        let pond = self.stand.path("pond");
        let lasting = |(name, backend): (&'static str, &'static str)| Contender {
            name,
            instrument: self.instrument("lasting", &[&[pond.as_str(), backend], &WORDS[..]].concat()),
            pace: if name == NATIVE { Pace::EveryRound } else { SELDOM },
        };
        let run = |(name, runtime): (&'static str, &str)| {
            let words = self.plain(&["run", "--rm"], runtime, &WORDS);
            Contender { name, instrument: self.speaking(&words), pace: SELDOM }
        };
        let plain = [(RUN, "runc"), (RUN_GVISOR, docker::RUNSC)];
        let contenders: Vec<_> = KINDS.map(lasting).into_iter().chain(plain.map(run)).collect();
        race::run(&contenders, rounds, &self.stand.log)
    }

    /// The instrument, hearing the first byte of a command of docker's client.
    fn speaking(&self, words: &[String]) -> Invocation {
        let words: Vec<&str> = [docker::CLIENT].into_iter().chain(words.iter().map(String::as_str)).collect();
        self.instrument("speak", &words)
    }

    /// In one sandbox and one container of each kind, made once.
    fn exec(&self, rounds: u32) -> Result<Vec<Row>> {
        let pond = self.stand.path("pond");
        let mut contenders = Vec::new();
        for (name, backend) in KINDS {
            self.pond(&["create", "--id", &format!("exec-{backend}"), "--backend", backend]).capture()?;
            let id = format!("exec-{backend}");
            let words = [&[pond.as_str(), "sandbox", "exec", &id, "--"], &WORDS[..]].concat();
            contenders.push(Contender {
                name,
                instrument: self.instrument("spawn", &words),
                pace: Pace::EveryRound,
            });
        }
        for (name, runtime) in [(EXEC, "runc"), (EXEC_GVISOR, docker::RUNSC)] {
            let container = format!("exec-{runtime}");
            let detached = ["run", "--detach", "--rm", "--name", &container];
            let words = self.plain(&detached, runtime, &["sleep", "infinity"]);
            self.docker.client(&words.iter().map(String::as_str).collect::<Vec<_>>()).capture()?;
            let words = [&[docker::CLIENT, "exec", container.as_str()], &WORDS[..]].concat();
            contenders.push(Contender {
                name,
                instrument: self.instrument("spawn", &words),
                pace: Pace::EveryRound,
            });
        }
        let rows = race::run(&contenders, rounds, &self.stand.log)?;
        for (_, backend) in KINDS {
            self.remove(&format!("exec-{backend}"))?;
        }
        for runtime in ["runc", docker::RUNSC] {
            self.docker.client(&["rm", "--force", &format!("exec-{runtime}")]).capture()?;
        }
        Ok(rows)
    }
}
