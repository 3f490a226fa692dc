//! The doors of a gateway in a container's network: a short-lived child of the launcher goes in, opens them, hands them out
//! and ends. The launcher itself never leaves the host's network namespace.

use std::os::fd::AsFd;

use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use pond_wire::jail::Step;
use rustix::io::Errno;

use crate::doors;
use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::request::{Visit, plan_of};

const OWN_NETWORK: &str = "/proc/self/ns/net";

pub(crate) fn visit(request: &Visit) {
    let went = match fork_into(Namespaces::Inherit, None).at(Step::Doors) {
        Ok(Fork::Child) => {
            let opened = open(request);
            if let Err(failure) = opened {
                tell(request.report.as_fd(), failure.report(), &[]);
            }
            exit_now(0)
        }
        Ok(Fork::Parent(_child)) => Ok(()),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = went {
        tell(request.report.as_fd(), failure.report(), &[]);
    }
}

fn open(request: &Visit) -> Result<(), Failure> {
    let plan = plan_of(&request.plan)?;
    let host = network()?;
    pond_sys::process::enter_network_of(request.process.as_fd()).at(Step::Doors)?;
    // A container on the host's own network has no doors; its packets would go past them.
    if network()? == host {
        return Err(Failure { step: Step::Doors, errno: Errno::NOTUNIQ });
    }
    doors::loopback()?;
    doors::open(&plan.doors, request.report.as_fd())
}

fn network() -> Result<(u64, u64), Failure> {
    let stat = rustix::fs::stat(OWN_NETWORK).at(Step::Doors)?;
    Ok((stat.st_dev, stat.st_ino))
}
