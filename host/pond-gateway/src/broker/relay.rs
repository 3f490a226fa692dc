//! Passing an answer on: bytes as they come, one write for each piece, the meter looking on. It ends with the answer, with
//! the client, with the upstream or at the ceiling, and every end settles the bill.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::admit::Bill;
use super::denied::{Denied, Dialect};
use super::headers::to_client;
use super::hide::HideUsage;
use super::key::Key;
use super::meter::{Meter, Shape};
use super::record::Outcome;
use super::scrub::{FRAGMENT, RUN, Scrubber};
use crate::http::{MAX_HEAD, Version};

/// Longer than any client waits between two events.
const SILENCE: Duration = Duration::from_secs(600);
/// An error longer than this is cut.
const MOST_ERROR: usize = 1 << 20;

/// How an answer is framed for this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Length(u64),
    Chunked,
    /// Until the connection ends.
    Close,
}

/// What is needed to pass one answer on.
pub(super) struct Relay<'r, S> {
    pub(super) stream: &'r mut S,
    /// Bytes the client sent ahead.
    pub(super) buffer: &'r mut Vec<u8>,
    pub(super) key: &'r Key,
    pub(super) dialect: Dialect,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) hides_usage: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relay<'_, S> {
    /// An answer that is not a success: whole, without any fragment of the key. Errors are not billed.
    pub(super) async fn error(&mut self, response: Response<Incoming>) -> Outcome {
        let (parts, mut body) = response.into_parts();
        let mut text = Vec::new();
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE, body.frame()).await {
            text.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
            if text.len() > MOST_ERROR {
                text.truncate(MOST_ERROR);
                break;
            }
        }
        let mut scrubber = Scrubber::new(self.key, FRAGMENT);
        let mut text = scrubber.feed(&text);
        text.extend(scrubber.finish());
        let length = u64::try_from(text.len()).unwrap_or(0);
        let mut answer = self.head(parts.status, &parts.headers, Frame::Length(length));
        answer.extend(text);
        if self.write(&answer).await { Outcome::Served } else { Outcome::ClientLeft }
    }

    /// A success. The meter is fed what the client is sent; the bill grows with it while the ceiling allows.
    pub(super) async fn success(
        &mut self,
        response: Response<Incoming>,
        bill: &mut Option<Bill>,
        meter: &mut Meter,
    ) -> Outcome {
        let (parts, mut body) = response.into_parts();
        let frame = self.frame(body.size_hint().exact());
        if !self.write(&self.head(parts.status, &parts.headers, frame)).await {
            return Outcome::ClientLeft;
        }
        let mut scrubber = Scrubber::new(self.key, RUN);
        let mut hide = self.hides_usage.then(HideUsage::default);
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, body.frame()) => next,
                () = client_left(self.stream, self.buffer) => return Outcome::ClientLeft,
            };
            let piece = match next {
                Err(_) => return Outcome::Failed("upstream_silent"),
                Ok(Some(Err(_))) => return Outcome::Failed("upstream_broken"),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(None) => break,
            };
            meter.feed(&piece);
            if let Err(denied) = within_ceiling(bill, meter) {
                return self.cut(&denied, frame).await;
            }
            let out = scrubber.feed(&piece);
            let out = hide.as_mut().map_or_else(|| out.clone(), |hide| hide.feed(&out));
            if !self.write_piece(out, frame).await {
                return Outcome::ClientLeft;
            }
        }
        let rest = scrubber.finish();
        let rest = hide.map_or_else(|| rest.clone(), |mut hide| [hide.feed(&rest), hide.finish()].concat());
        let ended = self.write_piece(rest, frame).await
            && (frame != Frame::Chunked || self.write(b"0\r\n\r\n").await);
        if ended { Outcome::Served } else { Outcome::ClientLeft }
    }

    /// Ends a stream at the ceiling, in the words of its API.
    async fn cut(&mut self, denied: &Denied, frame: Frame) -> Outcome {
        // A piece may have ended inside an event; an empty line ends that event first.
        let event = [b"\n\n".to_vec(), denied.event(self.dialect)].concat();
        match frame {
            Frame::Chunked => {
                let _told = self.write_piece(event, frame).await && self.write(b"0\r\n\r\n").await;
            }
            Frame::Close => {
                let _told = self.write(&event).await;
            }
            Frame::Length(_) => {}
        }
        Outcome::Cut
    }

    fn frame(&self, length: Option<u64>) -> Frame {
        match (length, self.version) {
            (Some(length), _) if !self.hides_usage => Frame::Length(length),
            (_, Version::Http11) => Frame::Chunked,
            (_, Version::Http10) => Frame::Close,
        }
    }

    fn head(&self, status: StatusCode, headers: &http::HeaderMap, frame: Frame) -> Vec<u8> {
        let reason = status.canonical_reason().unwrap_or("Status");
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        for (name, value) in to_client(headers, self.key) {
            field(&name, &value);
        }
        match frame {
            Frame::Length(length) => field("content-length", length.to_string().as_bytes()),
            Frame::Chunked => field("transfer-encoding", b"chunked"),
            Frame::Close => {}
        }
        if !self.keep_alive || frame == Frame::Close {
            field("connection", b"close");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    async fn write_piece(&mut self, piece: Vec<u8>, frame: Frame) -> bool {
        if piece.is_empty() {
            return true;
        }
        match frame {
            Frame::Length(_) | Frame::Close => self.write(&piece).await,
            Frame::Chunked => {
                let size = format!("{:x}\r\n", piece.len());
                self.write(&[size.as_bytes(), &piece, b"\r\n"].concat()).await
            }
        }
    }

    /// One write, so that an event leaves in one segment. `false`: the client is gone, or reads nothing.
    async fn write(&mut self, bytes: &[u8]) -> bool {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        matches!(tokio::time::timeout(SILENCE, write).await, Ok(Ok(())))
    }
}

/// Whether the body's bytes are something else than its text, though plain text was asked for. The key could not be
/// found in them, nor the usage.
pub(crate) fn is_encoded(headers: &http::HeaderMap) -> bool {
    let other = |name: http::HeaderName, plain: &[u8]| {
        headers.get_all(name).iter().any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(plain))
    };
    other(http::header::CONTENT_ENCODING, b"identity") || other(http::header::TRANSFER_ENCODING, b"chunked")
}

/// How an answer will be metered.
pub(super) fn shape(response: &Response<Incoming>) -> Shape {
    let headers = response.headers();
    let kind = headers.get(http::header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let is = |wanted: &[u8]| kind.get(..wanted.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(wanted));
    if is(b"text/event-stream") {
        Shape::Stream
    } else if is(b"application/json") {
        Shape::Document
    } else {
        Shape::Opaque
    }
}

fn within_ceiling(bill: &mut Option<Bill>, meter: &Meter) -> Result<(), Denied> {
    let Some(bill) = bill else { return Ok(()) };
    let spent = meter.so_far().spent_so_far(&bill.price);
    bill.reservation.grow_to(spent).map_err(Denied::over_budget)
}

/// Returns when the client has closed, or has sent ahead more than is held for it.
pub(super) async fn client_left<R: AsyncRead + Unpin>(stream: &mut R, buffer: &mut Vec<u8>) {
    let mut ahead = [0; 1024];
    while buffer.len() < MAX_HEAD {
        match stream.read(&mut ahead).await {
            Ok(count) if count > 0 => buffer.extend_from_slice(ahead.get(..count).unwrap_or_default()),
            Ok(_) | Err(_) => return,
        }
    }
}
