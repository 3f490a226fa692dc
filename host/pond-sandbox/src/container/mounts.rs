//! What a container's mounts give to whoever brings files along: nothing. An engine mounts an image's root so that device nodes in it
//! open, by their numbers and wherever they lie (the host's console is among those it lets every container open), and programs in it
//! take other identities on.
//!
//! Pond marks every mount itself: from outside, after the engine has made them all, before the job's first instruction. The kernel's
//! table has the last word, so a mount that is missed ends the launch. No image is searched, and none can hide a node.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use pond_sys::mount::{Attributes, set_attributes};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::native::unescaped;

/// Where an engine puts the few devices that every container has, in a file system of its own.
const DEVICES: &str = "/dev";

#[derive(Debug, thiserror::Error)]
pub enum MountsFault {
    #[error("reading which mounts the container has")]
    Table(#[source] io::Error),
    #[error("entering the container's mounts")]
    Enter(#[source] io::Error),
    #[error("marking the container's mount {}", point.display())]
    Mark { point: PathBuf, source: io::Error },
    #[error("the container's mount {} opens devices or gives identities, whatever pond does", .0.display())]
    Lax(PathBuf),
}

/// Takes devices and set-user-ID programs from every mount of a container that runs on this host's kernel.
pub(super) fn harden(pid: Pid, process: BorrowedFd<'_>) -> Result<(), MountsFault> {
    let table = || {
        let path = format!("/proc/{}/mountinfo", pid.as_raw_nonzero());
        std::fs::read_to_string(path).map_err(MountsFault::Table)
    };
    let before = lax(&table()?);
    let go_in = || {
        pond_sys::process::enter_mounts_of(process).map_err(MountsFault::Enter)?;
        before.iter().try_for_each(mark)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("mounts".to_owned());
        let thread = thread.spawn_scoped(scope, go_in).map_err(MountsFault::Enter)?;
        thread.join().unwrap_or_else(|_panicked| Err(MountsFault::Enter(io::ErrorKind::Other.into())))
    })?;
    match lax(&table()?).into_iter().next() {
        None => Ok(()),
        Some(Lax { point, .. }) => Err(MountsFault::Lax(point)),
    }
}

/// A mount that honours more than it should.
#[derive(Debug, PartialEq, Eq)]
struct Lax {
    point: PathBuf,
    /// It holds the engine's own devices, which the job may open.
    has_devices: bool,
}

fn mark(lax: &Lax) -> Result<(), MountsFault> {
    let failed = |source| MountsFault::Mark { point: lax.point.clone(), source };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mount = rustix::fs::open(&lax.point, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let marks = Attributes { no_suid: true, no_dev: !lax.has_devices, ..Attributes::default() };
    set_attributes(mount, marks, false).map_err(failed)
}

fn lax(table: &str) -> Vec<Lax> {
    let mounts: Vec<Entry<'_>> = table.lines().map(Entry::parse).collect();
    // What an engine masks, it masks with a device out of the same file system.
    let devices: BTreeSet<&str> = mounts
        .iter()
        .filter(|mount| mount.kind == "devpts" || (mount.kind == "tmpfs" && mount.point == DEVICES))
        .map(|mount| mount.device)
        .collect();
    let lax = mounts.iter().filter_map(|mount| {
        let has_devices = devices.contains(mount.device);
        let is_held = mount.has("nosuid") && (has_devices || mount.has("nodev"));
        (!is_held).then(|| Lax { point: unescaped(mount.point).into(), has_devices })
    });
    // A table without a root is that of nobody.
    let is_nobodys = mounts.iter().all(|mount| mount.point != "/");
    lax.chain(is_nobodys.then(|| Lax { point: "/".into(), has_devices: false })).collect()
}

/// A line of the kernel's table; what it does not have is empty, and so not as it should be.
struct Entry<'a> {
    device: &'a str,
    point: &'a str,
    options: &'a str,
    kind: &'a str,
}

impl<'a> Entry<'a> {
    fn parse(line: &'a str) -> Self {
        let (own, file_system) = line.split_once(" - ").unwrap_or((line, ""));
        let mut words = own.split(' ').skip(2);
        let mut word = || words.next().unwrap_or_default();
        let (device, _root, point, options) = (word(), word(), word(), word());
        Self { device, point, options, kind: file_system.split(' ').next().unwrap_or_default() }
    }

    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }
}

#[cfg(test)]
mod tests {
    //! On a table as an engine leaves it.
    use super::*;

    const MADE: &str = "\
600 500 0:80 / / ro,relatime - overlay overlay rw,lowerdir=/l
601 600 0:81 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
602 600 0:82 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
603 602 0:83 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5
604 602 254:0 /srv /dev/data rw,nosuid - ext4 /dev/vda rw
605 600 254:0 /bin/pond /.pond/pond ro,relatime master:1 - ext4 /dev/vda rw
606 600 0:84 / /a\\040b rw,nodev,nosuid - tmpfs tmpfs rw
607 600 0:85 / /other rw,nosuid - tmpfs tmpfs rw
608 601 0:82 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
";

    fn found(table: &str) -> Vec<(String, bool)> {
        let told = |lax: Lax| (lax.point.display().to_string(), lax.has_devices);
        lax(table).into_iter().map(told).collect()
    }

    #[test]
    fn every_mount_is_marked_but_the_engines_own_devices() {
        let mount = |point: &str| (point.to_owned(), false);
        assert_eq!(found(MADE), [mount("/"), mount("/dev/data"), mount("/.pond/pond"), mount("/other")]);
        let (root, bare) =
            ("600 1 0:8 / / ro,nosuid,nodev - overlay overlay rw\n", "rw,relatime - tmpfs tmpfs rw\n");
        let devices = format!("{root}602 600 0:82 / /dev {bare}");
        assert_eq!(found(&devices), [("/dev".to_owned(), true)], "identities are given by none");
    }

    #[test]
    fn what_is_not_the_engines_own_has_no_devices_and_an_odd_line_is_not_passed_over() {
        // An image's own /dev, where an engine mounts none, and one of a disk.
        assert_eq!(found("600 500 0:80 / / ro,nosuid - overlay overlay rw\n"), [("/".to_owned(), false)]);
        let root = "600 500 0:80 / / ro,nosuid,nodev - overlay overlay rw\n";
        assert_eq!(
            found(&format!("{root}602 600 254:0 / /dev rw,nosuid - ext4 /dev/vda rw\n")),
            [("/dev".to_owned(), false)]
        );
        assert_eq!(found(&format!("{root}602\n")), [(String::new(), false)]);
        assert_eq!(found(root), []);
        // What is read of a process that is gone.
        assert_eq!(found(""), [("/".to_owned(), false)]);
    }
}
