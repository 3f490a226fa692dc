//! Two network namespaces joined by one link: the host side, where pond runs, and the far side, which is everybody else.
//!
//! Every address there is belongs to the far side, so an attack that gets out of pond meets a live server whatever it dials.
//! Nothing else is connected: no packet leaves the two. Each side lives as long as a process that reads our pipe, so nothing
//! outlives the test, however it ends.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The host side's own addresses: public ones, as a machine in a data centre has.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 35, 26, 2);
pub(crate) const HOST_V6: Ipv6Addr = Ipv6Addr::new(0x2620, 0, 0x862, 0, 0, 0, 0, 2);
/// The far side's end of the link, where its name server answers.
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 35, 26, 1);
/// The one address of the far side that swallows everything.
pub(crate) const BLACK_HOLE: Ipv4Addr = Ipv4Addr::new(93, 184, 218, 1);

const FAR_SETUP: &str = "link set lo up
addr add 198.35.26.1/30 dev far
addr add 2620:0:862::1/64 dev far nodad
link set far up
route add local default dev lo table main
route add blackhole 93.184.218.1
route add local ::/0 dev lo table main
";
const HOST_SETUP: &str = "link set lo up
addr add 198.35.26.2/30 dev near
addr add 2620:0:862::2/64 dev near nodad
link set near up
route add default via 198.35.26.1
route add ::/0 via 2620:0:862::1
";

/// A namespace, held by a process of ours.
pub(crate) struct Side {
    holder: Child,
}

impl Side {
    /// `script` runs in the new namespaces before anybody enters them.
    fn new(script: &str, arguments: &[&Path]) -> Self {
        let mut command = tool("unshare");
        command.args(["--net", "--mount", "--propagation", "private", "sh", "-ec"]);
        command.arg(format!("{script}\necho; exec cat")).arg("sh").args(arguments);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let ready = holder.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
        assert_eq!(ready, 1, "a namespace could not be made; the tests need root");
        Self { holder }
    }

    /// What brings a command to this side.
    pub(crate) fn entry(&self) -> [String; 4] {
        [
            "nsenter".to_owned(),
            "--net".to_owned(),
            "--mount".to_owned(),
            format!("--target={}", self.holder.id()),
        ]
    }

    /// A command that will run on this side, in `directory`.
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let [enter, options @ ..] = self.entry();
        let mut command = tool(&enter);
        command.args(options).arg(format!("--wdns={}", directory.display())).args(["--", program]);
        command
    }

    /// A thread of this process on this side; what it starts is there too.
    pub(crate) fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let network = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))
                .unwrap();
            work()
        })
    }

    fn ip(&self, batch: &str) {
        let mut child =
            self.command("ip", Path::new("/")).args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "ip -batch: {batch}");
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().unwrap();
    }
}

/// The host side, which believes `resolv_conf` and `hosts`, and the far side.
pub(crate) fn pair(resolv_conf: &Path, hosts: &Path) -> (Side, Side) {
    let host = Side::new(
        "mount --bind \"$1\" /etc/resolv.conf; mount --bind \"$2\" /etc/hosts",
        &[resolv_conf, hosts],
    );
    let far = Side::new("", &[]);
    host.ip(&format!("link add near type veth peer name far netns {}\n", far.holder.id()));
    far.ip(FAR_SETUP);
    host.ip(HOST_SETUP);
    (host, far)
}

#[expect(clippy::disallowed_methods, reason = "tests start what they test with")]
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}
