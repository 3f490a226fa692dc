//! Brings a sandbox up on its disk, new or kept, and takes it down again so that nothing but the disk is left.
//!
//! The same order as a run's: the record first, then what needs no plan, then the gateway, and no program before that serves. A
//! step that fails ends the attempt; what it made goes with its descriptors and, from the record, with the next sweep.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pond_policy::backend::Backend;
use pond_policy::operator::Operator;
use pond_policy::profile::Filesystem;
use pond_policy::sandboxes::{self, Spec};
use pond_sandbox::checkout::Checkout;
use pond_sandbox::container::companion::{Beside, Primary};
use pond_sandbox::container::{Company, Container};
use pond_sandbox::native::{
    Ending, Job, KeptImage, Mount, Native, Provided, Remains, Running, Serving, Tool, abandon, is_attached,
    remedy, repair,
};
use pond_sandbox::record::Live;
use pond_sandbox::state::StateDir;
use pond_wire::jail::{Console, Duty, HomeFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::hub::Hub;
use super::place::Place;
use super::{beside, copy, ingress};
use crate::run::counter::Auditor;
use crate::run::egress::{self, Watched};
use crate::run::git::Lent;
use crate::run::model::{self, Chosen, Key, Money, Wish};
use crate::run::{Begun, OWN_EXECUTABLE, request};
use crate::{runs, settings};

/// How long making one may take, and how long the kernel may take to let go of a disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its terminals have their own sizes.
const PLACE_FOR_TERMINALS: Console = Console::Terminal { rows: 24, columns: 80 };
const NETWORK: &str = "network";

/// A sandbox that runs.
pub(super) struct Up {
    maker: Maker,
    record: Live,
    watched: Option<Watched>,
    /// What companions stand beside, where it is in a container.
    primary: Option<Primary>,
    beside: Vec<Beside>,
}

/// What made it.
enum Maker {
    Native(Box<Native>),
    Container(Arc<Container>),
}

/// What bringing it up needs besides its document.
pub(super) struct Ground<'a> {
    pub(super) place: &'a Place,
    pub(super) spec: &'a Spec,
    pub(super) state: &'a StateDir,
    pub(super) operator: &'a Operator,
    pub(super) resolvers: &'a [SocketAddr],
    /// Whether anything is on its disk yet.
    pub(super) is_new: bool,
}

