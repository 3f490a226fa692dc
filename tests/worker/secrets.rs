//! A credential on its way to a job: sealed to this worker, handed over a socket, and nowhere else.

use std::path::Path;

use pond_control::store::Stream;
use pond_policy::stage::State;

use crate::control::Control;
use crate::ends::LEASE;
use crate::host::{Host, processes};

const SECRET: &str = "s3cr3t-471301-never-seen";

/// Larger is the disk of a job, which holds what the job itself writes.
const LARGE: u64 = 16 << 20;

fn with_file(line: &str) -> String {
    let line = serde_json::to_string(line).unwrap();
    format!(
        r#"{{"kind":"swarm","command":["sh","-c",{line}],"harness_files":{{"token":"{{{{SECRET:TOKEN}}}}"}},"sandbox":{{"profile":"untrusted-code-write","backend":"native"}}}}"#
    )
}

/// Everything below a directory that holds the secret.
fn files_with_secret(at: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(listed) = std::fs::read_dir(at) else { return found };
    for entry in listed.flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with_secret(&entry.path()));
        } else if kind.is_file() && entry.metadata().is_ok_and(|file| file.len() < LARGE) {
            let content = std::fs::read(entry.path()).unwrap_or_default();
            if content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_secret_reaches_the_file_that_names_it_and_nothing_of_the_host() {
    let control = Control::start(LEASE);
    control.credential("TOKEN", SECRET);
    let host = Host::working(&control);
    let run = control.submit(&with_file("wc -c < $HOME/token; sleep 8; sha256sum < $HOME/token"), None);
    let stage = control.wait_for(&run, &[State::Running, State::Failed], &|| host.log());
    host.wait("output", || !control.stream(&stage, Stream::Stdout).is_empty());
    let jobs = processes("job");
    assert!(!jobs.is_empty(), "{}", host.log());
    for pid in jobs {
        for name in ["cmdline", "environ"] {
            let shown = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&shown).contains(SECRET), "{name}");
        }
    }
    assert_eq!(files_with_secret(&host.state()), Vec::<String>::new(), "while it runs");
    let stage = control.wait_for(&run, &[State::Succeeded, State::Failed], &|| host.log());
    let said = String::from_utf8(control.stream(&stage, Stream::Stdout)).unwrap();
    let digest = pond_seal::Digest::of(SECRET.as_bytes());
    assert_eq!(said, format!("{}\n{digest}  -\n", SECRET.len()), "{stage:?} {}", host.log());
    assert_eq!(files_with_secret(&host.state()), Vec::<String>::new(), "afterwards");
}

#[test]
fn a_secret_that_is_not_released_keeps_the_job_from_running() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    control.submit(&with_file("echo ran"), None);
    host.wait_for_line("credential TOKEN was not released");
    assert_eq!(host.commands(), 0, "{}", host.log());
}
