//! Whether a container's network is what was asked for: a namespace with a loopback and no way to anywhere else. Asked of the
//! kernel, before the job begins, because a runtime that shares a network with somebody would show no other sign of it.

use std::io::{self, ErrorKind};

use rustix::process::Pid;

const LOOPBACK: &str = "lo";

/// Whether two processes are in the same one.
pub(super) fn is_shared(one: Pid, other: Pid) -> io::Result<bool> {
    let of = |pid: Pid| namespace(&pid.as_raw_nonzero().to_string());
    Ok(of(one)? == of(other)?)
}

fn namespace(process: &str) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::stat(format!("/proc/{process}/ns/net"))?;
    Ok((stat.st_dev, stat.st_ino))
}

pub(super) fn is_closed(pid: Pid) -> io::Result<bool> {
    let pid = pid.as_raw_nonzero().to_string();
    let table = |name: &str| match std::fs::read_to_string(format!("/proc/{pid}/net/{name}")) {
        // A kernel without this protocol.
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    Ok(namespace(&pid)? != namespace("self")? && !leads_out(&table("route")?, &table("ipv6_route")?))
}

/// Whether a route leaves by another interface than the loopback: the first word of a line for IPv4, which has a heading, and
/// the last for IPv6.
fn leads_out(ipv4: &str, ipv6: &str) -> bool {
    let first = ipv4.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let last = ipv6.lines().filter_map(|line| line.split_whitespace().last());
    first.chain(last).any(|interface| interface != LOOPBACK)
}

#[cfg(test)]
mod tests {
    //! On tables as kernels print them.
    use super::*;

    const HEADING: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const OWN: &str = "00000000000000000000000000000001 80 00000000000000000000000000000000 00 \
         00000000000000000000000000000000 00000000 00000001 00000000 80200001       lo\n";

    #[test]
    fn a_route_by_any_other_interface_leads_out() {
        let bridge = format!("{HEADING}eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
        let link = OWN.replace("lo\n", "eth0\n");
        assert!(!leads_out("", ""));
        assert!(!leads_out(HEADING, OWN));
        assert!(leads_out(&bridge, OWN));
        assert!(leads_out(HEADING, &format!("{OWN}{link}")));
    }

    #[test]
    fn this_process_shares_its_own_network() {
        assert!(!is_closed(rustix::process::getpid()).unwrap());
    }
}
