//! C: results that would act on whoever reads them. The job leaves them in its workspace; the collector must come through.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use pond_worker::collect::{Caps, Collected, Mode, Reason, Rejected};
use rustix::fs::{CWD, FileType, XattrFlags, makedev};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::case::{Case, Evidence, Probe, Stage, capped, denied};
use super::scene::Scene;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "C03",
        what: "links that lead out of the result",
        probes: &[collected(
            "links",
            |scene| {
                symlink("/etc/passwd", scene.workspace.join("absolute"))?;
                symlink("../../../../etc/passwd", scene.workspace.join("upwards"))?;
                symlink("/proc/self/environ", scene.workspace.join("magic"))
            },
            |result| {
                ["absolute", "upwards", "magic"]
                    .into_iter()
                    .all(|name| mode_of(result, name) == Some(Mode::Link))
            },
        )],
    },
    Case {
        id: "C04",
        what: "device nodes",
        probes: &[
            denied("character device", |scene| node(scene, FileType::CharacterDevice, makedev(1, 3)))
                .needs("CAP_MKNOD", CapabilitySet::MKNOD),
            denied("block device", |scene| node(scene, FileType::BlockDevice, makedev(7, 0)))
                .needs("CAP_MKNOD", CapabilitySet::MKNOD),
        ],
    },
    Case {
        id: "C05",
        what: "a fifo that blocks whoever opens it",
        probes: &[collected(
            "fifo",
            |scene| {
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                Ok(rustix::fs::mknodat(CWD, scene.workspace.join("fifo"), FileType::Fifo, mode, 0)?)
            },
            |result| is_kept_out(result, "fifo", Reason::Fifo),
        )],
    },
    Case {
        id: "C06",
        what: "a socket",
        probes: &[collected(
            "socket",
            |scene| UnixListener::bind(scene.workspace.join("socket")).map(drop),
            |result| is_kept_out(result, "socket", Reason::Socket),
        )],
    },
    Case {
        id: "C07",
        what: "a node that an overlay takes for a removal",
        probes: &[denied("whiteout", |scene| node(scene, FileType::CharacterDevice, 0))],
    },
    Case {
        id: "C08",
        what: "hard links, among each other and to the repository",
        probes: &[collected(
            "links",
            |scene| {
                std::fs::write(scene.workspace.join("one"), "same")?;
                std::fs::hard_link(scene.workspace.join("one"), scene.workspace.join("two"))
            },
            |result| ["one", "two"].into_iter().all(|name| mode_of(result, name) == Some(Mode::Regular)),
        )],
    },
    Case {
        id: "C09",
        what: "set-user-id bits on a result",
        probes: &[collected(
            "bits",
            |scene| {
                let path = scene.workspace.join("powerful");
                std::fs::write(&path, "#!/bin/sh\n")?;
                std::fs::set_permissions(&path, Permissions::from_mode(0o6755))
            },
            |result| mode_of(result, "powerful") == Some(Mode::Executable),
        )],
    },
    Case {
        id: "C10",
        what: "a result that everybody may write",
        probes: &[collected(
            "bits",
            |scene| {
                let directory = scene.workspace.join("everybody");
                std::fs::create_dir(&directory)?;
                std::fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
                std::fs::write(directory.join("file"), "x")?;
                std::fs::set_permissions(directory.join("file"), Permissions::from_mode(0o666))
            },
            |result| mode_of(result, "everybody/file") == Some(Mode::Regular),
        )],
    },
    Case {
        id: "C11",
        what: "a file of holes, larger than any result may be",
        probes: &[collected(
            "holes",
            |scene| File::create(scene.workspace.join("holes"))?.set_len(Caps::default().file_bytes + 1),
            |result| is_rejected(result, "holes", Reason::FileTooLarge),
        )],
    },
    Case {
        id: "C12",
        what: "a result deeper than any reader can follow",
        probes: &[collected(
            "depth",
            |scene| {
                let deep: std::path::PathBuf = std::iter::repeat_n("d", Caps::default().depth + 1).collect();
                std::fs::create_dir_all(scene.workspace.join(&deep))?;
                std::fs::write(scene.workspace.join(deep).join("file"), "x")
            },
            |result| {
                let too_deep = |rejected: &Rejected| rejected.reason == Reason::TooDeep;
                result.record.changes.is_empty() && result.record.rejected.iter().any(too_deep)
            },
        )],
    },
    Case {
        id: "C13",
        what: "names that forge lines or are no text",
        probes: &[collected(
            "names",
            |scene| {
                for name in NAMES {
                    std::fs::write(scene.workspace.join(OsStr::from_bytes(name)), "x")?;
                }
                Ok(())
            },
            |result| {
                let is_plain = |text: String| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
                let stored =
                    |name: &[u8]| result.record.changes.iter().any(|change| change.path.as_bytes() == name);
                NAMES.iter().all(|name| stored(name))
                    && result.record.changes.iter().all(|change| is_plain(change.path.to_string()))
            },
        )],
    },
    Case {
        id: "C14",
        what: "forged overlay marks",
        probes: &[denied("marks", |scene| {
            let directory = scene.temporary.join("forged");
            std::fs::create_dir(&directory)?;
            let names = ["user.overlay.redirect", "user.overlay.opaque", "user.overlay.metacopy"];
            let set = |name| rustix::fs::setxattr(&directory, name, b"/planted", XattrFlags::empty());
            let result = names.into_iter().try_for_each(set);
            std::fs::remove_dir(&directory)?;
            Ok(result?)
        })
        .excused(NO_ATTRIBUTES)],
    },
    Case {
        id: "C15",
        what: "attributes that grant or hold something",
        probes: &[denied("attributes", |scene| {
            let path = scene.temporary.join("attributes");
            std::fs::write(&path, "x")?;
            let result = rustix::fs::setxattr(&path, "user.anything", &[b'.'; 64], XattrFlags::empty());
            std::fs::remove_file(&path)?;
            Ok(result?)
        })
        .excused(NO_ATTRIBUTES)],
    },
    Case {
        id: "C18",
        what: "output that a terminal obeys",
        probes: &[capped(
            "sequences",
            |_| {
                let mut out = io::stdout().lock();
                out.write_all(
                    b"\x1b]52;c;aGk=\x07\x1b[2J\x1b]0;title\x07\x9b6n\rforged\xe2\x80\xae\x1b[8mhidden\n",
                )?;
                out.flush()
            },
            Stage { evidence: Evidence::Shown(is_harmless), ..Stage::PLAIN },
        )],
    },
    Case {
        id: "G03",
        what: "git metadata planted in the result",
        probes: &[
            collected(
                "metadata",
                |scene| {
                    let hooks = scene.workspace.join("inner/.git/hooks");
                    std::fs::create_dir_all(&hooks)?;
                    std::fs::write(hooks.join("post-checkout"), "#!/bin/sh\ntouch /tmp/ran\n")?;
                    std::fs::write(
                        scene.workspace.join("inner/.git/config"),
                        "[core]\n\tfsmonitor = touch /tmp/ran\n",
                    )
                },
                |result| {
                    let is_inside_git = |path: &[u8]| {
                        Path::new(OsStr::from_bytes(path)).components().any(|part| part.as_os_str() == ".git")
                    };
                    result.record.git_metadata_changes > 0
                        && !result.record.changes.iter().any(|change| is_inside_git(change.path.as_bytes()))
                },
            ),
            collected(
                "bare",
                |scene| {
                    let bare = scene.workspace.join("docs");
                    for directory in ["objects", "refs"] {
                        std::fs::create_dir_all(bare.join(directory))?;
                        std::fs::write(bare.join(directory).join("x"), "")?;
                    }
                    std::fs::write(bare.join("HEAD"), "ref: refs/heads/main\n")?;
                    std::fs::write(bare.join("config"), "[core]\n\tfsmonitor = touch /tmp/ran\n")
                },
                |result| {
                    let is_flagged =
                        |path: &[u8]| result.record.flagged.iter().any(|flag| flag.path.as_bytes() == path);
                    let bare = |path: &[u8]| path.starts_with(b"docs/");
                    let planted = result.record.changes.iter().filter(|change| bare(change.path.as_bytes()));
                    planted.clone().count() == 4
                        && planted.map(|change| change.path.as_bytes()).all(is_flagged)
                },
            ),
        ],
    },
    Case {
        id: "G12",
        what: "files that editors, agents and builds act on by themselves",
        probes: &[collected(
            "configuration",
            |scene| {
                std::fs::create_dir_all(scene.workspace.join(".vscode"))?;
                std::fs::write(scene.workspace.join(".vscode/tasks.json"), "{}")?;
                std::fs::write(scene.workspace.join(".envrc"), "touch /tmp/ran\n")
            },
            |result| {
                [".vscode/tasks.json", ".envrc"].into_iter().all(|name| {
                    result.record.flagged.iter().any(|flag| flag.path.as_bytes() == name.as_bytes())
                })
            },
        )],
    },
];

