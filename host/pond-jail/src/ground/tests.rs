//! A ground is namespaces without a job: used once or not at all, and nothing of it stays.

use std::fs;
use std::path::PathBuf;

use pond_wire::jail::TmpfsCap;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::*;

fn ground(root: Vec<RootEntry>) -> Ground {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let identity = if uid.is_root() {
        Identity::Range { base: 0x6fff_0000, owner_uid: 0, owner_gid: 0 }
    } else {
        Identity::Single { uid: uid.as_raw(), gid: gid.as_raw() }
    };
    Ground { identity, hostname: "ground".to_owned(), root, shm: TmpfsCap { bytes: 4096, inodes: 16 } }
}

fn entries() -> Vec<RootEntry> {
    let null = "/dev/null".to_owned();
    vec![
        RootEntry::File { path: "/mark".to_owned(), content: "here".to_owned() },
        RootEntry::Device { path: null.clone(), source: null },
    ]
}

fn laid(ground: &Ground) -> Laid {
    let file = memfd_create("ground", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let text = serde_json::to_vec(ground).unwrap();
    assert_eq!(rustix::io::write(&file, &text).unwrap(), text.len());
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).unwrap();
    Laid::lay(None, Lay { ground: file, disk: None })
}

fn namespace(process: i32, name: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap()
}

#[test]
fn a_child_stands_on_the_ground_and_ends_with_its_socket() {
    let (Stand { ahead, .. }, disk) = laid(&ground(entries())).take().unwrap();
    assert!(disk.is_none());
    let bearer = ahead.process().unwrap().pid.as_raw_pid();
    let (ours, theirs) = pond_sys::socket::pair().unwrap();
    let child = ahead.bear(theirs, None).unwrap().arrive().unwrap();
    let number = child.pid.as_raw_pid();
    assert_ne!(number, bearer);
    for name in ["user", "mnt", "pid", "net", "ipc", "uts"] {
        assert_ne!(
            namespace(number, name),
            fs::read_link(format!("/proc/self/ns/{name}")).unwrap(),
            "{name}"
        );
    }
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    // Nothing of a job is there yet, and it hangs where nobody but the child sees it.
    let table = fs::read_to_string(format!("/proc/{number}/mountinfo")).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains(" /proc/dev/null ")).count(), 1, "{table}");
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" /proc/dev/null "));
    assert!(!table.contains(" /proc/workspace "), "{table}");
    drop(ours);
    waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
}

#[test]
fn a_ground_that_nobody_uses_is_gone_with_its_owner() {
    let laid = laid(&ground(entries()));
    let number = laid.stand.as_ref().unwrap().ahead.process().unwrap().pid.as_raw_pid();
    assert!(fs::exists(format!("/proc/{number}")).unwrap());
    drop(laid);
    assert!(!fs::exists(format!("/proc/{number}")).unwrap());
}

#[test]
fn a_ground_that_cannot_be_laid_is_told_when_somebody_asks() {
    let missing = RootEntry::Bind {
        path: "/there".to_owned(),
        source: "/no/such/file".to_owned(),
        kind: pond_wire::jail::BindKind::File,
    };
    let outcome = laid(&ground(vec![missing])).take().and_then(|(stand, _)| {
        let (_ours, theirs) = pond_sys::socket::pair().unwrap();
        stand.ahead.bear(theirs, None)?.arrive()
    });
    let failure = outcome.err().unwrap();
    assert_eq!((failure.step, failure.errno), (Step::OpenRoot, Errno::NOENT));
}

#[test]
fn a_ground_that_is_no_file_of_ours_is_refused() {
    let file = memfd_create("ground", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let text = serde_json::to_vec(&ground(entries())).unwrap();
    assert_eq!(rustix::io::write(&file, &text).unwrap(), text.len());
    let failure = Laid::lay(None, Lay { ground: file, disk: None }).take().err().unwrap();
    assert_eq!((failure.step, failure.errno), (Step::ReadPlan, Errno::INVAL));
}
