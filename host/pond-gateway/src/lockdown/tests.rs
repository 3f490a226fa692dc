//! The lock seen to bite: this test binary again, locked down, trying one thing; and the same thing without the lock. What
//! the kernel says about a serving gateway is looked at from outside, in the doors' tests.

#![expect(
    clippy::disallowed_methods,
    reason = "the probes do what the lock forbids, in a process of their own"
)]

use std::process::{Command, Stdio};

use super::*;

const PROBE: &str = "POND_TEST_PROBE";
const FREE: &str = "POND_TEST_FREE";
const IDENTITY: Identity = Identity { uid: 54321, gid: 54321 };
/// What a probe exits with: the forbidden thing worked, or was refused.
const WORKED: u8 = 40;
const REFUSED: u8 = 41;
/// Before what is tried on the second thread.
const SECOND: &str = "second ";
const SIGSYS: i32 = 31;

/// Not a test: what the child below runs.
#[test]
fn probe() {
    let Ok(what) = std::env::var(PROBE) else { return };
    // The filter would refuse a file before Landlock is asked, so Landlock is also seen without it.
    let second = match (std::env::var_os(FREE), what.as_str()) {
        (None, "landlock") => give_up(Some(IDENTITY)).map(|()| None),
        (None, _) => lock_down(Some(IDENTITY)).map(Some),
        (Some(_), _) => second::start().map(Some).map_err(LockdownFault::SecondThread),
    };
    let Ok(second) = second else { std::process::exit(1) };
    let end = |worked| pond_sys::process::exit_now(if worked { WORKED } else { REFUSED });
    match (what.strip_prefix(SECOND), second) {
        (Some(what), Some(second)) => {
            let what = what.to_owned();
            second.spawn(async move { end(attempt(&what)) });
            loop {
                std::thread::park();
            }
        }
        _ => end(attempt(&what)),
    }
}

fn attempt(what: &str) -> bool {
    match what {
        "file" | "landlock" => std::fs::File::open("/etc/passwd").is_ok(),
        "program" => Command::new("/bin/true").status().is_ok(),
        "unix" => std::os::unix::net::UnixDatagram::unbound().is_ok(),
        "raw" => rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::RAW,
            Some(rustix::net::ipproto::ICMP),
        )
        .is_ok(),
        "inet" => std::net::UdpSocket::bind("127.0.0.1:0").is_ok(),
        "port" => std::net::UdpSocket::bind("127.0.0.1:81").is_ok(),
        "listen" => std::net::TcpListener::bind("127.0.0.1:0").is_ok(),
        "kill" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT).is_ok()
        }
        "thread" => std::thread::Builder::new().spawn(|| ()).is_ok(),
        other => panic!("{other}"),
    }
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
    match (status.code().map(|code| u8::try_from(code).unwrap()), status.signal()) {
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
        ("landlock", Ending::Refused),
        ("program", Ending::Killed),
        ("unix", Ending::Refused),
        ("raw", Ending::Refused),
        ("inet", Ending::Worked),
        ("port", Ending::Refused),
        ("listen", Ending::Killed),
        ("kill", Ending::Killed),
        ("thread", Ending::Killed),
        ("second file", Ending::Refused),
        ("second program", Ending::Killed),
        ("second unix", Ending::Refused),
        ("second inet", Ending::Worked),
        ("second port", Ending::Refused),
        ("second kill", Ending::Killed),
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
