//! What launches could leave on the host and in the engine: counted before the first and after the last.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::census::{groups_below, names, processes};
use super::super::docker::{self, Daemon};
use super::super::stand::{Stand, read};

/// What was counted, in the order of the table.
pub(in super::super) type Residue = Vec<(&'static str, usize)>;

/// The kernel frees loop devices and groups a moment after whoever used them is gone.
const SETTLING: Duration = Duration::from_secs(20);

/// What there is once it is what was there before, or will not be.
pub(in super::super) fn settled(stand: &Stand, docker: &Daemon<'_>, before: &Residue) -> Result<Residue> {
    let deadline = Instant::now() + SETTLING;
    loop {
        let now = count(stand, docker)?;
        if now == *before || Instant::now() > deadline {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub(in super::super) fn count(stand: &Stand, docker: &Daemon<'_>) -> Result<Residue> {
    let lines = |words: &[&str]| Ok::<_, anyhow::Error>(docker.client(words).capture()?.lines().count());
    let place = stand.path("state");
    let mounts = read("/proc/self/mountinfo")?.lines().filter(|line| line.contains(&place)).count();
    let backed = |name: &String| {
        let file = Path::new("/sys/block").join(name).join("loop/backing_file");
        fs::read_to_string(file).is_ok_and(|file| file.contains(&place))
    };
    let scratch = names(Path::new(&stand.path("state/scratch")));
    Ok(vec![
        ("containers", lines(&["ps", "--all", "--quiet"])?),
        ("networks", lines(&["network", "ls", "--quiet"])?),
        ("volumes", lines(&["volume", "ls", "--quiet"])?),
        ("control groups of containers", groups_below(docker::GROUP)),
        ("processes of pond", processes(Path::new(&stand.path("pond")))?),
        ("mounts of jobs", mounts),
        ("loop devices of jobs", names(Path::new("/sys/block")).iter().filter(|name| backed(name)).count()),
        ("records of jobs", names(Path::new(&stand.path("state/live"))).len()),
        ("scratch files of jobs", scratch.iter().filter(|name| !name.ends_with(".image")).count()),
    ])
}
