//! What every sandbox of a host begins with, whatever its job will be: the launcher makes it before there is one.
//!
//! Like a plan it is data without a secret, and it names nothing of any job. A plan that is carried out on a ground says all of it
//! again, so that a plan alone says what a job gets.

use serde::{Deserialize, Serialize};

use super::{Identity, JailPlan, RootEntry, TmpfsCap};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ground {
    /// Whose the checkout will be is a guess, and costs time when it is wrong.
    pub identity: Identity,
    pub hostname: String,
    /// The first entries of the root, parents before children.
    pub root: Vec<RootEntry>,
    pub shm: TmpfsCap,
}

impl Ground {
    /// Whether this plan can be carried out here: it asks for the same and then for more.
    pub fn carries(&self, plan: &JailPlan) -> bool {
        let same_ids = match (self.identity, plan.identity) {
            (Identity::Range { base, .. }, Identity::Range { base: planned, .. }) => base == planned,
            (Identity::Single { .. }, Identity::Single { .. }) => self.identity == plan.identity,
            (Identity::Range { .. }, Identity::Single { .. })
            | (Identity::Single { .. }, Identity::Range { .. }) => false,
        };
        let same = self.hostname == plan.hostname && self.shm == plan.shm;
        same_ids && same && plan.root.starts_with(&self.root)
    }
}

#[cfg(test)]
mod tests {
    //! A plan stands on a ground only if it says the same first.
    use super::*;
    use crate::jail::{CheckoutView, Console, Duty, Program, Rlimits, Scratch, Start};

    const CAP: TmpfsCap = TmpfsCap { bytes: 1, inodes: 1 };

    fn entries(paths: &[&str]) -> Vec<RootEntry> {
        paths.iter().map(|path| RootEntry::Directory { path: (*path).to_owned() }).collect()
    }

    fn plan(ground: &Ground) -> JailPlan {
        let program = Program {
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            search: Vec::new(),
            cwd: "/".to_owned(),
        };
        let rlimits = Rlimits {
            open_files: 1,
            processes: 1,
            stack_bytes: 1,
            file_bytes: 1,
            locked_bytes: 1,
            queue_bytes: 1,
            pending_signals: 1,
        };
        JailPlan {
            identity: ground.identity,
            hostname: ground.hostname.clone(),
            root: [ground.root.clone(), entries(&["/opt"])].concat(),
            checkout: CheckoutView::Empty,
            replaced: Vec::new(),
            home: Vec::new(),
            scratch: Scratch::Tmpfs(CAP),
            tmp: CAP,
            shm: ground.shm,
            rlimits,
            program,
            console: Console::Pipes,
            duty: Duty::Once,
            doors: Vec::new(),
            start: Start::AtOnce,
        }
    }

    #[test]
    fn a_ground_carries_what_begins_with_it_and_nothing_else() {
        let identity = Identity::Range { base: 65_536, owner_uid: 0, owner_gid: 0 };
        let root = entries(&["/etc", "/usr"]);
        let ground = Ground { identity, hostname: "pond".to_owned(), root, shm: CAP };
        let same = plan(&ground);
        assert!(ground.carries(&same));
        let owner = Identity::Range { base: 65_536, owner_uid: 7, owner_gid: 7 };
        assert!(ground.carries(&JailPlan { identity: owner, ..same.clone() }), "a guess may be wrong");
        let other_ids = Identity::Range { base: 131_072, owner_uid: 0, owner_gid: 0 };
        let nobody = Identity::Single { uid: 0, gid: 0 };
        let others = [
            JailPlan { identity: other_ids, ..same.clone() },
            JailPlan { identity: nobody, ..same.clone() },
            JailPlan { hostname: "other".to_owned(), ..same.clone() },
            JailPlan { shm: TmpfsCap { bytes: 2, inodes: 1 }, ..same.clone() },
            JailPlan { root: entries(&["/etc"]), ..same.clone() },
            JailPlan { root: entries(&["/usr", "/etc", "/opt"]), ..same },
        ];
        for plan in others {
            assert!(!ground.carries(&plan), "{plan:?}");
        }
    }
}
