//! Launch to exit of `true`, all contenders in turns.

use anyhow::Result;

use super::docker::Daemon;
use super::race::{self, Row};
use super::stand::Stand;
use super::visitor::Visitor;
use super::{bundle, peers};

pub(super) fn measure(stand: &Stand, runs: u32) -> Result<Vec<Row>> {
    let bundle = bundle::make(stand)?;
    let docker = Daemon::start(stand, "{}")?;
    docker.import(&bundle)?;
    let visitor = Visitor::invite(stand)?;
    let mut contenders = peers::ours(stand);
    contenders.extend(peers::visiting(stand, &visitor));
    contenders.extend(peers::containers(stand, &bundle, &docker));
    let rows = race::run(&contenders, runs, &stand.log)?;
    docker.stop()?;
    Ok(rows)
}
