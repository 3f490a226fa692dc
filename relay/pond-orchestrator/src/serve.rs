//! What workers speak to: every call is passed on to the control plane as it came, and its answer back, both unread. A poll waits
//! here first, until there is a job its worker may have or its time is over; then it is passed on, once, because it passes once.
//!
//! Bodies are capped and every wait is bounded. What this says by itself, it says where it cannot ask the control plane.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use pond_wire::orch::{Id, Poll, Route, decode};
use serde_json::json;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::link::Link;
use crate::relay::Relay;

/// The header that carries a worker's signature.
const SIGNED: &str = "pond-request";
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Where the control plane is.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// In this process.
    Here(Router),
    There(Arc<Link>),
}

struct Between {
    upstream: Upstream,
    relay: Arc<Relay>,
}

/// All calls of workers.
pub fn router(upstream: Upstream, relay: Arc<Relay>) -> Router {
    let between = Arc::new(Between { upstream, relay });
    let calls = Route::ALL.into_iter().fold(Router::new(), |router, route| {
        let call = move |State(between): State<Arc<Between>>, request: Request| async move {
            between.serve(route, request).await.unwrap_or_else(Unserved::into_response)
        };
        router.route(route.path(), post(call))
    });
    calls.with_state(between)
}

/// What this process says by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unserved {
    BodyTooLarge,
    BodyLate,
    TooManyWaiting,
    Unreached,
}

impl Between {
    async fn serve(&self, route: Route, request: Request) -> Result<Response, Unserved> {
        let (parts, body) = request.into_parts();
        let body = timeout(BODY_TIME, to_bytes(body, route.most_bytes())).await;
        let body = body.map_err(|_| Unserved::BodyLate)?.map_err(|_| Unserved::BodyTooLarge)?;
        if route == Route::Poll {
            self.wait(&parts, &body).await?;
        }
        self.pass(&parts, body).await
    }

    /// Returns when it is worth asking the control plane: there may be a job, the time is over, or the control plane is the one
    /// to say what is wrong.
    async fn wait(&self, parts: &Parts, body: &[u8]) -> Result<(), Unserved> {
        let (Some(worker), Ok(poll)) = (worker(&parts.headers), decode::<Poll>(body)) else { return Ok(()) };
        let Some(applicant) = self.relay.applicant(&worker, poll.capabilities.as_slice()) else {
            return Ok(());
        };
        let wait = Duration::from_secs(poll.wait_seconds.into());
        self.relay.poll(applicant, wait).await.map(drop).map_err(|_| Unserved::TooManyWaiting)
    }

    /// As it came: path, signature and body, and nothing else of it.
    async fn pass(&self, parts: &Parts, body: Bytes) -> Result<Response, Unserved> {
        let mut request = http::Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = path_only(parts);
        for name in [SIGNED, CONTENT_TYPE.as_str()] {
            if let (Some(value), Ok(name)) = (parts.headers.get(name), http::HeaderName::try_from(name)) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        match &self.upstream {
            Upstream::Here(router) => {
                let answered = router.clone().oneshot(request.map(Body::from)).await;
                Ok(answered.unwrap_or_else(|never| match never {}))
            }
            Upstream::There(link) => {
                let response = link.send(request).await.map_err(|_| Unserved::Unreached)?;
                let (head, body) = response.into_parts();
                let mut passed = Response::new(body);
                *passed.status_mut() = head.status;
                for name in [CONTENT_TYPE, RETRY_AFTER] {
                    if let Some(value) = head.headers.get(&name) {
                        passed.headers_mut().insert(name, value.clone());
                    }
                }
                Ok(passed)
            }
        }
    }
}

/// What the signature covers, without the name under which this process was reached.
fn path_only(parts: &Parts) -> http::Uri {
    let path = parts.uri.path_and_query().cloned();
    path.map(http::Uri::from).unwrap_or_default()
}

/// Who says it asks: the second word of its signature.
fn worker(headers: &HeaderMap) -> Option<Id> {
    let word = headers.get(SIGNED)?.to_str().ok()?.split(' ').nth(1)?;
    Id::try_from(word.to_owned()).ok()
}

impl Unserved {
    /// Stable; the documents list it.
    const fn code(self) -> &'static str {
        match self {
            Self::BodyTooLarge => "body_too_large",
            Self::BodyLate => "body_late",
            Self::TooManyWaiting => "too_many_waiting",
            Self::Unreached => "control_unreached",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::TooManyWaiting => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreached => StatusCode::BAD_GATEWAY,
        }
    }

    fn into_response(self) -> Response {
        let (code, status) = (self.code(), self.status());
        let body = json!({
            "type": format!("urn:pond:problem:{code}"),
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "code": code,
            "detail": "the orchestrator could not pass this on",
        });
        (status, [(CONTENT_TYPE, PROBLEM)], body.to_string()).into_response()
    }
}
