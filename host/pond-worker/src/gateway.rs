//! The host's half of a job's gateway: starts the process, hands it its order, its keys and the doors made inside the
//! sandbox, and listens to what it says until the job is over.
//!
//! Zone: host. The gateway is one of pond's own processes but talks to the job all day, so its events are bounded, decoded
//! strictly and only ever recorded. It ends when this value goes, whatever else happens. What it had decided and not yet
//! said when it ended is in its journal, and is heard last.

mod journal;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pond_sandbox::role;
use pond_wire::gateway::{Command, Door, Doors, Event, MAX_EVENT_BYTES, Order, Reach, events};
use pond_wire::jail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use journal::Journal;

/// The name the gateway runs under.
const NAME: &str = "pond-gateway";
/// How long a gateway may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum GatewayFault {
    #[error("starting the gateway")]
    Start(#[source] io::Error),
    #[error("writing the gateway's order")]
    Order(#[source] io::Error),
    #[error("talking to the gateway")]
    Talk(#[source] io::Error),
    #[error("the gateway sent something that is no event")]
    Event(#[source] serde_json::Error),
    #[error("the gateway was not serving within {} s", PATIENCE.as_secs())]
    Late,
    #[error("the gateway cannot serve: {0}")]
    Failed(String),
    #[error("the gateway ended before it served")]
    Gone,
}

/// A gateway process of one job.
#[derive(Debug)]
pub struct Gateway {
    control: OwnedFd,
    process: OwnedFd,
    heard: Mutex<Heard>,
}

#[derive(Debug)]
struct Heard {
    /// In one packet with an earlier event, and not asked for yet.
    waiting: VecDeque<Event>,
    journal: Journal,
}

impl Gateway {
    /// Starts `executable` (pond itself) as a gateway. Each of `keys` is read to its end by the gateway alone.
    pub fn start(executable: &Path, order: &Order, keys: &[BorrowedFd<'_>]) -> Result<Self, GatewayFault> {
        let role = role::start(executable, NAME).map_err(GatewayFault::Start)?;
        let bytes = serde_json::to_vec(order).map_err(|fault| GatewayFault::Order(fault.into()))?;
        let order = role::sealed("order", &bytes).map_err(GatewayFault::Order)?;
        let journal = Journal::make().map_err(GatewayFault::Order)?;
        let descriptors: Vec<_> =
            [order.as_fd(), journal.as_fd()].into_iter().chain(keys.iter().copied()).collect();
        pond_sys::socket::send(&role.socket, &[1], &descriptors).map_err(GatewayFault::Talk)?;
        let heard = Mutex::new(Heard { waiting: VecDeque::new(), journal });
        Ok(Self { control: role.socket, process: role.process, heard })
    }

    /// Hands over the listeners made inside, in the plan's order, and waits until they are served.
    pub fn serve(&self, doors: &[jail::Door], listeners: Vec<OwnedFd>) -> Result<(), GatewayFault> {
        let doors = Doors { doors: doors.iter().flat_map(|door| sides(*door)).copied().collect() };
        let text = serde_json::to_vec(&doors).map_err(|fault| GatewayFault::Order(fault.into()))?;
        let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
        match pond_sys::socket::send(&self.control, &text, &descriptors) {
            // It is gone, and has said why before it went.
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => {}
            other => other.map_err(GatewayFault::Talk)?,
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match self.next(until)? {
                Next::Said(Event::Serving) => return Ok(()),
                Next::Said(Event::Failed { reason }) => return Err(GatewayFault::Failed(reason)),
                Next::Said(_earlier) => {}
                Next::Nothing => return Err(GatewayFault::Late),
                Next::End => return Err(GatewayFault::Gone),
            }
        }
    }

    /// What it says next; for ever, if need be.
    pub fn listen(&self) -> Result<Option<Event>, GatewayFault> {
        match self.receive()? {
            Next::Said(event) => Ok(Some(event)),
            Next::Nothing | Next::End => Ok(None),
        }
    }

    /// Asks it to close the doors and say what happened. Whoever listens hears the rest.
    pub fn finish(&self) -> Result<(), GatewayFault> {
        let text = serde_json::to_vec(&Command::Finish).map_err(|fault| GatewayFault::Order(fault.into()))?;
        match pond_sys::socket::send(&self.control, &text, &[]) {
            // It is gone already; the listener knows.
            Err(fault)
                if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&fault.kind()) =>
            {
                Ok(())
            }
            other => other.map_err(GatewayFault::Talk),
        }
    }

    /// Gives it new rules in place of all earlier ones. Whoever listens hears whether they hold.
    pub fn rules(&self, reach: Reach) -> Result<(), GatewayFault> {
        let rules = Command::Rules(reach);
        let text = serde_json::to_vec(&rules).map_err(|fault| GatewayFault::Order(fault.into()))?;
        pond_sys::socket::send(&self.control, &text, &[]).map_err(GatewayFault::Talk)
    }

    /// Lets the models cost this much in all from now on.
    pub fn ceiling(&self, microcents: u64) -> Result<(), GatewayFault> {
        let ceiling = Command::Ceiling { microcents };
        let text = serde_json::to_vec(&ceiling).map_err(|fault| GatewayFault::Order(fault.into()))?;
        pond_sys::socket::send(&self.control, &text, &[]).map_err(GatewayFault::Talk)
    }

    /// Lets its tunnels move this much in all from now on.
    pub fn bytes(&self, total: u64) -> Result<(), GatewayFault> {
        let bytes = Command::Bytes { total };
        let text = serde_json::to_vec(&bytes).map_err(|fault| GatewayFault::Order(fault.into()))?;
        pond_sys::socket::send(&self.control, &text, &[]).map_err(GatewayFault::Talk)
    }

    /// Ends it at once; whoever listens hears the end.
    pub fn kill(&self) {
        if let Err(_dead_already) = pidfd_send_signal(&self.process, Signal::KILL) {}
    }

    fn next(&self, until: Instant) -> Result<Next, GatewayFault> {
        if self.has_spoken() {
            return self.receive();
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| GatewayFault::Late)?;
            match poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(Next::Nothing),
                Ok(_) => return self.receive(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(GatewayFault::Talk(errno.into())),
            }
        }
    }
}

impl AsFd for Gateway {
    /// Readable when it has something new to say, or is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Gateway {
    /// Readable once the process is gone.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Whether something it said has not been listened to yet.
    pub fn has_spoken(&self) -> bool {
        !self.heard().waiting.is_empty()
    }

    /// The next event, of an earlier packet or of a new one; after the last packet, of the journal.
    fn receive(&self) -> Result<Next, GatewayFault> {
        let mut heard = self.heard();
        if heard.waiting.is_empty() {
            let mut buffer = vec![0; MAX_EVENT_BYTES];
            let length = match pond_sys::socket::receive(&self.control, &mut buffer) {
                // One that is killed with commands unread.
                Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => 0,
                received => received.map_err(GatewayFault::Talk)?.0,
            };
            for event in events(buffer.get(..length).unwrap_or_default()) {
                let event = event.map_err(GatewayFault::Event)?;
                heard.journal.heard(&event);
                heard.waiting.push_back(event);
            }
            if length == 0 {
                for line in heard.journal.unheard().map_err(GatewayFault::Talk)? {
                    let event = serde_json::from_slice(&line).map_err(GatewayFault::Event)?;
                    heard.waiting.push_back(event);
                }
            }
        }
        Ok(heard.waiting.pop_front().map_or(Next::End, Next::Said))
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
        if let Err(_reaped_elsewhere) = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED) {}
    }
}

enum Next {
    Said(Event),
    Nothing,
    End,
}

/// The listeners a door of the plan became, in their order.
fn sides(door: jail::Door) -> &'static [Door] {
    match door {
        jail::Door::Proxy => &[Door::Proxy],
        jail::Door::Dns => &[Door::DnsUdp, Door::DnsTcp],
        jail::Door::Front { .. } => &[Door::Tls],
        jail::Door::Any => &[Door::Any],
        jail::Door::Broker => &[Door::Broker],
        jail::Door::Git => &[Door::Git],
    }
}
