//! The far side of a tunnel for somebody who speaks with it in the job's place: the same bytes are counted, and the same caps hold.
//! Zone: host.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::meter::{Flow, Meter, Side};
use crate::tunnels::Claim;

/// A connection whose bytes are a tunnel's. One whose tunnel may move no more is broken.
#[derive(Debug)]
pub(crate) struct Counted<'p> {
    stream: &'p TcpStream,
    meter: &'p Meter,
}

impl<'p> Counted<'p> {
    pub(crate) fn new(stream: &'p TcpStream, meter: &'p Meter) -> Self {
        Self { stream, meter }
    }

    /// Leave to move some of `wanted`. While the other thread claims all that is left, it is asked for again.
    fn claim(&self, context: &Context<'_>, wanted: usize) -> Poll<io::Result<Claim<'p>>> {
        match self.meter.claim_now(wanted) {
            Ok(Some(claim)) => Poll::Ready(Ok(claim)),
            Ok(None) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(_) => Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
        }
    }
}

impl AsyncRead for Counted<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let claim = ready!(self.claim(context, into.remaining()))?;
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(into.initialize_unfilled_to(claim.size())) {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
                Err(fault) => return Poll::Ready(Err(fault)),
                Ok(count) => {
                    into.advance(count);
                    Flow::new(self.meter, Side::Upstream).moves(claim, count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let claim = ready!(self.claim(context, bytes.len()))?;
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes.get(..claim.size()).unwrap_or_default()) {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
                Err(fault) => return Poll::Ready(Err(fault)),
                Ok(count) => {
                    Flow::new(self.meter, Side::Client).moves(claim, count);
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(self.stream, Shutdown::Write).map_err(io::Error::from))
    }
}
