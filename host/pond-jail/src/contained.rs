//! Pid 1 of a container: takes its order from pond, confines the job as a native sandbox does, and becomes its relay.
//!
//! Zone: hostile. The engine made the namespaces, the root and the limits before this process ran, without capabilities and as
//! the job's own user, so nothing here is privileged; on gVisor it becomes that user once it knows who that is. What the
//! engine cannot express (Landlock, the exact filter) is added by the child just before it becomes the job, tried, and
//! without it there is no job.

mod serving;

use std::os::fd::{AsFd, OwnedFd};

use pond_init::{Announcer, Relay, Window, relay, say, tell};
use pond_sys::process::{exit_now, fork_plainly};
use pond_sys::seccomp;
use pond_wire::contained::{Evidence, Header, Kernel, Kind, Landlock, Order, Transfer};
use pond_wire::jail::{CheckoutView, Duty, Identity, JOB_ID, JailPlan, Report, Step, WORKSPACE};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, set_dumpable_behavior};

use crate::check::check;
use crate::fault::{At, Failure};
use crate::terminal::{self, Terminal};
use crate::writable::Rules;
use crate::{confirm, inside, job};

/// The two streams of the engine, out of the job's reach.
struct Streams {
    from_pond: OwnedFd,
    to_pond: OwnedFd,
}

/// A job that was forked, and pid 1's ends of its streams.
struct Started {
    job: Pid,
    child_events: OwnedFd,
    filter: seccomp::Filter,
    input: OwnedFd,
    outputs: Vec<(Kind, OwnedFd)>,
    window: Option<Window>,
    kept: Option<&'static str>,
}

/// What is left to do for pid 1.
enum Duties {
    /// A job runs.
    Relay(Started),
    /// None runs yet.
    Serve(Box<Order>, OwnedFd),
}

/// Never returns to the caller's code.
pub fn contained() -> ! {
    let Ok(streams) = take_streams() else { exit_now(1) };
    match begin(&streams) {
        Ok(Duties::Serve(order, child_events)) => serving::serve(&order, &streams, &child_events),
        Ok(Duties::Relay(started)) => relay(Relay {
            job: started.job,
            child_events: started.child_events,
            filter: started.filter,
            from_pond: streams.from_pond,
            to_pond: streams.to_pond,
            input: Some(started.input),
            outputs: started.outputs,
            window: started.window,
            kept: started.kept,
        }),
        Err(failure) => {
            tell(&streams.to_pond, failure.report());
            exit_now(1)
        }
    }
}

fn take_streams() -> Result<Streams, Errno> {
    // The job will share this pid namespace and this user: what this process holds must not be readable through /proc.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let from_pond = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let to_pond = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    Ok(Streams { from_pond, to_pond })
}

fn begin(streams: &Streams) -> Result<Duties, Failure> {
    let for_job = seccomp::compile(seccomp::Profile::Workload);
    let seen =
        serde_json::to_vec(&evidence()).map_err(|_| Failure { step: Step::Announce, errno: Errno::INVAL })?;
    say(&streams.to_pond, Kind::Evidence, &seen);
    let order = hear(&streams.from_pond, Kind::Order)?;
    let refused = Failure { step: Step::ReadPlan, errno: Errno::INVAL };
    let order: Order = serde_json::from_slice(&order).map_err(|_| refused)?;
    check(&order.plan)?;
    let child_events = pond_sys::signal::child_events().at(Step::ForkJob)?;
    match order.kernel {
        Kernel::Host | Kernel::Machine => inside::set_rlimits(&order.plan.rlimits).at(Step::Rlimits)?,
        // It lets nobody change some of them, and has them from the engine.
        Kernel::Gvisor => become_job_user(&order.plan)?,
    }
    match order.plan.duty {
        Duty::Once => start(&order, streams, &for_job, child_events).map(Duties::Relay),
        Duty::Serve => {
            tell(&streams.to_pond, Report::Prepared);
            hear(&streams.from_pond, Kind::Go)?;
            Ok(Duties::Serve(Box::new(order), child_events))
        }
    }
}

/// The one job of a plan.
fn start(
    order: &Order,
    streams: &Streams,
    for_job: &seccomp::Filter,
    child_events: OwnedFd,
) -> Result<Started, Failure> {
    let kept = kept(order);
    let terminal = terminal::open_on(order.plan.console, order.kernel)?;
    // To hand files over or to size a terminal it needs what the job needs to make them, and no more.
    let needs_more = kept.is_some() || terminal.is_some();
    let filter =
        seccomp::compile(if needs_more { seccomp::Profile::Workload } else { seccomp::Profile::Init });
    tell(&streams.to_pond, Report::Prepared);
    hear(&streams.from_pond, Kind::Go)?;
    let Ends { input, outputs, theirs } = Ends::new(terminal)?;
    let Some(pid) = fork_plainly().at(Step::ForkJob)? else { become_job(order, &theirs, for_job, streams) };
    for ours in outputs.iter().map(|(_, output)| output).chain([&input]) {
        rustix::io::ioctl_fionbio(ours, true).at(Step::ForkJob)?;
    }
    let announcer = announcer(order.kernel);
    let window = theirs.terminal().map(|end| Window { end, announcer });
    Ok(Started { job: pid, child_events, filter, input, outputs, window, kept })
}

/// Who tells programs that their terminal has another size.
fn announcer(kernel: Kernel) -> Announcer {
    match kernel {
        Kernel::Host | Kernel::Machine => Announcer::Kernel,
        Kernel::Gvisor => Announcer::PidOne,
    }
}

/// Both sides of the job's streams.
struct Ends {
    input: OwnedFd,
    outputs: Vec<(Kind, OwnedFd)>,
    theirs: Theirs,
}

