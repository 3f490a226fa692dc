//! The backends, one canary each: what is told here is what a worker may advertise.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use pond_policy::backend::Backend;
use pond_policy::capability::Capability;
use pond_policy::node::Node;
use pond_policy::profile::Profile;
use pond_policy::settings::Settings;
use pond_sandbox::capability::{
    Evidence, Examined, Ground, Proven, Unproven, examine, filter_sandbox_capabilities,
};
use pond_sandbox::container::{Answering, answering};
use serde::Serialize;

use super::State;
use crate::settings;

/// What answers where a container engine should be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(super) enum Engine {
    Answers(Answering),
    Absent { detail: String },
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    backend: &'static str,
    #[serde(flatten)]
    standing: Standing,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
enum Standing {
    Proven { evidence: Evidence, internet: State },
    Unproven { detail: String, remedy: String },
}

#[derive(Debug, Serialize)]
pub(super) struct Backends {
    pub(super) engine: Engine,
    pub(super) backends: Vec<Row>,
    capabilities: Vec<String>,
}

/// One thing for a person to read.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) detail: String,
    pub(super) remedy: String,
}

impl Line {
    fn new(name: &str, state: &'static str, detail: &str, remedy: &str) -> Self {
        Self { name: name.to_owned(), state, detail: detail.to_owned(), remedy: remedy.to_owned() }
    }
}

pub(super) fn look() -> anyhow::Result<Backends> {
    let executable = std::env::current_exe().context("finding pond's own executable")?;
    let state = settings::state_dir()?;
    let block = Node::Map(vec![("profile".to_owned(), Node::text(Profile::Write.name()))]);
    let policy = pond_policy::sandbox::resolve(Some(&block), &Settings::default())
        .map_err(|_refusals| anyhow::anyhow!("the default profile was refused"))?;
    let engine = settings::engine();
    let ground = Ground {
        state: &state,
        executable: &executable,
        engine: &engine,
        policy: &policy,
        checkout: Path::new("."),
    };
    let examined: Vec<Examined> =
        Backend::ALL.iter().copied().map(|backend| examine(backend, &ground)).collect();
    let all: Vec<Capability> = Backend::ALL.iter().copied().map(Capability::Backend).collect();
    let capabilities = filter_sandbox_capabilities(&all, &examined);
    let engine = match answering(&engine) {
        Ok(answering) => Engine::Answers(answering),
        Err(fault) => Engine::Absent { detail: format!("{:#}", anyhow::Error::new(fault)) },
    };
    Ok(Backends {
        engine,
        backends: examined.into_iter().map(row).collect(),
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
    })
}

fn row(examined: Examined) -> Row {
    let standing = match examined.found {
        Ok(Proven { evidence, internet }) => Standing::Proven { evidence, internet: posture(internet) },
        Err(fault) => {
            let (detail, remedy) = told(fault);
            Standing::Unproven { detail, remedy }
        }
    };
    Row { backend: examined.backend.name(), standing }
}

fn posture(internet: Result<(), Unproven>) -> State {
    match internet {
        Ok(()) => State::Ok { detail: "every address leads to the gateway".to_owned() },
        Err(fault) => {
            let (detail, remedy) = told(fault);
            State::Weak { detail: format!("refused: {detail}"), remedy }
        }
    }
}

fn told(fault: Unproven) -> (String, String) {
    let remedy = fault.remedy().unwrap_or_default().to_owned();
    (format!("{:#}", anyhow::Error::new(fault)), remedy)
}

impl Backends {
    /// The native backend's two rows among the layers: a whole job, and the internet posture.
    pub(super) fn native(&self) -> [State; 2] {
        let native = self.backends.iter().find(|row| row.backend == Backend::Native.name());
        match native.map(|row| &row.standing) {
            Some(Standing::Proven { internet, .. }) => {
                [State::Ok { detail: "true, on the current directory".to_owned() }, internet.clone()]
            }
            Some(Standing::Unproven { detail, remedy }) => {
                let missing = State::Missing { detail: detail.clone(), remedy: remedy.clone() };
                [missing, State::NotNeeded { detail: "no job runs here".to_owned() }]
            }
            None => [
                State::Missing { detail: "not looked at".to_owned(), remedy: String::new() },
                State::NotNeeded { detail: "not looked at".to_owned() },
            ],
        }
    }

    /// The native backend has its own rows among the layers.
    pub(super) fn lines(&self) -> Vec<Line> {
        let (state, detail) = match &self.engine {
            Engine::Answers(answering) => ("ok", described(answering)),
            Engine::Absent { detail } => ("none", detail.clone()),
        };
        let engine = Line::new("container engine", state, &detail, "");
        let others = self.backends.iter().filter(|row| row.backend != Backend::Native.name());
        let unsaid = detail.clone();
        let once = |mut line: Line| {
            if line.detail == unsaid {
                line.detail = "needs the container engine".to_owned();
            }
            line
        };
        std::iter::once(engine).chain(others.flat_map(Row::lines).map(once)).collect()
    }

    pub(super) fn offered(&self) -> String {
        match self.capabilities.as_slice() {
            [] => "nothing".to_owned(),
            some => some.join(", "),
        }
    }
}

impl Row {
    fn lines(&self) -> Vec<Line> {
        let name = format!("backend {}", self.backend);
        match &self.standing {
            Standing::Unproven { detail, remedy } => vec![Line::new(&name, "no", detail, remedy)],
            Standing::Proven { evidence, internet } => {
                let first = Line::new(&name, "ok", &seen(evidence), "");
                let more = match internet {
                    State::Weak { detail, remedy } => {
                        Some(Line::new("  its internet posture", "weak", detail, remedy))
                    }
                    State::Ok { .. } | State::NotNeeded { .. } | State::Missing { .. } => None,
                };
                std::iter::once(first).chain(more).collect()
            }
        }
    }
}

fn described(answering: &Answering) -> String {
    let Answering { socket, version, api, runtimes } = answering;
    format!("Docker {version} (API {api}) at {}; runtimes: {}", socket.display(), registered(runtimes))
}

fn registered(runtimes: &BTreeMap<String, Vec<String>>) -> String {
    let one = |(name, arguments): (&String, &Vec<String>)| match arguments.as_slice() {
        [] => name.clone(),
        some => format!("{name} ({})", some.join(" ")),
    };
    runtimes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What the canary saw, and what was seen of it.
fn seen(evidence: &Evidence) -> String {
    match evidence {
        Evidence::Native { kernel } => kernel.clone(),
        Evidence::Container(isolation) => {
            let whose = if isolation.inside.boot_id == isolation.host_boot_id {
                "on this host's kernel".to_owned()
            } else {
                format!("on another kernel than this host's: {}", isolation.inside.version)
            };
            format!("{} ran a canary {whose}", isolation.runtime)
        }
    }
}
