//! `pond sandbox create`: a document and the flags over it become one document, which is judged here, all faults at once, and again
//! by the keeper that enforces it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pond_policy::node::Node;
use pond_policy::refusal::Refusals;
use pond_policy::sandboxes::{self, merge};
use pond_policy::settings::Settings;
use pond_wire::contract;
use serde::Serialize;

use super::{Early, SandboxFault, state};
use crate::keeper::client::Starting;
use crate::keeper::{Order, Told};
use crate::{input, output};

/// Make a sandbox that lasts.
#[derive(Debug, Args)]
#[command(after_help = "Flags are put over the document: a value replaces, a list is added to.")]
pub(crate) struct CreateArgs {
    /// The sandbox document, as JSON or YAML; `-` reads standard input.
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Its name, never given to another; made up without it.
    #[arg(long)]
    id: Option<String>,
    /// How it is confined; untrusted-code-internet where nothing says so.
    #[arg(long)]
    profile: Option<String>,
    /// native, docker or gvisor.
    #[arg(long)]
    backend: Option<String>,
    /// A host it may reach over TLS, where the profile has a list of them.
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// Memory limit, such as 4g.
    #[arg(long)]
    memory: Option<String>,
    /// A directory that the profile shows in /workspace.
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// A file or directory of the host, live: SOURCE:TARGET, read-only unless :rw follows.
    #[arg(long = "mount", value_name = "SOURCE:TARGET[:rw]")]
    mounts: Vec<String>,
    /// A file or directory of the host, copied once.
    #[arg(long = "copy", value_name = "SOURCE:TARGET")]
    copies: Vec<String>,
    /// A toolchain or cache of the host.
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// A variable of every program in it.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A word to find it by.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// A port of 127.0.0.1 that leads to one inside.
    #[arg(long = "publish", value_name = "HOST:SANDBOX")]
    ports: Vec<String>,
    /// When it is stopped that nobody used, such as 10m, or never.
    #[arg(long, value_name = "TIME")]
    idle_ttl: Option<String>,
    /// When it is deleted after it stopped, such as 15d, or never.
    #[arg(long, value_name = "TIME")]
    cleanup_ttl: Option<String>,
    /// Return once it is accepted, not once it is ready.
    #[arg(long)]
    no_wait: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Made<'a> {
    pub(super) id: &'a str,
    pub(super) state: &'static str,
    pub(super) sequence: u64,
}

pub(super) fn main(args: &CreateArgs, early: Early) -> Result<ExitCode, SandboxFault> {
    let (_, settings) = state()?;
    let base = args.file.as_deref().map(input::document).transpose().map_err(SandboxFault::Document)?;
    let document = merge(base.unwrap_or_else(|| Node::Map(Vec::new())), args.over()?);
    let document = with_defaults(document);
    let id = judged(&document, &settings).map_err(SandboxFault::Document)?;
    let id = match id {
        Some(id) => id,
        None => made_up()?,
    };
    let text = contract::value(&document).to_string();
    start(early, &Order::Create { id, document: text }, args.no_wait, args.json)
}

/// Has a keeper do it, and waits as long as it was asked to.
pub(super) fn start(
    early: Early,
    order: &Order,
    no_wait: bool,
    as_json: bool,
) -> Result<ExitCode, SandboxFault> {
    let mut keeper = early.unwrap_or_else(Starting::start)?;
    keeper.order(order)?;
    let mut accepted = None;
    loop {
        match keeper.hear()? {
            Told::Accepted { id, sequence } => {
                if no_wait {
                    return Ok(told(&id, "pending", sequence, as_json));
                }
                accepted = Some(id);
            }
            Told::Ready { sequence } => {
                let id = accepted.as_deref().unwrap_or_default();
                return Ok(told(id, "ready", sequence, as_json));
            }
            Told::Refused(refusal) => {
                keeper.await_end()?;
                return Err(refusal.into());
            }
        }
    }
}

fn told(id: &str, state: &'static str, sequence: u64, as_json: bool) -> ExitCode {
    if as_json { output::json(&Made { id, state, sequence }) } else { output::lines(id) }
}

/// Its id, if it names one.
fn judged(document: &Node, settings: &Settings) -> Result<Option<String>, Refusals> {
    Ok(sandboxes::read(document, settings)?.id.map(|id| id.to_string()))
}

