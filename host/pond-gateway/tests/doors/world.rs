//! Network namespaces: how they are made, joined and left.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::thread::LinkNameSpaceType;

/// One network namespace, alive while this is.
pub(crate) struct Net(File);

/// The host's side and the far side, connected.
pub(crate) struct World {
    pub(crate) near: Net,
    pub(crate) far: Net,
}

/// An address of the host's side: public, and its own.
pub(crate) const NEAR: &str = "93.184.216.1";
/// The far side's own address on the link. It has every address of `93.184.220.0/24` besides.
pub(crate) const GATEWAY: &str = "93.184.216.2";
/// Routed to the far side, which drops it.
pub(crate) const BLACK_HOLE: &str = "93.184.217.1";

impl Net {
    pub(crate) fn new() -> Self {
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let mut keeper =
            Command::new("unshare").args(["-n", "sleep", "60"]).stdin(Stdio::null()).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", keeper.id());
        while std::fs::read_link(&path).is_ok_and(|name| name == own) {
            std::thread::yield_now();
        }
        let net = Self(File::open(&path).unwrap());
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        net.ip("link set lo up");
        net
    }

    /// Runs `work` on a thread inside; what it makes keeps belonging there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    pub(crate) fn ip(&self, arguments: &str) {
        let status = self.inside(|| Command::new("ip").args(arguments.split_whitespace()).status().unwrap());
        assert!(status.success(), "ip {arguments}");
    }
}

/// The world all tests share; each brings its own job.
pub(crate) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let (near, far) = (Net::new(), Net::new());
        // A veth pair is made here and one end is moved: the other namespace is named by a process, so one is kept inside.
        let mut keeper = far.inside(|| Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap());
        near.ip(&format!("link add near type veth peer name far netns {}", keeper.id()));
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        near.ip(&format!("addr add {NEAR}/24 dev near"));
        near.ip("link set near up");
        far.ip(&format!("addr add {GATEWAY}/24 dev far"));
        far.ip(&format!("addr add {}/24 dev far", super::far::DNS));
        far.ip("route add local 93.184.220.0/24 dev lo");
        far.ip("route add blackhole 93.184.217.0/24");
        far.ip("link set far up");
        near.ip(&format!("route add default via {GATEWAY}"));
        World { near, far }
    })
}
