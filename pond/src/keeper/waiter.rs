//! `pond waiter`: deletes stopped sandboxes when their time is up, with nobody looking. One process for all of a state directory,
//! started by whoever leaves a stopped one behind, and gone when there is none left to wait for.
//!
//! Zone: host. While it waits it holds no sandbox's lock and nothing of any of them. It decides nothing: it looks, as every command
//! does (`converge.rs`). Killed, or gone with the host, it is replaced at the next look.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use pond_policy::settings::Settings;
use pond_sandbox::state::StateDir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock, inotify};
use rustix::io::Errno;

use super::converge::{self, Seen};
use super::journal;
use crate::output::REFUSED;
use crate::run::OWN_EXECUTABLE;
use crate::{runs, settings};

/// The word that chooses this role.
pub(crate) const NAME: &str = "waiter";
/// A clock that was set, a host that slept and a keeper that was killed are noticed no later than this.
const LONGEST: Duration = Duration::from_secs(600);
/// Somebody has the sandbox in hand whose time is up; he is asked no more often than this.
const SHORTEST: Duration = Duration::from_millis(50);

/// Sees to it that somebody waits for what is stopped by now, and whose lock nobody holds any more.
pub(crate) fn ensure(state: &StateDir) -> anyhow::Result<()> {
    let (mark, is_ours) = take(state)?;
    if is_ours {
        // For the one that is started.
        drop(mark);
        start()
    } else {
        Ok(tell(&mark)?)
    }
}

/// The same after a look, if it showed anything to wait for. What fails is tried again at the next look.
pub(crate) fn ensure_for<'a>(state: &StateDir, seen: impl IntoIterator<Item = &'a Seen>) {
    if seen.into_iter().any(|seen| seen.left.is_some())
        && let Err(_until_the_next_look) = ensure(state)
    {}
}

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody_listens) => ExitCode::from(REFUSED),
    }
}

fn run() -> anyhow::Result<()> {
    if let Err(_leads_one_already) = rustix::process::setsid() {}
    let state = runs::state()?;
    let settings = settings::sandbox().unwrap_or_default();
    loop {
        let (mark, is_ours) = take(&state)?;
        if !is_ours {
            return Ok(tell(&mark)?);
        }
        while wait(&state, &settings, &mark)? {}
        drop(mark);
        // Whoever found the mark taken had written before that what is to be waited for.
        if waiting(&state, &settings)?.is_empty() {
            return Ok(());
        }
    }
}

/// Until something is due or has changed; false when there is nothing to wait for.
fn wait(state: &StateDir, settings: &Settings, mark: &File) -> anyhow::Result<bool> {
    use inotify::{CreateFlags, WatchFlags};
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // Its removal is one of its attributes, too.
    match inotify::add_watch(&changes, state.waiter(), WatchFlags::MODIFY | WatchFlags::ATTRIB) {
        Err(Errno::NOENT) => return Ok(false),
        watched => drop(watched?),
    }
    let waiting = waiting(state, settings)?;
    let Some(least) = waiting.iter().filter_map(|seen| seen.left).min() else { return Ok(false) };
    for seen in &waiting {
        // Resumed or removed by somebody: no longer to be waited for. One that went meanwhile is missed no longer than `LONGEST`.
        let events = seen.place.directory().join(journal::NAME);
        if let Err(_gone) = inotify::add_watch(&changes, events, WatchFlags::MODIFY) {}
    }
    drop(waiting);
    let pause = Timespec::try_from(least.clamp(SHORTEST, LONGEST) + Duration::from_millis(1))?;
    match poll(&mut [PollFd::new(&changes, PollFlags::IN)], Some(&pause)) {
        Ok(_) | Err(Errno::INTR) => Ok(mark.metadata()?.nlink() > 0),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks at all of them, and says which wait to be deleted. One that cannot be read keeps no other from going.
fn waiting(state: &StateDir, settings: &Settings) -> anyhow::Result<Vec<Seen>> {
    Ok(converge::all(state, settings)?.into_iter().filter(|seen| seen.left.is_some()).collect())
}

/// The mark of the one that waits, and whether it is ours now.
fn take(state: &StateDir) -> io::Result<(File, bool)> {
    let mark = File::options().write(true).create(true).truncate(false).mode(0o600).open(state.waiter())?;
    match flock(&mark, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((mark, true)),
        Err(Errno::WOULDBLOCK) => Ok((mark, false)),
        Err(errno) => Err(errno.into()),
    }
}

/// Has the one that waits look again.
fn tell(mut mark: &File) -> io::Result<()> {
    mark.write_all(b"\n")
}

/// In a session of its own and at no place: whoever leaves may unmount what he stood on.
#[expect(clippy::disallowed_methods, reason = "it outlives whoever left something to wait for")]
fn start() -> anyhow::Result<()> {
    let state = std::fs::canonicalize(settings::state_dir()?)?;
    Command::new(OWN_EXECUTABLE)
        .arg0("pond")
        .arg(NAME)
        .env("POND_STATE_DIR", state)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(())
}
