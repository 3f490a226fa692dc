//! A disk of a job's own: an ext4 filesystem in a file, as a detached mount.
//!
//! Zone: privileged. Nothing here waits for the host's disk to write anything of the job's: the kernel flushes a file when it
//! becomes a loop device, so the file is still empty then, and what is written afterwards stays in the page cache unless
//! the job lives long or writes much. It is written through the device, whose cache is where the mount looks for it.
//! That flush still waits for the host's disk to remember the empty file, so a disk is made by a process of its own while the
//! launcher goes on.

use std::os::fd::{AsFd, OwnedFd};

use pond_sys::process::{Child, Fork, Namespaces, exit_now, fork_into};
use pond_wire::jail::{Report, Step};
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, seek};
use rustix::io::{Errno, pread, pwrite};
use rustix::mount::{FsOpenFlags, fsconfig_set_flag, fsconfig_set_string, fsopen};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::storage;

const STEP: Step = Step::MountScratch;
/// A fresh filesystem of any size pond offers has far less than this; more means the template is not ours.
const MAX_TEMPLATE_BYTES: u64 = 64 << 20;

/// An empty sparse file, and one of the same size with a fresh filesystem in it; or a file that has one already.
pub(crate) struct Disk {
    pub(crate) image: OwnedFd,
    pub(crate) template: Option<OwnedFd>,
}

/// How long whoever ordered a disk can wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// Until the host has room for all that is on it. A disk that waits for its job is written back meanwhile, and one for which there
    /// was no room then is refused by an overlay for ever.
    ForTheHost,
}

/// A disk in the making. Letting go of it ends its maker, and waits until that is gone.
pub(crate) struct Ordered {
    maker: Child,
    comes: OwnedFd,
    of: Disk,
}

impl Ordered {
    /// The disk, once it is made. One that was ordered long ago may have failed for a reason that is none by now.
    pub(crate) fn collect(&self) -> Result<OwnedFd, Failure> {
        self.made().or_else(|_failed| self.of.attach()?.mount())
    }

    fn made(&self) -> Result<OwnedFd, Failure> {
        let lost = Failure { step: STEP, errno: Errno::CONNRESET };
        let mut said = [0; 64];
        let (length, mounts) = pond_sys::socket::receive(&self.comes, &mut said).at(STEP)?;
        let report = said.get(..length).and_then(|said| Report::decode(said).ok());
        match (report, mounts.into_iter().next()) {
            (Some(Report::Prepared), Some(mount)) => Ok(mount),
            (Some(Report::Failed { step, errno }), _) => {
                Err(Failure { step, errno: Errno::from_raw_os_error(errno) })
            }
            _ => Err(lost),
        }
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        let pidfd = &self.maker.pidfd;
        // Most often it is gone by now.
        if let Err(_gone) = pidfd_send_signal(pidfd, Signal::KILL) {}
        if let Err(_reaped) = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {}
    }
}

impl Disk {
    /// As its files arrive: one that was kept has a filesystem, and comes without a template.
    pub(crate) fn from<E>(kept: bool, mut next: impl FnMut() -> Result<OwnedFd, E>) -> Result<Self, E> {
        Ok(Self { image: next()?, template: if kept { None } else { Some(next()?) } })
    }

    /// Has it made by a process of its own.
    pub(crate) fn order(self, patience: Patience) -> Result<Ordered, Failure> {
        let (comes, goes) = pond_sys::socket::pair().at(STEP)?;
        match fork_into(Namespaces::Inherit, None).at(STEP)? {
            Fork::Child => {
                drop(comes);
                match self.make(patience) {
                    Ok(mount) => tell(goes.as_fd(), Report::Prepared, &[mount.as_fd()]),
                    Err(failure) => tell(goes.as_fd(), failure.report(), &[]),
                }
                exit_now(0)
            }
            Fork::Parent(maker) => Ok(Ordered { maker, comes, of: self }),
        }
    }

    fn make(&self, patience: Patience) -> Result<OwnedFd, Failure> {
        let mount = self.attach()?.mount()?;
        acquaint(&mount);
        match patience {
            Patience::None => {}
            Patience::ForTheHost => settle(&mount)?,
        }
        Ok(mount)
    }

    /// A device with a filesystem on it.
    pub(crate) fn attach(&self) -> Result<LoopDevice, Failure> {
        let device = attach_loop(&self.image)?;
        if let Some(template) = &self.template {
            fill(template, &device.open)?;
        }
        Ok(device)
    }
}

