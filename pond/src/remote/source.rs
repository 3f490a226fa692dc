//! The source of a run on its way to the control plane: packed by a thread of its own while it is sent, so that nothing of it is
//! held or written here. The server's hash of what came must be ours of what went.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::Method;
use hyper::body::Bytes;
use pond_sandbox::checkout::Checkout;
use pond_wire::api::SourceReply;
use pond_worker::pack::{Packed, pack};
use tokio::sync::mpsc::{Sender, channel};

use crate::client::body::{Broken, Content, Piece};
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::{output, runs};

/// Pieces that wait to be sent, of 64 KiB each.
const AHEAD: usize = 32;
const BETWEEN: Duration = Duration::from_millis(200);

/// Packs and sends the directory, and names what the server keeps it under.
pub(super) async fn send(server: &Server, project: &str, directory: &Path) -> anyhow::Result<SourceReply> {
    let checkout =
        Checkout::open(directory).with_context(|| format!("the source {}", directory.display()))?;
    // A job would read the keys and tokens in it.
    checkout.keep_apart(&runs::state()?)?;
    let (to, from) = channel(AHEAD);
    let packing = std::thread::spawn(move || packed(&checkout, to));
    let target = Target::new(&["sources"]).with("project", project);
    let sent = server.json(Call::new(Method::POST, target, Content::Stream(from))).await;
    let packed = packing.join().map_err(|_| anyhow::anyhow!("packing the source failed"))?;
    let reply: SourceReply = match (sent, packed) {
        (Ok(reply), Ok(packed)) => checked(reply, &packed)?,
        // A server that refused stopped reading: its word is the reason, not that nobody took the rest.
        (Err(fault), Ok(_)) => return Err(fault.into()),
        (Err(fault), Err(broken)) if is_unread(&broken) => return Err(fault.into()),
        (_, Err(broken)) => return Err(anyhow::Error::from(broken).context("packing the source")),
    };
    Ok(reply)
}

fn packed(checkout: &Checkout, to: Sender<Piece>) -> Result<Packed, pond_worker::pack::PackFault> {
    let mut pipe = Pipe { to, sent: 0, shown: None, watched: io::stderr().is_terminal() };
    let packed = pack(checkout, &mut pipe);
    pipe.clear();
    if packed.is_err() {
        // The request must break off here; a stream that just ended would be a source.
        if pipe.to.blocking_send(Err(Broken)).is_err() {}
    }
    packed
}

fn is_unread(fault: &pond_worker::pack::PackFault) -> bool {
    matches!(fault, pond_worker::pack::PackFault::Write(source) if source.kind() == io::ErrorKind::BrokenPipe)
}

fn checked(reply: SourceReply, packed: &Packed) -> anyhow::Result<SourceReply> {
    if packed.skipped > 0 {
        let (count, names) = (packed.skipped, packed.skipped_names.join(", "));
        output::say(&output::plain(&format!(
            "pond: not in the source: {count} special or unreadable: {names}"
        )));
    }
    if reply.input_sha256 != packed.input.to_string() {
        bail!("the server has another source than the one that was sent; nothing was submitted");
    }
    Ok(reply)
}

/// What packing writes to: pieces for the request, and a line for a person.
struct Pipe {
    to: Sender<Piece>,
    sent: u64,
    shown: Option<Instant>,
    watched: bool,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.to.blocking_send(piece).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.sent += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.show();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pipe {
    fn show(&mut self) {
        let now = Instant::now();
        if !self.watched || self.shown.is_some_and(|last| now.duration_since(last) < BETWEEN) {
            return;
        }
        self.shown = Some(now);
        let sent = self.sent >> 10;
        // A terminal that takes nothing keeps nothing from going on.
        if write!(io::stderr(), "\r\x1b[Kpond: sent {}.{} MiB", sent >> 10, ((sent & 1023) * 10) >> 10)
            .is_err()
        {}
    }

    fn clear(&self) {
        if self.shown.is_some() && write!(io::stderr(), "\r\x1b[K").is_err() {}
    }
}
