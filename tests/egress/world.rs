//! A small internet for one test: a host side to run things on, and a far side that answers for every address there is.
//!
//! Nothing of it reaches or is reached by the real network. What the far side saw is in [`World::log`].

pub(crate) mod authority;
pub(crate) mod dns;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod models;
pub(crate) mod servers;
pub(crate) mod sides;
pub(crate) mod turns;
pub(crate) mod zone;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

pub(crate) use crate::done::Done;

use crate::daemon::Daemon;

use authority::Authority;
use log::Log;
use servers::{Handler, Sites};
use sides::{RESOLVER, Side};
use zone::{DOMAIN, Script, Zone};

/// Names the far side has a certificate for, besides everything directly below [`DOMAIN`].
const HOSTS: [&str; 12] = [
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "index.crates.io",
    "static.crates.io",
    "github.com",
    "codeload.github.com",
    "objects.githubusercontent.com",
    "raw.githubusercontent.com",
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
];

/// What jobs of a world run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Backend {
    #[default]
    Native,
    Docker,
    Gvisor,
    /// The same with the job's copy sent in and out instead of mounted.
    DockerByStream,
    GvisorByStream,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker | Self::DockerByStream => "docker",
            Self::Gvisor | Self::GvisorByStream => "gvisor",
        }
    }

    fn transfer(self) -> Option<&'static str> {
        match self {
            Self::Native | Self::Docker | Self::Gvisor => None,
            Self::DockerByStream | Self::GvisorByStream => Some("stream"),
        }
    }
}

/// What a test wants to be different from the plain world.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) names: Vec<(String, Script)>,
    pub(crate) handlers: HashMap<String, Handler>,
    /// Lines of the host side's own `/etc/hosts`.
    pub(crate) hosts_file: String,
    pub(crate) backend: Backend,
}

pub(crate) struct World {
    pub(crate) log: Log,
    pub(crate) authority: Authority,
    backend: Backend,
    /// On the host side too, for backends that need one: its own resolver is the world's.
    engine: Option<Daemon>,
    host: Side,
    _far: Side,
    directory: TempDir,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for folder in ["project", "sites", "authority"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        // The search list is bait: a gateway that used it would ask for names nobody wrote.
        let resolv_conf = format!("nameserver {RESOLVER}\nsearch searched.{DOMAIN}\n");
        std::fs::write(path("resolv.conf"), resolv_conf).unwrap();
        std::fs::write(path("hosts"), format!("127.0.0.1 localhost\n{}", plan.hosts_file)).unwrap();
        let wildcards = [format!("*.{DOMAIN}"), format!("*.wild.{DOMAIN}")];
        let names: Vec<&str> = HOSTS.into_iter().chain(wildcards.iter().map(String::as_str)).collect();
        let authority = Authority::new(&path("authority"), &names);
        let (host, far) = sides::pair(&path("resolv.conf"), &path("hosts"));
        let log = Log::default();
        let real_names =
            HOSTS.map(|name| (name.to_owned(), Script::Addresses(vec![zone::public(name).into()])));
        let zone = Arc::new(Zone::new(real_names.into_iter().chain(plan.names).collect()));
        let sites = Sites { folder: path("sites"), handlers: plan.handlers };
        let (tls, seen) = (authority.server(), log.clone());
        far.thread(move || {
            dns::serve(&zone, &seen);
            servers::serve(&sites, &tls, &seen);
        })
        .join()
        .unwrap();
        let engine = match plan.backend {
            Backend::Native => None,
            Backend::Docker | Backend::Gvisor | Backend::DockerByStream | Backend::GvisorByStream => {
                Some(Daemon::start_under(&host.entry()))
            }
        };
        Self { log, authority, backend: plan.backend, engine, host, _far: far, directory }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// The folder that holds a folder per host of the far side.
    pub(crate) fn sites(&self) -> PathBuf {
        self.directory.path().join("sites")
    }

    /// A place for an operator's file, outside the project.
    pub(crate) fn operator_file(&self) -> PathBuf {
        self.directory.path().join("pond.toml")
    }

    /// Everything of this world that is a file lies below it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A program on the host side, in the project, with the world's resolver and nothing of pond: the control.
    pub(crate) fn direct(&self, program: &str) -> Command {
        let mut command = self.host.command(program, &self.project());
        command.env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", self.project());
        command
    }

    pub(crate) fn engine(&self) -> &Daemon {
        self.engine.as_ref().unwrap()
    }

    /// pond on the host side, in the project; its jobs run on the world's backend.
    pub(crate) fn pond(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_pond"), &self.project());
        match arguments.split_first() {
            Some((&"run", rest)) => command.args(["run", "--backend", self.backend.name()]).args(rest),
            Some(_) | None => command.args(arguments),
        };
        command.envs(self.engine.iter().map(|engine| ("DOCKER_HOST", engine.address())));
        command.envs(self.backend.transfer().map(|way| ("POND_CONTAINER_TRANSFER", way)));
        command.env("POND_STATE_DIR", self.state());
        command.env("POND_RESOLVER", SocketAddr::from((RESOLVER, 53)).to_string());
        command.env_remove("POND_REQUIRE_SANDBOX").env_remove("POND_MIN_BACKEND");
        command
    }

    /// The authority's certificate, for clients that are told to trust it, as `ca.pem` in the project.
    pub(crate) fn trust(&self) -> &'static str {
        std::fs::write(self.project().join("ca.pem"), std::fs::read(self.authority.certificate()).unwrap())
            .unwrap();
        "ca.pem"
    }
}

/// Text of a file beside the tests.
pub(crate) fn source(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/egress").join(name)).unwrap()
}
