//! G: repositories that act on whoever runs git in them. A job leaves one in its workspace; pond must neither run git there nor
//! hand the repository on. Every trap touches one file of the host, which a canary looks for after every sandbox; the controls run
//! git in the same directories and see it touched.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pond_worker::collect::Collected;
use rustix::io::Errno;

use super::case::{Case, Probe};
use super::results::collected;
use super::scene::{Scene, found};

const NO_GIT: &[(Errno, &str)] = &[(Errno::NOENT, "this host has no git")];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "G01",
        what: "a hook that git runs by itself",
        probes: &[trap("fsmonitor", |scene| {
            let room = room(scene, "G01")?;
            repository(&room.join(".git"), &format!("[core]\n\tfsmonitor = {}\n", touch(scene)))?;
            is_sprung(scene, &room, &["status"])
        })],
    },
    Case {
        id: "G02",
        what: "configuration that names a program",
        probes: &[trap("sshCommand", |scene| {
            let room = room(scene, "G02")?;
            repository(&room.join(".git"), &format!("[core]\n\tsshCommand = {};\n", touch(scene)))?;
            is_sprung(scene, &room, &["ls-remote", "ssh://localhost/nothing"])
        })],
    },
    Case {
        id: "G05",
        what: "a .git that is a file and points elsewhere",
        probes: &[trap("gitdir", |scene| {
            let room = room(scene, "G05")?;
            let elsewhere = room.join("elsewhere/.git");
            repository(&elsewhere, &format!("[core]\n\tfsmonitor = {}\n", touch(scene)))?;
            std::fs::write(room.join(".git"), format!("gitdir: {}\n", elsewhere.display()))?;
            is_sprung(scene, &room, &["status"])
        })],
    },
    Case {
        id: "G06",
        what: "a repository that borrows from another",
        probes: &[trap("commondir", |scene| {
            let room = room(scene, "G06")?;
            let common = room.join("common/.git");
            repository(&common, &format!("[core]\n\tfsmonitor = {}\n", touch(scene)))?;
            repository(&room.join(".git"), "")?;
            std::fs::write(room.join(".git/commondir"), common.display().to_string())?;
            is_sprung(scene, &room, &["status"])
        })],
    },
    Case {
        id: "G07",
        what: "submodules that lead out of the tree or run a program",
        probes: &[collected(
            "submodule",
            |scene| {
                let entry = "[submodule \"../../hooks\"]\n\tpath = -rf\n\turl = ext::sh -c true\n";
                std::fs::write(room(scene, "G07")?.join(".gitmodules"), entry)
            },
            |result| is_flagged(result, "G07/.gitmodules"),
        )],
    },
    Case {
        id: "G09",
        what: "attributes that run files through a program",
        probes: &[collected(
            "filter",
            |scene| {
                let room = room(scene, "G09")?;
                repository(&room.join(".git"), &format!("[filter \"trap\"]\n\tclean = {}\n", touch(scene)))?;
                std::fs::write(room.join(".gitattributes"), "* filter=trap\n")?;
                std::fs::write(room.join("file"), "text\n")?;
                is_sprung(scene, &room, &["hash-object", "--path=file", "file"])
            },
            |result| brings_no_repository(result) && is_flagged(result, "G09/.gitattributes"),
        )
        .excused(NO_GIT)],
    },
    Case {
        id: "G10",
        what: "a .git under names that other file systems take for the same",
        probes: &[collected(
            "spellings",
            |scene| {
                let room = room(scene, "G10")?;
                for name in SPELLINGS {
                    repository(&room.join(name), "")?;
                }
                Ok(())
            },
            |result| {
                let is_one = |path: &[u8]| {
                    SPELLINGS.iter().any(|name| path.starts_with(format!("G10/{name}/").as_bytes()))
                };
                !result.record.changes.iter().any(|change| is_one(change.path.as_bytes()))
            },
        )],
    },
    Case {
        id: "G11",
        what: "references whose names are options",
        probes: &[trap("reference", |scene| {
            let room = room(scene, "G11")?;
            repository(&room.join(".git"), "")?;
            let none = "0".repeat(40);
            std::fs::write(room.join(".git/refs/heads/--upload-pack=touch"), none)
        })],
    },
];

const SPELLINGS: [&str; 4] = [".GIT", "git~1", ".git ", ".g\u{200c}it"];

/// What springs it is git, which pond never runs on a result; what shows that is that nothing was touched and nothing brought.
const fn trap(name: &'static str, attempt: fn(&Scene) -> io::Result<()>) -> Probe {
    collected(name, attempt, brings_no_repository).excused(NO_GIT)
}

fn brings_no_repository(result: &Collected) -> bool {
    let is_git = |path: &[u8]| path.split(|byte| *byte == b'/').any(|part| part == b".git");
    result.record.git_metadata_changes > 0
        && !result.record.changes.iter().any(|change| is_git(change.path.as_bytes()))
}

fn is_flagged(result: &Collected, name: &str) -> bool {
    result.record.flagged.iter().any(|flag| flag.path.as_bytes() == name.as_bytes())
}

fn room(scene: &Scene, name: &str) -> io::Result<PathBuf> {
    let room = scene.workspace.join(name);
    std::fs::create_dir(&room)?;
    Ok(room)
}

/// The least that git takes for a repository.
fn repository(at: &Path, config: &str) -> io::Result<()> {
    std::fs::create_dir_all(at.join("objects"))?;
    std::fs::create_dir_all(at.join("refs/heads"))?;
    std::fs::write(at.join("HEAD"), "ref: refs/heads/main\n")?;
    std::fs::write(at.join("config"), config)
}

fn touch(scene: &Scene) -> String {
    format!("touch {}", scene.host.tripwire.display())
}

/// Outside, runs git in the trap and takes its mark away again. Inside there is nobody to do so: the trap is for the host.
#[expect(clippy::disallowed_methods, reason = "the control shows that git springs the trap")]
fn is_sprung(scene: &Scene, room: &Path, arguments: &[&str]) -> io::Result<()> {
    if scene.is_inside() {
        return Ok(());
    }
    Command::new("git")
        .args(arguments)
        .current_dir(room)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let is_there = scene.host.tripwire.exists();
    if is_there {
        std::fs::remove_file(&scene.host.tripwire)?;
    }
    found(is_there)
}
