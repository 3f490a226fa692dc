//! The signing key of this machine: one file in the state directory, made at its first use.
//!
//! It appears whole or not at all and never replaces another. A key that somebody else owns, or that others may read or
//! write, is refused: whoever could copy it could sign in this machine's name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pond_sandbox::state::StateDir;
use pond_seal::key::SigningKey;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::regular;

const OPEN_TO_OTHERS: u32 = 0o077;
const MOST_BYTES: usize = 1024;
const WHAT: &str = "the signing key";

/// The key, made now if there is none.
pub(crate) fn signing_key(state: &StateDir) -> anyhow::Result<SigningKey> {
    signing_key_at(&state.signing_key())
}

pub(crate) fn signing_key_at(path: &Path) -> anyhow::Result<SigningKey> {
    if let Some(key) = read(path)? {
        return Ok(key);
    }
    let key = SigningKey::generate().with_context(|| format!("making {WHAT} {}", path.display()))?;
    make_text(path, WHAT, &key.to_pem())?;
    // Somebody else may have been first; theirs is the key then.
    read(path)?.with_context(|| format!("{WHAT} {} vanished", path.display()))
}

/// The key, if there is one.
pub(crate) fn existing(state: &StateDir) -> anyhow::Result<Option<SigningKey>> {
    read(&state.signing_key())
}

/// The key this machine joined a control plane with.
pub(crate) fn worker_key(path: &Path) -> anyhow::Result<SigningKey> {
    read(path)?.with_context(|| format!("there is no worker's key {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<Option<SigningKey>> {
    let Some(text) = private(WHAT, path, MOST_BYTES)? else { return Ok(None) };
    SigningKey::from_pem(&text).with_context(|| format!("{WHAT} {}", path.display())).map(Some)
}

/// The text of a file that is its owner's alone, if there is one.
pub(crate) fn private(what: &str, path: &Path, most: usize) -> anyhow::Result<Option<Zeroizing<String>>> {
    let name = || format!("{what} {}", path.display());
    let file = match regular(path) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(name)?,
    };
    let metadata = file.metadata().with_context(name)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to somebody else", name());
    }
    if metadata.mode() & OPEN_TO_OTHERS != 0 {
        bail!("{} is open to others (mode {:o}); `chmod 600` it", name(), metadata.mode() & 0o7777);
    }
    // As large as it may be, at once: growing would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(most));
    file.take(u64::try_from(most)?).read_to_string(&mut text).with_context(name)?;
    Ok(Some(text))
}

/// A file without a name until it is whole: a pond killed on the way leaves nothing.
pub(crate) fn make_text(path: &Path, what: &str, text: &str) -> anyhow::Result<()> {
    let making = || format!("making {what} {}", path.display());
    let directory = path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let unnamed = open(&directory, flags, Mode::RUSR | Mode::WUSR).with_context(making)?;
    let mut file = File::from(unnamed);
    file.write_all(text.as_bytes()).with_context(making)?;
    file.sync_all().with_context(making)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno).with_context(making),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn state() -> (tempfile::TempDir, StateDir) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        (directory, state)
    }

    #[test]
    fn the_key_is_made_once_and_private() {
        let (_directory, state) = state();
        assert!(existing(&state).unwrap().is_none());
        let ids: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| signing_key(&state).unwrap().public().id())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        let id = existing(&state).unwrap().unwrap().public().id();
        assert_eq!(ids, [id; 4]);
        assert_eq!(std::fs::metadata(state.signing_key()).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_key_that_others_can_reach_is_refused() {
        let (_directory, state) = state();
        let path = state.signing_key();
        signing_key(&state).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let fault = signing_key(&state).unwrap_err().to_string();
            assert!(fault.contains("is open to others"), "{mode:o}: {fault}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            let fault = signing_key(&state).unwrap_err().to_string();
            assert!(fault.contains("belongs to somebody else"), "{fault}");
        }
    }

    #[test]
    fn what_is_no_key_is_neither_used_nor_replaced() {
        let (directory, state) = state();
        let path = state.signing_key();
        std::fs::write(&path, "no key\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let fault = format!("{:#}", signing_key(&state).unwrap_err());
        assert!(fault.contains("not an Ed25519 private key"), "{fault}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "no key\n");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(signing_key(&state).is_err_and(|fault| fault.to_string().contains("the signing key")));
        assert!(!directory.path().join("elsewhere").exists());
    }
}