impl Ground<'_> {
    pub(super) fn raise(&self, launcher: Begun) -> anyhow::Result<(Up, Serving)> {
        let maker = self.maker(launcher)?;
        if !self.is_new {
            self.free_disk()?;
        }
        let job = self.place.job()?;
        let record = match &maker {
            Maker::Native(native) => native.reserve(job)?,
            Maker::Container(container) => container.reserve(job)?,
        };
        match self.launch(maker, &record) {
            Ok((maker, watched, primary, serving)) => {
                Ok((Up { maker, record, watched, primary, beside: Vec::new() }, serving))
            }
            Err(fault) => {
                abandon(self.state, record)?;
                Err(fault)
            }
        }
    }

    fn maker(&self, launcher: Begun) -> anyhow::Result<Maker> {
        match request::backend(&self.spec.policy) {
            Backend::Native => Ok(Maker::Native(Box::new(launcher?.native(self.state.clone())?))),
            backend @ (Backend::Docker | Backend::Gvisor) => {
                let (own, engine) = (Path::new(OWN_EXECUTABLE), settings::engine());
                let container = Container::open(self.state.clone(), own, backend, &engine)?;
                Ok(Maker::Container(Arc::new(container)))
            }
            Backend::Firecracker => {
                bail!(
                    "a sandbox that lasts keeps its disk on this host, which a virtual machine does not share; name docker or gvisor"
                )
            }
        }
    }

    /// Of what a keeper that was killed held, whose processes the kernel takes apart by itself.
    fn free_disk(&self) -> anyhow::Result<()> {
        runs::clean_up(self.state)?;
        await_detached(&self.place.image())?;
        Ok(repair(&self.place.image())?)
    }

    fn launch(
        &self,
        mut maker: Maker,
        record: &Live,
    ) -> anyhow::Result<(Maker, Option<Watched>, Option<Primary>, Serving)> {
        let policy = &self.spec.policy;
        let image = self.place.image();
        let image = KeptImage { path: &image, is_new: self.is_new };
        let begun = match &maker {
            Maker::Native(native) => Some(native.begin_kept(record, policy, &image)?),
            Maker::Container(_) => None,
        };
        runs::clean_up(self.state)?;
        let (checkout, filesystem) = self.workspace()?;
        let tools = self.tools()?;
        let mounts = self.mounts()?;
        let chosen = self.model()?;
        let hosts: Vec<String> = policy.asked_hosts().iter().map(ToString::to_string).collect();
        let lent = Lent::read(self.operator, &self.spec.credentials)?;
        let plan = egress::plan(policy, self.operator, &hosts, chosen.is_some())?.lending(&lent);
        let led = plan.env.clone().into_iter();
        let led = led.chain(chosen.iter().flat_map(|chosen| chosen.harness.env.clone()));
        let env: Vec<_> = led.chain(self.spec.env.iter().cloned()).collect();
        // What stands in the home directory stays there; what its owner made of it since is his.
        let files = chosen.iter().filter(|_| self.is_new).flat_map(|chosen| chosen.harness.files.clone());
        let home: Vec<_> = files.map(|(path, content)| HomeFile { path, content }).collect();
        let network = self.network()?;
        let way_out = egress::start(plan, self.place.id(), self.resolvers.to_vec(), chosen, lent, &network)?;
        let job = Job {
            record,
            policy,
            checkout: &checkout,
            argv: &[],
            env: &env,
            exhibits: &[],
            tools: &tools,
            console: PLACE_FOR_TERMINALS,
            doors: way_out.as_ref().map_or(&[], |way_out| &way_out.doors),
            home: &home,
            mounts: &mounts,
            filesystem: Some(filesystem),
            duty: Duty::Serve,
        };
        let aliases = beside::aliases(self.spec);
        let (mut running, kept) = match (&mut maker, begun) {
            (Maker::Native(native), Some(begun)) => {
                let running = native.carry_on(begun, &job)?;
                native.retire();
                (running, None)
            }
            (Maker::Native(_), None) => bail!("a native sandbox without a beginning"),
            (Maker::Container(container), _) => {
                let company = Company { beside: None, aliases: &aliases, disk: Some(&image) };
                let (running, kept) = container.serve(&job, &company)?;
                (running, Some((Arc::clone(container), kept)))
            }
        };
        if let Some(way_out) = &way_out {
            way_out.open(&mut running)?;
        }
        await_service(&mut running)?;
        let auditor = Auditor::new(self.state, record.job(), policy.profile(), request::backend(policy))?;
        let watched = way_out.map(|way_out| way_out.listen(&network, auditor, None)).transpose()?;
        let serving = Serving::new(running)?;
        if self.is_new {
            copy::materialise(&serving, &self.spec.copies)?;
        }
        let checkout = Arc::new(checkout);
        let primary = kept.map(|(container, kept)| Primary { container, kept, checkout, aliases });
        Ok((maker, watched, primary, serving))
    }

    /// What the profile shows of a workspace, or an empty one that it fills itself.
    fn workspace(&self) -> anyhow::Result<(Checkout, Filesystem)> {
        let posture = self.spec.policy.posture().filesystem;
        match &self.spec.workspace {
            None => Ok((Checkout::open(&self.place.nothing())?, Filesystem::DeclaredOnly)),
            Some(workspace) => {
                let checkout = Checkout::open(Path::new(workspace))?;
                checkout.keep_apart(self.state)?;
                Ok((checkout, posture))
            }
        }
    }

    fn tools(&self) -> anyhow::Result<Vec<Provided>> {
        let home = || settings::home().context("no home directory to take tools from; set HOME");
        let mut provided = Vec::new();
        for tool in &self.spec.tools {
            ingress::program(self.spec, *tool)?;
            if let sandboxes::Tool::Cargo | sandboxes::Tool::Uv = tool {
                provided.push(Tool::parse(tool.name())?.provide(&home()?)?);
            }
        }
        Ok(provided)
    }

    fn mounts(&self) -> anyhow::Result<Vec<Mount>> {
        let open = |mount: &pond_policy::sandboxes::Mount| {
            Ok(Mount::open(Path::new(&mount.source), &mount.target, mount.writable, self.state)?)
        };
        let mut mounts: Vec<Mount> = self.spec.mounts.iter().map(open).collect::<anyhow::Result<_>>()?;
        for place in copy::places(&self.spec.copies)? {
            mounts.push(Mount::own(&place));
        }
        Ok(mounts)
    }

    fn model(&self) -> anyhow::Result<Option<Chosen>> {
        let Some(model) = &self.spec.model else { return Ok(None) };
        let wish = Wish {
            model,
            money: Money::Cents(MOST_CENTS),
            program: "",
            agent: self.spec.agent,
            key: Key::OfOperator,
        };
        model::choose(self.operator, &wish).map(Some)
    }

    /// Where the gateway's record lies; of the time before this one, the last stays.
    fn network(&self) -> anyhow::Result<PathBuf> {
        let directory = self.place.directory().join(NETWORK);
        match std::fs::create_dir(&directory) {
            Err(fault) if fault.kind() != std::io::ErrorKind::AlreadyExists => return Err(fault.into()),
            Ok(()) | Err(_) => {}
        }
        let (record, before) = (directory.join(StateDir::EGRESS), directory.join("egress.before.jsonl"));
        for gone in [std::fs::rename(&record, &before), std::fs::remove_file(directory.join("rules"))] {
            match gone {
                Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => return Err(fault.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(directory)
    }
}

/// What a model may cost a sandbox that names no bound of its own.
const MOST_CENTS: u64 = 1000;

impl Up {
    /// Readable once its gateway is gone; nothing where it has none.
    pub(super) fn gateway_end(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(Watched::end)
    }

    /// Companions beside it, from now on; nobody waits for them.
    pub(super) fn accompany(&mut self, hub: &Arc<Hub>) {
        if let Some(primary) = self.primary.as_ref().filter(|_| !hub.spec.companions.is_empty()) {
            self.beside = beside::start(hub, primary);
        }
    }

    /// Ends everything in it, and waits until the kernel has let go of its disk.
    pub(super) fn take_down(self, serving: Serving, image: &Path) -> anyhow::Result<()> {
        let Self { maker, record, watched, primary, beside } = self;
        // All at once: each waits for its own end.
        std::thread::scope(|scope| {
            beside.into_iter().for_each(|companion| drop(scope.spawn(move || drop(companion))));
        });
        drop(primary);
        serving.kill()?;
        let since = Instant::now();
        while let Ok(Some(_last_words)) = serving.hear() {
            if since.elapsed() > PATIENCE {
                bail!("the sandbox is still alive {} s after it was killed", PATIENCE.as_secs());
            }
        }
        let over = serving.finish()?;
        if let Some(watched) = watched {
            watched.finish()?;
        }
        over.remains.map(Remains::remove).transpose()?;
        drop(over.upper);
        // Reaps what was its own.
        drop(maker);
        if let Some(left) = over.left {
            return Err(
                anyhow::Error::from(left).context("its container is still there; the next start removes it")
            );
        }
        record.close()?;
        await_detached(image)
    }
}

fn await_service(running: &mut Running) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !running.is_serving() {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left)?;
        let ready =
            poll(&mut [PollFd::from_borrowed_fd(running.reports().as_fd(), PollFlags::IN)], Some(&left));
        match ready {
            Ok(0) => bail!("the sandbox was not ready within {} s", PATIENCE.as_secs()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match running.take_report()? {
            None => {}
            Some(Ending::NotLaunched { step, errno }) => {
                let why = std::io::Error::from_raw_os_error(errno);
                let advice = remedy(step, errno).map(|advice| format!("; {advice}")).unwrap_or_default();
                bail!("could not {}: {why}{advice}", step.describe())
            }
            Some(Ending::NotBegun | Ending::Lost | Ending::Exited { .. } | Ending::Signaled { .. }) => {
                bail!("the launcher or pid 1 was killed while the sandbox was made")
            }
        }
    }
    Ok(())
}

pub(super) fn await_detached(image: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    while image.exists() && is_attached(image)? {
        if Instant::now() > until {
            bail!("the kernel still holds the sandbox's disk after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Ok(())
}
