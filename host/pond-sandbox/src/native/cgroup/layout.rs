//! Where this process stands in the control group hierarchies, from the two files the kernel describes it in.
//!
//! Zone: host, pure. Invariant: a directory is reported only if the process's own group lies below what is mounted there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::fault::Controller;

/// The process's own group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) mount: PathBuf,
    pub(super) group: PathBuf,
}

/// A v1 hierarchy and what it controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Legacy {
    pub(super) controllers: Vec<Controller>,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) unified: Option<Place>,
    pub(super) legacy: Vec<Legacy>,
}

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
pub(super) fn parse(mountinfo: &str, own: &str) -> Layout {
    // A later mount hides an earlier one at the same place.
    let mounts: Vec<Mount> = mountinfo.lines().rev().filter_map(Mount::parse).collect();
    let mut layout = Layout::default();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            layout.unified = place(&mounts, Path::new(group), |mount| mount.kind == Kind::Unified);
            continue;
        }
        let listed: Vec<&str> = controllers.split(',').collect();
        let known: Vec<Controller> = listed.iter().filter_map(|name| controller(name)).collect();
        let carries = |mount: &Mount<'_>| match &mount.kind {
            Kind::Legacy(options) => listed.iter().all(|name| options.contains(name)),
            Kind::Unified => false,
        };
        if !known.is_empty()
            && let Some(place) = place(&mounts, Path::new(group), carries)
        {
            layout.legacy.push(Legacy { controllers: known, place });
        }
    }
    layout
}

fn controller(name: &str) -> Option<Controller> {
    [Controller::Memory, Controller::Cpu, Controller::Pids, Controller::CpuAccounting]
        .into_iter()
        .find(|controller| controller.name() == name)
}

fn place(mounts: &[Mount<'_>], group: &Path, carries: impl Fn(&Mount<'_>) -> bool) -> Option<Place> {
    // A group outside the cgroup namespace is shown as a path through `..`: nothing of it is mounted here.
    if group.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    mounts.iter().filter(|mount| carries(mount)).find_map(|mount| {
        let below = group.strip_prefix(&mount.root).ok()?;
        let group = if below.as_os_str().is_empty() { mount.at.clone() } else { mount.at.join(below) };
        Some(Place { mount: mount.at.clone(), group })
    })
}

#[derive(PartialEq, Eq)]
enum Kind<'a> {
    Unified,
    /// The super block's options, the controllers among them.
    Legacy(Vec<&'a str>),
}

struct Mount<'a> {
    /// The group that is the root of this mount.
    root: PathBuf,
    at: PathBuf,
    kind: Kind<'a>,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, super_block) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut fields = super_block.split(' ');
        let kind = match fields.next()? {
            "cgroup2" => Kind::Unified,
            "cgroup" => Kind::Legacy(fields.nth(1)?.split(',').collect()),
            _ => return None,
        };
        Some(Self { root, at, kind })
    }
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, octal.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
