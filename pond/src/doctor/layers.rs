//! The layers one by one, each tried in a process of its own.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use pond_sandbox::native::cgroup::{CgroupHost, Mode};
use pond_sandbox::native::remedy;
use pond_sys::attempt::{Kind, Trial, isolated, unshare, unshare_user_as_root};
use pond_sys::mount::{Attributes, set_attributes};
use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use pond_sys::seccomp;
use pond_wire::jail::Step;
use rustix::fs::{AtFlags, CWD, Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, open_tree,
};

use super::{Row, State};

const PATIENCE: Duration = Duration::from_secs(20);
/// The first Landlock that also keeps signals and abstract sockets inside.
const LANDLOCK: u32 = 6;
const FORMATTERS: [&str; 3] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"];

pub(super) fn examine() -> Vec<Row> {
    let is_root = rustix::process::geteuid().is_root();
    let row = |layer, state| Row { layer, state };
    vec![
        row("user namespace", tried(Step::WriteIdMaps, "made, own id mapped", || own_user().map(drop))),
        row(
            "other namespaces",
            tried(Step::CreateNamespaces, "mount, pid, net, ipc, uts, cgroup", other_namespaces),
        ),
        row("clone3 and pidfd", tried(Step::CreateNamespaces, "a child by descriptor", child_by_descriptor)),
        row("openat2", tried(Step::OpenCheckout, "paths without links", path_without_links)),
        row(
            "overlay",
            tried(
                Step::MountWorkspace,
                "by descriptor, with removal and renaming of what lies below",
                overlay,
            ),
        ),
        row(
            "idmapped mounts",
            if is_root {
                tried(Step::OpenCheckout, "of the current directory", idmapped)
            } else {
                not_needed("an ordinary user's files keep their owner")
            },
        ),
        row("landlock", landlock()),
        row("seccomp", tried(Step::Seccomp, "pond's own filter holds", filter)),
        row("control groups", groups()),
        row(
            "loop device",
            if is_root {
                tried(Step::MountScratch, "a free one", loop_device)
            } else {
                not_needed("an ordinary user's scratch is memory")
            },
        ),
        row(
            "mkfs.ext4",
            if is_root { formatter() } else { not_needed("an ordinary user's scratch is memory") },
        ),
    ]
}

fn not_needed(why: &str) -> State {
    State::NotNeeded { detail: why.to_owned() }
}

/// Does it in a process that is thrown away. What goes wrong has the remedy of the launch step that would have failed.
fn tried(step: Step, detail: &str, act: impl FnOnce() -> io::Result<()>) -> State {
    let errno = match isolated(PATIENCE, act) {
        Ok(Trial::Succeeded) => return State::Ok { detail: detail.to_owned() },
        Ok(Trial::Failed { errno }) => errno,
        Ok(Trial::Killed { .. } | Trial::Stopped | Trial::Hung) => Errno::TIMEDOUT.raw_os_error(),
        Err(fault) => fault.raw_os_error().unwrap_or(0),
    };
    State::Missing {
        detail: io::Error::from_raw_os_error(errno).to_string(),
        remedy: remedy(step, errno).unwrap_or_default().to_owned(),
    }
}

/// Enters a user namespace and maps the caller to its root.
fn own_user() -> io::Result<(u32, u32)> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare_user_as_root(user, group)?;
    Ok((user, group))
}

fn other_namespaces() -> io::Result<()> {
    own_user()?;
    unshare(&[Kind::Mount, Kind::Pid, Kind::Net, Kind::Ipc, Kind::Uts, Kind::Cgroup])
}

fn child_by_descriptor() -> io::Result<()> {
    match fork_into(Namespaces::User, None)? {
        Fork::Child => exit_now(0),
        Fork::Parent(child) => {
            Ok(rustix::process::pidfd_send_signal(child.pidfd, rustix::process::Signal::KILL)?)
        }
    }
}

