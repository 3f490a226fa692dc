//! `pond worker`: this machine as one that runs jobs for a control plane.

pub(crate) mod join;
pub(crate) mod membership;
mod probe;
mod rotate;
pub(crate) mod serve;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output;
use crate::remote::worker as remote;

#[derive(Debug, Subcommand)]
pub(crate) enum Worker {
    Join(join::JoinArgs),
    Run(serve::ServeArgs),
    /// Give this worker new keys in the place of its old ones, which sign for them. Its daemon must be stopped.
    Rotate,
    /// Sweep what killed jobs left, and print what this host can enforce.
    #[command(hide = true)]
    Probe,
    #[command(flatten)]
    AtControlPlane(remote::WorkerCommand),
}

pub(crate) fn main(worker: &Worker) -> ExitCode {
    let done = match worker {
        Worker::Join(args) => join::join(args),
        Worker::Run(args) => serve::serve(args),
        Worker::Rotate => rotate::rotate(),
        Worker::Probe => probe::print(),
        Worker::AtControlPlane(command) => return remote::main(command),
    };
    match done {
        Ok(code) => code,
        Err(fault) => output::failed(&fault, false),
    }
}

/// Calls wait for a network and for nothing else; one thread is enough.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
