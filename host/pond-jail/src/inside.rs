//! One launch, the child's half: pid 1 of the sandbox builds its root, forks the job, and becomes init.
//!
//! Trust: until `job::run` forks, nothing hostile runs. The steps stand in the only order in which each is still possible and
//! none can be undone by what follows; a failing step ends the process, and with it the namespaces.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::counted::{Counter, Table};
use pond_sys::process::{Fork, Namespaces, exit_now, fork_into};
use pond_sys::seccomp;
use pond_wire::jail::{Duty, Identity, Report, Rlimits, RootEntry, Scratch, Start, Step, word};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, set_dumpable_behavior};

use crate::enter::tell;
use crate::fault::{At, Failure};
use crate::ground::Standing;
use crate::job::{Filter, Job};
use crate::request::{self, Launch, Order};
use crate::storage::{Builder, Storage};
use crate::terminal::Terminal;
use crate::writable::Rules;
use crate::{doors, home, idmap, job, root, serving, shown, storage, terminal};

/// The parent's word that the identity stands; the launch travels along.
pub(crate) const ORDERS: u8 = 1;
/// The parent's word that the disk is ready; its mounts travel along.
pub(crate) const STORAGE: u8 = 2;

/// What needs no plan, ready before there is one.
pub(crate) struct Ready {
    for_job: seccomp::Filter,
    for_init: seccomp::Filter,
}

pub(crate) fn main(parent: &OwnedFd, ready: Result<Ready, Failure>, standing: Option<Standing>) -> ! {
    // On a ground there is something to do before anything of a job is known.
    let standing =
        standing.map(|standing| root::show_processes(&standing.root).map(|()| standing)).transpose();
    // Without orders there is nobody to tell why not.
    let Ok(orders) = hear(parent, ORDERS, Step::ReadPlan) else { exit_now(0) };
    let Some(Launch { plan, report, checkout, rest }) = Launch::from_descriptors(orders) else { exit_now(1) };
    let order = request::plan_of(&plan).and_then(|plan| request::order(plan, checkout, rest));
    let order = order.unwrap_or_else(|failure| give_up(&report, failure));
    // Nothing that holds a descriptor may be dropped after this: `enter` ends with all but a few closed.
    match ready.and_then(|ready| enter(&order, ready, standing?, parent, report.as_fd())) {
        Ok(Duties::Watch(started)) => pond_init::watch(&started, &order.lifeline, report),
        Ok(Duties::Serve(child_events, rules, counter)) => {
            serving::serve(&order, &rules, (child_events, &counter), report)
        }
        Err(failure) => give_up(&report, failure),
    }
}

fn give_up(report: &OwnedFd, failure: Failure) -> ! {
    tell(report.as_fd(), failure.report(), &[]);
    exit_now(1)
}

/// In the namespaces of the sandbox, by whoever bears its pid 1.
pub(crate) fn get_ready() -> Result<Ready, Failure> {
    doors::loopback()?;
    // Both are for the job, and a child inherits them. Nothing is executed before it is, so nothing else changes by them.
    pond_sys::signal::reset_actions();
    job::drop_bounding_set().at(Step::DropCapabilities)?;
    Ok(Ready {
        for_job: seccomp::compile(seccomp::Profile::WorkloadCounted),
        for_init: seccomp::compile(seccomp::Profile::Init),
    })
}

/// What is left to do for pid 1.
enum Duties {
    /// A job runs.
    Watch(pond_init::Started),
    /// None runs yet; each that will comes under these rules, and its sockets are counted with those of the others.
    Serve(OwnedFd, Rules, Counter),
}

