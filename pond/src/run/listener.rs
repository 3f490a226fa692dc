//! Who listens to a run's gateway while the job runs: writes down what it says, sums it up, and passes changes of the rules on.
//!
//! What cannot be written down may not happen: then the doors are closed, and only the sums are still heard.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pond_wire::gateway::Event;
use pond_worker::gateway::Gateway;
use pond_worker::order::answer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::counter::Counter;
use super::record::{Kept, Record};
use super::traffic::Traffic;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) gateway: Arc<Gateway>,
    pub(super) record: Record,
    /// Where there are rules to change.
    pub(super) counter: Option<Counter>,
    /// The daemon that wants to know what the job has cost until now.
    pub(super) daemon: Option<UnixStream>,
    /// What the models may cost, in micro-cents.
    pub(super) ceiling_microcents: u64,
}

/// Who has something to say.
enum Speaker {
    Gateway,
    Visitor,
}

impl Listener {
    /// Until the gateway has said its last word.
    pub(super) fn listen(mut self) -> anyhow::Result<Traffic> {
        let ceiling_microcents = self.ceiling_microcents;
        let mut traffic = Traffic { ceiling_microcents, ..Traffic::default() };
        loop {
            if let (Speaker::Visitor, Some(counter)) = (self.next()?, &mut self.counter) {
                counter.hear(&self.gateway, &mut self.record);
                continue;
            }
            let Some(event) = self.gateway.listen()? else {
                traffic.ended_early = true;
                return Ok(traffic);
            };
            match self.record.event(&event)? {
                Kept::Written => {}
                Kept::NoRoom => traffic.unwritten += 1,
                Kept::Lost => {
                    traffic.unwritten += 1;
                    self.gateway.finish()?;
                }
            }
            self.pass_on(&event, &mut traffic);
            let last = matches!(event, Event::Summary(_));
            let costs = matches!(event, Event::Model(_) | Event::Closed(_));
            traffic.take(event);
            if costs && let Some(daemon) = &mut self.daemon {
                // One that is gone ends the job by that alone.
                if let Err(_gone) = answer(daemon, &traffic.spent()) {}
            }
            if last {
                return Ok(traffic);
            }
        }
    }

    /// The gateway comes first: people can wait, and it cannot be made to by them.
    fn next(&self) -> Result<Speaker, Errno> {
        if self.gateway.has_spoken() {
            return Ok(Speaker::Gateway);
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.gateway.as_fd(), PollFlags::IN)];
        let waiting = self.counter.as_ref().and_then(Counter::waiting);
        fds.extend(waiting.map(|desk| PollFd::from_borrowed_fd(desk, PollFlags::IN)));
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) if fds.first().is_some_and(|gateway| gateway.revents().is_empty()) => {
                    return Ok(Speaker::Visitor);
                }
                Ok(_) => return Ok(Speaker::Gateway),
            }
        }
    }

    /// To whoever asked for other rules.
    fn pass_on(&mut self, event: &Event, traffic: &mut Traffic) {
        let Some(counter) = &mut self.counter else { return };
        match event {
            Event::RulesReplaced => traffic.changes.extend(counter.replaced()),
            Event::RulesRefused { reason } => counter.not_replaced(reason),
            Event::Serving
            | Event::Failed { .. }
            | Event::Refused(_)
            | Event::Flood { .. }
            | Event::Looked(_)
            | Event::Opened(_)
            | Event::Closed(_)
            | Event::Model(_)
            | Event::Host(_)
            | Event::ModelTotals(_)
            | Event::Summary(_) => {}
        }
    }
}