/// The job's own side.
enum Theirs {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

impl Theirs {
    /// Kept by pid 1, so that the other end sees no hang-up while the job closes and reopens its own.
    fn terminal(self) -> Option<OwnedFd> {
        match self {
            Self::Pipes(_) => None,
            Self::Terminal(end) => Some(end),
        }
    }
}

impl Ends {
    fn new(terminal: Option<Terminal>) -> Result<Self, Failure> {
        if let Some(Terminal { master, job_end }) = terminal {
            let input = rustix::io::fcntl_dupfd_cloexec(&master, 3).at(Step::Terminal)?;
            let outputs = vec![(Kind::Stdout, master)];
            return Ok(Self { input, outputs, theirs: Theirs::Terminal(job_end) });
        }
        let [stdin, stdout, stderr] = [pipe()?, pipe()?, pipe()?];
        let outputs = vec![(Kind::Stdout, stdout.0), (Kind::Stderr, stderr.0)];
        let theirs = Theirs::Pipes([stdin.0, stdout.1, stderr.1]);
        Ok(Self { input: stdin.1, outputs, theirs })
    }
}

/// The directory that pond gets at the end: where it cannot see the job's copy itself, and there is one to change.
fn kept(order: &Order) -> Option<&'static str> {
    match (order.transfer, &order.plan.checkout) {
        (Transfer::Stream, CheckoutView::Copy(_) | CheckoutView::Empty) => Some(WORKSPACE),
        (Transfer::Stream, CheckoutView::ReadOnly(_)) | (Transfer::Bind, _) => None,
    }
}

/// gVisor lets everybody open the descriptors of everybody, as far as the owner of what they lead to allows. The engine's
/// streams belong to the user a container starts as; so that is root, with what it takes to become another and no more.
fn become_job_user(plan: &JailPlan) -> Result<(), Failure> {
    let Identity::Range { base, .. } = plan.identity else {
        return Err(Failure { step: Step::CheckPlan, errno: Errno::INVAL });
    };
    job::drop_bounding_set().at(Step::DropCapabilities)?;
    job::become_user(base + JOB_ID).at(Step::DropIdentity)?;
    job::drop_capabilities().at(Step::DropCapabilities)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Step::DropIdentity)
}

/// A file that cannot be read says nothing, which pond takes for an answer too.
fn evidence() -> Evidence {
    let line = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let (version, boot_id) = (line("/proc/version"), line("/proc/sys/kernel/random/boot_id"));
    Evidence { version, boot_id, landlock: landlock() }
}

fn landlock() -> Landlock {
    pond_sys::landlock::version().map_or(Landlock::Absent, |_| Landlock::Present)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    pipe_with(PipeFlags::CLOEXEC).at(Step::ForkJob)
}

/// Runs in the forked child and never returns: it becomes the job, or says why not and exits.
fn become_job(order: &Order, streams: &Theirs, filter: &seccomp::Filter, pond: &Streams) -> ! {
    let failure = match confine(order, streams, filter, pond) {
        Ok(program) => job::exec(&order.plan.program, &program),
        Err(failure) => failure,
    };
    tell(&pond.to_pond, failure.report());
    exit_now(1)
}

/// As for a native job, less what the engine has done already: identity, capabilities and the root.
fn confine(
    order: &Order,
    streams: &Theirs,
    filter: &seccomp::Filter,
    pond: &Streams,
) -> Result<pond_sys::process::Program, Failure> {
    let plan = &order.plan;
    let program = job::prepare(&plan.program)?;
    rustix::process::setsid().at(Step::DropIdentity)?;
    pond_sys::signal::reset_all().at(Step::DropIdentity)?;
    match streams {
        Theirs::Pipes(pipes) => job::take_streams(Some(pipes), None)?,
        Theirs::Terminal(end) => job::take_streams(None, Some(end))?,
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir(plan.program.cwd.as_str()).at(Step::MountWorkspace)?;
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges)?;
    let landlock = match order.kernel {
        Kernel::Host => Landlock::Present,
        Kernel::Gvisor => Landlock::Absent,
        Kernel::Machine => landlock(),
    };
    let tried = match landlock {
        Landlock::Present => {
            Rules::of(plan)?.enforce()?;
            seccomp::install(filter).at(Step::Seccomp)?;
            confirm::confirm(pond.to_pond.as_fd())
        }
        Landlock::Absent => {
            seccomp::install(filter).at(Step::Seccomp)?;
            match order.plan.duty {
                Duty::Once => confirm::confirm_on_gvisor(pond.to_pond.as_fd()),
                Duty::Serve => confirm::confirm_among_others([&pond.from_pond, &pond.to_pond]),
            }
        }
    };
    tried.map(|()| program)
}

/// The bytes of the next frame, which must be of this kind.
fn hear(from_pond: &OwnedFd, expected: Kind) -> Result<Vec<u8>, Failure> {
    let mut header = [0; Header::BYTES];
    read_exact(from_pond, &mut header)?;
    let refused = Failure { step: Step::ReadPlan, errno: Errno::BADMSG };
    match Header::decode(header) {
        Ok(Header { kind, length }) if kind == expected => {
            let mut bytes = vec![0; length];
            read_exact(from_pond, &mut bytes)?;
            Ok(bytes)
        }
        Ok(_) | Err(_) => Err(refused),
    }
}

/// Without pond there is nobody to tell that it is gone.
fn read_exact(from_pond: &OwnedFd, mut bytes: &mut [u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        match rustix::io::read(from_pond, &mut *bytes) {
            Ok(0) => exit_now(0),
            Ok(length) => bytes = bytes.get_mut(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure { step: Step::ReadPlan, errno }),
        }
    }
    Ok(())
}
