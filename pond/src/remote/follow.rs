//! A run as it goes: what happens to its stages, what they say, and what those that wait are waiting for, until it is over.
//!
//! Events and output come over connections of their own, which may break and are taken up again: the server keeps both.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use pond_policy::reason::Cause;
use pond_wire::api::{Event, RunView, StageState};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::screen::{Labels, Screen, Stream, Terminal};
use super::tail::{Tail, Until};
use super::view;
use crate::client::events::Follower;
use crate::client::fault::ClientFault;
use crate::client::server::Server;
use crate::client::target::Target;
use crate::output;

/// After so long without news somebody may want to know what is waited for.
const LOOK: Duration = Duration::from_secs(2);
/// What is still being said when the run is over comes within this.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// What is shown of a run besides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Nothing,
    Output,
    OutputAndStages,
}

/// How watching ended.
#[derive(Debug)]
pub(super) enum Watched {
    Over(Box<RunView>),
    /// Somebody interrupted this command; the run goes on.
    Interrupted,
    /// Nobody reads what is shown.
    Deaf,
}

enum Happening {
    Event(Event),
    Said { stage: String, stream: Stream, bytes: hyper::body::Bytes },
    Silent { stage: String, stream: Stream, lost: Option<ClientFault> },
    Lost(ClientFault),
    Interrupted,
}

struct Watch<'a> {
    server: &'a Arc<Server>,
    run: String,
    show: Show,
    screen: Screen,
    terminal: Terminal,
    /// Streams that are being read.
    open: BTreeSet<(String, Stream)>,
    /// The reason last told for each stage that waits.
    told: BTreeMap<String, String>,
    to: Sender<Happening>,
}

pub(super) async fn follow(server: &Arc<Server>, run: &str, show: Show) -> anyhow::Result<Watched> {
    let first = view(server, run).await?;
    let labels = if first.stages.len() > 1 { Labels::Stage } else { Labels::No };
    let (to, from) = channel(64);
    tokio::spawn(events(Arc::clone(server), run.to_owned(), to.clone()));
    let (signals, interrupted) = (pond_sys::signal::interrupts()?, to.clone());
    // It waits in the kernel for as long as this process lives.
    std::thread::spawn(move || interrupts(&signals, &interrupted));
    let watch = Watch {
        server,
        run: run.to_owned(),
        show,
        screen: Screen::new(labels, Terminal::watched()),
        terminal: Terminal::default(),
        open: BTreeSet::new(),
        told: BTreeMap::new(),
        to,
    };
    watch.watch(from).await
}

async fn events(server: Arc<Server>, run: String, to: Sender<Happening>) {
    let mut follower = Follower::new(&server, Target::new(&["runs", &run, "events"]));
    loop {
        let happening = match follower.next().await {
            Err(fault) => Happening::Lost(fault),
            Ok(event) => match serde_json::from_str(&event.data) {
                Ok(event) => Happening::Event(event),
                Err(fault) => Happening::Lost(server.unreadable(&fault.to_string())),
            },
        };
        let is_over = matches!(&happening, Happening::Lost(_));
        if to.send(happening).await.is_err() || is_over {
            return;
        }
    }
}

fn interrupts(signals: &OwnedFd, to: &Sender<Happening>) {
    let mut waited = [PollFd::new(signals, PollFlags::IN)];
    // Nobody left to tell is nobody left to interrupt.
    if poll(&mut waited, None).is_ok() && to.blocking_send(Happening::Interrupted).is_err() {}
}

