//! K01–K06, K24, K40: mounts, roots, namespaces, device nodes, and the filter that forbids them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use pond_sys::attempt::{self, Kind};
use pond_sys::mount::{Attributes, set_attributes};
use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, MountFlags, OpenTreeFlags, UnmountFlags, fsopen, mount, mount_remount, open_tree, unmount,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::attack::accomplice::{self, Accomplice};
use crate::attack::case::{Case, IN_OWN_MOUNTS, absent, denied};
use crate::attack::scene::{Scene, got};

pub(super) const CASES: &[Case] = &[
    Case {
        id: "K01",
        what: "mount, unmount or remount anything",
        probes: &[
            denied("mount", |scene| mount_here(scene, "tmpfs")).control(IN_OWN_MOUNTS),
            denied("umount", |_| Ok(unmount("/proc", UnmountFlags::DETACH)?)).control(IN_OWN_MOUNTS).excused(
                &[(Errno::INVAL, "an ordinary user's own mount namespace keeps the mounts of the host")],
            ),
            denied("remount", |_| Ok(mount_remount("/", MountFlags::BIND, "")?)).control(IN_OWN_MOUNTS),
            denied("fsopen", |_| got(fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC))).control(IN_OWN_MOUNTS),
            denied("open_tree", |_| clone_tree("/proc").map(drop)).control(IN_OWN_MOUNTS),
            denied("mount_setattr", |_| set_attribute()).control(IN_OWN_MOUNTS),
        ],
    },
    Case {
        id: "K02",
        what: "change the root",
        probes: &[
            denied("chroot", |scene| Ok(rustix::process::chroot(&scene.temporary)?)),
            denied("pivot_root", pivot)
                .control(IN_OWN_MOUNTS)
                .excused(&[(Errno::INVAL, "the root of this host is the kernel's first one, which stays")]),
        ],
    },
    Case {
        id: "K03",
        what: "make a namespace of any kind",
        probes: &[
            denied("user", |_| attempt::unshare(&[Kind::User])),
            denied("mount", |_| attempt::unshare(&[Kind::Mount])),
            denied("pid", |_| attempt::unshare(&[Kind::Pid])),
            denied("net", |_| attempt::unshare(&[Kind::Net])),
            denied("ipc", |_| attempt::unshare(&[Kind::Ipc])),
            denied("uts", |_| attempt::unshare(&[Kind::Uts])),
            denied("cgroup", |_| attempt::unshare(&[Kind::Cgroup])),
            denied("time", |_| attempt::unshare(&[Kind::Time]))
                .excused(&[(Errno::INVAL, "this kernel has no time namespaces")]),
            denied("user+mount", |_| attempt::unshare(&[Kind::User, Kind::Mount])),
            denied("clone", |_| attempt::clone_into_user()),
            denied("clone3", |_| clone3()),
        ],
    },
    Case {
        id: "K04",
        what: "enter a namespace that exists",
        probes: &[
            denied("own", |_| enter_namespace("/proc/self/ns/net")),
            denied("init's", |scene| enter_namespace(&scene.of_init("ns/net"))),
        ],
    },
    Case {
        id: "K05",
        what: "make a device node",
        probes: &[
            denied("char", |scene| make_device(scene, FileType::CharacterDevice, 1, 3)),
            denied("block", |scene| make_device(scene, FileType::BlockDevice, 7, 0)),
        ],
    },
    Case {
        id: "K06",
        what: "open a device node smuggled in with the repository",
        probes: &[denied("null", |scene| File::open(scene.planted.join("null")).map(drop)).excused(&[
            (Errno::NOENT, "only root can plant a device node"),
            (Errno::ACCESS, "the temporary directory of this host allows no devices"),
        ])],
    },
    Case {
        id: "K24",
        what: "control the control groups",
        probes: &[
            denied("mount v2", |scene| mount_here(scene, "cgroup2"))
                .control(IN_OWN_MOUNTS)
                .excused(&[(Errno::NODEV, "this kernel has no cgroup v2")]),
            denied("mount v1", mount_v1_groups).control(IN_OWN_MOUNTS).excused(&[
                (Errno::NODEV, "this kernel has no cgroup v1"),
                (Errno::INVAL, "no controller is free for cgroup v1"),
            ]),
            absent("group files", |_| open_group_files()),
        ],
    },
    Case {
        id: "K40",
        what: "shed the filter by executing, forking or stacking filters",
        probes: &[
            denied("exec", unshare_after_exec),
            denied("stacking", |_| {
                attempt::stack_allowing_filter().and_then(|()| attempt::unshare(&[Kind::User]))
            }),
        ],
    },
];

fn mount_here(scene: &Scene, kind: &str) -> io::Result<()> {
    let target = scene.temporary.join(format!("mount-{kind}"));
    std::fs::create_dir_all(&target)?;
    Ok(mount(kind, &target, kind, MountFlags::empty(), None)?)
}

fn mount_v1_groups(scene: &Scene) -> io::Result<()> {
    let target = scene.temporary.join("mount-cgroup");
    std::fs::create_dir_all(&target)?;
    Ok(mount("cgroup", &target, "cgroup", MountFlags::empty(), Some(c"none,name=pond-attack"))?)
}

fn clone_tree(path: &str) -> io::Result<std::os::fd::OwnedFd> {
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

/// On a mount that is its own where it can be had, else on the root: what matters is that the call is refused.
fn set_attribute() -> io::Result<()> {
    let root = File::open("/")?;
    let tree = clone_tree("/proc");
    let target = tree.as_ref().map_or(root.as_fd(), AsFd::as_fd);
    set_attributes(target, Attributes { no_exec: true, ..Attributes::default() }, false)
}

fn pivot(scene: &Scene) -> io::Result<()> {
    let new = scene.temporary.join("new-root");
    std::fs::create_dir_all(&new)?;
    if !scene.is_inside() {
        mount("tmpfs", &new, "tmpfs", MountFlags::empty(), None)?;
    }
    rustix::process::chdir(&new)?;
    Ok(rustix::process::pivot_root(".", ".")?)
}

fn clone3() -> io::Result<()> {
    match fork_into(Namespaces::User, None)? {
        Fork::Child => exit_now(0),
        Fork::Parent(_) => Ok(()),
    }
}

fn enter_namespace(path: &str) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn make_device(scene: &Scene, kind: FileType, major: u32, minor: u32) -> io::Result<()> {
    let path = scene.temporary.join(format!("device-{major}"));
    mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), makedev(major, minor))?;
    std::fs::remove_file(&path)
}

fn open_group_files() -> io::Result<()> {
    let groups = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(groups)?.filter_map(Result::ok).map(|entry| entry.path());
    let directories = std::iter::once(groups.to_owned()).chain(hierarchies);
    let mut result = Err(Errno::NOENT.into());
    for file in
        directories.flat_map(|directory| ["release_agent", "cgroup.procs"].map(|name| directory.join(name)))
    {
        result = File::options().write(true).open(file).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn unshare_after_exec(scene: &Scene) -> io::Result<()> {
    let status = accomplice::start(Accomplice::Unshare, &scene.temporary)?.wait()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(Errno::INTR.into()),
    }
}