// tidy: privileged sequence
fn enter(
    order: &Order,
    ready: Ready,
    standing: Option<Standing>,
    parent: &OwnedFd,
    report: BorrowedFd<'_>,
) -> Result<Duties, Failure> {
    let plan = &order.plan;
    // 1. Inside its limits before anything else; on cgroup v2 it was born there.
    enter_groups(&hear(report, word::ENTER, Step::EnterCgroup)?)?;
    // 2. The host's devices that will be visible are opened with the identity this process was born with.
    let rest = standing.as_ref().map_or(Ok(plan.root.as_slice()), |standing| standing.rest(plan))?;
    let mut sources = root::open_sources(rest)?;
    // 3. The parent has given this process its ids, or whoever laid the ground has.
    let has_ground = standing.is_some();
    if !has_ground {
        map_own_id(plan.identity)?;
        rustix::system::sethostname(plan.hostname.as_bytes()).at(Step::Hostname)?;
    }
    take_identity(plan.identity)?;
    // 4. Only now is our group the right root for a cgroup namespace.
    pond_sys::process::unshare_cgroup().at(Step::CgroupNamespace)?;
    rustix::process::setsid().at(Step::CgroupNamespace)?;
    doors::open(&plan.doors, report)?;
    // 5. The root, then the disk, then the point of no return: the host's tree is gone from this namespace.
    let (new_root, mut spent) = match standing {
        Some(standing) => (standing.root, standing.spent),
        None => {
            let root = root::build(rest, plan.shm, &mut sources)?;
            root::show_processes(&root)?;
            (root, Vec::new())
        }
    };
    root::make_own(&new_root, plan)?;
    let storage = receive_storage(order, rest, parent)?;
    if has_ground {
        root::place_all(&new_root, rest, &mut sources)?;
    }
    drop(sources);
    root::move_in(&new_root, &storage)?;
    root::hang(&new_root, rest, &storage.shown)?;
    root::close(&new_root)?;
    spent.extend(storage.spent);
    root::leave_host(&new_root, &spent)?;
    drop(new_root);
    home::furnish(plan)?;
    let terminal = match plan.duty {
        Duty::Once => terminal::open(plan.console)?,
        // Each job gets one of its own, when it asks for one.
        Duty::Serve => None,
    };
    // 6. The asking side learns where to read results, and may hold the job back until its own half is ready.
    announce(report, plan.duty, (&storage.workspace, &storage.upper), terminal.as_ref())?;
    drop((storage.workspace, storage.upper, storage.home, storage.shown, spent));
    let terminal = terminal.map(|made| made.job_end);
    if plan.start == Start::OnGo {
        await_go(report)?;
    }
    // 7. Limits that children inherit, then the job itself.
    set_rlimits(&plan.rlimits).at(Step::Rlimits)?;
    let child_events = pond_sys::signal::child_events().at(Step::ForkJob)?;
    let table = Table::open().at(Step::GuardInit)?;
    if plan.duty == Duty::Serve {
        // Or, where jobs are to come, what it takes to make each of them and to end it, under the filter they will have.
        let kept = [report, order.lifeline.as_fd(), child_events.as_fd(), table.as_fd()];
        let listener = serving::guard(&ready.for_job, &kept)?;
        return Ok(Duties::Serve(child_events, Rules::of(plan)?, Counter { listener, table }));
    }
    let (ours, theirs) = pond_sys::socket::pair().at(Step::ForkJob)?;
    let job = match fork_into(Namespaces::Inherit, None).at(Step::ForkJob)? {
        Fork::Child => become_job(order, terminal.as_ref(), (&ready.for_job, theirs.as_fd()), report),
        Fork::Parent(child) => child.pid,
    };
    drop(theirs);
    // The job may have run from here on, whatever becomes of this process: an end without a word says just that.
    let started = become_init(order, job, (ours, child_events, table), terminal, ready.for_init, report);
    Ok(Duties::Watch(started.unwrap_or_else(|_failure| exit_now(1))))
}

/// What pid 1 keeps beside a job that runs: it waits, counts, reaps and reports.
fn become_init(
    order: &Order,
    job: Pid,
    (from_job, child_events, table): (OwnedFd, OwnedFd, Table),
    terminal: Option<OwnedFd>,
    filter: seccomp::Filter,
    report: BorrowedFd<'_>,
) -> Result<pond_init::Started, Failure> {
    // 8. Init keeps no power and no descriptor it does not need: it waits, counts, reaps and reports.
    job::drop_capabilities().at(Step::GuardInit)?;
    rustix::thread::set_no_new_privs(true).at(Step::GuardInit)?;
    // A child that ends before its filter holds says why itself.
    let listener =
        hear(&from_job, job::COUNT, Step::GuardInit).ok().and_then(|heard| heard.into_iter().next());
    drop(from_job);
    let counter = listener.map(|listener| Counter { listener, table });
    let kept = [report, order.lifeline.as_fd(), child_events.as_fd()].into_iter();
    let kept = kept.chain(terminal.as_ref().map(AsFd::as_fd));
    let counting = counter.iter().flat_map(|counter| [counter.listener.as_fd(), counter.table.as_fd()]);
    pond_sys::fd::close_all_but(&kept.chain(counting).collect::<Vec<_>>()).at(Step::GuardInit)?;
    Ok(pond_init::Started { job, child_events, filter, terminal, counter })
}

