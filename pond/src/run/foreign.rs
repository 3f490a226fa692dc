//! What of a checkout an ordinary user's job cannot change. The kernel maps one user and one group into a namespace that an
//! ordinary user makes, and an overlay copies nothing up whose owner or group has no number there.
//!
//! Looking at a whole tree would cost a start what the tree is large, so only its top is looked at: the directory itself before
//! the job starts, and a bounded part of what lies in it once a job has failed.

use std::ffi::CStr;
use std::os::fd::AsFd;

use pond_policy::backend::Backend;
use pond_policy::profile::Filesystem;
use pond_sandbox::checkout::Checkout;
use pond_worker::path::quoted;
use rustix::fs::{AtFlags, Dir, statat};
use rustix::process::{getegid, geteuid};

use super::finding::{Finding, Kind};
use super::request::{Request, View};
use super::verdict::Verdict;

/// So many names of the checkout are looked at after a job that failed.
const MOST_NAMES: usize = 256;

/// The numbers that mean something in an ordinary user's sandbox.
#[derive(Debug, Clone, Copy)]
struct Own {
    user: u32,
    group: u32,
}

impl Own {
    /// Of the caller; nothing where every owner is known inside, or where the job changes nothing of the checkout's.
    fn of(request: &Request<'_>) -> Option<Self> {
        let changes = match request.policy.posture().filesystem {
            Filesystem::ThrowawayCopy => true,
            Filesystem::Host | Filesystem::ReadOnlyCheckout | Filesystem::DeclaredOnly => false,
        };
        let overlaid = match (request.backend, request.view) {
            (Backend::Native, View::Live) => true,
            (Backend::Native, View::Snapshot)
            | (Backend::Docker | Backend::Gvisor | Backend::Firecracker, View::Live | View::Snapshot) => {
                false
            }
        };
        let user = geteuid();
        let applies = changes && overlaid && !user.is_root();
        applies.then(|| Self { user: user.as_raw(), group: getegid().as_raw() })
    }

    /// Whose it is, where that is somebody else.
    fn other(self, user: u32, group: u32) -> Option<String> {
        if user != self.user {
            Some(format!("user {user}"))
        } else if group != self.group {
            Some(format!("group {group}"))
        } else {
            None
        }
    }
}

/// For a person, before the job starts.
pub(super) fn warning(request: &Request<'_>, checkout: &Checkout) -> Option<String> {
    let whose = Own::of(request)?.other(checkout.owner_uid, checkout.owner_gid)?;
    let place = quoted("", checkout.named.path.as_bytes());
    Some(format!(
        "{place} belongs to {whose}, whom an ordinary user's sandbox does not know; files and directories below it that belong to \
         the same cannot be changed in the copy: --snapshot makes one in which they can"
    ))
}

/// After a job that failed, which may have had another reason to.
pub(super) fn finding(request: &Request<'_>, checkout: &Checkout, verdict: &Verdict) -> Option<Finding> {
    let own = verdict.is_failure_of_its_own().then(|| Own::of(request))??;
    let (name, whose) = first_foreign(own, checkout)?;
    Some(Finding {
        kind: Kind::Disk,
        code: "foreign_owner".to_owned(),
        what: format!("{name} belongs to {whose}, so the job could not change it"),
        count: 1,
        rule: "an ordinary user's sandbox knows that user and the first of their groups, and no other"
            .to_owned(),
        advice: "run it with --snapshot, or give what it is to change to your own group (chgrp)".to_owned(),
    })
}

/// What cannot be looked at is nothing that could be named.
fn first_foreign(own: Own, checkout: &Checkout) -> Option<(String, String)> {
    let directory = checkout.as_fd();
    let names = Dir::read_from(directory).ok()?.take(MOST_NAMES).filter_map(Result::ok);
    names.map(|entry| entry.file_name().to_owned()).find_map(|name| {
        let name: &CStr = &name;
        // What lies above is none of the job's.
        if name == c".." {
            return None;
        }
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let whose = own.other(stat.st_uid, stat.st_gid)?;
        Some((quoted("", name.to_bytes()), whose))
    })
}

#[cfg(test)]
mod tests {
    //! Whose it is decides, the user before the group.
    use super::*;

    #[test]
    fn only_what_is_wholly_the_callers_own_is_known_inside() {
        let own = Own { user: 1000, group: 100 };
        let told = [(1000, 100), (1000, 101), (0, 100), (0, 0)].map(|(user, group)| own.other(user, group));
        assert_eq!(
            told.each_ref().map(Option::as_deref),
            [None, Some("group 101"), Some("user 0"), Some("user 0")]
        );
    }
}
