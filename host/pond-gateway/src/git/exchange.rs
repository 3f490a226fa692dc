//! One request to a far side and its answer. Zone: host. Invariants: the credential is set last, over TLS whose certificate is the
//! host's; an answer that is no answer of git's is not passed on.

use std::time::Duration;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pond_policy::egress::{Denial, DenialCode};
use pond_wire::gateway::Close;

use super::answer;
use super::lent::Lent;
use super::route::Asked;
use super::upload::{self, UploadFault, Uploaded};
use crate::broker::{StrictHeads, is_encoded};
use crate::client::Client;
use crate::http::RequestHead;
use crate::relay::Counted;

const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Until the head of an answer, once the request has gone.
const ANSWER_TIME: Duration = Duration::from_secs(600);
const MOST_HEADERS: usize = 100;
const READ_BUFFER: usize = 64 << 10;
/// The client's fields that go along. None of them says who asks.
const FIELDS: [&str; 5] = ["accept", "content-encoding", "content-type", "git-protocol", "user-agent"];

/// How an exchange ended.
pub(super) enum Ended {
    /// The client has what there was of an answer.
    Passed(Close),
    /// The client has heard nothing yet.
    Refused(Denial, Close),
}

/// What one exchange is about.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'e> {
    pub(super) lent: &'e Lent,
    pub(super) asked: &'e Asked,
    pub(super) head: &'e RequestHead,
}

impl Exchange<'_> {
    pub(super) async fn speak(self, client: &mut Client, far: Counted<'_>) -> Ended {
        let Lent { tls, server, .. } = self.lent;
        let handshake = tokio::time::timeout(HANDSHAKE_TIME, tls.connect(server.clone(), far));
        let stream = match handshake.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(fault)) => {
                let hint = format!("its TLS or its certificate was not accepted: {fault}");
                return self.refused(DenialCode::DialFailed, &hint);
            }
            Err(_) => return self.refused(DenialCode::DialTimeout, "its TLS took too long"),
        };
        let (stream, head_due) = StrictHeads::new(stream);
        let mut http = http1::Builder::new();
        http.max_headers(MOST_HEADERS).max_buf_size(READ_BUFFER);
        let (mut sender, connection) = match http.handshake(TokioIo::new(stream)).await {
            Ok(made) => made,
            Err(fault) => return self.broken(&fault),
        };
        head_due.expect();
        // Its errors reach whoever waits for the answer; it only has to be kept going.
        let drive = async {
            drop(connection.await);
            std::future::pending().await
        };
        tokio::select! {
            ended = self.converse(client, &mut sender) => ended,
            never = drive => never,
        }
    }

    async fn converse(self, client: &mut Client, sender: &mut SendRequest<Uploaded>) -> Ended {
        let (upload, body) = upload::pair(self.asked.framing);
        let request = match self.request(body) {
            Ok(request) => request,
            Err(fault) => return self.refused(DenialCode::RequestMalformed, &fault.to_string()),
        };
        let sending = sender.send_request(request);
        tokio::pin!(sending);
        let early = tokio::select! {
            response = &mut sending => Some(response),
            pumped = upload.pump(&mut client.stream, &mut client.early) => match pumped {
                Ok(()) => None,
                Err(UploadFault::Closed) => return Ended::Passed(Close::ClientReset),
                Err(fault @ (UploadFault::Late | UploadFault::Chunks)) => {
                    return self.refused(DenialCode::RequestMalformed, &fault.to_string());
                }
            },
        };
        let response = match early {
            Some(response) => response,
            None => match client.unless_gone(tokio::time::timeout(ANSWER_TIME, sending)).await {
                None => return Ended::Passed(Close::ClientReset),
                Some(Err(_)) => return self.refused(DenialCode::DialTimeout, "it did not answer in time"),
                Some(Ok(response)) => response,
            },
        };
        match response {
            Ok(response) => self.pass_on(client, response).await,
            Err(fault) => self.broken(&fault),
        }
    }

    fn request(self, body: Uploaded) -> Result<Request<Uploaded>, http::Error> {
        let Self { lent, asked, head } = self;
        let mut request = Request::builder().method(asked.method.clone()).uri(&asked.target).body(body)?;
        let fields = request.headers_mut();
        for name in FIELDS {
            // One that is given twice is one that two readers take for different ones.
            if let Ok(Some(value)) = head.headers.one(name) {
                fields.insert(HeaderName::from_static(name), HeaderValue::from_bytes(value)?);
            }
        }
        fields.insert(HOST, HeaderValue::from_str(lent.host.as_str())?);
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        fields.insert(AUTHORIZATION, lent.header.clone());
        Ok(request)
    }

    async fn pass_on(self, client: &mut Client, response: Response<Incoming>) -> Ended {
        let status = response.status();
        if status.is_redirection() || status.is_informational() {
            let hint = "it answered with a redirect, and a credential follows none: name the address that it leads to";
            return self.refused(DenialCode::GitRedirect, hint);
        }
        if [401, 403, 407].contains(&status.as_u16()) {
            let hint = format!("it answered {status}: the credential is not good for this");
            return self.refused(DenialCode::GitCredentialRefused, &hint);
        }
        if !status.is_success() {
            return Ended::Passed(answer::status(client, status, self.lent.host.as_str()).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let known = answer::KINDS.into_iter().find(|known| known.as_bytes() == kind);
        let Some(kind) = known.filter(|_| !is_encoded(response.headers())) else {
            return self.refused(DenialCode::GitOnly, "it did not answer as a git server does");
        };
        Ended::Passed(
            answer::pass_on(client, (kind, response.into_body()), self.lent, self.head.version).await,
        )
    }

    fn broken(self, fault: &hyper::Error) -> Ended {
        self.refused(DenialCode::DialFailed, &format!("the connection broke: {fault}"))
    }

    fn refused(self, code: DenialCode, hint: &str) -> Ended {
        Ended::Refused(Denial::at_door(code, self.lent.host.as_str(), hint), Close::Refused)
    }
}
