//! What an attempt knows of where it stands: the same names for the same things, inside and outside.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) place: Place,
    /// Directories the attempt may fill.
    pub(crate) workspace: PathBuf,
    pub(crate) temporary: PathBuf,
    pub(crate) shared_memory: PathBuf,
    pub(crate) home: PathBuf,
    /// What a hostile repository brought along.
    pub(crate) planted: PathBuf,
    /// A directory of the host that jobs are shown. A service listens in it, and somebody holds its lock and opens it again and
    /// again.
    pub(crate) shown: PathBuf,
    /// The file this probe was started from, or a copy of it that nobody needs.
    pub(crate) executable: PathBuf,
    pub(crate) host: Landmarks,
    /// Descriptors beyond the standard streams that were open at the first instruction.
    #[serde(default)]
    pub(crate) inherited: Vec<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    Inside,
    Outside,
}

/// Things of the host that nothing inside may find.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Landmarks {
    pub(crate) pid: i32,
    pub(crate) directory: PathBuf,
    pub(crate) secret: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) abstract_name: String,
    pub(crate) port: u16,
    pub(crate) segment: i32,
    pub(crate) name: String,
    /// Does not exist, unless something that a job left was run on the host.
    pub(crate) tripwire: PathBuf,
    /// A secret in the environment of a process outside, written backwards so that the search does not find itself.
    pub(crate) marker_backwards: String,
}

impl Scene {
    pub(crate) fn is_inside(&self) -> bool {
        self.place == Place::Inside
    }

    /// A file of init under /proc; outside the bystander stands for it, which belongs to the same user.
    pub(crate) fn of_init(&self, name: &str) -> String {
        match self.place {
            Place::Inside => format!("/proc/1/{name}"),
            Place::Outside => format!("/proc/{}/{name}", self.host.pid),
        }
    }

    pub(crate) fn marker(&self) -> String {
        self.host.marker_backwards.chars().rev().collect()
    }
}

/// The attack got what it asked for, and needs it no longer.
pub(crate) fn got<T>(result: Result<T, Errno>) -> io::Result<()> {
    result.map(drop).map_err(io::Error::from)
}

/// The attack found what it looked for, or did not.
pub(crate) fn found(yes: bool) -> io::Result<()> {
    if yes { Ok(()) } else { Err(Errno::NODATA.into()) }
}
