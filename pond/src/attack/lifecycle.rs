//! L: what a job leaves running, and commands that are none.

use std::io;
use std::time::Duration;

use super::accomplice::{self, Accomplice};
use super::case::{Case, Evidence, Stage, capped};
use super::scene::Scene;

const ENDS: Stage = Stage { evidence: Evidence::Exited(0), ..Stage::PLAIN };
const NOT_FORBIDDEN: &str = "nothing is forbidden: pond has to say that it did not run";

pub(super) const CASES: &[Case] = &[
    Case {
        id: "L05",
        what: "a daemon that left its session",
        probes: &[capped("daemon", |scene| accomplice::leave(Accomplice::Linger, scene), ENDS)],
    },
    Case {
        id: "L06",
        what: "a daemon that blocks every signal, and a command that waits for it",
        probes: &[capped(
            "stubborn",
            outwait,
            Stage { wall: Duration::from_secs(1), evidence: Evidence::TimedOut, ..Stage::PLAIN },
        )],
    },
    Case {
        id: "L08",
        what: "a writer that goes on after the command ended",
        probes: &[capped(
            "scribbler",
            |scene| accomplice::leave(Accomplice::Scribble, scene),
            Stage {
                profile: Some("untrusted-code-write"),
                evidence: Evidence::Result(|collected| {
                    collected.record.changes.iter().any(|change| change.path.as_bytes() == b"scribbled")
                }),
                ..ENDS
            },
        )],
    },
    Case {
        id: "L09",
        what: "commands that cannot be executed",
        probes: &[
            capped("missing", nothing, not_executed(&["/workspace/planted/no-such-file"]))
                .uncontrolled(NOT_FORBIDDEN),
            capped("broken", nothing, not_executed(&["/workspace/planted/broken-elf"]))
                .uncontrolled(NOT_FORBIDDEN),
            capped("no interpreter", nothing, not_executed(&["/workspace/planted/no-interpreter"]))
                .uncontrolled(NOT_FORBIDDEN),
            capped("not a program", nothing, not_executed(&["/workspace/planted"]))
                .uncontrolled(NOT_FORBIDDEN),
        ],
    },
];

const fn not_executed(command: &'static [&'static str]) -> Stage {
    Stage { command, evidence: Evidence::NotExecuted, ..Stage::PLAIN }
}

fn nothing(_: &Scene) -> io::Result<()> {
    Ok(())
}

fn outwait(scene: &Scene) -> io::Result<()> {
    accomplice::leave(Accomplice::Stubborn, scene)?;
    if scene.is_inside() {
        std::thread::sleep(Stage::PATIENCE);
    }
    Ok(())
}
