//! `pond host`: what root prepares on a machine so that ordinary users can run jobs with limits.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use pond_sandbox::native::cgroup;
use serde::Serialize;

use crate::output;

const ACCOUNTS: &str = "/etc/passwd";

#[derive(Debug, Subcommand)]
pub(crate) enum Host {
    /// Give a user control groups to limit jobs with, until the next boot (root only; hosts with v1 control groups).
    Delegate(Delegate),
}

#[derive(Debug, Args)]
pub(crate) struct Delegate {
    /// The user, by name or number.
    user: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: &Host) -> ExitCode {
    match command {
        Host::Delegate(args) => match delegate(&args.user) {
            Ok(given) if args.json => output::json(&given),
            Ok(given) => output::lines(&given.lines()),
            Err(fault) => output::failed(&fault, args.json),
        },
    }
}

/// What a user was given.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Given {
    uid: u32,
    groups: Vec<PathBuf>,
}

impl Given {
    fn lines(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(|group| group.display().to_string()).collect();
        format!(
            "user {} may now make control groups below\n  {}\nto undo it (a reboot does too): rmdir {}",
            self.uid,
            groups.join("\n  "),
            groups.join(" ")
        )
    }
}

fn delegate(user: &str) -> anyhow::Result<Given> {
    ensure!(rustix::process::geteuid().is_root(), "only root can hand out control groups; use sudo");
    let accounts = std::fs::read_to_string(ACCOUNTS).context(ACCOUNTS)?;
    let (uid, gid) = account(&accounts, user)?;
    ensure!(uid != 0, "root needs no delegated control group");
    Ok(Given { uid, groups: cgroup::delegate(uid, gid)? })
}

/// User and group id. A number needs no account (its owner may be known to another directory service only), and then stands
/// for the group too, which gets no rights from it.
fn account(accounts: &str, user: &str) -> anyhow::Result<(u32, u32)> {
    let number = user.parse::<u32>().ok();
    for line in accounts.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields.as_slice() else { continue };
        let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else { continue };
        if *name == user || number == Some(uid) {
            return Ok((uid, gid));
        }
    }
    match number {
        // The largest id means "leave it as it is" to the kernel.
        Some(u32::MAX) | None => bail!("{ACCOUNTS} has no user {user:?}; name an account or give a number"),
        Some(uid) => Ok((uid, uid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str =
        "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100:Ann:/home/ann:/bin/sh\nbroken\n7:x:70:70::/:/bin/sh\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        for (user, expected) in [
            ("ann", (1000, 100)),
            ("1000", (1000, 100)),
            ("0", (0, 0)),
            ("7", (70, 70)),
            ("4242", (4242, 4242)),
        ] {
            assert_eq!(account(SOME, user).unwrap(), expected, "{user}");
        }
    }

    #[test]
    fn who_is_not_there_gets_nothing() {
        for user in ["bob", "", "broken", "-1", "4294967295", "4294967296"] {
            let refusal = format!("/etc/passwd has no user {user:?}; name an account or give a number");
            assert_eq!(account(SOME, user).unwrap_err().to_string(), refusal);
        }
    }

    #[test]
    fn the_answer_says_how_to_undo_it() {
        let given = Given { uid: 5, groups: vec!["/a/pond-user-5".into(), "/b/pond-user-5".into()] };
        let expected = "user 5 may now make control groups below\n  /a/pond-user-5\n  /b/pond-user-5\n\
            to undo it (a reboot does too): rmdir /a/pond-user-5 /b/pond-user-5";
        assert_eq!(given.lines(), expected);
    }
}
