//! The last steps before the hostile program runs: everything it could use is taken away, tried, and only then it starts.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pond_sys::process::Program;
use pond_sys::seccomp;
use pond_wire::jail::{self as wire, Identity, JOB_ID, JailPlan, Step};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::confirm;
use crate::fault::{At, Failure};
use crate::writable::Rules;

/// What is about to run, in the child that becomes it.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a JailPlan,
    /// The plan's own, or one that a sandbox was asked to run.
    pub(crate) program: &'a wire::Program,
    /// Pipes from outside, or a terminal made inside.
    pub(crate) pipes: Option<&'a [OwnedFd; 3]>,
    pub(crate) terminal: Option<&'a OwnedFd>,
    pub(crate) filter: Filter<'a>,
    /// What it may write, if pid 1 has that ready for all it starts.
    pub(crate) rules: Option<&'a Rules>,
}

/// The job's word that its filter holds; the listener travels along.
pub(crate) const COUNT: u8 = 4;

/// Where the job's filter comes from. There is one either way, and `confirm` tries it.
#[derive(Clone, Copy)]
pub(crate) enum Filter<'a> {
    /// With the way to pid 1, which counts for it.
    Install(&'a seccomp::Filter, BorrowedFd<'a>),
    /// Pid 1 serves under the same filter, and its children have it from their first instruction.
    Inherited,
}

/// Runs in the forked child and returns only if it could not become the job.
pub(crate) fn run(job: &Job<'_>, report: BorrowedFd<'_>) -> Failure {
    match confine(job, report) {
        Ok(program) => exec(job.program, &program),
        Err(failure) => failure,
    }
}

// tidy: privileged sequence
fn confine(job: &Job<'_>, report: BorrowedFd<'_>) -> Result<Program, Failure> {
    let plan = job.plan;
    let program = prepare(job.program)?;
    // 1. A session of its own, no signal held back (their actions are the defaults already), its three streams, and no other
    // descriptor once it executes.
    rustix::process::setsid().at(Step::DropIdentity)?;
    pond_sys::signal::unblock_all().at(Step::DropIdentity)?;
    take_streams(job.pipes, job.terminal)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // 2. Capabilities go before the identity does: locking them away needs one of them. The bounding set is empty already.
    lock_capabilities().at(Step::DropCapabilities)?;
    if let Identity::Range { .. } = plan.identity {
        become_user(JOB_ID).at(Step::DropIdentity)?;
    }
    drop_capabilities().at(Step::DropCapabilities)?;
    // With the job's own rights: a directory it may not enter is none it starts in.
    rustix::process::chdir(job.program.cwd.as_str()).at(Step::WorkingDirectory)?;
    // 3. Nothing this process executes can regain anything.
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges)?;
    // 4. Writes only where the plan says, and no signals or abstract sockets out of the sandbox.
    match job.rules {
        Some(rules) => rules.enforce()?,
        None => Rules::of(plan)?.enforce()?,
    }
    // 5. The filter last, because it forbids what the launch does above.
    match job.filter {
        Filter::Install(filter, pid_one) => {
            let listener = seccomp::install_with_listener(filter).at(Step::Seccomp)?;
            pond_sys::socket::send(pid_one, &[COUNT], &[listener.as_fd()]).at(Step::Seccomp)?;
        }
        Filter::Inherited => {}
    }
    // 6. Layers that did not take would be noticed by the job first; notice before it does.
    confirm::confirm(report)?;
    Ok(program)
}

pub(crate) fn prepare(program: &wire::Program) -> Result<Program, Failure> {
    let invalid = Failure { step: Step::CheckPlan, errno: Errno::INVAL };
    let c_string = |text: &str| CString::new(text).map_err(|_| invalid);
    let argv = program.argv.iter().map(|text| c_string(text)).collect::<Result<_, _>>()?;
    let env = program
        .env
        .iter()
        .map(|(name, value)| c_string(&format!("{name}={value}")))
        .collect::<Result<_, _>>()?;
    Ok(Program::new(argv, env))
}

/// Pipes from outside, or the terminal made inside, which then controls the job's session.
pub(crate) fn take_streams(pipes: Option<&[OwnedFd; 3]>, terminal: Option<&OwnedFd>) -> Result<(), Failure> {
    let [stdin, stdout, stderr] = match (pipes, terminal) {
        (Some([stdin, stdout, stderr]), None) => [stdin, stdout, stderr],
        (None, Some(terminal)) => {
            rustix::process::ioctl_tiocsctty(terminal).at(Step::Terminal)?;
            [terminal; 3]
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(Failure { step: Step::Terminal, errno: Errno::INVAL });
        }
    };
    // Where a process has none of the three, one of these may be among them: it would be overwritten, or close with the exec.
    let above = |end: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(end, 3).at(Step::DropIdentity);
    let [stdin, stdout, stderr] = [above(stdin)?, above(stdout)?, above(stderr)?];
    rustix::stdio::dup2_stdin(stdin).at(Step::DropIdentity)?;
    rustix::stdio::dup2_stdout(stdout).at(Step::DropIdentity)?;
    rustix::stdio::dup2_stderr(stderr).at(Step::DropIdentity)
}

/// With an empty bounding set no capability can be had by executing, and this keeps it so.
fn lock_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked)
}

pub(crate) fn drop_bounding_set() -> Result<(), Errno> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel knows no capability of this number, hence none above it.
            Err(Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

pub(crate) fn become_user(id: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Empties every capability set of this process.
pub(crate) fn drop_capabilities() -> Result<(), Errno> {
    keep_capabilities(CapabilitySet::empty())
}

/// Keeps these and no others. With an empty bounding set nothing executed could have any of them.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )
}

/// Finds the command inside and replaces this process. A name with a slash is a path; a bare one is searched for.
pub(crate) fn exec(wanted: &wire::Program, program: &Program) -> Failure {
    let Some(name) = wanted.argv.first() else {
        return Failure { step: Step::Exec, errno: Errno::NOENT };
    };
    // A name of no characters would lead to the directories themselves.
    let candidates: Vec<String> = if name.is_empty() || name.contains('/') {
        vec![name.clone()]
    } else {
        wanted.search.iter().map(|directory| format!("{directory}/{name}")).collect()
    };
    let mut errno = Errno::NOENT;
    for candidate in candidates {
        let Ok(candidate) = CString::new(candidate) else { continue };
        // Asking costs a tenth of trying.
        if let Err(Errno::NOENT | Errno::NOTDIR) = rustix::fs::stat(&candidate) {
            continue;
        }
        let fault = match Errno::from_io_error(&program.exec(&candidate)).unwrap_or(Errno::IO) {
            // The kernel says of a directory what it says of a file without the right to execute it.
            Errno::ACCESS if is_directory(&candidate) => Errno::ISDIR,
            fault => fault,
        };
        // A file that is there but cannot run says more than the absence of the next one.
        if fault != Errno::NOENT && fault != Errno::NOTDIR {
            errno = fault;
        }
    }
    Failure { step: Step::Exec, errno }
}

fn is_directory(path: &CString) -> bool {
    rustix::fs::stat(path.as_c_str())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}
