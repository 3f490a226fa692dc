//! What engine this host has, and which of its runtimes is which backend. A backend whose runtime is not there does not exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use pond_policy::backend::Backend;
use pond_wire::contained::{Kernel, Transfer};
use serde::Serialize;

use super::engine::{Ask, Body, Engine, EngineFault};
use super::request::{Info, Runtime, Version};

/// Docker 20.10: private cgroup namespaces, and errors of a filter that say which.
const LEAST: ApiVersion = ApiVersion { major: 1, minor: 41 };
const SOCKET: &str = "/var/run/docker.sock";
const UNIX: &str = "unix://";
/// What registrations of these runtimes are called, best first: a microVM by Firecracker before one by QEMU.
const GVISOR: [&str; 2] = ["runsc", "gvisor"];
const KATA: [&str; 4] = ["kata-fc", "kata-firecracker", "kata-qemu", "kata"];

#[derive(Debug, thiserror::Error)]
pub enum ProbeFault {
    #[error(transparent)]
    Engine(#[from] EngineFault),
    #[error(
        "DOCKER_HOST is {0:?}; pond talks to an engine of this machine only, so write unix:// and an absolute path"
    )]
    Address(String),
    #[error("the container engine {version} speaks API {api}; pond needs {LEAST} (Docker 20.10) or newer")]
    TooOld { version: String, api: String },
    #[error("the container engine runs {0} containers; pond needs Linux ones")]
    NotLinux(String),
    #[error("no runtime {name:?} is registered with the container engine; it has {registered}")]
    Unregistered { name: String, registered: String },
    #[error(
        "{backend}: no runtime for it is registered with the container engine; it has {registered}. {advice}"
    )]
    Absent { backend: &'static str, registered: String, advice: &'static str },
    #[error("POND_CONTAINER_TRANSFER is {0:?}: set it to bind or stream, or unset it")]
    Transfer(String),
    #[error(
        "a virtual machine shares no directory with this host, so its copy cannot be bound; unset POND_CONTAINER_TRANSFER"
    )]
    NotShared,
    #[error("{0} is not a container backend")]
    NotAContainer(&'static str),
}

/// What the operator says about the engine, as text.
#[derive(Debug, Clone, Default)]
pub struct EngineSettings {
    pub docker_host: Option<String>,
    pub gvisor_runtime: Option<String>,
    pub kata_runtime: Option<String>,
    pub transfer: Option<String>,
}

impl EngineSettings {
    /// Refuses what no backend would understand, whichever is used.
    pub fn check(&self) -> Result<(), ProbeFault> {
        transfer(Kernel::Host, self.transfer.as_deref()).map(drop)
    }
}

/// A runtime of the engine, and whose kernel its containers run on if it is what it claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) kernel: Kernel,
    pub(super) loopback: Loopback,
    pub(super) transfer: Transfer,
}

