//! What of the host enters a sandbox, and where: mounts, copies, the tools pond knows, published ports. Nothing else does.
//!
//! Invariants: a source and a target are absolute and spelled in one way, so comparing text compares places; no target is one that pond
//! makes itself, and none lies in another. Whether a source is what it seems (a link, a socket, a device) is judged by whoever opens it.

use crate::refusal::{Code, Refusal, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape, TextForm};

const MOST_ENTRIES: usize = 64;
const MOST_PATTERNS: usize = 256;
const MOST_PATH: usize = 1024;

/// Places of every sandbox that pond fills itself, with everything below them.
pub const RESERVED: [&str; 18] = [
    "/.pond", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/proc",
    "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var/run",
];
/// Places of the host that are no files: what is read from them is the host itself.
const NO_SOURCE: [&str; 3] = ["/dev", "/proc", "/sys"];

const SOURCE: Field = Field {
    name: "source",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(SOURCE_FORM),
    doc: "A file or directory of the host, by its absolute path. No part of it may be a symbolic link.",
};
const TARGET: Field = Field {
    name: "target",
    need: Need::Required(Code::MissingField),
    kind: Kind::Text(TARGET_FORM),
    doc: "Where it is inside, by its absolute path.",
};
const WRITABLE: Field = Field {
    name: "writable",
    need: Need::Optional,
    kind: Kind::Flag,
    doc: "Whether the sandbox may change it, on the host; false without it.",
};
const EXCLUDE: Field = Field {
    name: "exclude",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Text(PATTERN_FORM), least: 0, most: MOST_PATTERNS },
    doc: "What is left out, as patterns of a .gitignore relative to the source.",
};

pub(super) static MOUNT_SHAPE: Shape = Shape {
    name: "mount",
    doc: "A file or directory of the host, live.",
    fields: &[SOURCE, TARGET, WRITABLE],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};
pub(super) static COPY_SHAPE: Shape = Shape {
    name: "copy",
    doc: "A file or directory of the host as it is when the sandbox is made; the sandbox owns its copy.",
    fields: &[SOURCE, TARGET, EXCLUDE],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

pub(super) const MOUNTS: Field = Field {
    name: "mounts",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Object(&MOUNT_SHAPE), least: 0, most: MOST_ENTRIES },
    doc: "Files and directories of the host that the sandbox sees as they are, read-only unless writable.",
};
pub(super) const COPIES: Field = Field {
    name: "copies",
    need: Need::Optional,
    kind: Kind::List { of: &Kind::Object(&COPY_SHAPE), least: 0, most: MOST_ENTRIES },
    doc: "Files and directories of the host that are copied in once.",
};
pub(super) const BUILTIN_TOOLS: Field = Field {
    name: "builtin_tools",
    need: Need::Optional,
    kind: Kind::List {
        of: &Kind::Choice { names: Tool::NAMES, code: Code::UnknownTool },
        least: 0,
        most: MOST_ENTRIES,
    },
    doc: "Toolchains and caches of the host, by name: read-only, or as overlays that are thrown away. Never a credential.",
};
pub(super) const SOURCE_FORM: TextForm = TextForm {
    pattern: "^/[^\\u0000-\\u001f\\u007f]+$",
    most: MOST_PATH,
    check: is_source,
    code: Code::SourcePathInvalid,
    rule: "an absolute path without `.`, `..`, empty or trailing parts, at most 1024 bytes, not / and not in /dev, /proc or /sys",
};
pub(super) const TARGET_FORM: TextForm = TextForm {
    pattern: "^/[^\\u0000-\\u001f\\u007f]+$",
    most: MOST_PATH,
    check: is_place,
    code: Code::TargetInvalid,
    rule: "an absolute path without `.`, `..`, empty or trailing parts, at most 1024 bytes, not /",
};
const PATTERN_FORM: TextForm = TextForm {
    pattern: "^[^\\u0000-\\u001f\\u007f]+$",
    most: 256,
    check: is_pattern,
    code: Code::ExcludeInvalid,
    rule: "a pattern of 1 to 256 bytes without `..` and without control characters",
};

named_enum! {
    /// A toolchain or a cache that pond knows the places of.
    pub enum Tool {
        Cargo => "cargo",
        Uv => "uv",
        Pip => "pip",
        Npm => "npm",
        Go => "go",
        Git => "git",
        Claude => "claude",
        Codex => "codex",
        Gemini => "gemini",
        Opencode => "opencode",
        Aider => "aider",
    }
}

/// A file or directory of the host that the sandbox sees live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: String,
    pub target: String,
    pub writable: bool,
}

/// A file or directory of the host that is copied in once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub source: String,
    pub target: String,
    pub exclude: Vec<String>,
}

/// A target as it was written, and where.
pub(super) type Placed<'n> = (&'n str, Item<'n>);

