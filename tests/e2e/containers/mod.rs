//! Jobs in containers, on a Docker engine of the test's own: the same results as native, the posture from inside, the escape
//! catalogue, runtimes that lie, what is left after something was killed, and the scripts that make a worker.

mod boxes;
mod catalogue;
mod clash;
mod companions;
pub(crate) mod daemon;
mod deploy;
mod devices;
mod doctor;
mod ground;
mod images;
mod kept;
mod killed;
mod lies;
mod parity;
mod posture;
mod rates;
mod stopped;
mod stream;
mod terminal;
mod tools;

use std::process::Command;

use daemon::Daemon;

use crate::done::Done;
use crate::support::World;

/// What becomes the launcher and pid 1 of containers.
const POND: &str = env!("CARGO_BIN_EXE_pond");

impl Daemon {
    /// `pond run` with these flags and command, on this engine.
    fn pond(&self, world: &World, arguments: &[&str]) -> Command {
        let mut pond = world.pond(arguments);
        pond.env("DOCKER_HOST", self.address());
        pond
    }

    fn run(&self, world: &World, arguments: &[&str]) -> Done {
        Done::of(self.pond(world, arguments).output().unwrap())
    }
}
