//! What the control plane tells an orchestrator, line by line: which jobs wait, and which workers there are. First everything there
//! is, then what changes; a line that is told again says the same.
//!
//! Trust zone: written by the control plane, read by the orchestrator, who gets no more of a job than what a worker must have to
//! be given it. Nothing is decided by these lines: the control plane judges every claim from its own records.

use serde::{Deserialize, Serialize};

use crate::orch::Id;

/// Where an orchestrator asks for the lines, with a token of kind `relay`.
pub const PATH: &str = "/relay/feed";
/// The longest line.
pub const MOST_LINE: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Told {
    /// A job waits for a worker with these tags and this capability; none for unconfined work.
    Job {
        job: Id,
        project: Id,
        capability: Option<String>,
        tags: Vec<String>,
        /// Workers it does not go to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        avoid: Vec<Id>,
    },
    /// It no longer does.
    JobGone {
        job: Id,
    },
    /// A worker may have work: what it was granted, and what it said last that it can enforce.
    Worker {
        worker: Id,
        tags: Vec<String>,
        capabilities: Vec<String>,
    },
    WorkerGone {
        worker: Id,
    },
    /// Nothing changed.
    Still {},
}

impl Told {
    /// With its end.
    pub fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// One line, without its end.
    pub fn parse(line: &[u8]) -> Option<Self> {
        (line.len() <= MOST_LINE).then(|| serde_json::from_slice(line).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_others_are_refused() {
        let id = |text: &str| Id::try_from(text.to_owned()).unwrap();
        let all = [
            Told::Job {
                job: id("j"),
                project: id("p"),
                capability: Some("sandbox.*".to_owned()),
                tags: Vec::new(),
                avoid: vec![id("w")],
            },
            Told::JobGone { job: id("j") },
            Told::Worker { worker: id("w"), tags: vec!["pool:trusted".to_owned()], capabilities: Vec::new() },
            Told::WorkerGone { worker: id("w") },
            Told::Still {},
        ];
        for told in all {
            let line = told.to_line().unwrap();
            let (end, line) = line.split_last().unwrap();
            assert_eq!((*end, Told::parse(line)), (b'\n', Some(told)));
        }
        for bad in ["", "{}", r#"{"kind":"secret"}"#, r#"{"kind":"still","key":"x"}"#] {
            assert_eq!(Told::parse(bad.as_bytes()), None, "{bad}");
        }
        let long = format!(r#"{{"kind":"still"{}}}"#, " ".repeat(MOST_LINE));
        assert_eq!(Told::parse(long.as_bytes()), None);
    }
}
