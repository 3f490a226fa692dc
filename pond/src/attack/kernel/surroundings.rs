//! K35, K44, C02: what the surroundings tell about the host, and links that point out of the repository.

use std::fs::File;
use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock, inotify};
use rustix::io::Errno;

use crate::attack::case::{Case, IN_OWN_MOUNTS, absent};
use crate::attack::scene::{Scene, found};
use crate::attack::shown::LOCKED;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "K35",
        what: "learn paths and names of the host",
        probes: &[
            absent("paths in mounts", path_in_mounts).control(IN_OWN_MOUNTS),
            absent("host name", |scene| {
                found(rustix::system::uname().nodename().to_bytes() == scene.host.name.as_bytes())
            }),
            absent("control group", |_| group_path())
                .excused(&[(Errno::NODATA, "pond itself is in the root group")]),
            absent("interrupts", |_| found(!std::fs::read("/proc/interrupts")?.is_empty())),
        ],
    },
    Case {
        id: "K44",
        what: "meet the host at the files it shows",
        probes: &[absent("lock", meet_at_lock), absent("watch", watch)],
    },
    Case {
        id: "C02",
        what: "read a secret of the host through a link in the repository",
        probes: &[
            absent("link", |scene| std::fs::read(scene.planted.join("link-to-secret")).map(drop)),
            absent("path", |scene| std::fs::read(&scene.host.secret).map(drop)),
        ],
    },
];

/// A bind mount of the checkout, as many sandboxes make one, shows where it comes from; the control makes one.
fn path_in_mounts(scene: &Scene) -> io::Result<()> {
    if !scene.is_inside() {
        rustix::mount::mount_bind(&scene.planted, &scene.planted)?;
    }
    let path = scene.host.directory.display().to_string();
    let tables = ["mountinfo", "mounts", "mountstats"];
    let tells =
        |table| std::fs::read_to_string(format!("/proc/self/{table}")).is_ok_and(|text| text.contains(&path));
    found(tables.into_iter().any(tells))
}

/// The host holds this lock: whoever cannot have it shares it.
fn meet_at_lock(scene: &Scene) -> io::Result<()> {
    let file = File::open(scene.shown.join(LOCKED))?;
    found(flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK))
}

/// The host opens a file there again and again.
fn watch(scene: &Scene) -> io::Result<()> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, &scene.shown, inotify::WatchFlags::OPEN)?;
    let patience = Timespec { tv_sec: 3, tv_nsec: 0 };
    found(poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&patience))? > 0)
}

fn group_path() -> io::Result<()> {
    let groups = std::fs::read_to_string("/proc/self/cgroup")?;
    found(groups.lines().any(|line| !line.ends_with(":/")))
}
