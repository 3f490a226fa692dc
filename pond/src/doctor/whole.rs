//! The last word: one small job through the real backend.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use pond_policy::node::Node;
use pond_policy::profile::Profile;
use pond_policy::settings::Settings;
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Ending, Job, Native, abandon, remedy};
use pond_sandbox::record::JobName;
use pond_sandbox::state::StateDir;
use pond_wire::jail::Console;
use pond_worker::supervise::{Bounds, Wiring, supervise};

use super::State;
use crate::settings;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn job() -> State {
    match run() {
        Ok(Ending::Exited { code: 0, .. }) => {
            State::Ok { detail: "true, on the current directory".to_owned() }
        }
        Ok(Ending::NotLaunched { step, errno }) => State::Missing {
            detail: format!("could not {}: {}", step.describe(), std::io::Error::from_raw_os_error(errno)),
            remedy: remedy(step, errno).unwrap_or_default().to_owned(),
        },
        Ok(ending @ (Ending::Exited { .. } | Ending::Signaled { .. } | Ending::NotBegun | Ending::Lost)) => {
            State::Missing {
                detail: format!("ended in an unexpected way: {ending:?}"),
                remedy: String::new(),
            }
        }
        Err(fault) => State::Missing { detail: format!("{fault:#}"), remedy: String::new() },
    }
}

fn run() -> anyhow::Result<Ending> {
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    let directory = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let native = Native::open(StateDir::open(&directory)?, &executable)?;
    let block = Node::Map(vec![("profile".to_owned(), Node::text(Profile::Write.name()))]);
    let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default())
        .map_err(|_refusals| anyhow::anyhow!("the default profile was refused"))?;
    let checkout = Checkout::open(Path::new("."))?;
    let name = JobName::try_from(format!("doctor-{}", std::process::id())).map_err(anyhow::Error::msg)?;
    let argv = ["true".to_owned()];
    let record = native.reserve(name)?;
    let job = Job {
        record: &record,
        policy: &policy,
        checkout: &checkout,
        argv: &argv,
        env: &[],
        exhibits: &[],
        tools: &[],
        console: Console::Pipes,
        doors: &[],
    };
    let bounds = Bounds { wall: PATIENCE, output_bytes: 0 };
    let wiring = Wiring { input: None, interrupt: None, terminal: None, rooms: &[] };
    let watched = || anyhow::Ok(supervise(native.launch(&job)?, wiring, bounds, |_, _| Ok(String::new()))?);
    match watched() {
        Ok(ended) => {
            record.close()?;
            Ok(ended.over.ending)
        }
        // The very host that cannot launch must not keep the traces of an attempt.
        Err(fault) => {
            abandon(native.state(), record)?;
            Err(fault)
        }
    }
}
