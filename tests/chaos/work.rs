//! What is submitted, and what comes out of it if it succeeds.

use serde_json::{Value, json};

use crate::lossy::PLANTED;
use crate::plan::Work;

pub(crate) const SOURCE: &str = "what the source says\n";
const LOUD: usize = 200_000;

/// The project's document.
pub(crate) fn document(work: Work) -> Value {
    let shell = |name: &str, line: &str, profile: &str| {
        json!({"name": name, "executor": {
            "kind": "swarm", "command": ["sh", "-c", line], "timeout": "20s",
            "sandbox": {"profile": profile, "backend": "native"},
        }})
    };
    let plain = |line: &str| shell("one", line, "untrusted-code-write");
    let stages = match work {
        Work::Quick => vec![plain("echo quick")],
        Work::Slow => vec![plain("echo slow; sleep 2; echo done > file")],
        Work::Fails => vec![plain("exit 3")],
        Work::TwoInTurn => {
            let mut second = shell("two", "echo two", "untrusted-code-write");
            second["needs"] = json!(["one"]);
            vec![plain("echo one"), second]
        }
        Work::Loud => vec![plain(&format!("head -c {LOUD} /dev/zero"))],
        Work::WithSecret => {
            let mut stage = plain("wc -c < $HOME/.chaos");
            stage["executor"]["harness_files"] = json!({".chaos": "{{SECRET:CHAOS}}"});
            vec![stage]
        }
        Work::WithSource => vec![plain("cat source.txt")],
        Work::Sealed => {
            let mut stage = shell("one", "", "untrusted-code-test");
            stage["executor"]["command"] = json!(["echo", "sealed"]);
            vec![stage]
        }
    };
    json!({"project": "acme", "stages": stages})
}

/// What the standard output of a stage is that succeeded.
pub(crate) fn output(work: Work, stage: &str) -> Vec<u8> {
    match (work, stage) {
        (Work::Quick, _) => b"quick\n".to_vec(),
        (Work::Slow, _) => b"slow\n".to_vec(),
        (Work::TwoInTurn, stage) => format!("{stage}\n").into_bytes(),
        (Work::Loud, _) => vec![0; LOUD],
        (Work::WithSecret, _) => format!("{}\n", PLANTED.len()).into_bytes(),
        (Work::WithSource, _) => SOURCE.as_bytes().to_vec(),
        (Work::Sealed, _) => b"sealed\n".to_vec(),
        (Work::Fails, _) => Vec::new(),
    }
}

/// A checkout with one file, as it travels.
pub(crate) fn source() -> Vec<u8> {
    use pond_wire::tree::{Entry, Moment};
    let modified = Moment { seconds: 0, nanos: 0 };
    let size = u64::try_from(SOURCE.len()).unwrap();
    let file = Entry::File { name: b"source.txt".to_vec(), mode: 0o644, modified, size };
    [file.encode().unwrap(), SOURCE.into(), Entry::Leave { mode: 0o755 }.encode().unwrap()].concat()
}
