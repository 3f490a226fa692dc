//! Companions: containers beside a sandbox, on its network and under a name of their own, each confined as the sandbox is.
//!
//! A companion is a container that lasts, on an image of its own, with an identity, a disk and limits of its own; of the sandbox
//! it shares the network namespace and nothing else, so that its only way out is the sandbox's gateway. What the image
//! declares as volumes is on its disk, under its quota; the rest of its root is read-only. Each has its own thread, and nobody
//! waits for it: what becomes of it, it tells.

mod health;
mod said;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pond_policy::sandbox::SandboxPolicy;
use pond_wire::jail::{Console, Duty, ExecOrder};
use rustix::process::Signal;

use super::image::{self, ImageFault};
use super::keep::{KeepFault, Kept, Process};
use super::launch::{Company, Container};
use crate::checkout::Checkout;
use crate::native::{Ending, Job, KeptImage, abandon};
use crate::record::{JobName, Live};
use health::Chart;
pub use health::{Checkup, Health};
use said::Said;

/// How long a companion may take over ending by itself.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long a program that was killed may take to be gone, and a command on the primary to end.
const KILLED: Duration = Duration::from_secs(5);
const AFTER_START: Duration = Duration::from_secs(600);
/// How often it is looked whether it should end.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum CompanionFault {
    #[error(transparent)]
    Image(#[from] ImageFault),
    #[error(
        "the companions {one} and {other} both want port {port}: they share the sandbox's network, so give one of them another port"
    )]
    Port { one: String, other: String, port: String },
}

/// A companion as it is asked for.
#[derive(Debug, Clone)]
pub struct Companion {
    /// The name by which it is reached.
    pub alias: String,
    /// Names its image and its limits; its posture is the sandbox's.
    pub policy: SandboxPolicy,
    /// Instead of the image's own command, behind the image's entry point.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub checkup: Option<Checkup>,
    /// Run in the sandbox, in order, once the companion serves.
    pub post_start_on_primary: Vec<Vec<String>>,
    /// Where what it writes outlives it, and whether anything is there yet.
    pub disk: Option<(PathBuf, bool)>,
}

/// What became of a companion, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Its program was started.
    Running,
    Health {
        health: Health,
        said: String,
    },
    /// A command on the primary ended; those behind one that failed are not run.
    PostStart {
        index: usize,
        ending: Option<Ending>,
        said: String,
    },
    /// Its program ended by itself.
    Ended {
        ending: Ending,
        said: String,
    },
    /// It could not be made, or was lost.
    Failed {
        why: String,
    },
    /// It is gone, because it was told to or because its program ended.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub alias: String,
    pub news: News,
}

/// What companions stand beside.
#[derive(Debug, Clone)]
pub struct Primary {
    pub container: Arc<Container>,
    pub kept: Arc<Kept>,
    /// Nothing of it is shown to a companion; a plan wants one.
    pub checkout: Arc<Checkout>,
    /// Every name of the sandbox's network.
    pub aliases: Vec<String>,
}

/// A companion's thread. Letting go of it ends the companion and waits until it is gone.
#[derive(Debug)]
pub struct Beside {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(Err(_panicked)) = self.thread.take().map(JoinHandle::join) {}
    }
}

/// Refuses companions that could not serve beside each other, by what their images declare.
pub fn fit_together(container: &Container, companions: &[Companion]) -> Result<(), CompanionFault> {
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for companion in companions {
        for port in image::ports(container.engine(), &companion.policy)? {
            if let Some(one) = taken.insert(port.clone(), companion.alias.clone()) {
                return Err(CompanionFault::Port { one, other: companion.alias.clone(), port });
            }
        }
    }
    Ok(())
}

/// Makes a companion in a thread of its own; `name` is what its record and its container are called. Whoever gets the news takes
/// them until the companion is gone: nothing of them is left out, so the companion would wait.
pub fn accompany(
    primary: Primary,
    companion: Companion,
    name: JobName,
    news: SyncSender<Told>,
) -> std::io::Result<Beside> {
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    let thread = std::thread::Builder::new().name("companion".to_owned());
    let thread = thread.spawn(move || {
        let attendance = Attendance { primary: &primary, companion: &companion, news, is_over: &end };
        attendance.tell(match attendance.run(name) {
            Ok(()) => News::Gone,
            Err(why) => News::Failed { why },
        });
    })?;
    Ok(Beside { is_over, thread: Some(thread) })
}

/// One companion, from its record to its end.
struct Attendance<'a> {
    primary: &'a Primary,
    companion: &'a Companion,
    news: SyncSender<Told>,
    is_over: &'a AtomicBool,
}

