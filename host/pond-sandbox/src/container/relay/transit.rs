//! What is on its way through the relay of one container.
//!
//! Zone: host. No more than one frame waits for each of the job's streams, so that a job which nobody reads waits too.

use std::time::Instant;

use pond_wire::contained::{Evidence, Kind, WindowSize, frame};

use super::super::canary::Outside;
use super::super::frames::Frames;
use super::super::transfer::TransferFault;
use crate::native::cgroup::Usage;

/// What is on its way.
#[derive(Debug, Default)]
pub(in crate::container) struct Transit {
    pub(in crate::container) frames: Frames,
    pub(in crate::container) to_engine: Vec<u8>,
    /// Input that went out and is not the job's yet.
    pub(super) outstanding: usize,
    pub(super) to_stdout: Vec<u8>,
    pub(super) to_stderr: Vec<u8>,
    pub(super) may_begin: bool,
    pub(super) has_begun: bool,
    /// Pid 1 has said how the job ended.
    pub(super) is_told: bool,
    /// What the job's terminal is to become once there is a job.
    pub(super) size: Option<WindowSize>,
    pub(super) usage: Option<Usage>,
    pub(super) evidence: Option<(Evidence, Outside)>,
    pub(super) engine_ended: bool,
    /// When pid 1 was told to end the job.
    pub(super) stopping: Option<Instant>,
    /// When the job had ended and its files began to come out.
    pub(super) handing_over: Option<Instant>,
    pub(super) last_piece: Option<Instant>,
    pub(super) lost: Option<TransferFault>,
    /// When pid 1 was told that it may end.
    pub(super) farewell: Option<Instant>,
    pub(super) dead_since: Option<Instant>,
}

impl Transit {
    pub(super) fn has_room(&self) -> bool {
        self.to_stdout.is_empty() && self.to_stderr.is_empty()
    }

    pub(super) fn say(&mut self, kind: Kind, payload: &[u8]) {
        self.to_engine.extend(frame(kind, payload).unwrap_or_default());
    }

    /// Once the supervisor lets it and its kernel is the one that was promised.
    pub(super) fn begin(&mut self) {
        if self.may_begin && self.evidence.is_some() && !self.has_begun {
            self.say(Kind::Go, &[]);
            self.has_begun = true;
        }
        if self.has_begun
            && let Some(size) = self.size.take()
        {
            self.say(Kind::Size, &size.encode());
        }
    }
}
