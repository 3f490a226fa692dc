//! Refuses any plan that breaks an invariant of the launcher, whoever sent it.
//!
//! The asking side builds plans from policy and should never fail here; these checks are for the day it is wrong or captured.

use pond_wire::gateway::doors::{BROKER, DNS, GIT, PROXY};
use pond_wire::jail::{
    CheckoutView, Console, Door, Duty, Ground, HOME, JailPlan, MOST_SHOWN, Program, RootEntry, Start, Step,
    TmpfsCap, WORKSPACE,
};
use rustix::io::Errno;

use crate::fault::Failure;
use crate::shown;

/// Places the launcher fills itself; a plan may not.
const RESERVED: [&str; 6] = [WORKSPACE, HOME, "/proc", "/tmp", "/dev/shm", "/dev/pts"];
/// Device nodes of the host that any job may have.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Stands for whatever terminal the opening process has, so it is given only to a job that gets one of its own.
const OWN_TERMINAL: &str = "/dev/tty";

/// More than any gateway has. One packet carries all their listeners.
const MOST_DOORS: usize = 31;

pub(crate) fn check(plan: &JailPlan) -> Result<(), Failure> {
    let caps_bounded = [plan.tmp, plan.shm].into_iter().all(bounded);
    let scratch_bounded = match plan.scratch {
        pond_wire::jail::Scratch::Ext4Image | pond_wire::jail::Scratch::KeptImage => true,
        pond_wire::jail::Scratch::Tmpfs(cap) => bounded(cap),
    };
    let checkout_named = match &plan.checkout {
        CheckoutView::ReadOnly(checkout) | CheckoutView::Copy(checkout) => is_plain_absolute(&checkout.path),
        CheckoutView::Empty => true,
    };
    let terminal_has_a_size = match plan.console {
        Console::Pipes => true,
        Console::Terminal { rows, columns } => rows > 0 && columns > 0,
    };
    let sound = caps_bounded
        && terminal_has_a_size
        && doors_are_sound(&plan.doors, plan.start)
        && scratch_bounded
        && checkout_named
        && shown::places(&plan.root).count() <= MOST_SHOWN
        && plan.root.iter().all(|entry| entry_is_sound(entry, plan.console))
        && plan.replaced.iter().all(|file| is_plain_absolute(&format!("/{}", file.path)))
        && plan
            .home
            .iter()
            .all(|file| !file.path.is_empty() && is_plain_absolute(&format!("/{}", file.path)))
        && duty_is_sound(plan)
        && mounts_are_sound(plan)
        && is_hostname(&plan.hostname);
    if sound { Ok(()) } else { Err(Failure { step: Step::CheckPlan, errno: Errno::INVAL }) }
}

/// A ground is for whoever comes: it has no terminal and nothing that could be written to.
pub(crate) fn check_ground(ground: &Ground) -> Result<(), Failure> {
    let is_for_anybody = |entry: &RootEntry| {
        !matches!(entry, RootEntry::Throwaway { .. } | RootEntry::Mount { .. })
            && entry_is_sound(entry, Console::Pipes)
    };
    let sound = bounded(ground.shm)
        && is_hostname(&ground.hostname)
        && shown::places(&ground.root).count() <= MOST_SHOWN
        && ground.root.iter().all(is_for_anybody);
    if sound { Ok(()) } else { Err(Failure { step: Step::CheckPlan, errno: Errno::INVAL }) }
}

/// A program of its own, or a terminal's place for those to come: what pid 1 serves never has the plan's streams.
fn duty_is_sound(plan: &JailPlan) -> bool {
    match (plan.duty, plan.console) {
        (Duty::Once, Console::Pipes | Console::Terminal { .. }) => program_is_sound(&plan.program),
        (Duty::Serve, Console::Terminal { .. }) => plan.program.argv.is_empty(),
        (Duty::Serve, Console::Pipes) => false,
    }
}

/// In a workspace that is a view of somebody's checkout nothing is mounted: its directories are not ours to make.
fn mounts_are_sound(plan: &JailPlan) -> bool {
    let in_workspace = |entry: &RootEntry| match entry {
        RootEntry::Mount { path, .. } => is_at_or_below(path, WORKSPACE),
        RootEntry::Bind { .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Device { .. } => false,
    };
    plan.checkout == CheckoutView::Empty || !plan.root.iter().any(in_workspace)
}

/// One program, by the same rules as a plan's.
pub(crate) fn program_is_sound(program: &Program) -> bool {
    !program.argv.is_empty()
        && program.argv.iter().all(|argument| !argument.contains('\0'))
        && program.env.iter().all(|(name, value)| env_is_sound(name, value))
        && program.search.iter().all(|directory| is_plain_absolute(directory))
        && is_plain_absolute(&program.cwd)
}

/// Each door once, few enough for one packet, and a job that waits until somebody serves them.
fn doors_are_sound(doors: &[Door], start: Start) -> bool {
    let taken = [PROXY.port(), BROKER.port(), GIT.port(), DNS.port(), 0];
    let free = |door: &Door| match door {
        Door::Front { port } => !taken.contains(port),
        Door::Proxy | Door::Dns | Door::Any | Door::Broker | Door::Git => true,
    };
    let once =
        doors.iter().enumerate().all(|(at, door)| !doors.iter().skip(at + 1).any(|other| other == door));
    let served = doors.is_empty() || start == Start::OnGo;
    doors.len() <= MOST_DOORS && once && served && doors.iter().all(free)
}

fn bounded(cap: TmpfsCap) -> bool {
    cap.bytes > 0 && cap.inodes > 0
}

fn entry_is_sound(entry: &RootEntry, console: Console) -> bool {
    let path = entry.path();
    let outside_reserved = match entry {
        // Its place on the job's own disk is made and looked at before it lands there.
        RootEntry::Mount { .. } if is_at_or_below(path, WORKSPACE) => true,
        RootEntry::Mount { .. }
        | RootEntry::Bind { .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Directory { .. }
        | RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Device { .. } => !RESERVED.iter().any(|reserved| is_at_or_below(path, reserved)),
    };
    let source_is_sound = match entry {
        RootEntry::Bind { source, .. } => is_plain_absolute(source) && source != "/",
        RootEntry::Throwaway { source, .. } => {
            source.as_deref().is_none_or(|source| is_plain_absolute(source) && source != "/")
        }
        RootEntry::Device { source, .. } => device_is_sound(source, console),
        RootEntry::Mount { source, .. } => is_plain_absolute(&source.path) && source.path != "/",
        RootEntry::Directory { .. } | RootEntry::Symlink { .. } | RootEntry::File { .. } => true,
    };
    is_plain_absolute(path) && path != "/" && outside_reserved && source_is_sound
}

fn device_is_sound(source: &str, console: Console) -> bool {
    let with_terminal = match console {
        Console::Pipes => false,
        Console::Terminal { .. } => source == OWN_TERMINAL,
    };
    with_terminal || DEVICES.contains(&source)
}

/// Absolute, without empty, `.` or `..` parts, and free of NUL.
fn is_plain_absolute(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    !path.contains('\0')
        && (rest.is_empty() || rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".."))
}

pub(crate) fn is_at_or_below(path: &str, reserved: &str) -> bool {
    path.strip_prefix(reserved).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn env_is_sound(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn is_hostname(name: &str) -> bool {
    (1..=63).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests;
