//! `pond-probe`: the program that makes the attempts. It is pond itself under another name, shown to one sandbox for the attack.
//!
//! Zone: hostile, by profession. One line of JSON per attempt on standard output; each attempt has a process of its own, so a
//! filter that kills ends one attempt. It starts no thread.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use pond_sys::attempt::{Kind, Trial, isolated, unshare, unshare_user_as_root};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use serde::{Deserialize, Serialize};

use super::accomplice::{self, Accomplice};
use super::case::{Case, Control, Probe, Shelter, Stage};
use super::catalogue;
use super::scene::{Place, Scene};

/// The name this program is started under; `main` looks at it before anything else.
pub(crate) const NAME: &str = "pond-probe";
const NODEV: MountFlags = MountFlags::NODEV;
/// Waits for the end of its input: a process of the host for others to find.
pub(crate) const BYSTANDER: &str = "--bystander";

/// One attempt and how it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) case: String,
    pub(crate) probe: String,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Succeeded,
    Failed { errno: i32 },
    Killed { signal: u8 },
    Hung,
}

/// The selector of a probe on the command line.
pub(crate) fn selector(case: &Case, probe: &Probe) -> String {
    format!("{}/{}", case.id, probe.name)
}

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [first, ..] if first == BYSTANDER => io::stdin().read_to_end(&mut Vec::new()).map(|_| 0),
        [first, name] if first == accomplice::FLAG => Accomplice::parse(name).map_or(Ok(1), Accomplice::run),
        [scene, selected @ ..] => attempts(scene, selected).map(|()| 0),
        [] => Ok(1),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("{NAME}: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn attempts(scene: &str, selected: &[String]) -> io::Result<()> {
    let inherited = inherited_descriptors()?;
    let scene = Scene { inherited, ..serde_json::from_str(scene)? };
    for case in catalogue() {
        for probe in case.probes.iter().filter(|probe| selected.contains(&selector(case, probe))) {
            let line = Line {
                case: case.id.to_owned(),
                probe: probe.name.to_owned(),
                outcome: attempt(probe, &scene)?,
            };
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
            out.flush()?;
        }
    }
    Ok(())
}

fn attempt(probe: &Probe, scene: &Scene) -> io::Result<Outcome> {
    let trial = isolated(Stage::PATIENCE, || {
        if let (Place::Outside, Control::Attempt(unconfined)) = (scene.place, probe.control) {
            enter(unconfined.shelter, scene)?;
        }
        (probe.attempt)(scene)
    })?;
    Ok(match trial {
        // An attempt that stops itself did what it wanted.
        Trial::Succeeded | Trial::Stopped => Outcome::Succeeded,
        Trial::Failed { errno } => Outcome::Failed { errno },
        Trial::Killed { signal } => Outcome::Killed { signal },
        Trial::Hung => Outcome::Hung,
    })
}

/// Namespaces of its own, with a user namespace where an ordinary user needs one to get them.
fn enter(shelter: Shelter, scene: &Scene) -> io::Result<()> {
    let kind = match shelter {
        Shelter::None => return Ok(()),
        Shelter::Mounts | Shelter::Storage => Kind::Mount,
        Shelter::Network => Kind::Net,
    };
    if let Err(fault) = unshare(&[kind]) {
        match Errno::from_io_error(&fault) {
            // Mapped, or nothing could be made in what is mounted there.
            Some(Errno::PERM) => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                unshare_user_as_root(user.as_raw(), group.as_raw())?;
                unshare(&[kind])?;
            }
            _ => return Err(fault),
        }
    }
    match shelter {
        Shelter::Mounts => keep_mounts_private(),
        Shelter::Storage => {
            keep_mounts_private()?;
            let places = [&scene.workspace, &scene.temporary, &scene.shared_memory, &scene.home];
            places.into_iter().try_for_each(|place| Ok(mount("none", place, "tmpfs", NODEV, c"nr_inodes=0")?))
        }
        Shelter::None | Shelter::Network => Ok(()),
    }
}

fn keep_mounts_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// What is open beyond the standard streams, as this process found it. The listing's own descriptor is not.
fn inherited_descriptors() -> io::Result<Vec<i32>> {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    let still_open = |number: &i32| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    Ok(numbers.into_iter().filter(still_open).collect())
}
