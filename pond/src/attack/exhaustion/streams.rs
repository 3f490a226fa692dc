//! E20–E24: output without end, input nobody reads, streams that outlive the command.

use std::io::{self, Write};
use std::time::Duration;

use crate::attack::accomplice::{self, Accomplice};
use crate::attack::case::{Case, Evidence, Stage, capped};
use crate::attack::scene::Scene;

const ENDS: Stage = Stage { evidence: Evidence::Exited(0), ..Stage::PLAIN };
const FLOODED: Stage = Stage { evidence: Evidence::TooMuchOutput, ..Stage::PLAIN };
const OUTPUT_BYTES: usize = 8 << 20;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "E20",
        what: "output without end",
        probes: &[capped("lines", |_| flood(b"all work and no play\n"), FLOODED)],
    },
    Case {
        id: "E21",
        what: "one line without end",
        probes: &[capped("no newline", |_| flood(b"all work and no play "), FLOODED)],
    },
    Case {
        id: "E22",
        what: "input that is never read",
        probes: &[capped("unread", |_| linger(), Stage { input_bytes: 1 << 20, ..ENDS })
            .uncontrolled("nothing is forbidden: the run has to end although its input is stuck")],
    },
    Case {
        id: "E23",
        what: "closing every stream and running on",
        probes: &[capped(
            "closed",
            |_| linger(),
            Stage {
                command: &["/bin/sh", "-c", "exec <&- >&- 2>&-; sleep 600"],
                wall: Duration::from_secs(1),
                evidence: Evidence::TimedOut,
                ..Stage::PLAIN
            },
        )
        .uncontrolled("nothing is forbidden: the run has to end although it cannot be heard")],
    },
    Case {
        id: "E24",
        what: "a grandchild that holds the output open",
        probes: &[capped("held open", leave_behind, ENDS)],
    },
];

fn flood(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let piece = text.repeat(1024);
    for _ in 0..OUTPUT_BYTES.div_ceil(piece.len()) {
        out.write_all(&piece)?;
    }
    out.write_all(b"\n")?;
    out.flush()
}

fn linger() -> io::Result<()> {
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// Starts a process that leaves the session and keeps the output open. Outside it is ended again; inside nobody does.
pub(in crate::attack) fn leave_behind(scene: &Scene) -> io::Result<()> {
    accomplice::leave(Accomplice::Linger, scene)
}