fn path_without_links() -> io::Result<()> {
    rustix::fs::openat2(
        CWD,
        "/",
        OFlags::PATH | OFlags::CLOEXEC,
        FileMode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?;
    Ok(())
}

fn mounted(context: &OwnedFd) -> io::Result<OwnedFd> {
    fsconfig_create(context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// A throwaway copy in small: an overlay over a tree with a directory, which is then removed and another renamed.
fn overlay() -> io::Result<()> {
    own_user()?;
    unshare(&[Kind::Mount])?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "tmpfs")?;
    let disk = mounted(&context)?;
    let mode = FileMode::from_raw_mode(0o755);
    for name in ["lower", "lower/goes", "lower/moves", "upper", "work"] {
        rustix::fs::mkdirat(&disk, name, mode)?;
    }
    let open = |name| {
        rustix::fs::openat(
            &disk,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            FileMode::empty(),
        )
    };
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_fd(&context, "lowerdir+", open("lower")?.as_fd())?;
    fsconfig_set_fd(&context, "upperdir", open("upper")?.as_fd())?;
    fsconfig_set_fd(&context, "workdir", open("work")?.as_fd())?;
    fsconfig_set_flag(&context, "userxattr")?;
    let view = mounted(&context)?;
    rustix::fs::unlinkat(&view, "goes", AtFlags::REMOVEDIR)?;
    rustix::fs::mkdirat(&view, "goes", mode)?;
    match rustix::fs::renameat(&view, "moves", &view, "moved") {
        // Renaming a directory of the layer below asks the program to copy, which programs do.
        Ok(()) | Err(Errno::XDEV) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The current directory as a mount whose files belong to somebody else.
fn idmapped() -> io::Result<()> {
    let Fork::Parent(holder) = fork_into(Namespaces::User, None)? else {
        std::thread::sleep(PATIENCE);
        exit_now(0)
    };
    let result = map_mount(holder.pid.as_raw_nonzero().get());
    rustix::process::pidfd_send_signal(holder.pidfd, rustix::process::Signal::KILL)?;
    result
}

fn map_mount(holder: i32) -> io::Result<()> {
    for name in ["uid_map", "gid_map"] {
        let path = format!("/proc/{holder}/{name}");
        File::options().write(true).open(path)?.write_all(b"0 1000 1000\n")?;
    }
    let owners = File::open(format!("/proc/{holder}/ns/user"))?;
    let tree = open_tree(CWD, ".", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    set_attributes(&tree, Attributes { idmap: Some(owners.as_fd()), ..Attributes::default() }, false)
}

fn landlock() -> State {
    let missing = |detail: String| State::Missing {
        detail,
        remedy: remedy(Step::Landlock, Errno::OPNOTSUPP.raw_os_error()).unwrap_or_default().to_owned(),
    };
    match pond_sys::landlock::version() {
        Ok(version) if version >= LANDLOCK => State::Ok { detail: format!("version {version}") },
        Ok(version) => missing(format!("version {version}, and {LANDLOCK} is needed")),
        Err(fault) => missing(fault.to_string()),
    }
}

/// The filter must be accepted, and then refuse something.
fn filter() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    seccomp::install(&seccomp::compile(seccomp::Profile::Workload))?;
    match unshare(&[Kind::User]) {
        Err(fault) if Errno::from_io_error(&fault) == Some(Errno::PERM) => Ok(()),
        Err(fault) => Err(fault),
        Ok(()) => Err(Errno::NOTRECOVERABLE.into()),
    }
}

fn groups() -> State {
    match CgroupHost::detect() {
        Ok(host) => {
            let detail = match host.mode() {
                Mode::V2 => "v2: memory, cpu, pids; everything of a job killed at once",
                Mode::Hybrid => "v1 limits memory, cpu, pids; v2 kills everything of a job at once",
                Mode::V1 => "v1: memory, cpu, pids; a job is killed through its init",
            };
            let around = host.around();
            let memory =
                around.memory_bytes.map(|bytes| format!("; at most {} MiB for all jobs", bytes >> 20));
            let pids = around.pids.map(|count| format!("; at most {count} processes for all jobs"));
            let bounds = [memory, pids].into_iter().flatten().collect::<String>();
            State::Ok { detail: format!("{detail}{bounds}") }
        }
        // The fault's own words end with what to do.
        Err(fault) => State::Missing { detail: fault.to_string(), remedy: String::new() },
    }
}

fn loop_device() -> io::Result<()> {
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())?;
    let number = pond_sys::loopdev::free_number(&control)?;
    File::options().read(true).write(true).open(format!("/dev/loop{number}")).map(drop)
}

fn formatter() -> State {
    match FORMATTERS.into_iter().find(|path| Path::new(path).exists()) {
        Some(path) => State::Ok { detail: path.to_owned() },
        None => State::Missing {
            detail: "not found".to_owned(),
            remedy: "install the package e2fsprogs".to_owned(),
        },
    }
}
