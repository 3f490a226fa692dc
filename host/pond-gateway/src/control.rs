//! The socket to the host while the gateway serves: events out, commands in. Zone: host.
//!
//! Invariants: when the host is gone the process ends at once, and with it every tunnel; events leave in the order they
//! happened; a command that is not understood changes nothing and is answered.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pond_policy::model::Microcents;
use pond_wire::gateway::{Command, Event, MAX_EVENT_BYTES, MAX_ORDER_BYTES};
use rustix::io::Errno;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::gateway::Gateway;
use crate::outbox::{Told, Urgency};
use crate::second::caught_up;
use crate::stance::Stance;

/// Events that wait for the host before those who make them do.
pub(crate) const QUEUE: usize = 256;
/// How long the end of a tunnel may wait for something to travel with, and its beginning after a packet: each wakes the host,
/// and tunnels wait for the processor it takes. No longer, since a host that is killed has not read what waits.
const BREATH: Duration = Duration::from_millis(1);
/// How often refusals that were only counted are told.
const FLOOD_EVERY: Duration = Duration::from_secs(10);
/// How long tunnels and model calls may take to record their end when the job is over.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why the conversation ended.
#[derive(Debug, Error)]
pub(crate) enum ControlFault {
    #[error("watching the control socket")]
    Watch(#[source] io::Error),
    #[error("the host is gone")]
    HostGone,
    #[error("talking to the host")]
    Talk(#[source] io::Error),
    #[error("encoding an event")]
    Encode(#[source] serde_json::Error),
}

/// Both directions of the conversation.
#[derive(Debug)]
pub(crate) struct Control {
    /// Watched for what comes in alone: whoever watched for room as well would be woken by every packet the host takes.
    socket: AsyncFd<OwnedFd>,
    /// The same socket, watched for room when there is none. It is had beforehand: descriptors may run out.
    outlet: OwnedFd,
    /// The thread that hears of rules and of the end later than this one.
    second: Handle,
}

impl Control {
    pub(crate) fn new(socket: OwnedFd, second: Handle) -> Result<Self, ControlFault> {
        let watch = |errno: Errno| ControlFault::Watch(errno.into());
        rustix::io::ioctl_fionbio(&socket, true).map_err(watch)?;
        let outlet = rustix::io::fcntl_dupfd_cloexec(&socket, 3).map_err(watch)?;
        let socket = watched(socket, Interest::READABLE).map_err(ControlFault::Watch)?;
        Ok(Self { socket, outlet, second })
    }

    /// Talks until the host says that the job is over, or is gone.
    pub(crate) async fn run(
        &self,
        gateway: &Gateway,
        mut events: mpsc::Receiver<Told>,
    ) -> Result<(), ControlFault> {
        let mut known = Vec::new();
        let finished = tokio::select! {
            heard = self.listen(gateway) => heard,
            told = self.report(&mut events, &mut known) => told,
            never = tell_floods(gateway) => match never {},
            never = ask_for_bytes(gateway) => match never {},
        };
        finished?;
        self.say_farewell(gateway, &mut events, known).await
    }

    /// Obeys commands until the last one.
    async fn listen(&self, gateway: &Gateway) -> Result<(), ControlFault> {
        let mut packet = vec![0; usize::try_from(MAX_ORDER_BYTES).unwrap_or(usize::MAX)];
        loop {
            let length = self.receive(&mut packet).await?;
            let answer = match serde_json::from_slice(packet.get(..length).unwrap_or_default()) {
                Ok(Command::Finish) => return Ok(()),
                Ok(Command::Ceiling { microcents }) => {
                    if let Some(broker) = gateway.broker.get() {
                        broker.raise(Microcents(microcents));
                    }
                    continue;
                }
                Ok(Command::Bytes { total }) => {
                    gateway.tunnels.lend(total);
                    continue;
                }
                Ok(Command::Rules(reach)) => match Stance::new(&reach) {
                    Ok(stance) => {
                        gateway.rules.send_replace(Arc::new(stance));
                        // The answer means that no byte goes any more where none may.
                        caught_up(&self.second).await;
                        Event::RulesReplaced
                    }
                    Err(fault) => Event::RulesRefused { reason: fault.to_string() },
                },
                Err(fault) => Event::RulesRefused { reason: fault.to_string() },
            };
            gateway.ledger.tell(answer).await.map_err(|_| ControlFault::HostGone)?;
        }
    }

    async fn receive(&self, packet: &mut [u8]) -> Result<usize, ControlFault> {
        let receive = |socket: &OwnedFd| pond_sys::socket::receive(socket, packet);
        match self.socket.async_io(Interest::READABLE, receive).await {
            Ok((0, _)) => Err(ControlFault::HostGone),
            Ok((length, _)) => Ok(length),
            Err(fault) => Err(lost(fault)),
        }
    }

    /// Tells the host what happens, all that is known by now in as few packets as it fits. What was taken from the queue
    /// and not told yet stays in `known` when this is dropped.
    async fn report(
        &self,
        events: &mut mpsc::Receiver<Told>,
        known: &mut Vec<Told>,
    ) -> Result<(), ControlFault> {
        loop {
            self.send_all(known).await?;
            let sent = Instant::now();
            if events.recv_many(known, QUEUE).await == 0 {
                return Ok(());
            }
            gather(events, known, sent).await;
        }
    }

    /// Sends them packet by packet; what has been sent is no longer there.
    async fn send_all(&self, events: &mut Vec<Told>) -> Result<(), ControlFault> {
        while !events.is_empty() {
            let (packet, taken) = packed(events);
            self.send_packet(&packet).await?;
            events.drain(..taken);
        }
        Ok(())
    }

    pub(crate) async fn send(&self, event: Event) -> Result<(), ControlFault> {
        self.send_all(&mut vec![Told::last(&event).map_err(ControlFault::Encode)?]).await
    }

    async fn send_packet(&self, packet: &[u8]) -> Result<(), ControlFault> {
        loop {
            match pond_sys::socket::send(&self.outlet, packet, &[]) {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => self.room().await?,
                other => return other.map_err(lost),
            }
        }
    }

    /// Waits until the host has taken something.
    async fn room(&self) -> Result<(), ControlFault> {
        let outlet = watched(self.outlet.as_fd(), Interest::WRITABLE).map_err(ControlFault::Watch)?;
        outlet.writable().await.map(drop).map_err(ControlFault::Watch)
    }

    /// Ends every tunnel, lets each and every model call record its end, and sums up. What is set aside for a call that does
    /// not end is spent.
    async fn say_farewell(
        &self,
        gateway: &Gateway,
        events: &mut mpsc::Receiver<Told>,
        mut known: Vec<Told>,
    ) -> Result<(), ControlFault> {
        gateway.rules.send_replace(Arc::new(Stance::Ended));
        let quiet = async {
            // A tunnel that was allowed before this has its slot by then.
            caught_up(&self.second).await;
            while gateway.tunnels.open() > 0 || gateway.set_aside() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(LAST_WORDS, quiet) => {}
            told = self.report(events, &mut known) => told?,
        }
        // Whoever finds no place from here on opens nothing.
        events.close();
        while let Some(told) = events.recv().await {
            known.push(told);
        }
        gateway.ledger.unsettled(gateway.set_aside());
        for event in gateway.ledger.take_flood().into_iter().chain(gateway.ledger.summary()) {
            known.push(Told::last(&event).map_err(ControlFault::Encode)?);
        }
        self.send_all(&mut known).await
    }
}

/// Lets others join who do not wait either, unless somebody is in a hurry. `sent` is when the last packet was.
async fn gather(events: &mut mpsc::Receiver<Told>, known: &mut Vec<Told>, sent: Instant) {
    let begun = Instant::now();
    let until = |told: &Told| match told.urgency {
        Urgency::AtOnce => begun,
        Urgency::Soon => sent + BREATH,
        Urgency::InCompany => begun + BREATH,
    };
    let until = known.iter().map(until).min().unwrap_or(begun);
    let left = until.saturating_duration_since(begun);
    if left.is_zero() {
        return;
    }
    // The queue is not watched meanwhile: every event of the other thread would wake this one.
    tokio::time::sleep(left).await;
    let room = QUEUE.saturating_sub(known.len());
    known.extend(std::iter::from_fn(|| events.try_recv().ok()).take(room));
}

/// Has the runtime watch a descriptor for one thing.
#[expect(
    deprecated,
    reason = "its successor is unsafe for descriptors that change; the type says that these do not"
)]
pub(crate) fn watched<T: AsFd + AsRawFd>(socket: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(socket, interest)
}

/// As many events from the front as one packet holds, and how many those are.
fn packed(events: &[Told]) -> (Vec<u8>, usize) {
    let (mut packet, mut taken) = (Vec::new(), 0);
    for Told { line, .. } in events {
        if taken > 0 && packet.len() + line.len() > MAX_EVENT_BYTES {
            break;
        }
        packet.extend_from_slice(line);
        taken += 1;
    }
    (packet, taken)
}

/// A host that closed its end is gone, whichever call notices.
fn lost(fault: io::Error) -> ControlFault {
    if matches!(fault.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
        return ControlFault::HostGone;
    }
    ControlFault::Talk(fault)
}

/// The host hears of every question: it is asked once for all who wait.
async fn ask_for_bytes(gateway: &Gateway) -> std::convert::Infallible {
    loop {
        gateway.tunnels.short().await;
        let short = Event::ShortBytes { moved: gateway.tunnels.moved() };
        gateway.ledger.tell(short).await.unwrap_or_default();
    }
}

async fn tell_floods(gateway: &Gateway) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(FLOOD_EVERY).await;
        if let Some(flood) = gateway.ledger.take_flood() {
            // The reporting side notices a host that is gone.
            gateway.ledger.tell(flood).await.unwrap_or_default();
        }
    }
}
