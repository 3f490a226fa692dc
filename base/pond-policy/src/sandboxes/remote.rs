//! What somebody far away may ask for: a sandbox, and of the host's files only what its operator shares, by exactly that name.
//!
//! Who sits at the machine is the owner of what he mounts. Who asks through an API is not: without this rule a token would be worth
//! every file of the host. A path below a share is not the share: whoever may write there could put a link in the way.

use super::Spec;
use crate::path::Path;
use crate::refusal::{Code, Refusal, Refusals};

/// A file or directory of the host that those who ask through an API may mount, copy or work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub path: String,
    pub writable: bool,
}

/// Everything of a document that is not for who asks from outside.
pub fn check_remote(spec: &Spec, shares: &[Share]) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    let root = Path::root();
    let mut hold = |source: &str, writable: bool, path: &Path| {
        let known = shares.iter().any(|share| share.path == source && (share.writable || !writable));
        if !known {
            refusals.add(refusal(path, shares, writable));
        }
    };
    for (index, mount) in spec.mounts.iter().enumerate() {
        hold(&mount.source, mount.writable, &root.field("mounts").index(index).field("source"));
    }
    for (index, copy) in spec.copies.iter().enumerate() {
        hold(&copy.source, false, &root.field("copies").index(index).field("source"));
    }
    if let Some(workspace) = &spec.workspace {
        hold(workspace, false, &root.field("workspace"));
    }
    if spec.model.is_some() {
        let message =
            "a model of the operator's is not lent through the API: its cost would be nobody's; remove it";
        refusals.refuse(Code::NotOverApi, &root.field("model"), message);
    }
    if !spec.credentials.is_empty() {
        let message = "a credential of the operator's is not lent through the API; remove it";
        refusals.refuse(Code::NotOverApi, &root.field("credentials"), message);
    }
    refusals.finish(Some(()))
}

fn refusal(path: &Path, shares: &[Share], writable: bool) -> Refusal {
    let fitting = shares.iter().filter(|share| share.writable || !writable);
    let names: Vec<&str> = fitting.map(|share| share.path.as_str()).collect();
    let message = "through the API only what the operator shares enters a sandbox (`pond up --share`): name one of those, as it is";
    Refusal::new(Code::NotOverApi, path, message).allowing(&names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::faults;

    fn check(document: crate::node::Node) -> Vec<String> {
        let spec = super::super::read(&document, &Settings::default()).unwrap();
        let share = |path: &str, writable| Share { path: path.to_owned(), writable };
        let shares = [share("/srv/in", false), share("/srv/out", true)];
        check_remote(&spec, &shares).err().map(|refusals| faults(&refusals)).unwrap_or_default()
    }

    #[test]
    fn of_the_host_enters_what_is_shared_by_its_own_name() {
        let mounting = |source: &str, writable: bool| {
            check(node!({"sandbox": {"profile": "box"},
                         "mounts": [{"source": (source), "target": "/data", "writable": (writable)}]}))
        };
        assert_eq!(mounting("/srv/in", false), [""; 0]);
        assert_eq!(mounting("/srv/out", true), [""; 0]);
        for (source, writable) in [
            ("/srv/in", true),
            ("/srv", false),
            ("/srv/in/link", false),
            ("/srv/inner", false),
            ("/etc/shadow", false),
            ("/root", true),
        ] {
            assert_eq!(mounting(source, writable), ["not_over_api mounts[0].source"], "{source}");
        }
        let copying =
            node!({"sandbox": {"profile": "box"}, "copies": [{"source": "/root/.ssh", "target": "/data"}]});
        assert_eq!(check(copying), ["not_over_api copies[0].source"]);
        let working = node!({"sandbox": {"profile": "harness"}, "workspace": "/root", "model": "m"});
        assert_eq!(check(working), ["not_over_api model", "not_over_api workspace"]);
    }
}
