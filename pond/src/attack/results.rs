//! C: results that would act on whoever reads them. The job leaves them in its workspace; the collector must come through.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use pond_worker::collect::{Collected, Mode, Reason};
use rustix::fs::{CWD, FileType, XattrFlags};

use super::case::{Case, Evidence, Probe, Stage, capped};
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
        id: "C05",
        what: "a fifo that blocks whoever opens it",
        probes: &[collected(
            "fifo",
            |scene| {
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                Ok(rustix::fs::mknodat(CWD, scene.workspace.join("fifo"), FileType::Fifo, mode, 0)?)
            },
            |result| is_rejected(result, "fifo", Reason::Fifo),
        )],
    },
    Case {
        id: "C06",
        what: "a socket",
        probes: &[collected(
            "socket",
            |scene| UnixListener::bind(scene.workspace.join("socket")).map(drop),
            |result| is_rejected(result, "socket", Reason::Socket),
        )],
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
        probes: &[collected(
            "marks",
            |scene| {
                let directory = scene.workspace.join("forged");
                std::fs::create_dir(&directory)?;
                std::fs::write(directory.join("file"), "mine")?;
                for name in ["user.overlay.redirect", "user.overlay.opaque", "user.overlay.metacopy"] {
                    rustix::fs::setxattr(&directory, name, b"/planted", XattrFlags::empty())?;
                }
                Ok(())
            },
            |result| !result.record.changes.iter().any(|change| change.path.as_bytes().ends_with(b"canary")),
        )
        .excused(&[(
            rustix::io::Errno::OPNOTSUPP,
            "the temporary directory's filesystem has no user attributes",
        )])],
    },
    Case {
        id: "G03",
        what: "git metadata planted in the result",
        probes: &[collected(
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
        )],
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

const NAMES: [&[u8]; 5] = [b"two\nlines", b"\x1b[2Jescape", b"\xff\xfe no text", b"-rf", b"trailing "];

/// Something left in the workspace of the profile that has a copy, and what its collected form must be.
const fn collected(
    name: &'static str,
    leave: fn(&Scene) -> io::Result<()>,
    passes: fn(&Collected) -> bool,
) -> Probe {
    let profile = Some("untrusted-code-write");
    capped(name, leave, Stage { profile, evidence: Evidence::Result(passes), ..Stage::PLAIN })
}

fn mode_of(result: &Collected, name: &str) -> Option<Mode> {
    let change = result.record.changes.iter().find(|change| change.path.as_bytes() == name.as_bytes())?;
    change.delta.result().map(|leaf| leaf.mode)
}

fn is_rejected(result: &Collected, name: &str, reason: Reason) -> bool {
    result.record.rejected.iter().any(|rejected| rejected.path == name && rejected.reason == reason)
}