pub(super) fn read_mount<'n>(
    item: &Item<'n>,
    placed: &mut Vec<Placed<'n>>,
    refusals: &mut Refusals,
) -> Option<Mount> {
    let object = item.object(refusals)?;
    let source = object.item(&SOURCE).and_then(|item| item.text(refusals));
    let target = object.item(&TARGET).and_then(|item| read_target(item, placed, refusals));
    let writable = object.item(&WRITABLE).map_or(Some(false), |item| item.flag(refusals));
    Some(Mount { source: source?.to_owned(), target: target?.to_owned(), writable: writable? })
}

pub(super) fn read_copy<'n>(
    item: &Item<'n>,
    placed: &mut Vec<Placed<'n>>,
    refusals: &mut Refusals,
) -> Option<Copied> {
    let object = item.object(refusals)?;
    let source = object.item(&SOURCE).and_then(|item| item.text(refusals));
    let target = object.item(&TARGET).and_then(|item| read_target(item, placed, refusals));
    let exclude = object.item(&EXCLUDE).map(|item| crate::run::executor::read_list(item, refusals));
    Some(Copied {
        source: source?.to_owned(),
        target: target?.to_owned(),
        exclude: exclude.unwrap_or_default(),
    })
}

pub(super) fn read_tools(item: &Item<'_>, refusals: &mut Refusals) -> Vec<Tool> {
    let mut tools: Vec<Tool> = Vec::new();
    for item in item.list(refusals).unwrap_or_default() {
        match item.choice(Tool::from_name, refusals) {
            Some(tool) if tools.contains(&tool) => {
                refusals.refuse(
                    Code::ToolDuplicate,
                    item.path(),
                    format!("{tool} is listed twice; keep one"),
                );
            }
            Some(tool) => tools.push(tool),
            None => {}
        }
    }
    tools
}

fn read_target<'n>(
    item: &Item<'n>,
    placed: &mut Vec<Placed<'n>>,
    refusals: &mut Refusals,
) -> Option<&'n str> {
    let target = item.text(refusals)?;
    placed.push((target, item.clone()));
    Some(target)
}

/// No target is a place of pond's own, and none is, holds or lies in another. `workspace` is one more of pond's own places, where the
/// profile puts something there.
pub(super) fn check_targets(placed: &[Placed<'_>], workspace: Option<&str>, refusals: &mut Refusals) {
    for (number, (target, item)) in placed.iter().enumerate() {
        let own = RESERVED.into_iter().chain(workspace).find(|own| overlap(own, target));
        if let Some(own) = own {
            let message =
                format!("{own} is made by pond itself: choose another place, such as /mnt/name or /data");
            refusals.refuse(Code::TargetReserved, item.path(), message);
            continue;
        }
        let earlier = placed.iter().take(number).find(|(other, _)| overlap(other, target));
        if let Some((other, place)) = earlier {
            let message =
                format!("overlaps {other} of {}: no target may be, hold or lie in another", place.path());
            refusals.add(Refusal::new(Code::TargetConflict, item.path(), message));
        }
    }
}

/// Whether one is the other or holds it.
fn overlap(one: &str, other: &str) -> bool {
    within(one, other) || within(other, one)
}

fn within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_source(text: &str) -> bool {
    is_place(text) && !NO_SOURCE.iter().any(|place| within(text, place))
}

/// An absolute path in its only spelling, below the root.
fn is_place(text: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    let parts = text.strip_prefix('/');
    parts.is_some_and(|parts| parts.split('/').all(part)) && !text.chars().any(char::is_control)
}

fn is_pattern(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control) && text.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for good in ["/a", "/a/b c", "/é", "/...", "/a/.git", "/-v"] {
            assert!(is_place(good) && is_source(good), "{good:?}");
        }
        for bad in [
            "", "/", "a", "./a", "~/a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/../a", "/a\n", "/a\0",
            "C:\\a",
        ] {
            assert!(!is_place(bad), "{bad:?}");
        }
        for bad in ["/proc", "/proc/1/root", "/sys/fs/cgroup", "/dev/sda"] {
            assert!(!is_source(bad), "{bad:?}");
        }
        assert!(is_source("/device"));
    }

    #[test]
    fn places_overlap_by_parts_not_by_letters() {
        assert!(overlap("/a", "/a") && overlap("/a", "/a/b") && overlap("/a/b", "/a"));
        assert!(!overlap("/a", "/ab") && !overlap("/a/b", "/a/c"));
    }

    #[test]
    fn patterns_stay_below_their_source() {
        for good in ["target", "*.log", "/node_modules", "!keep", "a/**/b", "..."] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", "..", "../a", "a/../b", "a\nb"] {
            assert!(!is_pattern(bad), "{bad:?}");
        }
    }
}
