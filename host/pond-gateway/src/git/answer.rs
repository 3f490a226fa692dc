//! What of a far side's answer a client gets: its status, its type and its bytes, without anything of the credential. Zone: host.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use pond_wire::gateway::Close;

use super::lent::Lent;
use crate::broker::{RUN, Scrubber};
use crate::client::Client;
use crate::http::{Refusal, Version, refuse};
use crate::relay::write_all;

/// The types of what a git server says: no other word of a far side's head is passed on.
pub(super) const KINDS: [&str; 4] = [
    "application/x-git-receive-pack-advertisement",
    "application/x-git-receive-pack-result",
    "application/x-git-upload-pack-advertisement",
    "application/x-git-upload-pack-result",
];
/// A far side may count objects for a while before it sends them.
const SILENCE: Duration = Duration::from_secs(600);

/// A failure of the far side's own: its status, in our words.
pub(super) async fn status(client: &mut Client, status: StatusCode, host: &str) -> Close {
    let refusal = Refusal::new(status.as_u16(), "git_status", format!("pond: {host} answered {status}"));
    match refuse(&mut client.stream, &refusal).await {
        Ok(()) => Close::Finished,
        Err(_) => Close::ClientReset,
    }
}

/// A success, as it comes. The connection ends with it.
pub(super) async fn pass_on(
    client: &mut Client,
    (kind, mut body): (&'static str, Incoming),
    lent: &Lent,
    version: Version,
) -> Close {
    let chunked = body.size_hint().exact().is_none() && version == Version::Http11;
    let framing = match body.size_hint().exact() {
        Some(length) => format!("Content-Length: {length}\r\n"),
        None if chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        None => String::new(),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nCache-Control: no-cache\r\nContent-Type: {kind}\r\n{framing}\r\n"
    );
    if !send(client, head.as_bytes()).await {
        return Close::ClientReset;
    }
    let mut scrubbers = lent.secrets.each_ref().map(|secret| Scrubber::new(secret, RUN));
    loop {
        let piece = match tokio::time::timeout(SILENCE, body.frame()).await {
            Err(_) | Ok(Some(Err(_))) => return Close::UpstreamReset,
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default().to_vec(),
            Ok(None) => break,
        };
        let clean = scrubbers.iter_mut().fold(piece, |piece, scrubber| scrubber.feed(&piece));
        if !send_piece(client, &clean, chunked).await {
            return Close::ClientReset;
        }
    }
    let rest = scrubbers.iter_mut().fold(Vec::new(), |kept, scrubber| {
        let clean = scrubber.feed(&kept);
        [clean, scrubber.finish()].concat()
    });
    let last: &[u8] = if chunked { b"0\r\n\r\n" } else { b"" };
    if send_piece(client, &rest, chunked).await && send(client, last).await {
        Close::Finished
    } else {
        Close::ClientReset
    }
}

async fn send_piece(client: &Client, piece: &[u8], chunked: bool) -> bool {
    if piece.is_empty() {
        return true;
    }
    if !chunked {
        return send(client, piece).await;
    }
    let size = format!("{:x}\r\n", piece.len());
    send(client, &[size.as_bytes(), piece, b"\r\n"].concat()).await
}

/// Whether the client took it.
async fn send(client: &Client, bytes: &[u8]) -> bool {
    matches!(tokio::time::timeout(SILENCE, write_all(&client.stream, bytes)).await, Ok(Ok(())))
}
