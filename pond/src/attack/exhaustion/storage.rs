//! E08–E15: bytes, inodes, names, depth and attributes on everything a job can write to.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use pond_worker::collect::Reason;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::attack::case::{Case, Evidence, IN_OWN_STORAGE, Probe, Stage, capped, denied};
use crate::attack::scene::Scene;

/// The profile with the smallest disk that is writable.
const SMALL_DISK: Stage = Stage { profile: Some("untrusted-code-test"), ..Stage::PLAIN };
/// The profile with the fewest inodes; its checkout is read-only, its home is not.
const FEW_INODES: Stage = Stage { profile: Some("untrusted-code-read"), ..Stage::PLAIN };
const SMALL_TMP: Stage = Stage { limits: &[("tmpfs_size", "8m")], ..Stage::PLAIN };
const LITTLE_MEMORY: Stage =
    Stage { limits: &[("memory", "64m")], evidence: Evidence::OutOfMemory, ..Stage::PLAIN };
const HOST_IS_FULL: &[(Errno, &str)] = &[(Errno::NOSPC, "the host's own disk has no room for the control")];
const GIB: u64 = 1 << 30;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "E08",
        what: "filling the copy of the checkout",
        probes: &[capped("allocate", allocate, Stage { evidence: Evidence::OutOfMemory, ..SMALL_DISK })
            .excused(HOST_IS_FULL)],
    },
    Case {
        id: "E09",
        what: "filling /tmp",
        probes: &[bomb("write", |scene| write_mib(&scene.temporary, 12), SMALL_TMP)],
    },
    Case {
        id: "E10",
        what: "filling /dev/shm",
        probes: &[bomb("write", |scene| write_mib(&scene.shared_memory, 80), Stage::PLAIN)],
    },
    Case {
        id: "E11",
        what: "an inode bomb",
        probes: &[
            bomb("/tmp", |scene| make_files(&scene.temporary, 3_000), SMALL_TMP),
            bomb("/dev/shm", |scene| make_files(&scene.shared_memory, 18_000), Stage::PLAIN),
            bomb("disk", |scene| make_files(&scene.home, 101_000), FEW_INODES),
            // Where no inode is counted, memory is.
            bomb("as memory", |scene| make_files(&scene.shared_memory, 150_000), LITTLE_MEMORY),
        ],
    },
    Case {
        id: "E12",
        what: "writing to the root",
        probes: &[
            denied("/", |_| unnamed_file("/")),
            denied("/etc", |_| unnamed_file("/etc")),
            denied("/usr", |_| unnamed_file("/usr")),
        ],
    },
    Case { id: "E13", what: "a file larger than the disk", probes: &[capped("sparse", sparse, SMALL_DISK)] },
    Case {
        id: "E14",
        what: "a directory 4,000 levels deep, with long names, for the collector to walk",
        probes: &[bomb(
            "nest",
            nest,
            Stage {
                evidence: Evidence::Result(|collected| {
                    collected
                        .record
                        .rejected
                        .iter()
                        .any(|rejected| [Reason::TooDeep, Reason::PathTooLong].contains(&rejected.reason))
                }),
                ..SMALL_DISK
            },
        )],
    },
    Case {
        id: "E15",
        what: "stuffing attributes",
        probes: &[
            denied("user attributes", stuff_attributes).control(IN_OWN_STORAGE).excused(&[(
                Errno::OPNOTSUPP,
                "the memory filesystem of this kernel has no user attributes",
            )]),
            // No control group counts what it takes.
            denied("access list", grow_access_list)
                .control(IN_OWN_STORAGE)
                .excused(&[(Errno::OPNOTSUPP, "the memory filesystem of this kernel has no access lists")]),
        ],
    },
];

fn allocate(scene: &Scene) -> io::Result<()> {
    let result = (0..3).try_for_each(|number| {
        let file = File::create(scene.workspace.join(format!("big-{number}")))?;
        Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, GIB)?)
    });
    for number in 0..3 {
        remove(&scene.workspace.join(format!("big-{number}")))?;
    }
    result
}

fn write_mib(directory: &Path, mib: usize) -> io::Result<()> {
    let path = directory.join("filler");
    let piece = vec![1; 1 << 20];
    let mut file = File::create(&path)?;
    let result = (0..mib).try_for_each(|_| file.write_all(&piece));
    remove(&path)?;
    result
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

const fn bomb(name: &'static str, attempt: fn(&Scene) -> io::Result<()>, stage: Stage) -> Probe {
    capped(name, attempt, stage).control(IN_OWN_STORAGE)
}

fn make_files(place: &Path, count: u32) -> io::Result<()> {
    let path = place.join("many");
    std::fs::create_dir(&path)?;
    let directory = File::open(&path)?;
    Ok((0..count).try_for_each(|number| {
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&directory, number.to_string(), FileType::RegularFile, mode, 0)
    })?)
}

/// A file without a name leaves nothing behind where it can be made.
fn unnamed_file(directory: &str) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600)) {
        Ok(_) => Ok(()),
        // Only some kernels can make one.
        Err(Errno::OPNOTSUPP) => {
            let path = Path::new(directory).join("pond-attack");
            File::create_new(&path)?;
            std::fs::remove_file(path)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn sparse(scene: &Scene) -> io::Result<()> {
    let path = scene.workspace.join("sparse");
    let result = File::create(&path)?.set_len(4 * GIB);
    remove(&path)?;
    result
}

/// Walks down by descriptor, because no path is long enough.
fn nest(scene: &Scene) -> io::Result<()> {
    const LEVELS: usize = 4_000;
    let name = "n".repeat(200);
    let mode = Mode::from_raw_mode(0o755);
    let open = |at: &OwnedFd, name: &str| {
        rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let mut at = rustix::fs::openat(CWD, &scene.workspace, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&at, &name, mode)?;
        at = open(&at, &name)?;
        rustix::fs::mknodat(&at, "leaf", FileType::RegularFile, mode, 0)?;
    }
    Ok(())
}

fn stuff_attributes(scene: &Scene) -> io::Result<()> {
    let directory = scene.temporary.join("attributes");
    std::fs::create_dir(&directory)?;
    let value = [1; 3000];
    let result = (0..1000).try_for_each(|number| {
        let path = directory.join(number.to_string());
        File::create(&path)?;
        Ok(rustix::fs::setxattr(&path, "user.stuffing", &value, XattrFlags::empty())?)
    });
    std::fs::remove_dir_all(&directory)?;
    result
}

/// As large as any attribute may be: as many users as fit.
fn grow_access_list(scene: &Scene) -> io::Result<()> {
    const USERS: u32 = 8_000;
    let entry = |tag: u16, who: u32| {
        let rights: u16 = 6;
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &who.to_le_bytes()].concat()
    };
    let (owner, user, group, mask, others) = (1, 2, 4, 16, 32);
    let nobody = u32::MAX;
    // Of a user who has an id wherever this runs, as often as one likes.
    let users = (0..USERS).flat_map(|_| entry(user, rustix::process::getuid().as_raw()));
    let ends = [entry(group, nobody), entry(mask, nobody), entry(others, nobody)].concat();
    let list: Vec<u8> =
        2u32.to_le_bytes().into_iter().chain(entry(owner, nobody)).chain(users).chain(ends).collect();
    let path = scene.temporary.join("access-list");
    File::create(&path)?;
    let result = rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty());
    remove(&path)?;
    Ok(result?)
}