impl Attendance<'_> {
    /// Whoever does not listen any more does not hear it.
    fn tell(&self, news: News) {
        if let Err(_nobody) = self.news.send(Told { alias: self.companion.alias.clone(), news }) {}
    }

    fn run(&self, name: JobName) -> Result<(), String> {
        let record = self.primary.container.reserve(name).map_err(|fault| plain(&fault))?;
        match self.attend(&record) {
            Ok(()) => record.close().map_err(|fault| plain(&fault)),
            // What could not be cleared up either, the record names for whoever sweeps.
            Err(why) => match abandon(self.primary.container.state(), record) {
                Ok(()) => Err(why),
                Err(left) => Err(format!("{why}; {}", plain(&left))),
            },
        }
    }

    fn attend(&self, record: &Live) -> Result<(), String> {
        let kept = self.make(record).map_err(|fault| plain(&fault))?;
        let (mut main, said) = begin(&kept).map_err(|fault| plain(&fault))?;
        self.tell(News::Running);
        let ending = self.watch(&kept, &mut main);
        if ending.is_none() {
            if let Err(_gone_already) = main.signal(Signal::TERM) {}
            main.wait(FAREWELL);
        }
        let finished = kept.stop().map_err(|fault| plain(&fault))?;
        if let Some(ending) = ending {
            self.tell(News::Ended { ending, said: said.text() });
        }
        finished.left.map_or(Ok(()), |left| Err(plain(&left)))
    }

    fn make(&self, record: &Live) -> Result<Kept, KeepFault> {
        let Companion { policy, env, command, .. } = self.companion;
        let job = Job {
            record,
            policy,
            checkout: &self.primary.checkout,
            argv: command,
            env,
            exhibits: &[],
            tools: &[],
            console: Console::Terminal { rows: 24, columns: 80 },
            doors: &[],
            home: &[],
            mounts: &[],
            filesystem: None,
            duty: Duty::Serve,
        };
        let beside = Some((self.primary.kept.id(), self.primary.kept.first()));
        let disk = self.companion.disk.as_ref();
        let disk = disk.map(|(path, is_new)| KeptImage { path, is_new: *is_new });
        let company = Company { beside, aliases: &self.primary.aliases, disk: disk.as_ref() };
        self.primary.container.keep(&job, &company)
    }

    /// Until the program ends, or somebody wants it to.
    fn watch(&self, kept: &Kept, main: &mut Process) -> Option<Ending> {
        let born = Instant::now();
        let mut last = born;
        let mut chart = self.companion.checkup.as_ref().map(|checkup| (Chart::new(checkup), checkup));
        let mut has_served = chart.is_none();
        if has_served {
            self.after_start();
        }
        loop {
            if let Some(ending) = main.wait(GLANCE) {
                return Some(ending);
            }
            if self.is_over.load(Ordering::Acquire) {
                return None;
            }
            let Some((chart, checkup)) = &mut chart else { continue };
            if last.elapsed() < chart.pause(born.elapsed()) {
                continue;
            }
            let (ending, said) = self.run_in(kept, checkup.test.clone(), checkup.timeout);
            last = Instant::now();
            let has_passed = matches!(ending, Some(Ending::Exited { code: 0, .. }));
            let Some(health) = chart.note(has_passed, born.elapsed()) else { continue };
            self.tell(News::Health { health, said });
            if health == Health::Healthy && !has_served {
                has_served = true;
                self.after_start();
            }
        }
    }

    /// What the sandbox does once the companion serves. Whatever becomes of it is told and ends nothing.
    fn after_start(&self) {
        for (index, command) in self.companion.post_start_on_primary.iter().enumerate() {
            let (ending, said) = self.run_in(&self.primary.kept, command.clone(), AFTER_START);
            let has_passed = matches!(ending, Some(Ending::Exited { code: 0, .. }));
            self.tell(News::PostStart { index, ending, said });
            if !has_passed {
                return;
            }
        }
    }

    /// How a program ended, unless it took too long, and what it said.
    fn run_in(&self, kept: &Kept, argv: Vec<String>, within: Duration) -> (Option<Ending>, String) {
        let exec = ordered(argv);
        let mut process = match kept.start(exec) {
            Ok(process) => process,
            Err(fault) => return (Some(Ending::Lost), plain(&fault)),
        };
        let said = Said::of(process.streams.take());
        let deadline = Instant::now() + within;
        let mut ending = None;
        while ending.is_none() && Instant::now() < deadline && !self.is_over.load(Ordering::Acquire) {
            ending = process.wait(GLANCE);
        }
        if ending.is_some() {
            return (ending, said.text());
        }
        if let Err(_gone) = process.signal(Signal::KILL) {}
        process.wait(KILLED);
        (None, said.so_far())
    }
}

/// The companion's own program, which has no input.
fn begin(kept: &Kept) -> Result<(Process, Said), KeepFault> {
    kept.begin()?;
    let exec = ordered(kept.command().to_vec());
    let mut main = kept.start(exec)?;
    let said = Said::of(main.streams.take());
    Ok((main, said))
}

/// In the environment of every program there.
fn ordered(argv: Vec<String>) -> ExecOrder {
    ExecOrder { argv, env: Vec::new(), cwd: None, console: Console::Pipes }
}

/// A fault and its causes, on one line.
fn plain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut source = fault.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
