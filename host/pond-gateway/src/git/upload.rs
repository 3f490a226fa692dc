//! A request's body on its way: read from the client as the far side takes it, never held whole. Zone: host, reading hostile bytes.
//! Invariant: a body that broke off is an error to the far side, and never an end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::http::{ChunkedDecoder, Framing};

const STEP: usize = 64 << 10;
const AHEAD: usize = 2;
/// Git is silent while it packs what it is about to send.
const SILENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Error)]
pub(super) enum UploadFault {
    #[error("the body ended early")]
    Closed,
    #[error("the body did not arrive in time")]
    Late,
    #[error("the body is not chunked as HTTP says")]
    Chunks,
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// The end that is read from the client.
pub(super) struct Upload {
    framing: Framing,
    pieces: mpsc::Sender<Piece>,
}

/// The end that the far side gets.
pub(super) struct Uploaded {
    length: Option<u64>,
    pieces: mpsc::Receiver<Piece>,
    has_ended: bool,
}

pub(super) fn pair(framing: Framing) -> (Upload, Uploaded) {
    let (sender, pieces) = mpsc::channel(AHEAD);
    let length = match framing {
        Framing::Empty => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked => None,
    };
    let has_ended = length == Some(0);
    (Upload { framing, pieces: sender }, Uploaded { length, pieces, has_ended })
}

impl Upload {
    /// Until all of it is on its way. Whoever stops waiting for it breaks it off.
    pub(super) async fn pump<R: AsyncRead + Unpin>(
        self,
        stream: &mut R,
        buffer: &mut Vec<u8>,
    ) -> Result<(), UploadFault> {
        match self.framing {
            Framing::Empty => return Ok(()),
            Framing::Length(length) => self.plain(stream, buffer, length).await?,
            Framing::Chunked => self.chunks(stream, buffer).await?,
        }
        self.send(Piece::End).await;
        Ok(())
    }

    async fn plain<R: AsyncRead + Unpin>(
        &self,
        stream: &mut R,
        buffer: &mut Vec<u8>,
        length: u64,
    ) -> Result<(), UploadFault> {
        let mut left = length;
        while left > 0 {
            if buffer.is_empty() {
                more(stream, buffer).await?;
            }
            let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece: Vec<u8> = buffer.drain(..count).collect();
            left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            self.send(Piece::Bytes(piece.into())).await;
        }
        Ok(())
    }

    async fn chunks<R: AsyncRead + Unpin>(
        &self,
        stream: &mut R,
        buffer: &mut Vec<u8>,
    ) -> Result<(), UploadFault> {
        let mut decoder = ChunkedDecoder::default();
        loop {
            let mut piece = Vec::new();
            let fed = decoder.feed(buffer, &mut piece).map_err(|_| UploadFault::Chunks)?;
            buffer.drain(..fed.consumed.min(buffer.len()));
            if !piece.is_empty() {
                self.send(Piece::Bytes(piece.into())).await;
            }
            if fed.done {
                return Ok(());
            }
            more(stream, buffer).await?;
        }
    }

    /// A far side that takes no more answers early, and whoever waits for the answer hears it.
    async fn send(&self, piece: Piece) {
        if self.pieces.send(piece).await.is_err() {
            std::future::pending().await
        }
    }
}

async fn more<R: AsyncRead + Unpin>(stream: &mut R, buffer: &mut Vec<u8>) -> Result<(), UploadFault> {
    buffer.reserve(STEP);
    let mut limited = stream.take(STEP as u64);
    match tokio::time::timeout(SILENCE, limited.read_buf(buffer)).await {
        Err(_) => Err(UploadFault::Late),
        Ok(Ok(1..)) => Ok(()),
        Ok(Ok(0) | Err(_)) => Err(UploadFault::Closed),
    }
}

impl Body for Uploaded {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = self.get_mut();
        if body.has_ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(body.pieces.poll_recv(context)) {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => {
                body.has_ended = true;
                None
            }
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn carried(framing: Framing, sent: &[u8]) -> (Result<(), String>, Result<Vec<u8>, io::ErrorKind>) {
        let (upload, uploaded) = pair(framing);
        let (mut stream, mut buffer) = (sent, Vec::new());
        let (pumped, body) = tokio::join!(upload.pump(&mut stream, &mut buffer), uploaded.collect());
        (
            pumped.map_err(|fault| fault.to_string()),
            body.map(|body| body.to_bytes().to_vec()).map_err(|e| e.kind()),
        )
    }

    #[tokio::test]
    async fn a_body_arrives_whole_or_not_at_all() {
        let whole = |text: &[u8]| (Ok(()), Ok(text.to_vec()));
        assert_eq!(carried(Framing::Empty, b"").await, whole(b""));
        assert_eq!(carried(Framing::Length(4), b"packrest").await, whole(b"pack"));
        assert_eq!(carried(Framing::Chunked, b"2\r\npa\r\n2\r\nck\r\n0\r\n\r\n").await, whole(b"pack"));
        let broken = |why: &str| (Err(why.to_owned()), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(carried(Framing::Length(5), b"pack").await, broken("the body ended early"));
        assert_eq!(carried(Framing::Chunked, b"2\r\npa\r\n").await, broken("the body ended early"));
        assert_eq!(
            carried(Framing::Chunked, b"2\r\npa\r\nzz").await,
            broken("the body is not chunked as HTTP says")
        );
    }
}
