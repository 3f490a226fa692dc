//! Server-sent events: a reader of the format, and a follower that takes up where it was when the connection ends.

use std::time::Duration;

use super::fault::ClientFault;
use super::server::{Answer, Call, Server};
use super::target::Target;

const MOST_EVENT_BYTES: usize = 1 << 20;
/// Longer than a server is silent: it sends comments to keep a connection open.
const SILENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: String,
    pub(crate) data: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {MOST_EVENT_BYTES} bytes")]
pub(crate) struct TooLong;

/// Takes a stream of events apart, however it is cut.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    event: Event,
    size: usize,
}

impl Parser {
    /// The events that `bytes` complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut whole = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                self.size += 1;
                if self.size > MOST_EVENT_BYTES {
                    return Err(TooLong);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                self.size = 0;
                whole.extend(self.end());
            } else {
                self.field(&String::from_utf8_lossy(line));
            }
        }
        Ok(whole)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                self.event.data.push_str(value);
                self.event.data.push('\n');
            }
            _ => {}
        }
    }

    /// An event without data is none.
    fn end(&mut self) -> Option<Event> {
        let mut event = std::mem::take(&mut self.event);
        event.data.pop()?;
        Some(event)
    }
}

/// Events of one target, from its beginning, over as many connections as it takes.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    server: &'a Server,
    target: Target,
    last: Option<String>,
    open: Option<(Answer, Parser)>,
    ready: std::collections::VecDeque<Event>,
    patience: Patience,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(server: &'a Server, target: Target) -> Self {
        let patience = Patience::default();
        Self { server, target, last: None, open: None, ready: std::collections::VecDeque::new(), patience }
    }

    /// The next event. What can pass is waited for, so that a server may come and go.
    pub(crate) async fn next(&mut self) -> Result<Event, ClientFault> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                return Ok(event);
            }
            match self.read().await {
                Ok(()) => {}
                Err(fault) if fault.may_pass() => {
                    self.open = None;
                    self.patience.wait(fault).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn read(&mut self) -> Result<(), ClientFault> {
        let (answer, parser) = match &mut self.open {
            Some(open) => open,
            closed @ None => {
                let mut call = Call::get(self.target.clone()).header("accept", "text/event-stream");
                if let Some(last) = &self.last {
                    call = call.header("last-event-id", last.clone());
                }
                closed.insert((self.server.stream(call).await?, Parser::default()))
            }
        };
        let Ok(piece) = tokio::time::timeout(SILENCE, answer.next()).await else {
            self.open = None;
            return Ok(());
        };
        match piece? {
            Some(bytes) => {
                let events =
                    parser.push(&bytes).map_err(|fault| self.server.unreadable(&fault.to_string()))?;
                self.patience = Patience::default();
                self.ready.extend(events);
            }
            // A server that goes away in good order ends its answers.
            None => {
                self.open = None;
                self.patience.pause().await;
            }
        }
        Ok(())
    }
}

/// How long a server that is gone is waited for, with growing pauses.
#[derive(Debug)]
pub(crate) struct Patience {
    pause: Duration,
    left: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { pause: Duration::from_millis(100), left: Duration::from_secs(600) }
    }
}

impl Patience {
    /// Waits, or gives the fault back when there is no patience left.
    pub(crate) async fn wait(&mut self, fault: ClientFault) -> Result<(), ClientFault> {
        if self.left.is_zero() {
            return Err(fault);
        }
        self.pause().await;
        Ok(())
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.left = self.left.saturating_sub(self.pause);
        self.pause = (self.pause * 2).min(Duration::from_secs(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\n\nid: 7\nevent: stage\ndata: {\"a\":\ndata: 1}\n\nid: 8\r\ndata:x\r\n\r\nid: 9\n\ndata: cut";

    fn expected() -> Vec<Event> {
        let event = |id: &str, kind: &str, data: &str| Event {
            id: Some(id.to_owned()),
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        vec![event("7", "stage", "{\"a\":\n1}"), event("8", "", "x")]
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        for size in 1..=STREAM.len() {
            let mut parser = Parser::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let events: Vec<Event> = pieces.flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(events, expected(), "pieces of {size}");
        }
    }

    #[test]
    fn an_event_has_a_bound() {
        let mut parser = Parser::default();
        let line = format!("data: {}\n", "x".repeat(1000));
        let fault = (0..2000).find_map(|_| parser.push(line.as_bytes()).err());
        assert_eq!(fault, Some(TooLong));
        let mut parser = Parser::default();
        assert!(
            (0..2000)
                .all(|_| parser.push(format!("{line}\n").as_bytes()).is_ok_and(|events| events.len() == 1))
        );
    }
}
