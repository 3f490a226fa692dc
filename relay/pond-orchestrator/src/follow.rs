//! Hearing from the control plane what waits: through a channel in one process, else as lines of a long answer that is asked for
//! again, from the beginning, whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use pond_wire::feed::{MOST_LINE, PATH, Told};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use crate::link::{Link, LinkFault};
use crate::relay::Relay;

/// The control plane says at least this often that it is there.
const SILENCE: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Why what was told came to an end.
#[derive(Debug, thiserror::Error)]
pub enum FeedFault {
    #[error("asking the control plane what waits")]
    Link(#[from] LinkFault),
    #[error("the control plane does not tell what waits: it answered {0}; a token it does not know is 401")]
    Refused(StatusCode),
    #[error("the control plane broke off")]
    Ended,
    #[error("the control plane fell silent")]
    Silent,
    #[error("the control plane told something else than lines")]
    Malformed,
}

/// Until whoever tells is gone.
pub async fn follow_here(relay: &Relay, mut from: mpsc::Receiver<Told>) {
    relay.start_over();
    while let Some(told) = from.recv().await {
        relay.hear(told);
    }
}

/// For as long as it is polled. Every end is reported, and followed by a new beginning.
pub async fn follow_there(
    relay: &Relay,
    link: &Arc<Link>,
    token: &Zeroizing<String>,
    report: impl Fn(&FeedFault),
) {
    let mut wait = FIRST_WAIT;
    loop {
        let mut heard = false;
        let Err(fault) = hear(relay, link, token, &mut heard).await;
        report(&fault);
        wait = if heard { FIRST_WAIT } else { (wait * 2).min(LONGEST_WAIT) };
        sleep(wait).await;
    }
}

enum Never {}

async fn hear(
    relay: &Relay,
    link: &Arc<Link>,
    token: &Zeroizing<String>,
    heard: &mut bool,
) -> Result<Never, FeedFault> {
    let bearer = Zeroizing::new(format!("Bearer {}", token.as_str()));
    let mut bearer =
        HeaderValue::from_str(&bearer).map_err(|_| FeedFault::Refused(StatusCode::UNAUTHORIZED))?;
    bearer.set_sensitive(true);
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static(PATH);
    request.headers_mut().insert(AUTHORIZATION, bearer);
    // It is answered at once; until it is, polls wait for jobs that nobody tells of.
    let response = timeout(SILENCE, link.send(request)).await.map_err(|_| FeedFault::Silent)??;
    if response.status() != StatusCode::OK {
        return Err(FeedFault::Refused(response.status()));
    }
    relay.start_over();
    let mut body: Body = response.into_body();
    let mut line = Vec::new();
    loop {
        let frame = timeout(SILENCE, body.frame()).await.map_err(|_| FeedFault::Silent)?;
        let frame = frame.and_then(Result::ok).ok_or(FeedFault::Ended)?;
        let Ok(bytes) = frame.into_data() else { continue };
        for byte in bytes {
            if byte != b'\n' {
                line.push(byte);
            } else {
                relay.hear(Told::parse(&line).ok_or(FeedFault::Malformed)?);
                *heard = true;
                line.clear();
            }
            if line.len() > MOST_LINE {
                return Err(FeedFault::Malformed);
            }
        }
    }
}
