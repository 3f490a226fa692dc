//! A job that a control plane gave to this machine, as a run. The executor is read and the policy resolved here, again, under
//! this machine's own settings; nothing that was computed elsewhere is believed, and a policy other than the offered one ends
//! the attempt before anything was started.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::Context;
use pond_policy::duration::Timeout;
use pond_policy::operator::Operator;
use pond_policy::path::Path as Place;
use pond_policy::refusal::Refusals;
use pond_policy::run::Executor;
use pond_policy::sandbox::SandboxPolicy;
use pond_sandbox::state::StateDir;
use pond_seal::result::Lease;
use pond_wire::jail::{Console, HomeFile};
use pond_worker::collect::Ignored;
use pond_worker::meant::{Meant, MeantFault, understand};
use pond_worker::order::{JobOrder, NamedSecret, Wires};
use pond_worker::path::RelPath;

use super::model::{self, Chosen, Key, Money, Wish};
use super::request::{self, Asker, Commission, Manner, Request, View};
use super::{Begun, Ran, carry_out, egress, enough_descriptors, large_enough_files};
use crate::{operator, settings};

#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderFault {
    #[error(transparent)]
    Meant(#[from] MeantFault),
    #[error("this worker's settings")]
    Settings(#[source] MeantFault),
    #[error(transparent)]
    Run(#[from] anyhow::Error),
}

impl OrderFault {
    /// Stable; the documents list it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Meant(fault) => fault.code(),
            Self::Settings(_) => "worker_settings",
            Self::Run(_) => "job_failed",
        }
    }
}

impl From<Refusals> for OrderFault {
    fn from(refusals: Refusals) -> Self {
        Self::Settings(refusals.into())
    }
}

/// Runs the job to its end, which comes early when the daemon says so.
pub(crate) fn carry_out_order(
    order: &JobOrder,
    secrets: &[NamedSecret],
    wires: &Wires,
    (state, launcher): (StateDir, Begun),
) -> Result<Ran, OrderFault> {
    let meant = understand(&order.executor, &order.tenant, order.policy, &settings::sandbox()?)?;
    let (operator, resolvers) = (operator::load()?, settings::resolvers()?);
    let money = Money::Lent(order.allotted.cost_microcents);
    let model = model_of(&operator, &meant, secrets, money)?;
    let Meant { executor, policy, argv } = &meant;
    let policy = &within(policy.clone(), order.deadline_seconds)?;
    let hosts: Vec<String> = executor.dispatch.block.allow_hosts().iter().map(ToString::to_string).collect();
    let network = egress::plan(policy, &operator, &hosts, model.is_some())?;
    let network = network.within(order.allotted.egress_bytes);
    let commission = Commission {
        job: order.job.clone(),
        attempt: order.attempt,
        lease: Lease { worker: order.worker.clone(), epoch: order.epoch },
        input: order.input,
        policy: order.policy,
        output_bytes: order.allotted.output_bytes,
        key: &order.key,
        wires,
    };
    let led = network.env.clone().into_iter();
    let led = led.chain(model.iter().flat_map(|model| model.harness.env.clone()));
    let request = Request {
        asker: Asker::ControlPlane(&commission),
        argv,
        policy,
        backend: request::backend(policy),
        checkout: &order.checkout,
        view: View::Live,
        env: led.chain(executor.env.iter().cloned()).collect(),
        home: home(executor, model.as_ref(), secrets)?,
        artifacts: artifacts(executor)?,
        ignored: Ignored::LeaveOut,
        tools: Vec::new(),
        console: Console::Pipes,
        manner: Manner::Quiet,
        out: None,
        resolvers: &resolvers,
        disk_rate: settings::disk_rate()?,
        begun: RefCell::default(),
        way_out: RefCell::new(Some((network, model))),
    };
    enough_descriptors()?;
    large_enough_files(policy)?;
    Ok(carry_out(&request, state, launcher)?)
}

/// The policy's own time limit, or what is left until the control plane's, whichever is shorter.
fn within(policy: SandboxPolicy, seconds: u32) -> Result<SandboxPolicy, OrderFault> {
    if Duration::from_secs(seconds.into()) >= policy.timeout().duration() {
        return Ok(policy);
    }
    let timeout = Timeout::parse(&format!("{seconds}s")).context("the offer's deadline")?;
    let place = Place::root().field("timeout");
    Ok(policy.with_timeout(timeout, &place).map_err(|refusal| anyhow::anyhow!(refusal.message))?)
}

fn model_of(
    operator: &Operator,
    meant: &Meant,
    secrets: &[NamedSecret],
    money: Money,
) -> anyhow::Result<Option<Chosen>> {
    let Some(wished) = &meant.executor.model else { return Ok(None) };
    let name = wished.split_once(':').map_or(wished.as_str(), |(name, _)| name);
    let key = secrets.iter().find(|(credential, _)| credential == name);
    let (_, key) = key.with_context(|| format!("no credential was released for model {name}"))?;
    let program = meant.argv.first().map_or("", String::as_str);
    let wish = Wish { model: wished, money, program, agent: None, key: Key::Released(key) };
    model::choose(operator, &wish).map(Some)
}

/// The agent's own files, then the stage's, which may say otherwise.
fn home(
    executor: &Executor,
    model: Option<&Chosen>,
    secrets: &[NamedSecret],
) -> anyhow::Result<Vec<HomeFile>> {
    let model_name = executor.model.as_deref().and_then(|wished| wished.split(':').next());
    let secret = |name: &str| {
        // The model's key is the gateway's alone.
        let named = secrets.iter().find(|(of, _)| of == name && Some(name) != model_name);
        named.and_then(|(_, secret)| String::from_utf8(secret.expose().to_vec()).ok())
    };
    let own = model::fill(&executor.harness_files, model, &secret)?;
    let of_agent = model.iter().flat_map(|model| model.harness.files.clone());
    let of_agent = of_agent.filter(|(path, _)| !own.iter().any(|(other, _)| other == path));
    let files: Vec<_> = of_agent.chain(own.iter().cloned()).collect();
    Ok(files.into_iter().map(|(path, content)| HomeFile { path, content }).collect())
}

fn artifacts(executor: &Executor) -> anyhow::Result<Vec<RelPath>> {
    let path = |text: &String| {
        RelPath::from_bytes(text.as_bytes()).with_context(|| format!("the artifact {text:?}"))
    };
    executor.artifacts.iter().map(path).collect()
}
