//! A job's source: fetched once, decrypted while it comes, unpacked into a private directory, and compared with what was offered.
//! Nothing of it is for a job before the last byte was there and the hash is the offer's.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use hyper::body::Bytes;
use pond_policy::limits::Limits;
use pond_seal::Digest;
use pond_seal::bundle::{BundleFault, DataKey, Decrypting};
use pond_seal::offer::{Offer, Source};
use pond_seal::seal::{OpenFault, Release, Subject};
use pond_seal::tree::{Listing, TreeFault};
use pond_wire::orch::{self, Body, BodyFault, Lease, Redeem, RedeemReply, Route, SealReply, Version};
use pond_wire::tree::TreeCaps;
use tokio::sync::mpsc;

use super::session::{CallFault, PATIENCE, Session};
use crate::link::{LinkFault, Reply};
use crate::pack;
use crate::unpack::{UnpackFault, unpack};

/// How long a server may be silent in the middle of a bundle.
const SILENCE: Duration = Duration::from_secs(60);
/// The code of a token that was redeemed before.
const TOKEN_SPENT: &str = "bundle_token";
/// Pieces that wait to be decrypted.
const AHEAD: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum SourceFault {
    #[error("redeeming the bundle")]
    Call(#[from] CallFault),
    #[error("the control plane does not release the bundle's key: {0}")]
    Withheld(String),
    #[error("the bundle's key")]
    Release(#[from] OpenFault),
    #[error("the bundle's key is none")]
    Key(#[from] BundleFault),
    #[error("the answer before the bundle")]
    Head(#[from] BodyFault),
    #[error("the bundle has {has} bytes; the job's disk has room for {most}")]
    TooLarge { has: u64, most: u64 },
    #[error("receiving the bundle")]
    Link(#[from] LinkFault),
    #[error("unpacking the bundle")]
    Unpack(#[from] UnpackFault),
    #[error("opening the place for the source")]
    Place(#[source] io::Error),
    #[error("what was unpacked is not the input that was offered")]
    Input,
    #[error("naming an empty source")]
    Empty(#[from] TreeFault),
    #[error("the one who unpacks is gone")]
    Gone,
}

impl SourceFault {
    /// Stable; the documents list it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Call(_) | Self::Link(_) => "source_unreachable",
            Self::Withheld(_) => "source_withheld",
            Self::Release(fault) => fault.code(),
            Self::Key(fault) => fault.code(),
            Self::Head(fault) => fault.code(),
            Self::TooLarge { .. } => "source_too_large",
            Self::Unpack(_) | Self::Place(_) | Self::Gone => "source_unpack",
            Self::Input => "input_mismatch",
            Self::Empty(fault) => fault.code(),
        }
    }
}

impl SourceFault {
    /// Whether another try may go well: something broke on the way, or the answer to the one redemption got lost.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Call(CallFault::Refused { code, .. }) => code == TOKEN_SPENT,
            Self::Call(fault) => fault.may_pass(),
            Self::Link(_) | Self::Head(_) | Self::Gone => true,
            Self::Withheld(_)
            | Self::Release(_)
            | Self::Key(_)
            | Self::TooLarge { .. }
            | Self::Unpack(_)
            | Self::Place(_)
            | Self::Input
            | Self::Empty(_) => false,
        }
    }
}

/// What a source may have on a job's disk.
fn caps(limits: Option<Limits>) -> TreeCaps {
    limits.map_or(pack::CAPS, |limits| TreeCaps { entries: limits.disk.inodes, bytes: limits.disk.bytes })
}

/// Fills the empty directory `into` with what the offer says.
pub(super) async fn fetch(
    session: &Session,
    offer: &Offer,
    lease: &Lease,
    limits: Option<Limits>,
    into: &Path,
) -> Result<(), SourceFault> {
    let unpacked = match &offer.source {
        Source::Empty {} => Listing::default().finish()?,
        Source::Bundle { token } => bundle(session, offer, lease, token, caps(limits), into).await?,
    };
    if unpacked == offer.input { Ok(()) } else { Err(SourceFault::Input) }
}

async fn bundle(
    session: &Session,
    offer: &Offer,
    lease: &Lease,
    token: &str,
    caps: TreeCaps,
    into: &Path,
) -> Result<Digest, SourceFault> {
    let body = Redeem { version: Version, lease: lease.clone(), token: token.to_owned() };
    let (mut reply, _) = session.send(Route::Redeem, &body, PATIENCE).await?;
    let (head, first) = head(&mut reply).await?;
    if head.bytes > caps.bytes {
        return Err(SourceFault::TooLarge { has: head.bytes, most: caps.bytes });
    }
    let release = match head.key {
        SealReply::Released(release) => Release::from_bytes(release.into_bytes()),
        SealReply::Refused(code) => return Err(SourceFault::Withheld(code.as_str().to_owned())),
    };
    let context = offer.seal_context(Subject::BundleKey);
    let key = DataKey::from_secret(&release.open(&session.control, &session.identity.opening, &context)?)?;
    let target = File::open(into).map_err(SourceFault::Place)?;
    let (pieces, arriving) = mpsc::channel(AHEAD);
    let unpacking = tokio::task::spawn_blocking(move || {
        let mut plain = Decrypting::new(Arriving { pieces: arriving, rest: Bytes::new() }, &key, caps.bytes)
            .map_err(UnpackFault::Read)?;
        unpack(&mut plain, target.as_fd(), caps)
    });
    let passed = pass(&mut reply, first, head.bytes, pieces).await;
    // What went wrong at the far end says more than that it stopped listening.
    let unpacked = unpacking.await.map_err(|_| SourceFault::Gone)?;
    match (unpacked, passed) {
        (_, Err(fault @ SourceFault::Link(_))) => Err(fault),
        (unpacked, _) => Ok(unpacked?),
    }
}

/// The line of JSON before the ciphertext, and what came of that with it.
async fn head(reply: &mut Reply<'_>) -> Result<(RedeemReply, Bytes), SourceFault> {
    let mut bytes = Vec::new();
    loop {
        let piece = reply.piece(SILENCE).await?.unwrap_or_default();
        let is_end = piece.is_empty();
        bytes.extend_from_slice(&piece);
        if let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let rest = bytes.split_off(at);
            let head = orch::decode(&bytes)?;
            return Ok((head, Bytes::from(rest).slice(1..)));
        }
        if is_end || bytes.len() > RedeemReply::MOST_BYTES {
            return Ok((orch::decode(&bytes)?, Bytes::new()));
        }
    }
}

/// Hands the ciphertext on, no more of it than was told.
async fn pass(
    reply: &mut Reply<'_>,
    first: Bytes,
    told: u64,
    to: mpsc::Sender<Bytes>,
) -> Result<(), SourceFault> {
    let mut piece = Some(first);
    let mut left = told;
    while let Some(bytes) = piece {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        left = left.checked_sub(length).ok_or(SourceFault::TooLarge { has: length, most: told })?;
        to.send(bytes).await.map_err(|_| SourceFault::Gone)?;
        piece = reply.piece(SILENCE).await?;
    }
    Ok(())
}

/// What arrives on another thread, as something to read.
struct Arriving {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.rest = piece,
            }
        }
        let length = self.rest.len().min(into.len());
        let taken = self.rest.split_to(length);
        for (to, from) in into.iter_mut().zip(&taken) {
            *to = *from;
        }
        Ok(length)
    }
}
