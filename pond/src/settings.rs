//! The only reader of the environment: operator settings, as text, handed to their parser.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use pond_policy::limits::ByteBudget;
use pond_policy::operator::Operator;
use pond_policy::refusal::Refusals;
use pond_policy::run::{Allowance, Budgets};
use pond_policy::settings::{
    DISK_RATE, MIN_BACKEND, REQUIRE_SANDBOX, RESOLVER, Settings, Waits, parse_disk_rate, parse_resolvers,
};
use pond_sandbox::container::EngineSettings;
use zeroize::Zeroizing;

/// What the operator demands of every sandbox on this machine.
pub(crate) fn sandbox() -> Result<Settings, Refusals> {
    Settings::parse(text(REQUIRE_SANDBOX).as_deref(), text(MIN_BACKEND).as_deref())
}

/// How many bytes a second a job may write to and read from its disk, where the operator says so.
pub(crate) fn disk_rate() -> Result<Option<u64>, Refusals> {
    text(DISK_RATE).map(|text| parse_disk_rate(&text).map(ByteBudget::bytes)).transpose()
}

/// How long a control plane waits for workers, where the operator says so.
pub(crate) fn waits() -> Result<Waits, Refusals> {
    Waits::parse(text)
}

/// The same, and what runs of a control plane may spend by the operator's file and the environment.
pub(crate) fn runs(operator: &Operator) -> Result<Settings, Refusals> {
    let run = Allowance::of_operator(Budgets::parse(text)?, operator.budgets);
    Ok(Settings { run, ..sandbox()? })
}

/// Who gateways of this machine ask for addresses; nobody in particular when the operator does not say.
pub(crate) fn resolvers() -> Result<Vec<SocketAddr>, Refusals> {
    text(RESOLVER).map_or(Ok(Vec::new()), |text| parse_resolvers(&text))
}

/// The operator's file: as told, which must then be there, else the usual place for it.
pub(crate) fn operator_file() -> OperatorFile {
    let named = |variable: &str| text(variable).filter(|text| !text.is_empty()).map(PathBuf::from);
    if let Some(path) = named("POND_CONFIG") {
        return OperatorFile::Told(path);
    }
    if rustix::process::geteuid().is_root() {
        return OperatorFile::Usual(Some(PathBuf::from("/etc/pond/pond.toml")));
    }
    // A relative directory would lie in the checkout.
    let named = |variable: &str| named(variable).filter(|path| path.is_absolute());
    let place = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    OperatorFile::Usual(place.map(|place| place.join("pond/pond.toml")))
}

/// Where that is, for people.
pub(crate) fn operator_place() -> String {
    match operator_file() {
        OperatorFile::Told(path) | OperatorFile::Usual(Some(path)) => path.display().to_string(),
        OperatorFile::Usual(None) => "pond.toml".to_owned(),
    }
}

#[derive(Debug)]
pub(crate) enum OperatorFile {
    Told(PathBuf),
    Usual(Option<PathBuf>),
}

/// The control plane that commands ask, and the token they show it.
pub(crate) fn server() -> ServerSettings {
    let set = |variable: &str| text(variable).filter(|text| !text.is_empty());
    ServerSettings { url: set("POND_URL"), token: set("POND_TOKEN").map(Zeroizing::new) }
}

pub(crate) struct ServerSettings {
    pub(crate) url: Option<String>,
    pub(crate) token: Option<Zeroizing<String>>,
}

/// The address of a control plane's Postgres, which may hold a password.
pub(crate) fn database() -> Option<Zeroizing<String>> {
    text("POND_DATABASE_URL").filter(|text| !text.is_empty()).map(Zeroizing::new)
}

/// A variable that holds a key.
pub(crate) fn secret(variable: &str) -> Option<Zeroizing<Vec<u8>>> {
    text(variable).filter(|text| !text.is_empty()).map(|text| Zeroizing::new(text.into_bytes()))
}

/// What the operator says about the container engine.
pub(crate) fn engine() -> EngineSettings {
    EngineSettings {
        docker_host: text("DOCKER_HOST"),
        gvisor_runtime: text("SWARM_GVISOR_RUNTIME"),
        kata_runtime: text("SWARM_KATA_RUNTIME"),
        transfer: text("POND_CONTAINER_TRANSFER"),
    }
}

/// The caller's home directory.
pub(crate) fn home() -> Option<PathBuf> {
    text("HOME").filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// Where this machine keeps pond's state: as told, else the system's place for root and the user's own for others.
pub(crate) fn state_dir() -> anyhow::Result<PathBuf> {
    let named = |variable: &str| directory(variable);
    if let Some(told) = named("POND_STATE_DIR")? {
        return Ok(told);
    }
    let of_user = match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib")),
        false => match named("XDG_STATE_HOME")? {
            Some(place) => Some(place),
            None => named("HOME")?.map(|home| home.join(".local/state")),
        },
    };
    Ok(of_user.context("no place for pond's state; set HOME or POND_STATE_DIR")?.join("pond"))
}

/// A directory that a variable names. Its name goes into documents and requests, which are text.
fn directory(variable: &str) -> anyhow::Result<Option<PathBuf>> {
    let named = text(variable).filter(|text| !text.is_empty());
    if named.as_ref().is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER)) {
        bail!("{variable} is not UTF-8; name a directory whose path is");
    }
    Ok(named.map(PathBuf::from))
}

/// The kind of the caller's terminal, for a job that gets one; a name no terminal has is as good as none.
pub(crate) fn terminal_kind() -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text("TERM").filter(|name| (1..=64).contains(&name.len()) && name.bytes().all(plain))
}

/// The variable's text; bytes that are not text become characters no setting accepts.
#[expect(clippy::disallowed_methods, reason = "this file is the one place the environment is read")]
fn text(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(text) => Some(text),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(bytes)) => Some(bytes.to_string_lossy().into_owned()),
    }
}
