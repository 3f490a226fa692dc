//! The life of a stage: one table says which event moves which state where, and everything not in it
//! is refused. Control plane and worker ask the same table, so neither can invent a move.
//!
//! Invariants: a terminal state accepts no event; work that ran reaches `succeeded` only through
//! `verifying`; `refused` means that nothing ran.

use thiserror::Error;

named_enum! {
    /// Where a stage stands.
    pub enum State {
        Queued => "queued",
        Leased => "leased",
        Running => "running",
        Verifying => "verifying",
        Succeeded => "succeeded",
        Failed => "failed",
        Cancelled => "cancelled",
        Refused => "refused",
    }
}

named_enum! {
    /// What can happen to a stage.
    pub enum Event {
        /// A worker took the job.
        Lease => "lease",
        /// The worker launched it.
        Start => "start",
        /// The worker went silent or gave the job back.
        LeaseLost => "lease_lost",
        /// The job ended and its result arrived.
        Finish => "finish",
        /// The result verified and the job did what was asked.
        Accept => "accept",
        /// The result verified and says that the job failed.
        Fail => "fail",
        /// The same, and the stage has a try left.
        Retry => "retry",
        /// The result verified, and another worker is to confirm it.
        Confirm => "confirm",
        /// The result did not verify.
        Reject => "reject",
        /// The stage used up its time, or nobody who may take it came in time.
        TimeOut => "time_out",
        /// Too many workers were lost on this job.
        Poison => "poison",
        /// A person or a budget ended it.
        Cancel => "cancel",
        /// Policy forbids it; dispatch or the worker's own resolution said so.
        Refuse => "refuse",
    }
}

/// An event that has no meaning in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a stage that is {state} cannot take the event {event}")]
pub struct IllegalMove {
    pub state: State,
    pub event: Event,
}

impl State {
    /// True when nothing can happen to the stage any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Leased | Self::Running | Self::Verifying => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Refused => true,
        }
    }
}

/// The state after `event`.
pub const fn next(state: State, event: Event) -> Result<State, IllegalMove> {
    use Event as E;
    use State as S;
    Ok(match (state, event) {
        (S::Queued, E::Lease) => S::Leased,
        (S::Leased, E::Start) => S::Running,
        (S::Leased | S::Running, E::LeaseLost) => S::Queued,
        (S::Running, E::Finish) => S::Verifying,
        (S::Verifying, E::Accept) => S::Succeeded,
        (S::Verifying, E::Fail | E::Reject) => S::Failed,
        (S::Verifying, E::Retry | E::Confirm) => S::Queued,
        (S::Queued | S::Running, E::TimeOut) | (S::Queued | S::Leased | S::Running, E::Poison) => S::Failed,
        (S::Queued | S::Leased, E::Refuse) => S::Refused,
        (S::Queued | S::Leased | S::Running | S::Verifying, E::Cancel) => S::Cancelled,
        (state, event) => return Err(IllegalMove { state, event }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, IllegalMove, State, next};

    /// Written apart from the code: one row per state, one column per event in the order of
    /// `Event::ALL`, `.` for an illegal move.
    const TABLE: [(State, &str); 8] = [
        (State::Queued, "leased . . . . . . . . failed failed cancelled refused"),
        (State::Leased, ". running queued . . . . . . . failed cancelled refused"),
        (State::Running, ". . queued verifying . . . . . failed failed cancelled ."),
        (State::Verifying, ". . . . succeeded failed queued queued failed . . cancelled ."),
        (State::Succeeded, ". . . . . . . . . . . . ."),
        (State::Failed, ". . . . . . . . . . . . ."),
        (State::Cancelled, ". . . . . . . . . . . . ."),
        (State::Refused, ". . . . . . . . . . . . ."),
    ];

    #[test]
    fn every_state_and_event_is_as_written() {
        assert_eq!(TABLE.map(|(state, _)| state).as_slice(), State::ALL);
        for (state, row) in TABLE {
            let cells: Vec<&str> = row.split(' ').collect();
            assert_eq!(cells.len(), Event::ALL.len(), "{state}");
            for (cell, event) in cells.into_iter().zip(Event::ALL.iter().copied()) {
                let expected = State::from_name(cell).ok_or(IllegalMove { state, event });
                assert_eq!(next(state, event), expected, "{state} {event}");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(*state));
        }
        for event in Event::ALL {
            assert_eq!(Event::from_name(event.name()), Some(*event));
        }
        assert_eq!(State::from_name("Queued"), None);
        assert_eq!(Event::from_name(""), None);
    }

    proptest::proptest! {
        #[test]
        fn a_stage_ends_once_and_for_good(start in 0..8_usize, steps in proptest::collection::vec(0..Event::ALL.len(), 0..64)) {
            let mut state = State::ALL[start];
            for step in steps {
                let moved = next(state, Event::ALL[step]);
                if state.is_terminal() {
                    proptest::prop_assert_eq!(moved, Err(IllegalMove { state, event: Event::ALL[step] }));
                }
                state = moved.unwrap_or(state);
            }
            let ended = next(state, Event::Cancel).unwrap_or(state);
            proptest::prop_assert!(ended.is_terminal());
        }
    }
}