/// Copies what the template holds and leaves the rest a hole.
fn fill(template: &OwnedFd, device: &OwnedFd) -> Result<(), Failure> {
    let mut buffer = vec![0; 32 << 10];
    let (mut offset, mut copied) = (0, 0);
    loop {
        offset = match seek(template, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => return Ok(()),
            other => other.at(STEP)?,
        };
        let hole = seek(template, SeekFrom::Hole(offset)).at(STEP)?;
        copied += hole - offset;
        if copied > MAX_TEMPLATE_BYTES {
            return Err(Failure { step: STEP, errno: Errno::FBIG });
        }
        while offset < hole {
            let length = buffer.len().min(usize::try_from(hole - offset).unwrap_or(usize::MAX));
            let block = buffer.get_mut(..length).unwrap_or_default();
            let read = pread(template, &mut *block, offset).at(STEP)?;
            let written = pwrite(device, block.get(..read).unwrap_or_default(), offset).at(STEP)?;
            if written == 0 {
                return Err(Failure { step: STEP, errno: Errno::IO });
            }
            offset += written as u64;
        }
    }
}

/// Clears itself when it goes, unless a mount holds it by then.
pub(crate) struct LoopDevice {
    path: String,
    open: OwnedFd,
}

impl LoopDevice {
    pub(crate) fn mount(&self) -> Result<OwnedFd, Failure> {
        let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC).at(STEP)?;
        fsconfig_set_string(&context, "source", self.path.as_str()).at(STEP)?;
        fsconfig_set_flag(&context, "noinit_itable").at(STEP)?;
        fsconfig_set_flag(&context, "nobarrier").at(STEP)?;
        storage::finish(&context, STEP)
    }
}

/// A filesystem looks for its free blocks when it first needs one, and that takes longer than all that an overlay asks of it: so it
/// is asked here, while nobody waits, and where the overlay will ask, because directories at the top look for blocks elsewhere than
/// those below them. A disk that is full, or whose maker was killed in the middle of this the last time, is as good.
fn acquaint(mount: &OwnedFd) {
    const FIRST: &str = "w/first";
    if let Err(_full_or_there) = rustix::fs::mkdirat(mount, FIRST, Mode::RWXU) {}
    if let Err(_not_made) = rustix::fs::unlinkat(mount, FIRST, AtFlags::REMOVEDIR) {}
}

/// Writes what is on the disk through to its image.
fn settle(mount: &OwnedFd) -> Result<(), Failure> {
    rustix::fs::syncfs(storage::open_directory(mount, ".").at(STEP)?).at(STEP)
}

/// Binds the image to a free loop device. Asking for a number and taking it are two calls, so a neighbour may be faster.
fn attach_loop(image: &OwnedFd) -> Result<LoopDevice, Failure> {
    const ATTEMPTS: u32 = 256;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let control = rustix::fs::open("/dev/loop-control", flags, Mode::empty()).at(STEP)?;
    for _ in 0..ATTEMPTS {
        let number = match pond_sys::loopdev::free_number(&control) {
            // Of numbers, not of room on the disk.
            Err(fault) if fault.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => break,
            other => other.at(STEP)?,
        };
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(&path, flags, Mode::empty()).at(STEP)?;
        match pond_sys::loopdev::configure(&device, image.as_fd()) {
            Err(fault) if fault.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            other => return other.at(STEP).map(|()| LoopDevice { path, open: device }),
        }
    }
    Err(Failure { step: STEP, errno: Errno::BUSY })
}

#[cfg(test)]
mod tests {
    //! An image gets the template's blocks and nothing else.
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn sparse(bytes: u64) -> OwnedFd {
        let file = memfd_create("disk", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    fn content(file: &OwnedFd, bytes: usize) -> Vec<u8> {
        let mut all = vec![0; bytes];
        assert_eq!(pread(file, &mut *all, 0).unwrap(), bytes);
        all
    }

    #[test]
    fn who_was_killed_while_it_got_acquainted_leaves_nothing_for_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let overlay = directory.path().join("w");
        std::fs::create_dir_all(overlay.join("first")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mount = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        acquaint(&mount);
        assert_eq!(std::fs::read_dir(overlay).unwrap().count(), 0);
    }

    #[test]
    fn blocks_are_copied_and_holes_stay_holes() {
        const SIZE: usize = 1 << 20;
        let (image, template) = (sparse(SIZE as u64), sparse(SIZE as u64));
        for (offset, length) in [(0, 100_000), (512 << 10, 1), (SIZE as u64 - 4096, 4096)] {
            pwrite(&template, &vec![7; length], offset).unwrap();
        }
        fill(&template, &image).unwrap();
        assert_eq!(content(&image, SIZE), content(&template, SIZE));
        assert_eq!(seek(&image, SeekFrom::Hole(0)), seek(&template, SeekFrom::Hole(0)));
    }

    #[test]
    fn a_template_with_too_much_in_it_is_none() {
        let template = sparse(MAX_TEMPLATE_BYTES + 4096);
        for block in 0..=MAX_TEMPLATE_BYTES / 4096 {
            pwrite(&template, &[1], block * 4096).unwrap();
        }
        let image = sparse(MAX_TEMPLATE_BYTES + 4096);
        assert_eq!(fill(&template, &image), Err(Failure { step: STEP, errno: Errno::FBIG }));
    }
}
