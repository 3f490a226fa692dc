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
    with(ground, Child::Later)
}

fn with(ground: &Ground, child: Child) -> Laid {
    let file = memfd_create("ground", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let text = pond_wire::jail::encode(ground).unwrap();
    assert_eq!(rustix::io::write(&file, &text).unwrap(), text.len());
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).unwrap();
    Laid::lay(None, Lay { ground: file, child, disk: None })
}

/// The child of a ground, once it is there, and our end of its socket.
fn settled(laid: Laid) -> Result<(pond_sys::process::Child, OwnedFd), Failure> {
    let (Settled { born, .. }, disk) = laid.take(None)?;
    assert!(disk.is_none());
    Ok((born.child.arrive()?, born.to_it))
}

fn await_end(child: &pond_sys::process::Child) {
    waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
}

fn namespace(process: i32, name: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap()
}

#[test]
fn a_child_stands_on_the_ground_and_ends_with_its_socket() {
    let laid = laid(&ground(entries()));
    let bearer = bearer(&laid);
    let (child, ours) = settled(laid).unwrap();
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
    await_end(&child);
}

fn bearer(laid: &Laid) -> i32 {
    match laid.place.as_ref() {
        Ok(Place::Bearer(stand)) => stand.ahead.process().unwrap().pid.as_raw_pid(),
        Ok(Place::Settled(_)) | Err(_) => panic!("nobody is to bear anything"),
    }
}

#[test]
fn a_child_that_waits_for_its_job_is_the_one_that_gets_it() {
    let laid = with(&ground(entries()), Child::AtOnce(None));
    assert!(laid.has_child());
    // By now it may not be there yet, and is expected all the same.
    let (child, ours) = settled(laid).unwrap();
    let number = child.pid.as_raw_pid();
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    drop(ours);
    await_end(&child);
}

/// Nobody may have looked at it for weeks.
#[test]
fn a_child_that_did_not_last_is_made_again() {
    let mut laid = with(&ground(entries()), Child::AtOnce(None));
    let Ok(Place::Settled(Settled { born, footing })) = laid.place else { panic!("no child") };
    let Born { child, to_it } = born;
    let first = child.arrive().unwrap();
    rustix::process::pidfd_send_signal(&first.pidfd, rustix::process::Signal::KILL).unwrap();
    await_end(&first);
    // As it is for a launcher that has not looked.
    laid.place = Ok(Place::Settled(Settled { born: Born { child: gone(), to_it }, footing }));
    let (second, ours) = settled(laid).unwrap();
    assert_ne!(second.pid, first.pid);
    let is_there = |number: i32| fs::exists(format!("/proc/{number}")).unwrap();
    assert!(is_there(second.pid.as_raw_pid()));
    drop(ours);
    await_end(&second);
}

/// Of a process that ended long ago.
fn gone() -> crate::ahead::Expected {
    let (_ours, theirs) = pond_sys::socket::pair().unwrap();
    Ahead::make().unwrap().bear(theirs, None).unwrap()
}

#[test]
fn a_child_in_a_group_of_its_own_is_nobody_s_in_another() {
    let laid = with(&ground(entries()), Child::AtOnce(None));
    let Ok(Place::Settled(settled)) = &laid.place else { panic!("no child") };
    assert!(settled.born.is_there());
    let no_group = OwnedFd::from(fs::File::open("/").unwrap());
    let (Settled { born, .. }, _) = laid.take(Some(&no_group)).unwrap();
    let failure = born.child.arrive().err().unwrap();
    assert_eq!((failure.step, failure.errno), (Step::CreateNamespaces, Errno::BADF));
}

#[test]
fn a_ground_that_nobody_uses_is_gone_with_its_owner() {
    let laid = laid(&ground(entries()));
    let number = bearer(&laid);
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
    for child in [Child::Later, Child::AtOnce(None)] {
        let failure = settled(with(&ground(vec![missing.clone()]), child)).err().unwrap();
        assert_eq!((failure.step, failure.errno), (Step::OpenRoot, Errno::NOENT));
    }
}

#[test]
fn a_ground_that_is_no_file_of_ours_is_refused() {
    let file = memfd_create("ground", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let text = pond_wire::jail::encode(&ground(entries())).unwrap();
    assert_eq!(rustix::io::write(&file, &text).unwrap(), text.len());
    let failure =
        settled(Laid::lay(None, Lay { ground: file, child: Child::Later, disk: None })).err().unwrap();
    assert_eq!((failure.step, failure.errno), (Step::ReadPlan, Errno::INVAL));
}
