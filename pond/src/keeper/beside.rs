//! Companions of a sandbox in a container: what its document says of them becomes containers beside it, and what becomes of those
//! becomes events of the sandbox. Nobody waits for a companion.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use pond_policy::life::Event;
use pond_policy::node::Node;
use pond_policy::sandbox::{self, SandboxPolicy};
use pond_policy::sandboxes::{self, Spec};
use pond_policy::settings::Settings;
use pond_sandbox::container::companion::{
    Beside, Checkup, Companion, Health, News, Primary, Told, accompany, fit_together,
};
use pond_sandbox::native::{Ending, repair};
use pond_sandbox::record::JobName;

use super::hub::Hub;
use super::journal::Detail;
use super::raise;

/// What companions say that is not yet written down.
const UNWRITTEN: usize = 256;
const STACK: usize = 128 << 10;

/// The names under which they are reached.
pub(super) fn aliases(spec: &Spec) -> Vec<String> {
    spec.companions.iter().map(|companion| companion.alias.as_str().to_owned()).collect()
}

/// What the document says of them; refused where they could not serve beside each other.
fn wanted(hub: &Hub, primary: &Primary) -> anyhow::Result<Vec<Companion>> {
    let wanted = hub.spec.companions.iter().map(|companion| wish(hub, companion));
    let wanted: Vec<Companion> = wanted.collect::<Result<_, _>>()?;
    fit_together(&primary.container, &wanted)?;
    Ok(wanted)
}

/// Starts them, all at once. What cannot be started is told as what became of it.
pub(super) fn start(hub: &Arc<Hub>, primary: &Primary) -> Vec<Beside> {
    match wanted(hub, primary).and_then(|wanted| start_all(hub, primary, wanted)) {
        Ok(all) => all,
        Err(fault) => {
            let why = format!("{fault:#}");
            for alias in aliases(&hub.spec) {
                note(hub, &Told { alias, news: News::Failed { why: why.clone() } });
            }
            Vec::new()
        }
    }
}

fn start_all(hub: &Arc<Hub>, primary: &Primary, wanted: Vec<Companion>) -> anyhow::Result<Vec<Beside>> {
    let (teller, news) = sync_channel(UNWRITTEN);
    let writer = Arc::clone(hub);
    std::thread::Builder::new().stack_size(STACK).spawn(move || write_down(&writer, &news))?;
    let own = hub.place.job()?;
    let mut all = Vec::new();
    for (index, companion) in wanted.into_iter().enumerate() {
        let name = JobName::try_from(format!("{}-c{index}", own.as_str()));
        let name = name.map_err(|fault| anyhow::anyhow!(fault))?;
        all.push(accompany(primary.clone(), companion, name, teller.clone())?);
    }
    Ok(all)
}

/// Until the last of them is gone.
fn write_down(hub: &Hub, news: &Receiver<Told>) {
    while let Ok(told) = news.recv() {
        note(hub, &told);
    }
}

fn note(hub: &Hub, told: &Told) {
    let (code, reason, ending) = match &told.news {
        News::Running => ("running", String::new(), None),
        News::Health { health: Health::Starting, said } => ("starting", said.clone(), None),
        News::Health { health: Health::Healthy, said } => ("healthy", said.clone(), None),
        News::Health { health: Health::Unhealthy, said } => ("unhealthy", said.clone(), None),
        News::PostStart { index, ending, said } => {
            ("post_start", format!("command {index}: {said}"), ending.as_ref())
        }
        News::Ended { ending, said } => ("ended", said.clone(), Some(ending)),
        News::Failed { why } => ("failed", why.clone(), None),
        News::Gone => ("gone", String::new(), None),
    };
    let mut detail = Detail::because(code, reason);
    detail.companion = Some(told.alias.clone());
    detail.exit_code = match ending {
        Some(Ending::Exited { code, .. }) => Some(*code),
        Some(Ending::Signaled { .. } | Ending::NotLaunched { .. } | Ending::NotBegun | Ending::Lost)
        | None => None,
    };
    // A sandbox that is gone has no more events.
    if let Err(_over) = hub.note(Event::Companion, detail) {}
}

fn wish(hub: &Hub, companion: &sandboxes::Companion) -> anyhow::Result<Companion> {
    let disk = disk(hub, companion);
    let is_new = !disk.exists();
    if !is_new {
        // Of a keeper that was killed, the kernel lets go by itself.
        raise::await_detached(&disk)?;
        repair(&disk)?;
    }
    Ok(Companion {
        alias: companion.alias.as_str().to_owned(),
        policy: policy(companion)?,
        command: companion.command.clone(),
        env: companion.env.clone(),
        checkup: companion.healthcheck.as_ref().map(|check| Checkup {
            test: check.test.clone(),
            interval: check.interval.duration(),
            timeout: check.timeout.duration(),
            retries: u32::try_from(check.retries.get()).unwrap_or(u32::MAX),
            start_period: check.start_period.map_or(Duration::ZERO, |period| period.duration()),
            start_interval: check.start_interval.duration(),
        }),
        post_start_on_primary: companion.post_start_on_primary.clone(),
        disk: Some((disk, is_new)),
    })
}

/// Kept with the sandbox's own, for as long.
fn disk(hub: &Hub, companion: &sandboxes::Companion) -> PathBuf {
    hub.place.directory().join(format!("companion-{}.image", companion.alias.as_str()))
}

/// The companion's image and limits.
fn policy(companion: &sandboxes::Companion) -> anyhow::Result<SandboxPolicy> {
    let limits = &companion.limits;
    let cpus = limits.cpus.map(|cpus| format!("{}.{:03}", cpus.millis() / 1000, cpus.millis() % 1000));
    let overrides = [
        ("image", Some(companion.image.clone())),
        ("memory", limits.memory.map(|memory| memory.bytes().to_string())),
        ("cpus", cpus),
        ("pids_limit", limits.pids_limit.map(|pids| pids.get().to_string())),
        ("tmpfs_size", limits.tmpfs_size.map(|size| size.bytes().to_string())),
    ];
    let overrides =
        overrides.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Node::text(value?))));
    let block = Node::Map(vec![
        ("profile".to_owned(), Node::text(PROFILE)),
        ("overrides".to_owned(), Node::Map(overrides.collect())),
    ]);
    let refused = |refusals: pond_policy::refusal::Refusals| {
        let first = refusals.into_list().into_iter().next().map(|fault| fault.message);
        anyhow::anyhow!("companion {}: {}", companion.alias, first.unwrap_or_default())
    };
    // What the operator demands was demanded of the sandbox, whose network and backend these are.
    sandbox::resolve(Some(&block), &Settings::default()).map_err(refused)
}

/// Only its file system counts here: a companion is shown nothing of the host.
const PROFILE: &str = "untrusted-code-internet";
