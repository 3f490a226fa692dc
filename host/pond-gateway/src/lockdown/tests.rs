//! Each layer seen to bite: this test binary again, locked down, trying one thing; and the same thing without the lock.

use std::process::{Command, Stdio};

use super::*;

const PROBE: &str = "POND_TEST_PROBE";
const FREE: &str = "POND_TEST_FREE";
const IDENTITY: Identity = Identity { uid: 54321, gid: 54321 };
/// What a probe exits with: the forbidden thing worked, or was refused.
const WORKED: i32 = 40;
const REFUSED: i32 = 41;
const SIGSYS: i32 = 31;

/// Not a test: what the child below runs.
#[test]
fn probe() {
    let Ok(what) = std::env::var(PROBE) else { return };
    if std::env::var_os(FREE).is_none() && lock_down(Some(IDENTITY)).is_err() {
        std::process::exit(1);
    }
    let worked = match what.as_str() {
        "file" => std::fs::File::open("/etc/passwd").is_ok(),
        "program" => Command::new("/bin/true").stdin(Stdio::null()).status().is_ok(),
        "unix" => std::os::unix::net::UnixDatagram::unbound().is_ok(),
        "raw" => {
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::RAW, None).is_ok()
        }
        "inet" => std::net::UdpSocket::bind("127.0.0.1:0").is_ok(),
        "root" => rustix::process::geteuid().is_root(),
        "port" => std::net::TcpListener::bind("127.0.0.1:81").is_ok(),
        "kill" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT).is_ok()
        }
        other => panic!("{other}"),
    };
    pond_sys::process::exit_now(u8::try_from(if worked { WORKED } else { REFUSED }).unwrap());
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Worked,
    Refused,
    Killed,
}

fn run(what: &str, locked: bool) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["lockdown::tests::probe", "--exact", "--test-threads=1"]).env(PROBE, what);
    if !locked {
        child.env(FREE, "1");
    }
    let status = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    match (status.code(), status.signal()) {
        (Some(WORKED), _) => Ending::Worked,
        (Some(REFUSED), _) => Ending::Refused,
        (_, Some(SIGSYS)) => Ending::Killed,
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn locked_down_nothing_but_sockets_works() {
    let table = [
        ("file", Ending::Refused),
        ("program", Ending::Killed),
        ("unix", Ending::Refused),
        ("raw", Ending::Refused),
        ("inet", Ending::Worked),
        ("root", Ending::Refused),
        ("port", Ending::Killed),
        ("kill", Ending::Killed),
    ];
    for (what, ending) in table {
        assert_eq!(run(what, true), ending, "{what}");
        assert_eq!(run(what, false), Ending::Worked, "{what} without the lock");
    }
}

#[test]
fn root_without_an_identity_does_not_serve() {
    let nobody = Identity { uid: 0, gid: 0 };
    assert!(matches!(drop_identity(None), Err(LockdownFault::NoIdentity)));
    assert!(matches!(drop_identity(Some(nobody)), Err(LockdownFault::NoIdentity)));
}
