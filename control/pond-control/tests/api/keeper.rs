//! A keeper for tests of the API alone: it keeps its sandboxes in memory and runs nothing. Whatever is asked of it is done at once,
//! or refused as the life of a sandbox says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use pond_control::keeper::{Answer, KeepFault, Keeper, Kept, Output, Wanted};
use pond_policy::sandboxes::{SandboxId, Share};
use pond_wire::api::{ExecState, ExecView, NewExec, OutputStream, SandboxEvent, SandboxState, SandboxView};
use serde_json::json;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    sandboxes: Mutex<BTreeMap<String, One>>,
}

#[derive(Debug)]
struct One {
    kept: Kept,
    events: Vec<SandboxEvent>,
    execs: Vec<ExecView>,
    files: BTreeMap<String, Vec<u8>>,
}

impl One {
    fn turn(&mut self, state: SandboxState, event: &str) {
        let sequence = self.kept.view.sequence + 1;
        (self.kept.view.state, self.kept.view.sequence) = (state, sequence);
        self.events.push(SandboxEvent {
            sequence,
            at: sequence,
            event: event.to_owned(),
            state,
            detail: json!({}),
        });
    }

    fn permit(&self, states: &[SandboxState]) -> Result<(), KeepFault> {
        let state = self.kept.view.state;
        let words = || format!("the sandbox is {}", state.name());
        if states.contains(&state) { Ok(()) } else { Err(KeepFault::WrongState(words())) }
    }
}

impl Memory {
    /// A sandbox that was not made through the API.
    pub(crate) fn put(&self, id: &str) {
        let document = json!({"sandbox": {"profile": "untrusted-code-internet"}}).to_string().into_bytes();
        let wanted = Wanted { id: SandboxId::parse(id).unwrap(), document, own: Vec::new() };
        self.make(wanted).unwrap();
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, One>> {
        self.sandboxes.lock().unwrap()
    }

    fn with<T>(
        &self,
        id: &SandboxId,
        act: impl FnOnce(&mut One) -> Result<T, KeepFault>,
    ) -> Result<T, KeepFault> {
        act(self.all().get_mut(id.as_str()).ok_or(KeepFault::Unknown)?)
    }

    fn make(&self, wanted: Wanted) -> Result<Kept, KeepFault> {
        let mut all = self.all();
        if let Some(one) = all.get(wanted.id.as_str()) {
            return Err(KeepFault::Taken(Box::new(one.kept.clone())));
        }
        let document: serde_json::Value = serde_json::from_slice(&wanted.document).unwrap();
        let labels = document.get("labels").cloned().unwrap_or_else(|| json!({}));
        let view = SandboxView {
            id: wanted.id.to_string(),
            project: None,
            state: SandboxState::Pending,
            reason: String::new(),
            profile: document["sandbox"]["profile"].as_str().unwrap().to_owned(),
            backend: "native".to_owned(),
            labels: serde_json::from_value(labels).unwrap(),
            ports: Vec::new(),
            companions: Vec::new(),
            created_at: 1,
            changed_at: 1,
            idle_ttl_seconds: Some(600),
            cleanup_ttl_seconds: None,
            sequence: 0,
        };
        let kept = Kept { view, own: wanted.own };
        let mut one = One { kept, events: Vec::new(), execs: Vec::new(), files: BTreeMap::new() };
        one.turn(SandboxState::Ready, "started");
        let kept = one.kept.clone();
        all.insert(wanted.id.to_string(), one);
        Ok(kept)
    }
}

fn now<'a, T: Send + 'a>(value: Result<T, KeepFault>) -> Answer<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Keeper for Memory {
    fn shares(&self) -> &[Share] {
        &[]
    }

    fn create(&self, wanted: Wanted) -> Answer<'_, Kept> {
        now(self.make(wanted))
    }

    fn show<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        now(self.with(id, |one| Ok(one.kept.clone())))
    }

    fn list(&self) -> Answer<'_, Vec<Kept>> {
        now(Ok(self.all().values().map(|one| one.kept.clone()).collect()))
    }

    fn stop<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        now(self.with(id, |one| {
            one.permit(&[SandboxState::Ready])?;
            one.turn(SandboxState::Stopped, "stopped");
            Ok(one.kept.clone())
        }))
    }

    fn resume<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        now(self.with(id, |one| {
            one.permit(&[SandboxState::Stopped])?;
            one.turn(SandboxState::Ready, "started");
            Ok(one.kept.clone())
        }))
    }

    fn delete<'a>(&'a self, id: &'a SandboxId) -> Answer<'a, Kept> {
        now(self.with(id, |one| {
            if one.kept.view.state != SandboxState::Deleted {
                one.turn(SandboxState::Deleted, "deleted");
            }
            Ok(one.kept.clone())
        }))
    }

    fn events<'a>(&'a self, id: &'a SandboxId, after: u64, most: usize) -> Answer<'a, Vec<SandboxEvent>> {
        now(self.with(id, |one| {
            Ok(one.events.iter().filter(|event| event.sequence > after).take(most).cloned().collect())
        }))
    }

    fn start<'a>(&'a self, id: &'a SandboxId, exec: &'a NewExec) -> Answer<'a, ExecView> {
        now(self.with(id, |one| {
            one.permit(&[SandboxState::Ready])?;
            let view = ExecView {
                id: u64::try_from(one.execs.len()).unwrap() + 1,
                command: exec.command.join(" "),
                state: ExecState::Ended,
                exit_code: Some(0),
                ended_by: None,
                started_at: 1,
                ended_at: Some(2),
                stdout_bytes: 5,
                stderr_bytes: 0,
                truncated: false,
            };
            one.execs.push(view.clone());
            one.turn(SandboxState::Ready, "exec_ended");
            Ok(view)
        }))
    }

    fn exec<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView> {
        now(self
            .with(id, |one| one.execs.iter().find(|view| view.id == exec).cloned().ok_or(KeepFault::Unknown)))
    }

    fn cancel<'a>(&'a self, id: &'a SandboxId, exec: u64) -> Answer<'a, ExecView> {
        self.exec(id, exec)
    }

    fn output<'a>(&'a self, _: &'a SandboxId, from: Output, most: usize) -> Answer<'a, Vec<u8>> {
        let said: &[u8] = match from.stream {
            OutputStream::Stdout => b"hello",
            OutputStream::Stderr => b"",
        };
        let skip = usize::try_from(from.offset).unwrap();
        now(Ok(said.iter().skip(skip).take(most).copied().collect()))
    }

    fn read<'a>(&'a self, id: &'a SandboxId, path: &'a str, most: usize) -> Answer<'a, Vec<u8>> {
        now(self.with(id, |one| {
            one.permit(&[SandboxState::Ready])?;
            let file = one.files.get(path).cloned().ok_or(KeepFault::Unknown)?;
            if file.len() > most { Err(KeepFault::TooLarge(most)) } else { Ok(file) }
        }))
    }

    fn write<'a>(&'a self, id: &'a SandboxId, path: &'a str, bytes: Vec<u8>) -> Answer<'a, ()> {
        now(self.with(id, |one| {
            one.permit(&[SandboxState::Ready])?;
            one.files.insert(path.to_owned(), bytes);
            Ok(())
        }))
    }
}
