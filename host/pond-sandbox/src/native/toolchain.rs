//! The root a native job sees: the host's toolchain directories and the little of /etc that programs need, nothing else.
//!
//! `probe` looks at which of a fixed list of places this host has; `entries` is pure. No home directory, no socket, no /var, no
//! file of /etc that could hold a credential is on the list, so none can be offered by mistake.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pond_wire::jail::{BindKind, Console, HOME, RootEntry};
use rustix::fs::{Mode, OFlags};

use super::mount::kernel_name;

/// Directories of programs and libraries. On most hosts all but the first are links into it.
const TOOLCHAIN: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What dynamic linking, TLS trust, alternatives, fonts and name services read from /etc.
const SETTINGS: [&str; 12] = [
    "/etc/alternatives",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// The start of the names of settings directories that Java keeps outside its own, version and all.
const JAVA_SETTINGS: &str = "java-";

/// A file of this size or less is copied: up to here that costs less than a mount, on its way through the plan and all.
const COPIED_BYTES: u64 = 4 << 10;

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Where bare command names are looked up inside, in order.
pub const SEARCH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Whether programs are looked for in this place whoever asks.
pub(crate) fn is_usual(place: &str) -> bool {
    SEARCH.contains(&place)
}

/// One place of the host and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) path: String,
    pub(super) kind: PlaceKind,
}

/// Directories and files by device and inode: another one under the same name is another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Directory(u64, u64),
    File(u64, u64),
    /// A small file, by its content.
    Text(String),
    Link(String),
}

/// The places of the list that exist here. One that cannot be looked at is left out: the job sees less, never more.
pub(crate) fn probe() -> Vec<Place> {
    let fixed = TOOLCHAIN.into_iter().chain(SETTINGS).map(str::to_owned);
    fixed.chain(java_settings()).filter_map(|path| look(&path)).collect()
}

/// The places that may be directories.
pub(super) fn directories() -> impl Iterator<Item = &'static str> + Clone {
    TOOLCHAIN.into_iter().chain(SETTINGS)
}

fn java_settings() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(JAVA_SETTINGS))
        .map(|name| format!("/etc/{name}"))
        .collect();
    names.sort();
    names
}

fn look(path: &str) -> Option<Place> {
    let metadata = Path::new(path).symlink_metadata().ok()?;
    let kind = if metadata.is_symlink() {
        PlaceKind::Link(std::fs::read_link(path).ok()?.into_os_string().into_string().ok()?)
    } else if metadata.is_dir() {
        PlaceKind::Directory(metadata.dev(), metadata.ino())
    } else if metadata.is_file() {
        let small = (metadata.len() <= COPIED_BYTES).then(|| std::fs::read_to_string(path).ok());
        small.flatten().map_or(PlaceKind::File(metadata.dev(), metadata.ino()), PlaceKind::Text)
    } else {
        return None;
    };
    Some(Place { path: path.to_owned(), kind })
}

/// Where what is shown of the host really lies, links on the way followed.
pub(super) fn sources(places: &[Place]) -> io::Result<Vec<PathBuf>> {
    let shown = places.iter().filter_map(|place| match place.kind {
        PlaceKind::Directory(..) | PlaceKind::File(..) => Some(place.path.as_str()),
        PlaceKind::Text(_) | PlaceKind::Link(_) => None,
    });
    shown.chain(DEVICES).map(source).collect()
}

/// By the kernel's word, as its mount table has it.
fn source(path: &str) -> io::Result<PathBuf> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    kernel_name(&opened)
}

/// The root's entries, parents before children.
pub(super) fn entries(places: &[Place], hostname: &str, user: u32) -> Vec<RootEntry> {
    let mut entries: Vec<RootEntry> =
        ["/etc", "/etc/ssl"].into_iter().map(|path| RootEntry::Directory { path: path.to_owned() }).collect();
    entries.extend(places.iter().map(|place| {
        let path = place.path.clone();
        match &place.kind {
            PlaceKind::Directory(..) => {
                RootEntry::Bind { source: path.clone(), path, kind: BindKind::Directory }
            }
            PlaceKind::File(..) => RootEntry::Bind { source: path.clone(), path, kind: BindKind::File },
            PlaceKind::Text(content) => RootEntry::File { path, content: content.clone() },
            PlaceKind::Link(target) => RootEntry::Symlink { path, target: target.clone() },
        }
    }));
    entries.extend(files(hostname, user));
    entries.extend(
        DEVICES.into_iter().map(|path| RootEntry::Device { path: path.to_owned(), source: path.to_owned() }),
    );
    let links = [("/dev/fd", ""), ("/dev/stdin", "/0"), ("/dev/stdout", "/1"), ("/dev/stderr", "/2")];
    entries.extend(links.into_iter().map(|(path, stream)| RootEntry::Symlink {
        path: path.to_owned(),
        target: format!("/proc/self/fd{stream}"),
    }));
    entries
}

/// What programs expect of a terminal besides the one the launcher makes: the name for "the terminal I have", and the old name
/// of the device that makes new ones, which is the instance inside and never the host's.
pub(super) fn terminal_entries(console: Console) -> Vec<RootEntry> {
    match console {
        Console::Pipes => Vec::new(),
        Console::Terminal { .. } => vec![
            RootEntry::Device { path: "/dev/tty".to_owned(), source: "/dev/tty".to_owned() },
            RootEntry::Symlink { path: "/dev/ptmx".to_owned(), target: "pts/ptmx".to_owned() },
        ],
    }
}

/// The files of /etc that are ours: they name the job's user and send every lookup to the sandbox itself.
fn files(hostname: &str, user: u32) -> Vec<RootEntry> {
    let contents = [
        (
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\npond:x:{user}:{user}:pond:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
            ),
        ),
        ("/etc/group", format!("root:x:0:\npond:x:{user}:\nnogroup:x:65534:\n")),
        ("/etc/hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost\n")),
        ("/etc/hostname", format!("{hostname}\n")),
        ("/etc/resolv.conf", "nameserver 127.0.0.1\n".to_owned()),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n".to_owned()),
    ];
    contents.into_iter().map(|(path, content)| RootEntry::File { path: path.to_owned(), content }).collect()
}

#[cfg(test)]
impl Place {
    pub(super) fn is(&self, path: &str) -> bool {
        self.path == path
    }

    /// As if somebody had put another one in its place.
    pub(super) fn replace(&mut self) {
        self.kind = PlaceKind::Directory(0, 0);
    }
}
