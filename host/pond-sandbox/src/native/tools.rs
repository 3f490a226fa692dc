//! Toolchains that live in a home directory, offered by name and read-only but for cargo's downloads, never by showing the home.
//!
//! Each tool is a short list of directories and files below the home, where they appear inside, and the settings that make the
//! tool find itself there. Credentials and configuration files are on no list. A source that is a link is refused: it would
//! show whatever it points at.

mod nvm;

use std::io;
use std::path::{Component, Path, PathBuf};

use pond_wire::jail::{BindKind, HOME, RootEntry};

/// Where tools appear inside.
const PLACE: &str = "/opt/pond";

#[derive(Debug, thiserror::Error)]
pub enum ToolFault {
    #[error("{0:?} is not a tool; the tools are {names}", names = Tool::names())]
    Unknown(String),
    #[error("tool {tool}: {path} is not there; install it for this user first")]
    Missing { tool: &'static str, path: PathBuf },
    #[error(
        "tool {tool}: {path} is a symbolic link, which could show anything; put the directory itself there"
    )]
    Link { tool: &'static str, path: PathBuf },
    #[error("tool {tool}: reading {path}")]
    Read { tool: &'static str, path: PathBuf, source: io::Error },
    #[error("tool {tool}: the path {path:?} is not UTF-8")]
    Name { tool: &'static str, path: PathBuf },
    #[error("tool nvm")]
    Nvm(#[from] nvm::NvmFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// rustup's toolchains, cargo's programs and its downloaded crates.
    Cargo,
    /// The node version that nvm's default leads to.
    Nvm,
    /// The Python version pyenv has as its global one.
    Pyenv,
    /// uv and the Pythons it manages.
    Uv,
}

/// What a tool adds to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    pub(super) root: Vec<RootEntry>,
    pub(super) search: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// Something below the home and its name below the tool's place inside.
struct Piece {
    source: PathBuf,
    name: &'static str,
    kind: BindKind,
    needed: bool,
}

impl Tool {
    const ALL: [(Tool, &'static str); 4] =
        [(Tool::Cargo, "cargo"), (Tool::Nvm, "nvm"), (Tool::Pyenv, "pyenv"), (Tool::Uv, "uv")];

    pub fn parse(name: &str) -> Result<Self, ToolFault> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name).map(|(tool, _)| *tool);
        found.ok_or_else(|| ToolFault::Unknown(name.to_owned()))
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(tool, _)| *tool == self).map_or("", |(_, name)| name)
    }

    fn names() -> String {
        Self::ALL.map(|(_, name)| name).join(", ")
    }

    /// Looks the tool up below `home`.
    pub fn provide(self, home: &Path) -> Result<Provided, ToolFault> {
        let place = format!("{PLACE}/{}", self.name());
        let mut root: Vec<RootEntry> =
            ["/opt", PLACE, &place].map(|path| RootEntry::Directory { path: path.to_owned() }).to_vec();
        for piece in self.pieces(home)? {
            root.extend(self.bind(&place, piece)?);
        }
        root.extend(self.changed(home, &place)?);
        let inside = |name: &str| format!("{place}/{name}");
        let (search, env) = match self {
            Self::Cargo => (
                inside("bin"),
                vec![
                    ("CARGO_HOME", place.clone()),
                    ("CARGO_INSTALL_ROOT", format!("{HOME}/.cargo")),
                    ("RUSTUP_HOME", inside("rustup")),
                ],
            ),
            Self::Nvm => (inside("version/bin"), Vec::new()),
            Self::Pyenv => return Ok(in_place(home, &inside("version"), root)),
            Self::Uv => (inside("bin"), vec![("UV_PYTHON_INSTALL_DIR", inside("python"))]),
        };
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Provided { root, search: vec![search], env })
    }

    fn pieces(self, home: &Path) -> Result<Vec<Piece>, ToolFault> {
        let piece = |source: PathBuf, name, kind, needed| Piece { source, name, kind, needed };
        let directory = BindKind::Directory;
        Ok(match self {
            Self::Cargo => vec![
                piece(home.join(".cargo/bin"), "bin", directory, true),
                piece(home.join(".rustup"), "rustup", directory, true),
            ],
            Self::Nvm => {
                let version = nvm::default_version(&home.join(".nvm"))?;
                vec![piece(home.join(".nvm/versions/node").join(version), "version", directory, true)]
            }
            Self::Pyenv => {
                let version = self.version(&home.join(".pyenv/version"))?;
                vec![piece(home.join(".pyenv/versions").join(version), "version", directory, true)]
            }
            Self::Uv => vec![
                piece(home.join(".local/bin/uv"), "bin/uv", BindKind::File, true),
                piece(home.join(".local/bin/uvx"), "bin/uvx", BindKind::File, false),
                piece(home.join(".local/share/uv/python"), "python", directory, false),
            ],
        })
    }

    /// What the job has a throwaway view of: it fetches what the host has not, and has room for that where the host has nothing.
    fn changed(self, home: &Path, place: &str) -> Result<Vec<RootEntry>, ToolFault> {
        let names: &[&'static str] = match self {
            Self::Cargo => &["registry", "git"],
            Self::Nvm | Self::Pyenv | Self::Uv => &[],
        };
        let view = |name: &&'static str| {
            let source = home.join(".cargo").join(name);
            let piece = Piece { source, name, kind: BindKind::Directory, needed: false };
            let source = self.bind(place, piece)?.into_iter().find_map(|entry| match entry {
                RootEntry::Bind { source, .. } => Some(source),
                RootEntry::Throwaway { .. }
                | RootEntry::Directory { .. }
                | RootEntry::Symlink { .. }
                | RootEntry::File { .. }
                | RootEntry::Mount { .. }
                | RootEntry::Device { .. } => None,
            });
            Ok(RootEntry::Throwaway { path: format!("{place}/{name}"), source })
        };
        names.iter().map(view).collect()
    }

    /// The version a one-line file names. It becomes one directory name, so nothing in it can lead elsewhere.
    fn version(self, file: &Path) -> Result<String, ToolFault> {
        let (tool, path) = (self.name(), file.to_owned());
        let text = std::fs::read_to_string(file).map_err(|source| ToolFault::Read {
            tool,
            path: path.clone(),
            source,
        })?;
        let version = text.lines().next().unwrap_or_default().trim();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if version.is_empty() || version.starts_with('.') || !version.bytes().all(plain) {
            return Err(ToolFault::Missing { tool, path });
        }
        Ok(version.to_owned())
    }

    fn bind(self, place: &str, piece: Piece) -> Result<Vec<RootEntry>, ToolFault> {
        let (tool, path) = (self.name(), piece.source);
        match std::fs::symlink_metadata(&path) {
            Err(_) if !piece.needed => return Ok(Vec::new()),
            Err(_) => return Err(ToolFault::Missing { tool, path }),
            Ok(metadata) if metadata.is_symlink() => return Err(ToolFault::Link { tool, path }),
            Ok(_) => {}
        }
        let source = path
            .into_os_string()
            .into_string()
            .map_err(|path| ToolFault::Name { tool, path: path.into() })?;
        let target = format!("{place}/{}", piece.name);
        let parent = piece.name.rsplit_once('/').map(|(parent, _)| format!("{place}/{parent}"));
        let bind = RootEntry::Bind { path: target, source, kind: piece.kind };
        Ok(parent.map(|path| RootEntry::Directory { path }).into_iter().chain([bind]).collect())
    }
}