impl Watch<'_> {
    async fn watch(mut self, mut from: Receiver<Happening>) -> anyhow::Result<Watched> {
        loop {
            let Ok(happening) = tokio::time::timeout(LOOK, from.recv()).await else {
                if let Some(over) = self.look().await? {
                    return Ok(Watched::Over(Box::new(over)));
                }
                continue;
            };
            match happening {
                None | Some(Happening::Interrupted) => return Ok(Watched::Interrupted),
                Some(Happening::Lost(fault)) => return Err(fault.into()),
                Some(Happening::Event(event)) => {
                    self.tell(&event);
                    if event.action == "run.ended" {
                        return self.last_words(from).await;
                    }
                }
                Some(happening) => self.hear(happening)?,
            }
            if self.terminal.is_deaf() {
                return Ok(Watched::Deaf);
            }
        }
    }

    /// The run is over; what its stages said may still be on its way.
    async fn last_words(mut self, mut from: Receiver<Happening>) -> anyhow::Result<Watched> {
        while !self.open.is_empty() {
            match tokio::time::timeout(LAST_WORDS, from.recv()).await {
                Err(_) | Ok(None) => {
                    output::say("pond: warning: not all of the output came; `pond logs` has the rest");
                    break;
                }
                Ok(Some(Happening::Interrupted)) => return Ok(Watched::Interrupted),
                Ok(Some(happening)) => self.hear(happening)?,
            }
        }
        Ok(Watched::Over(Box::new(view(self.server, &self.run).await?)))
    }

    fn hear(&mut self, happening: Happening) -> anyhow::Result<()> {
        match happening {
            Happening::Said { stage, stream, bytes } => {
                let shown = self.screen.take(&stage, stream, &bytes);
                self.terminal.write(stream, &shown)?;
            }
            Happening::Silent { stage, stream, lost } => {
                let rest = self.screen.finish(&stage, stream);
                self.terminal.write(stream, &rest)?;
                self.open.remove(&(stage, stream));
                if let Some(fault) = lost {
                    return Err(fault.into());
                }
            }
            Happening::Event(_) | Happening::Lost(_) | Happening::Interrupted => {}
        }
        Ok(())
    }

    fn tell(&mut self, event: &Event) {
        if let (Some(stage), "stage.running") = (&event.stage, event.action.as_str()) {
            self.listen(stage);
        }
        if self.show == Show::OutputAndStages
            && let Some(line) = line(event)
        {
            output::say(&format!("pond: {}", output::plain(&line)));
        }
    }

    fn listen(&mut self, stage: &str) {
        if self.show == Show::Nothing {
            return;
        }
        for stream in Stream::ALL {
            if !self.open.insert((stage.to_owned(), stream)) {
                continue;
            }
            let tail = Tail::new(self.server, &self.run, stage, stream, Until::StageEnds);
            tokio::spawn(hand_on(tail, stage.to_owned(), stream, self.to.clone()));
        }
    }

    /// Tells what is waited for, once for each reason. A run that is over without our having heard of it is over all the same.
    async fn look(&mut self) -> anyhow::Result<Option<RunView>> {
        if !self.open.is_empty() {
            return Ok(None);
        }
        let now = match view(self.server, &self.run).await {
            // The follower of events waits for the server too, and has its own end of patience.
            Err(fault) if fault.may_pass() => return Ok(None),
            seen => seen?,
        };
        if now.run.state.is_over() {
            return Ok(Some(now));
        }
        for stage in
            now.stages.iter().filter(|stage| stage.state == StageState::Queued && stage.job.is_some())
        {
            let is_news = self.told.get(&stage.name) != Some(&stage.reason);
            let in_turn = stage.code == Cause::WorkersBusy.name();
            if is_news && !in_turn && !stage.reason.is_empty() && self.show == Show::OutputAndStages {
                output::say(&format!(
                    "pond: {}",
                    output::plain(&format!("{} waits: {}", stage.name, stage.reason))
                ));
                self.told.insert(stage.name.clone(), stage.reason.clone());
            }
        }
        Ok(None)
    }
}

async fn hand_on(mut tail: Tail, stage: String, stream: Stream, to: Sender<Happening>) {
    let lost = loop {
        match tail.next().await {
            Ok(Some(bytes)) => {
                if to.send(Happening::Said { stage: stage.clone(), stream, bytes }).await.is_err() {
                    return;
                }
            }
            Ok(None) => break None,
            Err(fault) => break Some(fault),
        }
    };
    // Nobody left to tell.
    if to.send(Happening::Silent { stage, stream, lost }).await.is_err() {}
}

/// What a person wants to know of an event; nothing for the others.
fn line(event: &Event) -> Option<String> {
    let said = |field: &str| event.detail.get(field).and_then(Value::as_str).unwrap_or_default();
    let with = |what: String, why: &str| if why.is_empty() { what } else { format!("{what}: {why}") };
    let stage = event.stage.as_deref().unwrap_or_default();
    match event.action.as_str() {
        "stage.leased" => Some(format!("{stage} goes to worker {}", said("worker"))),
        "stage.running" => Some(format!("{stage} runs")),
        "stage.requeued" => Some(with(format!("{stage} waits again"), said("why"))),
        "stage.ended" => Some(with(format!("{stage} {}", said("state")), said("reason"))),
        "run.cancelling" => Some(with("the run is being cancelled".to_owned(), said("reason"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_a_person_hears_of() {
        let event = |action: &str, detail: Value| Event {
            at: 1,
            action: action.to_owned(),
            stage: Some("build".to_owned()),
            detail,
        };
        let cases = [
            ("run.submitted", json!({}), None),
            ("stage.leased", json!({ "worker": "w1" }), Some("build goes to worker w1")),
            ("stage.running", json!({}), Some("build runs")),
            ("stage.requeued", json!({ "why": "lease lost" }), Some("build waits again: lease lost")),
            ("stage.ended", json!({ "state": "failed", "reason": "exit 3" }), Some("build failed: exit 3")),
            ("stage.ended", json!({ "state": "succeeded", "reason": "" }), Some("build succeeded")),
            ("run.ended", json!({ "state": "failed" }), None),
        ];
        for (action, detail, expected) in cases {
            assert_eq!(line(&event(action, detail)).as_deref(), expected, "{action}");
        }
    }
}
