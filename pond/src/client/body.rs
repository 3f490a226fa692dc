//! What a request carries: nothing, bytes, or a stream that another thread fills while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// A piece of a stream, or why there will be no more: then the request breaks off, and nobody takes a part for the whole.
pub(crate) type Piece = Result<Bytes, Broken>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what was being sent came to no end")]
pub(crate) struct Broken;

#[derive(Debug)]
pub(crate) enum Content {
    Nothing,
    Json(Vec<u8>),
    /// A run document as its author wrote it.
    Document(Vec<u8>),
    /// A file, whatever it holds.
    Bytes(Vec<u8>),
    Stream(Receiver<Piece>),
}

impl Content {
    pub(crate) fn json(value: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::Json)
    }

    pub(super) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Json(_) => Some("application/json"),
            Self::Document(_) => Some("application/yaml"),
            Self::Bytes(_) => Some("application/octet-stream"),
            Self::Stream(_) => Some(pond_wire::api::TREE_TYPE),
        }
    }
}

/// [`Content`] on its way.
pub(super) enum Sent {
    Whole(Option<Bytes>),
    Stream(Receiver<Piece>),
}

impl From<Content> for Sent {
    fn from(content: Content) -> Self {
        match content {
            Content::Nothing => Self::Whole(None),
            Content::Json(bytes) | Content::Document(bytes) | Content::Bytes(bytes) => {
                Self::Whole(Some(bytes.into()))
            }
            Content::Stream(receiver) => Self::Stream(receiver),
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(receiver) => receiver.poll_recv(context).map(|piece| Some(piece?.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(
                bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            ),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