/// A name that sorts by time and does not repeat.
fn made_up() -> anyhow::Result<String> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let stamp = crate::runs::now().strftime("%m%d-%H%M%S").to_string();
    Ok(format!("box-{stamp}-{:08x}", u32::from_le_bytes(random)))
}

/// The confinement, where neither the document nor a flag says: the one that lets out and shows nothing.
fn with_defaults(document: Node) -> Node {
    let profile = vec![("profile".to_owned(), Node::text("untrusted-code-internet"))];
    merge(Node::Map(vec![("sandbox".to_owned(), Node::Map(profile))]), document)
}

impl CreateArgs {
    /// What the flags say, as a document.
    fn over(&self) -> anyhow::Result<Node> {
        let text = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| (name.to_owned(), Node::text(value)))
        };
        let memory =
            text("memory", &self.memory).map(|memory| ("overrides".to_owned(), Node::Map(vec![memory])));
        let hosts: Vec<Node> = self.allow_hosts.iter().map(Node::text).collect();
        let hosts = (!hosts.is_empty()).then(|| ("allow_hosts".to_owned(), Node::List(hosts)));
        let sandbox: Vec<_> = [text("profile", &self.profile), text("backend", &self.backend), hosts, memory]
            .into_iter()
            .flatten()
            .collect();
        let sandbox = (!sandbox.is_empty()).then(|| ("sandbox".to_owned(), Node::Map(sandbox)));
        let lists = [
            ("mounts", each(&self.mounts, mount)?),
            ("copies", each(&self.copies, copy)?),
            ("builtin_tools", each(&self.tools, |text| Ok(Node::text(text)))?),
            ("ports", each(&self.ports, port)?),
        ];
        let maps = [("env", pairs(&self.env, "--env")?), ("labels", pairs(&self.labels, "--label")?)];
        let plain = [
            text("id", &self.id),
            text("workspace", &self.workspace),
            text("idle_ttl", &self.idle_ttl),
            text("cleanup_ttl", &self.cleanup_ttl),
            sandbox,
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let lists = lists.map(|(name, list)| (name.to_owned(), Node::List(list)));
        let maps = maps.into_iter().filter(|(_, map)| !map.is_empty());
        let maps = maps.map(|(name, map)| (name.to_owned(), Node::Map(map)));
        Ok(Node::Map(plain.into_iter().flatten().chain(lists).chain(maps).collect()))
    }
}

fn each(texts: &[String], read: impl Fn(&str) -> anyhow::Result<Node>) -> anyhow::Result<Vec<Node>> {
    texts.iter().map(|text| read(text)).collect()
}

fn mount(text: &str) -> anyhow::Result<Node> {
    let (rest, writable) = match text.strip_suffix(":rw") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (source, target) =
        rest.split_once(':').with_context(|| format!("--mount {text:?}: write SOURCE:TARGET"))?;
    Ok(Node::Map(vec![
        ("source".to_owned(), Node::text(absolute(source)?)),
        ("target".to_owned(), Node::text(target)),
        ("writable".to_owned(), Node::Bool(writable)),
    ]))
}

fn copy(text: &str) -> anyhow::Result<Node> {
    let (source, target) =
        text.split_once(':').with_context(|| format!("--copy {text:?}: write SOURCE:TARGET"))?;
    Ok(Node::Map(vec![
        ("source".to_owned(), Node::text(absolute(source)?)),
        ("target".to_owned(), Node::text(target)),
    ]))
}

/// As it is meant by whoever stands in a directory.
fn absolute(path: &str) -> anyhow::Result<String> {
    let path = std::path::absolute(path)?;
    path.into_os_string().into_string().map_err(|path| anyhow::anyhow!("{path:?} is not UTF-8"))
}

fn port(text: &str) -> anyhow::Result<Node> {
    let (host, sandbox) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| {
        let number: u16 = text.parse().with_context(|| format!("--publish {text:?}: write HOST:SANDBOX"))?;
        anyhow::Ok(Node::Number(u64::from(number).into()))
    };
    Ok(Node::Map(vec![("host".to_owned(), number(host)?), ("sandbox".to_owned(), number(sandbox)?)]))
}

fn pairs(texts: &[String], flag: &str) -> anyhow::Result<Vec<(String, Node)>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), Node::text(value))),
        None => bail!("{flag} {text:?}: write NAME=VALUE"),
    };
    texts.iter().map(pair).collect()
}
