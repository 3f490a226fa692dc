//! Who listens to a run's gateway while the job runs: writes down what it says, sums it up, and passes changes of the rules on.
//!
//! What cannot be written down may not happen: then the doors are closed, and only the sums are still heard.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pond_wire::gateway::Event;
use pond_worker::gateway::Gateway;
use pond_worker::order::{Answered, JobAnswer, Lent, Wires, answer};
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
    /// Who gave the job out.
    pub(super) daemon: Option<Daemon>,
    /// What the models may cost, in micro-cents.
    pub(super) ceiling_microcents: u64,
}

/// The daemon that wants to know what the job has cost until now, and says how much that may be.
#[derive(Debug)]
pub(crate) struct Daemon {
    told: UnixStream,
    /// Until it has said its last word.
    lent: Option<OwnedFd>,
    /// What it said last.
    heard: Lent,
}

/// Who has something to say.
enum Speaker {
    Gateway,
    Visitor,
    Daemon,
}

impl Daemon {
    pub(super) fn of(wires: &Wires) -> std::io::Result<Self> {
        Ok(Self {
            told: wires.socket.try_clone()?,
            lent: Some(wires.lent.try_clone()?),
            heard: Lent::default(),
        })
    }

    /// What the job may use in all from now on, of money and of bytes: what it was asked about.
    fn said(&mut self) -> Option<[Option<u64>; 2]> {
        let mut bytes = [0; Lent::BYTES];
        let said = self.lent.as_ref().and_then(|lent| rustix::io::read(lent, &mut bytes).ok());
        if said != Some(bytes.len()) {
            self.lent = None;
            return None;
        }
        let said = Lent::from_bytes(bytes);
        let heard = std::mem::replace(&mut self.heard, said);
        let news = |now: Answered, before: Answered| (now.answers != before.answers).then_some(now.total);
        Some([news(said.microcents, heard.microcents), news(said.egress_bytes, heard.egress_bytes)])
    }

    /// One that is gone ends the job by that alone.
    fn tell(&mut self, told: &JobAnswer) {
        if let Err(_gone) = answer(&mut self.told, told) {}
    }
}

impl Listener {
    /// Until the gateway has said its last word.
    pub(super) fn listen(mut self) -> anyhow::Result<Traffic> {
        let ceiling_microcents = self.ceiling_microcents;
        let mut traffic = Traffic { ceiling_microcents, ..Traffic::default() };
        loop {
            match self.next()? {
                Speaker::Gateway => {}
                Speaker::Visitor => {
                    if let Some(counter) = &mut self.counter {
                        counter.hear(&self.gateway, &mut self.record);
                    }
                    continue;
                }
                Speaker::Daemon => {
                    let [microcents, bytes] = self.daemon.as_mut().and_then(Daemon::said).unwrap_or_default();
                    if let Some(microcents) = microcents {
                        self.gateway.ceiling(microcents)?;
                        traffic.ceiling_microcents = traffic.ceiling_microcents.max(microcents);
                    }
                    if let Some(bytes) = bytes {
                        self.gateway.bytes(bytes)?;
                    }
                    continue;
                }
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
            if let Some(daemon) = self.daemon.as_mut().filter(|_| costs) {
                daemon.tell(&traffic.spent());
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
        let mut speakers = vec![Speaker::Gateway];
        if let Some(desk) = waiting {
            fds.push(PollFd::from_borrowed_fd(desk, PollFlags::IN));
            speakers.push(Speaker::Visitor);
        }
        if let Some(lent) = self.daemon.as_ref().and_then(|daemon| daemon.lent.as_ref()) {
            fds.push(PollFd::new(lent, PollFlags::IN));
            speakers.push(Speaker::Daemon);
        }
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                other => drop(other?),
            }
            let first = fds.iter().position(|fd| !fd.revents().is_empty());
            if let Some(at) = first.filter(|at| *at < speakers.len()) {
                return Ok(speakers.swap_remove(at));
            }
        }
    }

    /// To whoever asked for other rules, or gave the job out.
    fn pass_on(&mut self, event: &Event, traffic: &mut Traffic) {
        let (counter, daemon) = (self.counter.as_mut(), self.daemon.as_mut());
        match event {
            Event::RulesReplaced => traffic.changes.extend(counter.and_then(Counter::replaced)),
            Event::RulesRefused { reason } => {
                counter.into_iter().for_each(|counter| counter.not_replaced(reason))
            }
            &Event::Short { least_microcents, most_microcents } => {
                let short = JobAnswer::Short { least_microcents, most_microcents };
                daemon.into_iter().for_each(|daemon| daemon.tell(&short));
            }
            &Event::ShortBytes { moved } => {
                daemon.into_iter().for_each(|daemon| daemon.tell(&JobAnswer::ShortBytes { moved }));
            }
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

#[cfg(test)]
mod tests {
    //! Who asked about one thing is answered about that.
    use super::*;

    #[test]
    fn an_answer_is_for_who_asked() {
        let (lent, says) = rustix::pipe::pipe().unwrap();
        let told = UnixStream::pair().unwrap().0;
        let mut daemon = Daemon { told, lent: Some(lent), heard: Lent::default() };
        let mut said = Lent::default();
        let mut hear = |said: Lent| {
            rustix::io::write(&says, &said.to_bytes()).unwrap();
            daemon.said()
        };
        said.egress_bytes.answer(7);
        assert_eq!(hear(said), Some([None, Some(7)]));
        said.microcents.answer(0);
        assert_eq!(hear(said), Some([Some(0), None]), "no money, and nothing about bytes");
        said.egress_bytes.answer(7);
        assert_eq!(hear(said), Some([None, Some(7)]), "no more than before is a no");
        assert_eq!(hear(said), Some([None, None]));
    }
}
