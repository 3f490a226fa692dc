//! A request body, read whole under a cap: its content is judged before any of it goes upstream. A body that is too
//! large is refused by its announced length, or at the byte that crosses the cap, and never held.

use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::chunked::{ChunkFault, ChunkedDecoder};
use super::framing::Framing;

const STEP: usize = 64 << 10;
/// A body whose sender falls silent for this long is given up.
const IDLE: Duration = Duration::from_secs(30);
/// And one that dribbles for this long as well.
const TOTAL: Duration = Duration::from_secs(300);

#[derive(Debug, Error)]
pub enum BodyFault {
    #[error("the body is larger than {most} bytes")]
    TooLarge { most: u64 },
    #[error("the body ended early")]
    Closed,
    #[error("the body did not arrive in time")]
    Late,
    #[error("reading the body failed")]
    Read(#[source] std::io::Error),
    #[error("the body is not chunked as HTTP says")]
    Chunks(#[source] ChunkFault),
}

impl BodyFault {
    /// The status to refuse with; none where nobody is left to read it.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::TooLarge { .. } => Some(413),
            Self::Late => Some(408),
            Self::Chunks(_) => Some(400),
            Self::Closed | Self::Read(_) => None,
        }
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "body_too_large",
            Self::Closed => "body_closed",
            Self::Late => "body_late",
            Self::Read(_) => "body_unreadable",
            Self::Chunks(_) => "body_chunks",
        }
    }
}

/// Reads the body that `framing` names; what followed it stays in `buffer`.
pub async fn read_body<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut Vec<u8>,
    framing: Framing,
    most: u64,
) -> Result<Vec<u8>, BodyFault> {
    let read = async {
        match framing {
            Framing::Empty => Ok(Vec::new()),
            Framing::Length(length) if length > most => Err(BodyFault::TooLarge { most }),
            Framing::Length(length) => {
                let length = usize::try_from(length).map_err(|_| BodyFault::TooLarge { most })?;
                exact(stream, buffer, length).await
            }
            Framing::Chunked => chunks(stream, buffer, most).await,
        }
    };
    tokio::time::timeout(TOTAL, read).await.unwrap_or(Err(BodyFault::Late))
}

async fn exact<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut Vec<u8>,
    length: usize,
) -> Result<Vec<u8>, BodyFault> {
    let mut body: Vec<u8> = buffer.drain(..length.min(buffer.len())).collect();
    // Grown as bytes arrive: an announced length is not yet a reason to hold memory.
    while body.len() < length {
        let room = (length - body.len()).min(STEP);
        more(stream, &mut body, room).await?;
    }
    Ok(body)
}

async fn chunks<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut Vec<u8>,
    most: u64,
) -> Result<Vec<u8>, BodyFault> {
    let (mut decoder, mut body) = (ChunkedDecoder::default(), Vec::new());
    loop {
        let fed = decoder.feed(buffer, &mut body).map_err(BodyFault::Chunks)?;
        buffer.drain(..fed.consumed.min(buffer.len()));
        if u64::try_from(body.len()).unwrap_or(u64::MAX) > most {
            return Err(BodyFault::TooLarge { most });
        }
        if fed.done {
            return Ok(body);
        }
        more(stream, buffer, STEP).await?;
    }
}

async fn more<R: AsyncRead + Unpin>(stream: &mut R, out: &mut Vec<u8>, room: usize) -> Result<(), BodyFault> {
    let mut limited = stream.take(u64::try_from(room).unwrap_or(0));
    out.reserve(room);
    let read = tokio::time::timeout(IDLE, limited.read_buf(out)).await;
    match read.map_err(|_| BodyFault::Late)?.map_err(BodyFault::Read)? {
        0 => Err(BodyFault::Closed),
        _ => Ok(()),
    }
}
