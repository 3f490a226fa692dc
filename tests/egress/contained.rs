//! The way out of a container is the way out of a native job: the same rows, the same verdicts. The controls of the rows stand
//! where the rows do; what only an engine could get wrong has its own here.

use crate::catalogue;
use crate::world::Backend;

#[test]
fn the_catalogue_on_docker() {
    catalogue::run_all(Backend::Docker);
}

#[test]
fn the_catalogue_on_gvisor() {
    catalogue::run_all(Backend::Gvisor);
}