const NO_ATTRIBUTES: &[(Errno, &str)] =
    &[(Errno::OPNOTSUPP, "the temporary directory's filesystem has no user attributes")];
const NAMES: [&[u8]; 5] = [b"two\nlines", b"\x1b[2Jescape", b"\xff\xfe no text", b"-rf", b"trailing "];

/// Something left in the workspace of the profile that has a copy, and what its collected form must be.
pub(super) const fn collected(
    name: &'static str,
    leave: fn(&Scene) -> io::Result<()>,
    passes: fn(&Collected) -> bool,
) -> Probe {
    let profile = Some("untrusted-code-write");
    capped(name, leave, Stage { profile, evidence: Evidence::Result(passes), ..Stage::PLAIN })
}

/// Made in the workspace, where a job may make anything, and taken away again where that worked.
fn node(scene: &Scene, kind: FileType, device: u64) -> io::Result<()> {
    let (path, mode) = (scene.workspace.join("node"), rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(CWD, &path, kind, mode, device)?;
    std::fs::remove_file(path)
}

/// Some of it came, and none of it does anything: no control but the end of a line.
fn is_harmless(text: &str) -> bool {
    let is_tame = |c: char| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    text.contains("forged") && text.chars().all(is_tame)
}

fn mode_of(result: &Collected, name: &str) -> Option<Mode> {
    let change = result.record.changes.iter().find(|change| change.path.as_bytes() == name.as_bytes())?;
    change.delta.result().map(|leaf| leaf.mode)
}

/// Refused by the collector, or never on the disk: a kernel in user space keeps such nodes to itself.
fn is_kept_out(result: &Collected, name: &str, reason: Reason) -> bool {
    let is_there = result.record.changes.iter().any(|change| change.path.as_bytes() == name.as_bytes());
    let is_spoken_of = result.record.rejected.iter().any(|rejected| rejected.path == name);
    !is_there && (!is_spoken_of || is_rejected(result, name, reason))
}

fn is_rejected(result: &Collected, name: &str, reason: Reason) -> bool {
    result.record.rejected.iter().any(|rejected| rejected.path == name && rejected.reason == reason)
}
