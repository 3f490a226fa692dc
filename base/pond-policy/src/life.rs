//! The life of a sandbox that lasts: one table says which event moves which state where, and everything not in it is refused.
//! Keeper, command line and API ask the same table, so none of them can invent a move.
//!
//! Invariants: a deleted sandbox accepts no event; only a stopped one is resumed; whatever a sandbox is, it can be deleted.

use thiserror::Error;

named_enum! {
    /// Where a sandbox stands.
    pub enum State {
        /// Asked for, and being made or started.
        Pending => "pending",
        /// Programs can be run in it.
        Ready => "ready",
        /// Nothing of it runs; its disk is kept.
        Stopped => "stopped",
        /// It could not be made, and nothing of it is left but its name.
        Failed => "failed",
        /// Being taken apart.
        Deleting => "deleting",
        /// Gone; the name is never given to another.
        Deleted => "deleted",
    }
}

named_enum! {
    /// What can happen to a sandbox. Those that move no state are part of the same stream.
    pub enum Event {
        /// It was asked for; the first of all, and no other.
        Accepted => "accepted",
        /// It takes programs from now on.
        Started => "started",
        /// It could not be made.
        CreateFailed => "create_failed",
        /// A stopped one could not be started again; its disk is as it was.
        ResumeFailed => "resume_failed",
        /// Nothing of it runs any more: it was told to stop, nobody used it, or its keeper was lost.
        Stopped => "stopped",
        /// Something of it died, and it is started anew on its disk.
        Crashed => "crashed",
        /// Somebody wants it back.
        Resuming => "resuming",
        /// Somebody, or its time, wants it gone.
        Deleting => "deleting",
        /// Nothing of it is left but its name and its events.
        Deleted => "deleted",
        /// A program was started in it.
        ExecStarted => "exec_started",
        /// A program in it ended.
        ExecEnded => "exec_ended",
        /// Files were copied into it or out of it.
        Copied => "copied",
        /// A companion of it changed its own state.
        Companion => "companion",
    }
}

named_enum! {
    /// What somebody may want of a sandbox.
    pub enum Operation {
        Exec => "exec",
        Copy => "cp",
        Stop => "stop",
        Resume => "resume",
        Delete => "rm",
    }
}

/// An event that has no meaning in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a sandbox that is {state} cannot take the event {event}")]
pub struct IllegalMove {
    pub state: State,
    pub event: Event,
}

/// Something asked for at the wrong time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the sandbox is {state}, which allows {}, and not {operation}", state.allowed_words())]
pub struct WrongState {
    pub state: State,
    pub operation: Operation,
}

impl State {
    /// True when nothing can happen to the sandbox any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Ready | Self::Stopped | Self::Failed | Self::Deleting => false,
            Self::Deleted => true,
        }
    }

    /// What may be asked of a sandbox in this state.
    pub const fn allowed(self) -> &'static [Operation] {
        use Operation as O;
        match self {
            Self::Pending => &[O::Delete],
            Self::Ready => &[O::Exec, O::Copy, O::Stop, O::Delete],
            Self::Stopped => &[O::Resume, O::Delete],
            Self::Failed => &[O::Delete],
            Self::Deleting | Self::Deleted => &[],
        }
    }

    pub fn permit(self, operation: Operation) -> Result<(), WrongState> {
        let is_allowed = self.allowed().contains(&operation);
        if is_allowed { Ok(()) } else { Err(WrongState { state: self, operation }) }
    }

    fn allowed_words(self) -> String {
        let names: Vec<&str> = self.allowed().iter().map(|operation| operation.name()).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }
}

/// Where every sandbox begins.
pub const FIRST: (State, Event) = (State::Pending, Event::Accepted);

/// The state after `event`.
pub const fn next(state: State, event: Event) -> Result<State, IllegalMove> {
    use Event as E;
    use State as S;
    Ok(match (state, event) {
        (S::Pending, E::Started) => S::Ready,
        (S::Pending, E::CreateFailed) => S::Failed,
        (S::Pending, E::ResumeFailed) | (S::Ready | S::Pending, E::Stopped) => S::Stopped,
        (S::Ready, E::Crashed) | (S::Pending, E::Crashed) | (S::Stopped, E::Resuming) => S::Pending,
        (S::Pending | S::Ready | S::Stopped | S::Failed, E::Deleting) => S::Deleting,
        (S::Deleting, E::Deleted) => S::Deleted,
        (S::Ready, E::ExecStarted) => S::Ready,
        // A program's end and a companion's state may be told a moment after the sandbox moved on.
        (
            S::Pending | S::Ready | S::Stopped | S::Failed | S::Deleting,
            E::ExecEnded | E::Companion | E::Copied,
        ) => state,
        (state, event) => return Err(IllegalMove { state, event }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, Operation, State, next};

    /// Written apart from the code: one row per state, one column per event in the order of `Event::ALL`, `.` for an
    /// illegal move.
    const TABLE: [(State, &str); 6] = [
        (State::Pending, ". ready failed stopped stopped pending . deleting . . pending pending pending"),
        (State::Ready, ". . . . stopped pending . deleting . ready ready ready ready"),
        (State::Stopped, ". . . . . . pending deleting . . stopped stopped stopped"),
        (State::Failed, ". . . . . . . deleting . . failed failed failed"),
        (State::Deleting, ". . . . . . . . deleted . deleting deleting deleting"),
        (State::Deleted, ". . . . . . . . . . . . ."),
    ];

    #[test]
    fn every_move_of_a_sandbox_is_as_written() {
        let rows: Vec<State> = TABLE.iter().map(|(state, _)| *state).collect();
        assert_eq!(rows, State::ALL);
        for (state, row) in TABLE {
            let moves: Vec<Option<State>> = row.split(' ').map(State::from_name).collect();
            let made: Vec<Option<State>> = Event::ALL.iter().map(|event| next(state, *event).ok()).collect();
            assert_eq!(moves, made, "{state}");
        }
    }

    #[test]
    fn what_is_not_allowed_names_what_is() {
        let fault = State::Stopped.permit(Operation::Exec).unwrap_err();
        assert_eq!(fault.to_string(), "the sandbox is stopped, which allows resume, rm, and not exec");
        let fault = State::Deleted.permit(Operation::Delete).unwrap_err();
        assert_eq!(fault.to_string(), "the sandbox is deleted, which allows nothing, and not rm");
        assert_eq!(State::Ready.permit(Operation::Exec), Ok(()));
        for state in State::ALL {
            let deletable = state.permit(Operation::Delete).is_ok();
            assert_eq!(deletable, next(*state, Event::Deleting).is_ok(), "{state}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_sandbox_is_deleted_once_and_for_good(start in 0..6_usize, steps in proptest::collection::vec(0..Event::ALL.len(), 0..64)) {
            let mut state = State::ALL[start];
            for step in steps {
                let moved = next(state, Event::ALL[step]);
                if state.is_terminal() {
                    proptest::prop_assert!(moved.is_err());
                }
                state = moved.unwrap_or(state);
            }
        }
    }
}