/// Whose the loopback interface is that a job sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loopback {
    /// The container's network namespace's, where a gateway's doors can be opened.
    Namespace,
    /// A network stack of the runtime's own, which nothing outside reaches into.
    Private,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ApiVersion {
    major: u32,
    minor: u32,
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl ApiVersion {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// The engine that answers, for a person to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answering {
    pub socket: PathBuf,
    pub version: String,
    pub api: String,
    /// The runtimes that are registered, each with the arguments it gets.
    pub runtimes: BTreeMap<String, Vec<String>>,
}

pub fn answering(settings: &EngineSettings) -> Result<Answering, ProbeFault> {
    let socket = socket(settings.docker_host.as_deref())?;
    let (_, told) = greet(&socket)?;
    let runtimes = runtimes(&socket)?.into_iter();
    Ok(Answering {
        socket,
        version: told.version,
        api: told.api_version,
        runtimes: runtimes.map(|(name, runtime)| (name, runtime.runtime_args)).collect(),
    })
}

/// The engine that the settings name, and its runtime for this backend. To answer either question an engine starts programs of
/// its own, so both are asked at once.
pub(super) fn open(backend: Backend, settings: &EngineSettings) -> Result<(Engine, Chosen), ProbeFault> {
    let socket = socket(settings.docker_host.as_deref())?;
    std::thread::scope(|scope| {
        let registered = scope.spawn(|| runtimes(&socket));
        let (engine, _) = greet(&socket)?;
        let registered = registered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((engine, choose(&registered, backend, settings)?))
    })
}

/// Speaks a version of the engine's language that both know.
fn greet(socket: &Path) -> Result<(Engine, Version), ProbeFault> {
    let ask = Ask {
        what: "asking the engine's version",
        method: Method::GET,
        path: "/version",
        body: Body::Nothing,
    };
    let told: Version = Engine::new(socket, "")?.read(ask)?;
    if told.os != "linux" {
        return Err(ProbeFault::NotLinux(told.os));
    }
    let spoken = spoken(&told.api_version, &told.min_api_version);
    let Some(version) = spoken else {
        return Err(ProbeFault::TooOld { version: told.version, api: told.api_version });
    };
    Ok((Engine::new(socket, &format!("/v{version}"))?, told))
}

fn runtimes(socket: &Path) -> Result<BTreeMap<String, Runtime>, EngineFault> {
    let ask =
        Ask { what: "asking the engine's runtimes", method: Method::GET, path: "/info", body: Body::Nothing };
    Engine::new(socket, "")?.read(ask).map(|Info { runtimes }| runtimes)
}

fn socket(docker_host: Option<&str>) -> Result<PathBuf, ProbeFault> {
    match docker_host {
        None | Some("") => Ok(PathBuf::from(SOCKET)),
        Some(told) => {
            let path = told.strip_prefix(UNIX).filter(|path| path.starts_with('/'));
            path.map(PathBuf::from).ok_or_else(|| ProbeFault::Address(told.to_owned()))
        }
    }
}

/// The oldest version that is new enough for pond and still spoken by the engine.
fn spoken(newest: &str, oldest: &str) -> Option<ApiVersion> {
    let version = LEAST.max(ApiVersion::parse(oldest)?);
    (version <= ApiVersion::parse(newest)?).then_some(version)
}

fn choose(
    registered: &BTreeMap<String, Runtime>,
    backend: Backend,
    settings: &EngineSettings,
) -> Result<Chosen, ProbeFault> {
    let (told, usual, kernel, advice): (_, &[&str], _, _) = match backend {
        Backend::Native => return Err(ProbeFault::NotAContainer(backend.name())),
        Backend::Docker => (None, &["runc"], Kernel::Host, "Install runc"),
        Backend::Gvisor => (
            settings.gvisor_runtime.as_deref(),
            &GVISOR,
            Kernel::Gvisor,
            "Install runsc and register it in /etc/docker/daemon.json, or name it in SWARM_GVISOR_RUNTIME",
        ),
        Backend::Firecracker => (
            settings.kata_runtime.as_deref(),
            &KATA,
            Kernel::Machine,
            "Install Kata Containers and register it in /etc/docker/daemon.json, or name it in SWARM_KATA_RUNTIME",
        ),
    };
    let names = || registered.keys().cloned().collect::<Vec<_>>().join(", ");
    let found = match told.filter(|name| !name.is_empty()) {
        Some(name) if registered.contains_key(name) => name.to_owned(),
        Some(name) => {
            return Err(ProbeFault::Unregistered { name: name.to_owned(), registered: names() });
        }
        None => {
            let found = usual.iter().find(|name| registered.contains_key(**name));
            let absent = ProbeFault::Absent { backend: backend.name(), registered: names(), advice };
            (*found.ok_or(absent)?).to_owned()
        }
    };
    let loopback = match kernel {
        Kernel::Host => Loopback::Namespace,
        Kernel::Gvisor => gvisor_loopback(registered.get(&found)),
        Kernel::Machine => Loopback::Private,
    };
    Ok(Chosen { name: found, kernel, loopback, transfer: transfer(kernel, settings.transfer.as_deref())? })
}

/// A virtual machine takes the copy as a stream; elsewhere that is for whoever asks for it.
fn transfer(kernel: Kernel, told: Option<&str>) -> Result<Transfer, ProbeFault> {
    match (kernel, told) {
        (_, Some("stream")) | (Kernel::Machine, None | Some("")) => Ok(Transfer::Stream),
        (Kernel::Host | Kernel::Gvisor, None | Some("" | "bind")) => Ok(Transfer::Bind),
        (Kernel::Machine, Some("bind")) => Err(ProbeFault::NotShared),
        (_, Some(other)) => Err(ProbeFault::Transfer(other.to_owned())),
    }
}

/// gVisor uses the namespace's own loopback only when told to; otherwise it brings a network stack.
fn gvisor_loopback(runtime: Option<&Runtime>) -> Loopback {
    let told = |argument: &String| ["--network=host", "-network=host"].contains(&argument.as_str());
    match runtime {
        Some(runtime) if runtime.runtime_args.iter().any(told) => Loopback::Namespace,
        Some(_) | None => Loopback::Private,
    }
}

#[cfg(test)]
mod tests {
    //! An engine elsewhere, one too old, and a runtime that is not there are refused; nothing else is chosen instead.
    use super::*;

    fn registered(names: &[&str], arguments: &[&str]) -> BTreeMap<String, Runtime> {
        let runtime = Runtime { runtime_args: arguments.iter().map(|text| (*text).to_owned()).collect() };
        names.iter().map(|name| ((*name).to_owned(), runtime.clone())).collect()
    }

    fn chosen(names: &[&str], backend: Backend, settings: &EngineSettings) -> Result<String, String> {
        choose(&registered(names, &[]), backend, settings)
            .map(|chosen| chosen.name)
            .map_err(|fault| fault.to_string())
    }

    #[test]
    fn only_a_socket_of_this_machine_is_an_engine() {
        assert_eq!(socket(None).unwrap(), PathBuf::from(SOCKET));
        assert_eq!(socket(Some("unix:///run/d.sock")).unwrap(), PathBuf::from("/run/d.sock"));
        for text in ["tcp://10.0.0.1:2375", "ssh://host", "unix://d.sock", "/run/d.sock", "npipe:////./x"] {
            assert!(matches!(socket(Some(text)), Err(ProbeFault::Address(_))), "{text}");
        }
    }

    #[test]
    fn the_version_is_the_oldest_that_both_speak() {
        let spoken = |newest, oldest| spoken(newest, oldest).map(|version| version.to_string());
        assert_eq!(spoken("1.41", "1.12").as_deref(), Some("1.41"));
        assert_eq!(spoken("1.52", "1.44").as_deref(), Some("1.44"));
        assert_eq!(spoken("1.40", "1.12"), None);
        assert_eq!(spoken("1", "1.12"), None);
    }

    #[test]
    fn a_told_name_wins_and_must_be_registered() {
        let told = |gvisor: &str| EngineSettings {
            gvisor_runtime: Some(gvisor.to_owned()),
            ..EngineSettings::default()
        };
        let names = ["runc", "runsc", "mine"];
        assert_eq!(chosen(&names, Backend::Gvisor, &told("mine")).as_deref(), Ok("mine"));
        let fault = chosen(&names, Backend::Gvisor, &told("yours")).unwrap_err();
        assert!(fault.contains("\"yours\"") && fault.contains("mine, runc, runsc"), "{fault}");
    }

    #[test]
    fn a_machine_streams_and_others_do_when_told() {
        let told = |kernel, told| transfer(kernel, told).map_err(|fault| fault.to_string());
        for kernel in [Kernel::Host, Kernel::Gvisor] {
            assert_eq!(told(kernel, None), Ok(Transfer::Bind));
            assert_eq!(told(kernel, Some("bind")), Ok(Transfer::Bind));
            assert_eq!(told(kernel, Some("stream")), Ok(Transfer::Stream));
        }
        assert_eq!(told(Kernel::Machine, None), Ok(Transfer::Stream));
        assert_eq!(told(Kernel::Machine, Some("stream")), Ok(Transfer::Stream));
        assert!(told(Kernel::Machine, Some("bind")).unwrap_err().contains("shares no directory"));
        for kernel in [Kernel::Host, Kernel::Gvisor, Kernel::Machine] {
            assert!(told(kernel, Some("tar")).unwrap_err().contains("\"tar\""));
        }
    }

    #[test]
    fn doors_reach_a_gvisor_that_was_told_to_use_the_namespace() {
        let loopback = |arguments: &[&str]| {
            let chosen =
                choose(&registered(&["runsc"], arguments), Backend::Gvisor, &EngineSettings::default());
            chosen.unwrap().loopback
        };
        assert_eq!(loopback(&["--platform=systrap", "--network=host"]), Loopback::Namespace);
        for arguments in [&[][..], &["--network=sandbox"], &["--network=none"]] {
            assert_eq!(loopback(arguments), Loopback::Private);
        }
    }

    #[test]
    fn firecracker_comes_before_qemu_and_absence_is_a_refusal() {
        let settings = EngineSettings::default();
        let choose = |names: &[&str], backend| chosen(names, backend, &settings);
        assert_eq!(choose(&["kata-qemu", "kata-fc", "runc"], Backend::Firecracker).as_deref(), Ok("kata-fc"));
        assert_eq!(choose(&["kata-qemu", "runc"], Backend::Firecracker).as_deref(), Ok("kata-qemu"));
        for backend in [Backend::Gvisor, Backend::Firecracker] {
            let fault = choose(&["runc", "io.containerd.runc.v2"], backend).unwrap_err();
            assert!(fault.contains("no runtime for it is registered"), "{fault}");
        }
        assert_eq!(choose(&["runc"], Backend::Native).unwrap_err(), "native is not a container backend");
    }
}
