//! Two network namespaces joined by a wire: the near side, where proxies, sandboxes and clients are, and the far side, where
//! their hosts are. No packet leaves them; both end with the instruments that keep them.

use std::fs;

use anyhow::{Result, ensure};

use super::super::driver::Driver;
use super::super::stand::Stand;
use super::world::{DNS, HOSTS};
use crate::run::Invocation;

/// Every host's address is the far side's own.
const FAR: &str = "set -e; ulimit -n $(ulimit -Hn); ip link set lo up; ip route add local 93.184.220.0/24 dev lo; ip addr add $1/32 dev lo; \
    exec $0 far $2";

/// The gateway dials no address of its own machine, hence the wire. Ports are reused early: a bench opens more tunnels in a
/// minute than there are ports.
const NEAR: &str = "set -e; ulimit -n $(ulimit -Hn); ip link set lo up; ip link add near type veth peer name far netns $1; \
    ip addr add 93.184.216.1/24 dev near; ip link set near up; \
    nsenter --net=/proc/$1/ns/net sh -ec 'ip addr add 93.184.216.2/24 dev far; ip link set far up'; \
    ip route add default via 93.184.216.2; \
    echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range; echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse; exec $0 load $2";

#[derive(Debug)]
pub(super) struct Worlds<'a> {
    pub(super) stand: &'a Stand,
    far: Driver,
    near: Driver,
}

impl<'a> Worlds<'a> {
    pub(super) fn make(stand: &'a Stand) -> Result<Self> {
        let (instrument, certificates) = (stand.path("gateway"), authority(stand)?);
        let side = |script: &str, argument: &str| {
            let words = ["unshare", "--net", "sh", "-c", script, &instrument, argument, &certificates];
            let mut driver = Driver::start(&stand.command(&words), &stand.log)?;
            ensure!(driver.number()? == 0, "an instrument that is ready says 0");
            Ok::<_, anyhow::Error>(driver)
        };
        let far = side(FAR, DNS)?;
        let near = side(NEAR, &far.pid().to_string())?;
        let far_hosts: String =
            HOSTS.iter().map(|host| format!("{} {}\n", host.address, host.name)).collect();
        fs::write(stand.path("hosts"), format!("127.0.0.1 localhost\n{far_hosts}"))?;
        Ok(Self { stand, far, near })
    }

    /// Asks the clients for something.
    pub(super) fn ask(&mut self, question: &str) -> Result<Vec<u64>> {
        self.near.ask(question)
    }

    /// Makes the quiet host let go of its tunnels, and says how many there were.
    pub(super) fn let_go(&mut self) -> Result<u64> {
        Ok(self.far.ask("let go")?.first().copied().unwrap_or(0))
    }

    pub(super) fn nearby(&self, words: &[&str]) -> Invocation {
        self.inside(&self.near, words)
    }

    pub(super) fn far_away(&self, words: &[&str]) -> Invocation {
        self.inside(&self.far, words)
    }

    /// On the near side, with the far hosts in `/etc/hosts`: the fastest way to their addresses for who keeps none.
    pub(super) fn knowing_hosts(&self, words: &[&str]) -> Invocation {
        let script = "mount --bind $0 /etc/hosts; exec \"$@\"";
        let hosts = self.stand.path("hosts");
        self.nearby(&[&["unshare", "--mount", "sh", "-ec", script, &hosts], words].concat())
    }

    fn inside(&self, side: &Driver, words: &[&str]) -> Invocation {
        let script = "ulimit -n $(ulimit -Hn); exec nsenter --net=/proc/$0/ns/net -- \"$@\"";
        self.stand.with_state(&[&["sh", "-ec", script, &side.pid().to_string()], words].concat())
    }
}

/// An authority only this bench believes, and a certificate for all hosts; says where they lie.
fn authority(stand: &Stand) -> Result<String> {
    let names: Vec<String> = HOSTS.iter().map(|host| format!("DNS:{}", host.name)).collect();
    let names = format!("subjectAltName={}", names.join(","));
    let file = |name: &str| stand.path(name);
    let make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let own = ["-days", "2", "-subj", "/CN=bench", "-keyout", &file("ca.key"), "-out", &file("ca.pem")];
    stand.capture(&[&make[..], &own].concat())?;
    let signed = ["-CA", &file("ca.pem"), "-CAkey", &file("ca.key"), "-days", "2", "-subj", "/CN=far side"];
    let kind = ["-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"];
    let leaf = ["-keyout", &file("leaf.key"), "-out", &file("leaf.pem")];
    stand.capture(&[&make[..], &signed, &kind, &leaf].concat())?;
    Ok(stand.path(""))
}