/// In the forked child, which becomes the job, or says why not and exits.
fn become_job(
    order: &Order,
    terminal: Option<&OwnedFd>,
    (filter, pid_one): (&seccomp::Filter, BorrowedFd<'_>),
    report: BorrowedFd<'_>,
) -> ! {
    let (plan, pipes, filter) = (&order.plan, order.stdio.as_ref(), Filter::Install(filter, pid_one));
    let job = Job { plan, program: &plan.program, pipes, terminal, filter, rules: None };
    let failure = job::run(&job, report);
    tell(report, failure.report(), &[]);
    exit_now(1)
}

/// A thread that moves itself needs no lock that waits for every processor of the host; one that is moved does.
fn enter_groups(tasks: &[OwnedFd]) -> Result<(), Failure> {
    for file in tasks {
        rustix::io::write(file, b"0").at(Step::EnterCgroup)?;
    }
    Ok(())
}

pub(crate) fn hear(from: impl AsFd, expected: u8, step: Step) -> Result<Vec<OwnedFd>, Failure> {
    let mut word = [0; 8];
    let (length, descriptors) = pond_sys::socket::receive(from, &mut word).at(step)?;
    match word.first() {
        Some(first) if length == 1 && *first == expected => Ok(descriptors),
        _ => Err(Failure { step, errno: Errno::CONNRESET }),
    }
}

/// An ordinary user's sandbox maps the one id it has, from inside.
pub(crate) fn map_own_id(identity: Identity) -> Result<(), Failure> {
    match identity {
        Identity::Range { .. } => Ok(()),
        Identity::Single { uid, gid } => idmap::write_single(uid, gid),
    }
}

pub(crate) fn take_identity(identity: Identity) -> Result<(), Failure> {
    let step = Step::BecomeRootInside;
    match identity {
        Identity::Range { .. } => job::become_user(0).at(step)?,
        Identity::Single { .. } => {}
    }
    // The job will share this pid namespace: what this process holds must not be readable through /proc.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(step)
}

/// `rest` are the entries whose directories come with it.
fn receive_storage(order: &Order, rest: &[RootEntry], parent: &OwnedFd) -> Result<Storage, Failure> {
    match Builder::of(order.plan.identity) {
        Builder::Inside => match order.plan.scratch {
            Scratch::Tmpfs(cap) => {
                let disk = || storage::scratch(cap);
                storage::build(&order.plan, rest, None, disk, order.checkout.as_fd())
            }
            Scratch::Ext4Image | Scratch::KeptImage => {
                Err(Failure { step: Step::MountScratch, errno: Errno::INVAL })
            }
        },
        Builder::Host { .. } => {
            let mut mounts = hear(parent, STORAGE, Step::MountWorkspace)?.into_iter();
            let missing = Failure { step: Step::MountWorkspace, errno: Errno::BADMSG };
            let mut next = || mounts.next().ok_or(missing);
            let (workspace, home, upper) = (next()?, next()?, next()?);
            let shown = mounts.by_ref().take(shown::places(rest).count()).collect();
            Ok(Storage { shown, workspace, home, upper, spent: mounts.collect() })
        }
    }
}

fn announce(
    report: BorrowedFd<'_>,
    duty: Duty,
    (workspace, upper): (&OwnedFd, &OwnedFd),
    terminal: Option<&Terminal>,
) -> Result<(), Failure> {
    let view = storage::open_directory(workspace, ".").at(Step::Announce)?;
    // Whoever keeps a sandbox copies files into any part of it, and out of it.
    let whole = match duty {
        Duty::Once => None,
        Duty::Serve => Some(storage::open_directory(rustix::fs::CWD, "/").at(Step::Announce)?),
    };
    // Who reads the result lets go of the mounts with it; with the last process inside they would go before anybody hears of its end.
    let mounts = own_mounts().at(Step::Announce)?;
    let held = [upper.as_fd(), view.as_fd(), mounts.as_fd()];
    let terminal = terminal.map(|made| made.master.as_fd());
    let descriptors: Vec<_> =
        held.into_iter().chain(terminal).chain(whole.as_ref().map(AsFd::as_fd)).collect();
    pond_sys::socket::send(report, &Report::Prepared.encode(), &descriptors).at(Step::Announce)
}

fn own_mounts() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn await_go(report: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut word = [0; 8];
    let (length, _none) = pond_sys::socket::receive(report, &mut word).at(Step::Announce)?;
    if length == 1 { Ok(()) } else { Err(Failure { step: Step::Announce, errno: Errno::CONNRESET }) }
}

/// At one byte the kernel writes no core file and starts no crash handler of the host; at none it would start one.
const NO_CRASH_HANDLER: u64 = 1;

/// A user namespace cannot raise what it inherited, so a limit is the smaller of what is wanted and what is had.
pub(crate) fn set_rlimits(limits: &Rlimits) -> Result<(), Errno> {
    let wanted = [
        (Resource::Core, NO_CRASH_HANDLER),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
        (Resource::Stack, limits.stack_bytes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Memlock, limits.locked_bytes),
        (Resource::Msgqueue, limits.queue_bytes),
        (Resource::Sigpending, limits.pending_signals),
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
    ];
    for (resource, value) in wanted {
        let had = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Some(value.min(had));
        rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Nobody goes in who was not let in.
    use super::*;

    #[test]
    fn only_the_word_itself_lets_a_child_in() {
        let go = 1;
        for said in [[go].as_slice(), &[word::LAUNCH], &[word::ENTER, word::ENTER]] {
            let (ours, theirs) = pond_sys::socket::pair().unwrap();
            pond_sys::socket::send(&ours, said, &[]).unwrap();
            let refused = Failure { step: Step::EnterCgroup, errno: Errno::CONNRESET };
            assert_eq!(hear(&theirs, word::ENTER, Step::EnterCgroup).unwrap_err(), refused, "{said:x?}");
        }
        let (ours, theirs) = pond_sys::socket::pair().unwrap();
        pond_sys::socket::send(&ours, &[word::ENTER], &[theirs.as_fd()]).unwrap();
        assert_eq!(hear(&theirs, word::ENTER, Step::EnterCgroup).unwrap().len(), 1);
        drop(ours);
        assert!(hear(&theirs, word::ENTER, Step::EnterCgroup).is_err(), "whoever should let it in is gone");
    }
}