/// A Python that was built here names its own place in its libraries' search path and in the first line of every script, so it is
/// shown where it is, below parents that hold nothing else. A home where a sandbox has something of its own shows it at `moved`,
/// and its libraries by a variable.
fn in_place(home: &Path, moved: &str, root: Vec<RootEntry>) -> Provided {
    let own = root.iter().find_map(|entry| match entry {
        RootEntry::Bind { source, .. } if is_persons(home) => Some(source.clone()),
        RootEntry::Bind { .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Mount { .. }
        | RootEntry::Device { .. } => None,
    });
    let Some(own) = own else {
        let libraries = ("LD_LIBRARY_PATH".to_owned(), format!("{moved}/lib"));
        return Provided { root, search: vec![format!("{moved}/bin")], env: vec![libraries] };
    };
    let parents = own.match_indices('/').skip(1).filter_map(|(at, _)| own.get(..at));
    let mut root: Vec<RootEntry> =
        parents.map(|path| RootEntry::Directory { path: path.to_owned() }).collect();
    let search = vec![format!("{own}/bin")];
    root.push(RootEntry::Bind { path: own.clone(), source: own, kind: BindKind::Directory });
    Provided { root, search, env: Vec::new() }
}

/// Whether nothing of a sandbox's own lies on the way to this home: `/root`, or one below `/home` that is not the job's.
fn is_persons(home: &Path) -> bool {
    let mut parts = home.components().skip(1);
    let (first, second, third) = (parts.next(), parts.next(), parts.next());
    let name = |part: Option<Component<'_>>| match part {
        Some(Component::Normal(name)) => name.to_str().map(str::to_owned),
        Some(_) | None => None,
    };
    match (name(first).as_deref(), name(second), third) {
        (Some("root"), None, None) => home.is_absolute(),
        (Some("home"), Some(_), None) => home.is_absolute() && home != Path::new(HOME),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    //! A tool shows its own directories and nothing else of the home.
    use super::*;

    fn sources(provided: &Provided) -> Vec<&str> {
        let mut sources = Vec::new();
        for entry in &provided.root {
            match entry {
                RootEntry::Bind { source, .. } => sources.push(source.as_str()),
                RootEntry::Throwaway { source, .. } => sources.extend(source.as_deref()),
                RootEntry::Directory { .. }
                | RootEntry::Symlink { .. }
                | RootEntry::File { .. }
                | RootEntry::Mount { .. }
                | RootEntry::Device { .. } => {}
            }
        }
        sources
    }

    #[test]
    fn only_the_listed_parts_of_a_home_are_bound() {
        let home = tempfile::tempdir().unwrap();
        for part in [".cargo/bin", ".rustup", ".cargo/registry", ".ssh"] {
            std::fs::create_dir_all(home.path().join(part)).unwrap();
        }
        std::fs::write(home.path().join(".cargo/credentials.toml"), "token").unwrap();
        let provided = Tool::Cargo.provide(home.path()).unwrap();
        let at = |part: &str| home.path().join(part).display().to_string();
        assert_eq!(sources(&provided), [at(".cargo/bin"), at(".rustup"), at(".cargo/registry")]);
        // Where downloads go, there is room whether the host has some or not.
        let writable: Vec<&RootEntry> =
            provided.root.iter().filter(|entry| matches!(entry, RootEntry::Throwaway { .. })).collect();
        let throwaway =
            |path: &str, source| RootEntry::Throwaway { path: format!("/opt/pond/cargo/{path}"), source };
        let expected = [throwaway("registry", Some(at(".cargo/registry"))), throwaway("git", None)];
        assert_eq!(writable, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_python_stands_where_it_was_built_unless_the_sandbox_has_something_there() {
        let persons = ["/root", "/home/alice", "/home/pond2"];
        let others =
            ["/home/pond", "/home", "/", "/tmp/home", "/usr/home/alice", "/home/a/b", "root", "/home/.."];
        assert_eq!(persons.map(|home| is_persons(Path::new(home))), [true; 3]);
        assert_eq!(others.map(|home| is_persons(Path::new(home))), [false; 8]);
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".pyenv/versions/3.11.7")).unwrap();
        std::fs::write(home.path().join(".pyenv/version"), "3.11.7\n").unwrap();
        let provided = Tool::Pyenv.provide(home.path()).unwrap();
        let place = "/opt/pond/pyenv/version";
        let libraries = ("LD_LIBRARY_PATH".to_owned(), format!("{place}/lib"));
        assert_eq!((provided.search, provided.env), (vec![format!("{place}/bin")], vec![libraries]));
    }

    #[test]
    fn links_absences_and_wandering_versions_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let refusal = |tool: Tool| tool.provide(home.path()).map_err(|fault| fault.to_string()).unwrap_err();
        assert!(refusal(Tool::Cargo).contains("is not there"));
        std::fs::create_dir(home.path().join(".cargo")).unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join(".cargo/bin")).unwrap();
        assert!(refusal(Tool::Cargo).contains("symbolic link"));
        std::fs::create_dir(home.path().join(".pyenv")).unwrap();
        std::fs::write(home.path().join(".pyenv/version"), "../../.ssh\n").unwrap();
        assert!(refusal(Tool::Pyenv).contains("is not there"));
        assert_eq!(
            Tool::parse("ssh").map_err(|fault| fault.to_string()),
            Err("\"ssh\" is not a tool; the tools are cargo, nvm, pyenv, uv".to_owned())
        );
    }
}
